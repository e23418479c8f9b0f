// A trace, step by step. The list is virtual: however long the trace, only the rows in view exist.

const ROW = 26; // pixels, as in trace.css
const NARROWEST = 4,
  WIDEST = 14,
  LEAST_LANE = 72; // pixels of a page and of a side in the list
const MOST_BOXES = 512; // of the large maps

// ---- the list ----

const list = byId("list"),
  spacer = byId("spacer");
let visible = []; // the steps that the filter lets through
let current = 0;
let from = 0; // the first page that is drawn
let width = WIDEST,
  fitting = columns; // of a page; how many pages are drawn
const rows = []; // the nodes in use, by their place in a ring

function layout() {
  const room = Math.max(
    120,
    Math.min(list.clientWidth * (sides.length > 1 ? 0.24 : 0.4), columns * WIDEST),
  );
  width = Math.max(NARROWEST, Math.min(WIDEST, Math.floor(room / columns)));
  fitting = Math.min(columns, Math.floor(room / width));
  document.body.style.setProperty("--lane", `${Math.max(LEAST_LANE, fitting * width)}px`);
  const slider = byId("from");
  slider.hidden = fitting === columns;
  slider.querySelector("input").max = columns - fitting;
  from = Math.min(from, columns - fitting);
  slider.querySelector("output").textContent = from;
  for (const ruler of document.querySelectorAll(".ruler")) drawRuler(ruler);
}

function drawRuler(canvas) {
  const g = sized(canvas, fitting * width, 12);
  const apart = [1, 2, 5, 10, 20, 50, 100].find((n) => n * width >= 22) || 200;
  g.fillStyle = paint.soft;
  g.font = "9px sans-serif";
  g.textAlign = "center";
  for (let page = from; page < from + fitting; page++)
    if (page % apart === 0) g.fillText(page, (page - from + 0.5) * width, 9);
}

function makeRow() {
  const canvases = sides.map(() => el("canvas"));
  const node = el(
    "div",
    { class: "row", role: "option" },
    el("span"),
    el("span"),
    el("span"),
    ...canvases,
  );
  node.addEventListener("click", () => select(Number(node.dataset.step)));
  return spacer.appendChild(node);
}

function fillRow(node, index) {
  const step = visible[index];
  node.hidden = false;
  node.id = `step-${step}`;
  node.dataset.step = step;
  node.style.transform = `translateY(${index * ROW}px)`;
  node.className = step === broken ? "row bad" : "row";
  node.setAttribute("aria-selected", step === current);
  const [number, command, came] = node.children;
  number.textContent = step;
  command.textContent = step ? data.commands[step] : "before the first command";
  command.className = step ? "" : "quiet";
  command.title = data.commands[step];
  const parted = step in data.actual;
  came.textContent = parted ? `${outcome(step)} (due ${data.expected[step]})` : outcome(step);
  came.title = came.textContent;
  came.className = outcome(step) === "ok" ? "quiet" : "";
  sides.forEach((side, i) => {
    const g = sized(node.children[3 + i], fitting * width, ROW);
    const frame = side.at(step);
    for (let page = from; page < from + fitting; page++)
      drawPage(
        g,
        (page - from) * width,
        3,
        width - 1,
        ROW - 6,
        frame,
        page,
        step === broken && differing.has(page),
      );
  });
}

function renderList() {
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const count = Math.min(visible.length - first, Math.ceil(list.clientHeight / ROW) + 8);
  while (rows.length < count) rows.push(makeRow());
  // A step keeps its node while it is in view, so that scrolling by one draws one.
  const wanted = new Set();
  for (let i = first; i < first + count; i++) wanted.add(visible[i]);
  const spare = rows.filter((node) => node.hidden || !wanted.has(Number(node.dataset.step)));
  const drawn = new Set(
    rows.filter((node) => !spare.includes(node)).map((node) => Number(node.dataset.step)),
  );
  for (let i = first; i < first + count; i++) if (!drawn.has(visible[i])) fillRow(spare.pop(), i);
  for (const node of spare) node.hidden = true;
}

/** Draws every row anew: the theme, the filter or the width is another. */
function renderAll() {
  palette();
  layout();
  for (const node of rows) node.hidden = true;
  spacer.style.height = `${visible.length * ROW}px`;
  renderList();
  renderStep();
}

function select(step) {
  const before = byId(`step-${current}`);
  if (before) before.setAttribute("aria-selected", "false");
  current = step;
  const top = visible.indexOf(step) * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW > list.scrollTop + list.clientHeight)
    list.scrollTop = top + ROW - list.clientHeight;
  renderList();
  const node = byId(`step-${step}`);
  node.setAttribute("aria-selected", "true");
  list.setAttribute("aria-activedescendant", node.id);
  renderStep();
}

/** Goes so many of the visible steps on, or back. */
function go(by) {
  const at = visible.indexOf(current);
  select(visible[Math.max(0, Math.min(visible.length - 1, at + by))]);
}

function filterBy(owner) {
  filter = owner;
  byId("filter").value = owner === null ? "" : String(owner);
  visible = [];
  for (let step = 0; step < steps; step++)
    if (owner === null || data.touched[step].includes(owner)) visible.push(step);
  if (!visible.length) visible = [0];
  const next = visible.findIndex((step) => step >= current);
  current = visible[next < 0 ? visible.length - 1 : next];
  renderAll();
  select(current);
}

// ---- the step ----

function renderStep() {
  byId("step").textContent = `Step ${current} of ${steps - 1}`;
  byId("back").disabled = byId("first").disabled = current === visible[0];
  byId("on").disabled = byId("last").disabled = current === visible[visible.length - 1];
  const due = data.expected[current],
    came = outcome(current);
  const lines = el("dl");
  if (current && came === due) lines.append(el("dt", {}, "outcome"), el("dd", {}, due));
  if (current && came !== due) {
    lines.append(el("dt", {}, "reference"), el("dd", {}, ...marked(due, came)));
    lines.append(el("dt", {}, "subject"), el("dd", {}, ...marked(came, due)));
  }
  byId("told").replaceChildren(
    el("code", {}, data.commands[current] || "before the first command"),
    lines,
  );
  renderDifferences();
  byId("maps").replaceChildren(...sides.map(map));
  renderFacts();
}

function renderDifferences() {
  const here = data.difference && current === data.difference.step ? data.difference.lines : [];
  const items = here.map(([where, due, came]) =>
    el(
      "li",
      {},
      el("b", {}, where),
      ": reference ",
      el("code", {}, due),
      ", subject ",
      el("code", {}, came),
    ),
  );
  const title = items.length > 1 ? "Differences, the first one first" : "First difference";
  byId("differences").replaceChildren(
    ...(items.length ? [el("div", {}, el("h3", {}, title), el("ul", {}, ...items))] : []),
  );
}

function map(side) {
  // Pools that were resized have fewer pages now than once.
  const last = Math.max(...sides.map((each) => each.at(current).places.findLastIndex(Boolean)));
  const start = from < last ? from : 0,
    shown = Math.min(last + 1 - start, MOST_BOXES);
  const box = shown <= 40 ? 34 : shown <= 120 ? 24 : 14;
  const across = Math.max(1, Math.floor((sides.length > 1 ? 176 : 364) / box));
  const canvas = el("canvas", { role: "img" });
  const g = sized(canvas, across * box, Math.ceil(shown / across) * box);
  const frame = side.at(current);
  const pages = Array.from({ length: shown }, (_, i) => start + i);
  pages.forEach((page, i) =>
    drawPage(
      g,
      (i % across) * box,
      Math.floor(i / across) * box,
      box - 3,
      box - 3,
      frame,
      page,
      current === broken && differing.has(page),
    ),
  );
  canvas.setAttribute(
    "aria-label",
    `${side.name}. ${pages
      .slice(0, 128)
      .map((page) => described(frame, page))
      .join("; ")}`,
  );
  const hit = (event) =>
    start + Math.floor(event.offsetY / box) * across + Math.floor(event.offsetX / box);
  canvas.addEventListener(
    "mousemove",
    (event) => (canvas.title = hit(event) <= last ? described(frame, hit(event)) : ""),
  );
  canvas.addEventListener("click", (event) => {
    const owner = hit(event) <= last ? frame.owner[hit(event)] : -1;
    filterBy(owner < 0 || owner === filter ? null : owner);
  });
  return el("div", {}, el("h3", {}, side.name), canvas);
}

/** A text with its first word marked that isn't the other's. */
function marked(text, other) {
  const words = (whole) => whole.split(/(\w+|\W)/).filter(Boolean);
  const mine = words(text),
    theirs = words(other);
  const at = mine.findIndex((word, i) => word !== theirs[i]);
  if (at < 0) return [text];
  return [mine.slice(0, at).join(""), el("mark", {}, mine[at]), mine.slice(at + 1).join("")];
}

function renderFacts() {
  const [reference, subject] = sides;
  const keys = new Set(sides.flatMap((side) => Object.keys(side.facts)));
  const head = el("tr", {}, el("th", {}, "shows"), ...sides.map((side) => el("th", {}, side.name)));
  const first = [],
    lines = []; // what differs stands first
  for (const key of keys) {
    const due = reference.fact(key, current);
    const came = subject && subject.fact(key, current);
    if (due === undefined && came === undefined) continue;
    const cells = [el("td", {}, key)];
    const differs = current === broken && due !== undefined && came !== undefined && due !== came;
    if (differs) cells.push(el("td", {}, ...marked(due, came)), el("td", {}, ...marked(came, due)));
    else if (subject && due === came) cells.push(el("td", { colspan: "2" }, due));
    else
      for (const text of subject ? [due, came] : [due])
        cells.push(
          text === undefined ? el("td", { class: "quiet" }, "not shown") : el("td", {}, text),
        );
    const line = el("tr", differs ? { class: "bad" } : {}, ...cells);
    if (differs) first.push(line);
    else lines.push(line);
  }
  byId("facts").replaceChildren(head, ...first, ...lines);
}

// ---- what doesn't change ----

function renderHead() {
  byId("title").textContent = `${data.system} · ${data.subject}`;
  byId("chips").replaceChildren(
    ...chips([
      ["level", data.level],
      ...Object.entries(data.config),
      ...Object.entries(data.versions),
    ]),
  );
  const verdict = byId("verdict"),
    found = data.violation;
  if (found) {
    verdict.classList.add("bad");
    const button = el("button", { type: "button", id: "jump" }, `Go to step ${found.step}`);
    button.addEventListener("click", () =>
      filter === null ? select(found.step) : (filterBy(null), select(found.step)),
    );
    verdict.append(
      el("h2", {}, el("b", {}, found.number), ` ${found.title} `, button),
      el("p", { class: "soft" }, found.statement),
      el("code", {}, found.message),
    );
  } else {
    const past = data.recorded ? ` It was recorded for ${data.recorded}.` : "";
    const whole = sides.length > 1;
    verdict.classList.toggle("unsure", !whole);
    verdict.append(
      el("h2", {}, whole ? "No invariant is broken" : "The reference alone"),
      el("p", { class: "soft" }, `${steps - 1} commands.${past}`),
    );
  }
  if (data.note) verdict.append(el("p", {}, data.note));
  for (const [number, label] of data.owners.entries())
    byId("filter").append(el("option", { value: number }, label));
  document.body.classList.toggle("alone", sides.length < 2);
  list.setAttribute("aria-label", `Commands, each with the ${data.unit}s after it`);
}

function renderLegend() {
  const sample = {
    places: Uint8Array.of(0, FREE, STAGED, PARKED, OWNED, FREE | OWNED, 32, OWNED),
    owner: Int32Array.of(-1, -1, -1, -1, 0, 1, -1, -1),
    used: Uint16Array.of(0, 0, 0, 0, data.page_size, data.page_size, 0, 0),
  };
  const half = {
    places: Uint8Array.of(0, OWNED),
    owner: Int32Array.of(-1, 0),
    used: Uint16Array.of(0, Math.ceil(data.page_size / 2)),
  };
  const entries = [
    ["reserved", sample, 0],
    ["free", sample, 1],
    ["staged", sample, 2],
    ["parked", sample, 3],
    ["owned, a colour each", sample, 4],
    ["owner unknown", sample, 7],
    ["two places", sample, 5],
    ["nowhere", sample, 6],
    ["differs", sample, 1],
  ];
  if (data.page_size > 1) entries.splice(5, 0, ["half filled", half, 1]);
  byId("legend").replaceChildren(
    ...entries.map(([words, frame, page]) => {
      const canvas = el("canvas");
      drawPage(sized(canvas, 14, 14), 0, 0, 14, 14, frame, page, words === "differs");
      return el("span", {}, canvas, words);
    }),
  );
}

function keys(event) {
  if (event.target.matches("select, input") || event.ctrlKey || event.metaKey || event.altKey)
    return;
  const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
  const moves = {
    ArrowDown: 1,
    ArrowRight: 1,
    ArrowUp: -1,
    ArrowLeft: -1,
    PageDown: page,
    PageUp: -page,
    Home: -steps,
    End: steps,
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  go(moves[event.key]);
}

renderHead();
current = Math.max(0, broken);
visible = data.commands.map((_, step) => step);
themed(() => {
  renderAll();
  renderLegend();
});
select(current);
for (const [id, by] of [
  ["first", -steps],
  ["back", -1],
  ["on", 1],
  ["last", steps],
])
  byId(id).addEventListener("click", () => go(by));
byId("filter").addEventListener("change", (event) =>
  filterBy(event.target.value === "" ? null : Number(event.target.value)),
);
byId("from")
  .querySelector("input")
  .addEventListener("input", (event) => {
    from = Number(event.target.value);
    renderAll();
  });
list.addEventListener("scroll", () => requestAnimationFrame(renderList), { passive: true });
document.addEventListener("keydown", keys);
new ResizeObserver(() => requestAnimationFrame(renderAll)).observe(list);
