"use strict";

const byId = (id) => document.getElementById(id);

/** An element. Whatever comes from the data goes in as text: nothing is parsed as markup. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A colour token as canvas and SVG take it: what it comes to in the theme of now. */
const probe = document.body.appendChild(el("span", { hidden: "" }));
function colour(token) {
  probe.style.color = `var(--${token})`;
  return getComputedStyle(probe).color;
}

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : darkSystem.matches;
}

/** The switch between light and dark; until it is used the system decides. */
function themed(redraw) {
  const button = byId("theme");
  const update = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    redraw();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    update();
  });
  darkSystem.addEventListener("change", update);
  update();
}

/** Names and values, such as a config. */
function chips(pairs) {
  return pairs.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, String(value))));
}

const data = JSON.parse(byId("data").textContent);
