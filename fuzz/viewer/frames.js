// The frames of a trace, and how a page is drawn.

const FREE = 1,
  STAGED = 2,
  PARKED = 4,
  OWNED = 8,
  TWICE = 16; // bits of a page's places
const EVERY = 64; // a frame that is kept whole, so that any other is at most so many changes away

// ---- frames ----

class Side {
  /** One side's pages after each command; `beside` is the side that a 0 in the changes refers to. */
  constructor(told, beside, columns) {
    this.name = told.name;
    this.facts = told.facts;
    this.changes = told.changes.map((change, step) =>
      change === 0 ? beside.changes[step] : change,
    );
    this.whole = [];
    const frame = {
      places: new Uint8Array(columns),
      owner: new Int32Array(columns).fill(-1),
      used: new Uint16Array(columns),
    };
    this.changes.forEach((change, step) => {
      apply(frame, change);
      if (step % EVERY === 0) this.whole.push(copied(frame));
    });
  }

  at(step) {
    const start = Math.floor(step / EVERY);
    const frame = copied(this.whole[start]);
    for (let each = start * EVERY + 1; each <= step; each++) apply(frame, this.changes[each]);
    return frame;
  }

  /** What the side showed under this name after the step; undefined where it shows no such thing. */
  fact(key, step) {
    const changes = this.facts[key] || [];
    let low = 0,
      high = changes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (changes[middle][0] <= step) low = middle + 1;
      else high = middle;
    }
    return low && changes[low - 1][1] !== null ? changes[low - 1][1] : undefined;
  }
}

function apply(frame, change) {
  for (let i = 0; i < change.length; i += 4) {
    const page = change[i];
    frame.places[page] = change[i + 1];
    frame.owner[page] = change[i + 2];
    frame.used[page] = change[i + 3];
  }
}

const copied = (frame) => ({
  places: frame.places.slice(),
  owner: frame.owner.slice(),
  used: frame.used.slice(),
});

const steps = data.commands.length;
const columns =
  1 +
  data.sides.reduce(
    (most, side) =>
      side.changes.reduce((found, change) => {
        for (let i = 0; change && i < change.length; i += 4) found = Math.max(found, change[i]);
        return found;
      }, most),
    0,
  );
const sides = [];
for (const told of data.sides) sides.push(new Side(told, sides[0], columns));
const broken = data.violation ? data.violation.step : -1;
const differing = new Set(data.difference ? data.difference.pages : []);
const outcome = (step) => (step in data.actual ? data.actual[step] : data.expected[step]);

/** A page in words. */
function described(frame, page) {
  const places = frame.places[page],
    owner = frame.owner[page];
  if (page === 0 && !places) return `${data.unit} 0: reserved`;
  if (!places) return `${data.unit} ${page}: not there`;
  const names = [
    [FREE, "free"],
    [STAGED, "staged"],
    [PARKED, "parked"],
    [OWNED, "owned"],
  ];
  const found = names.filter(([bit]) => places & bit).map(([, name]) => name);
  if (places & TWICE) found.push("listed twice");
  if (owner >= 0) found.push(`request ${data.owners[owner]}`);
  if (owner >= 0 && data.page_size > 1)
    found.push(`${frame.used[page]} of ${data.page_size} slots`);
  return `${data.unit} ${page}: ${found.join(", ") || "nowhere"}`;
}

// ---- drawing ----

let paint = {}; // the colours of the theme
let filter = null; // the number of the owner that alone is shown in full

function palette() {
  paint = {};
  for (const name of [
    "free",
    "free-line",
    "staged",
    "parked",
    "reserved",
    "nobody",
    "bad",
    "ink",
    "soft",
    "surface",
  ])
    paint[name] = colour(name);
  paint.dark = isDark();
}

/** Hues a golden angle apart: requests that follow each other never look alike. */
function hue(owner, pale) {
  if (owner < 0) return paint.nobody;
  const angle = (owner * 137.508 + 250) % 360;
  const [light, chroma] = paint.dark
    ? pale
      ? [0.36, 0.05]
      : [0.72, 0.13]
    : pale
      ? [0.9, 0.04]
      : [0.66, 0.14];
  return `oklch(${light} ${chroma} ${angle})`;
}

function hatched(g, x, y, w, h, ink, gap) {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.beginPath();
  for (let at = -h; at < w; at += gap) (g.moveTo(x + at, y + h), g.lineTo(x + at + h, y));
  g.lineWidth = 1.6;
  g.strokeStyle = ink;
  g.stroke();
  g.restore();
}

function dotted(g, x, y, w, h, ink) {
  g.fillStyle = ink;
  const size = w > 20 ? 4 : 2,
    gap = w > 20 ? 8 : 5;
  for (let at = y + 2; at + size <= y + h; at += gap)
    for (let across = x + 1; across + size <= x + w; across += gap)
      g.fillRect(across, at, size, size);
}

/** A page as a box: colour is who owns it, height of the fill how many of its slots are used. */
function drawPage(g, x, y, w, h, frame, page, ring) {
  const places = frame.places[page],
    owner = frame.owner[page];
  const faded = filter !== null && owner !== filter;
  const large = w >= 24;
  g.globalAlpha = faded ? 0.25 : 1;
  if (page === 0 && !places) {
    hatched(g, x, y, w, h, paint.reserved, 4);
  } else if (places) {
    const held = places & OWNED || owner >= 0;
    g.fillStyle = held ? hue(owner, true) : paint.free;
    g.fillRect(x, y, w, h);
    if (held) {
      const fill = owner < 0 ? h : Math.max(2, Math.round((h * frame.used[page]) / data.page_size));
      g.fillStyle = hue(owner, false);
      g.fillRect(x, y + h - fill, w, fill);
    } else {
      g.strokeStyle = paint["free-line"];
      g.lineWidth = 1;
      g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    }
    if (places & STAGED) hatched(g, x, y, w, h, paint.staged, large ? 7 : 5);
    if (places & PARKED) dotted(g, x, y, w, h, paint.parked);
  }
  const spots = [FREE, STAGED, PARKED, OWNED].filter((bit) => places & bit).length;
  const wrong = places && (spots !== 1 || places & TWICE);
  if (large) labelled(g, x, y, w, h, frame, page, wrong && !spots ? "?" : wrong ? "!" : "");
  g.globalAlpha = 1;
  if (ring || wrong) {
    g.strokeStyle = wrong ? paint.bad : paint.ink;
    g.lineWidth = large ? 3 : 2;
    g.strokeRect(x + 1, y + 1, w - 2, h - 2);
  }
}

function labelled(g, x, y, w, h, frame, page, sign) {
  const owner = frame.owner[page];
  // The ground behind a word may be of two colours: a rim of the surface's makes it readable.
  const word = (text, font, ink, across, down) => {
    g.font = font;
    g.lineWidth = 3;
    g.lineJoin = "round";
    g.strokeStyle = paint.surface;
    g.fillStyle = ink;
    if (owner >= 0 || sign) g.strokeText(text, across, down);
    g.fillText(text, across, down);
  };
  g.textAlign = "left";
  word(page, "9px sans-serif", paint.soft, x + 3, y + 10);
  g.textAlign = "center";
  const label = sign || (owner >= 0 ? data.owners[owner] : "");
  if (label.length < 5)
    word(label, "600 12px sans-serif", sign ? paint.bad : paint.ink, x + w / 2, y + h / 2 + 9);
}

/** A canvas of this size in CSS pixels, sharp on every screen. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  return g;
}
