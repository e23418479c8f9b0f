// Line charts as SVG: axes that begin at 0, a line for each series, the values under the pointer.

const HEIGHT = 190;
const MARGIN = { left: 44, right: 8, top: 8, bottom: 22 };
const SERIES = 6; // colours in report.css

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Round steps for an axis that ends at or above `most`. */
function ticks(most, count) {
  const rough = Math.max(most, 1e-9) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let at = 0; at < most + step; at += step) found.push(at);
  return found;
}

/** Seconds as a person says them. */
function spell(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 360) / 10} h`;
}

/** Ticks of a time axis: in the unit that the whole is told in. */
function timeTicks(most, count) {
  const unit = most < 120 ? 1 : most < 7200 ? 60 : 3600;
  return ticks(most / unit, count)
    .map((tick) => tick * unit)
    .filter((tick) => tick <= most);
}

/** A chart of series {name, points: [[seconds, value], …]}; `breaks` are seconds of new runs. */
function chart(title, series, breaks) {
  const keys = el("div", { class: "keys" });
  const frame = el("div");
  const card = el("div", { class: "card chart" }, el("h2", {}, title), keys, frame);
  const ends = series.map(({ points }) => points[points.length - 1]);
  const mostX = Math.max(...ends.map((end) => end[0]));
  const values = ticks(Math.max(...series.flatMap((each) => each.points.map((p) => p[1]))), 4);
  const mostY = values[values.length - 1];

  function tell(at) {
    keys.replaceChildren(
      ...series.map(({ name, points }, i) => {
        const point = at === null ? points[points.length - 1] : nearest(points, at);
        const swatch = el("i");
        swatch.style.background = `var(--series-${i % SERIES})`;
        return el("span", {}, swatch, name ? `${name} ` : "", el("b", {}, whole.format(point[1])));
      }),
      el("span", {}, at === null ? "" : `at ${spell(at)}`),
    );
  }

  function draw() {
    const width = frame.clientWidth;
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    const x = (value) => MARGIN.left + (value / mostX) * (right - MARGIN.left);
    const y = (value) => bottom - (value / mostY) * (bottom - MARGIN.top);
    const label = `${title}: ${series.map((each, i) => `${each.name} ${ends[i][1]}`).join(", ")}`;
    const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": label });
    for (const value of values) {
      picture.append(
        svg("line", { x1: MARGIN.left, x2: right, y1: y(value), y2: y(value), class: "grid" }),
        svg(
          "text",
          { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" },
          short.format(value),
        ),
      );
    }
    for (const at of timeTicks(mostX, Math.max(2, Math.floor(width / 90))))
      picture.append(
        svg("text", { x: x(at), y: HEIGHT - 6, "text-anchor": at ? "middle" : "start" }, spell(at)),
      );
    for (const at of breaks)
      picture.append(
        svg("line", { x1: x(at), x2: x(at), y1: MARGIN.top, y2: bottom, class: "run" }),
      );
    series.forEach(({ points }, i) => {
      const path = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
      const line = svg("polyline", { points: path.join(" "), class: "line" });
      line.style.stroke = `var(--series-${i % SERIES})`;
      picture.append(line);
    });
    const cursor = svg("line", { y1: MARGIN.top, y2: bottom, class: "cursor" });
    picture.append(cursor);
    picture.addEventListener("pointermove", (event) => {
      const share = (event.offsetX - MARGIN.left) / (right - MARGIN.left);
      const at = Math.max(0, Math.min(1, share)) * mostX;
      cursor.setAttribute("x1", x(at));
      cursor.setAttribute("x2", x(at));
      cursor.classList.add("on");
      tell(at);
    });
    picture.addEventListener("pointerleave", () => {
      cursor.classList.remove("on");
      tell(null);
    });
    frame.replaceChildren(picture);
  }

  tell(null);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(frame);
  return card;
}

function nearest(points, at) {
  return points.reduce((best, point) =>
    Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best,
  );
}
