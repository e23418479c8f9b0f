// The state of a campaign. Every part is left out of which nothing is known.

const log = data.log;

/** A table; a cell is a text, or nodes. */
function table(headings, lines, figures = []) {
  const at = (i) => (figures.includes(i) ? { class: "figure" } : {});
  const head = el("tr", {}, ...headings.map((text, i) => el("th", at(i), text)));
  const body = lines.map((line) =>
    el("tr", {}, ...line.map((cell, i) => el("td", at(i), ...[cell].flat()))),
  );
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
}

function section(title, ...children) {
  const made = el("section", { class: "card section" }, el("h2", {}, title), ...children);
  byId("sections").append(made);
}

function renderHead() {
  byId("title").textContent = `Campaign ${data.name}`;
  const last = log.last_time
    ? [["last heard", new Date(log.last_time * 1000).toLocaleString("en-GB")]]
    : [];
  byId("chips").replaceChildren(...chips([...data.versions, ...last]));
  const verdict = byId("verdict");
  const [word, ...rest] = log.verdict.split(": ");
  const kinds = { clean: "good", RED: "bad", FINDINGS: "bad" };
  verdict.classList.add(kinds[word] || "unsure");
  const before =
    word === "clean" && data.findings.length ? "; findings of earlier runs are listed below" : "";
  if (log.verdict)
    verdict.append(
      el("h2", {}, el("b", {}, word)),
      el("p", { class: "soft" }, rest.join(": ") + before),
    );
  else
    verdict.append(
      el("h2", {}, "No verdict"),
      el(
        "p",
        { class: "soft" },
        log.points.length ? "It is running, or it was ended." : "Nothing is logged.",
      ),
    );
}

function renderTiles() {
  const last = log.points[log.points.length - 1];
  const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);
  const minimised = data.findings.filter((finding) => finding.minimised).length;
  const tiles = [
    ["steps", whole.format(log.steps)],
    ["of running", spell(log.seconds)],
    ["steps per second", log.seconds ? whole.format(log.steps / log.seconds) : "–"],
    ["features", last ? whole.format(sum(last.features)) : "–"],
    ["traces in the corpus", whole.format(sum(data.corpus))],
    ["kinds of findings", whole.format(minimised)],
  ];
  byId("tiles").append(
    ...tiles.map(([name, value]) =>
      el("div", { class: "card tile" }, el("b", {}, value), el("span", {}, name)),
    ),
  );
}

function renderCharts() {
  if (!log.points.length) return;
  const names = [
    ...new Set(
      log.points.flatMap((point) => [
        ...Object.keys(point.features),
        ...Object.keys(point.entries),
      ]),
    ),
  ].sort();
  const bySystem = (key) =>
    names
      .map((name) => ({
        name,
        points: log.points
          .filter((point) => name in point[key])
          .map((point) => [point.at, point[key][name]]),
      }))
      .filter((each) => each.points.length);
  const rate = [{ name: "", points: log.points.map((point) => [point.at, point.rate]) }];
  for (const [title, series] of [
    ["Features", bySystem("features")],
    ["Steps per second", rate],
    ["Traces in the corpus", bySystem("entries")],
  ])
    if (series.length) byId("charts").append(chart(title, series, log.breaks));
  if (log.breaks.length)
    byId("charts").after(
      el("p", { class: "soft" }, "Dashed: another run begins, and reads its corpus again."),
    );
}

function renderFindings() {
  if (!data.findings.length) return section("Findings", el("p", { class: "soft" }, "None."));
  const lines = data.findings.map((finding) => {
    const rest = finding.count - finding.commands.length;
    const commands = el(
      "ol",
      {},
      ...finding.commands.map((text) => el("li", {}, el("code", {}, text))),
    );
    return [
      [el("b", { class: "number" }, finding.invariant), ` ${finding.title}`],
      [
        finding.subject,
        el("br"),
        el("span", { class: "soft" }, `${finding.system}: ${finding.config}`),
      ],
      rest > 0
        ? [commands, el("span", { class: "soft" }, `and ${whole.format(rest)} more`)]
        : commands,
      [
        finding.link
          ? el("a", { href: finding.link }, "Look at it")
          : el("span", { class: "soft" }, finding.file),
        finding.minimised ? "" : el("div", { class: "soft" }, "as found"),
      ],
    ];
  });
  section("Findings", table(["invariant", "subject", "commands", "trace"], lines));
}

function renderLanes() {
  if (!log.lanes.length) return;
  const lines = log.lanes.map((lane) => [
    lane.name,
    whole.format(lane.steps),
    spell(lane.seconds),
    lane.seconds ? whole.format(lane.steps / lane.seconds) : "–",
    whole.format(lane.new),
  ]);
  section(
    "Lanes",
    table(["lane", "steps", "time", "steps/s", "new features"], lines, [1, 2, 3, 4]),
  );
}

function renderMarks() {
  if (!data.marks.length) return;
  section(
    "Marks that the corpus reaches",
    el(
      "p",
      { class: "soft" },
      "Each command with each outcome in each situation that can be; counted on the reference.",
    ),
    ...data.marks.map((marks) => {
      const missing = marks.required - marks.reached;
      const bar = el("span", { class: missing ? "bar short" : "bar" }, el("i"));
      bar.firstChild.style.width = `${(100 * marks.reached) / Math.max(1, marks.required)}%`;
      const words = `${whole.format(marks.reached)} of ${whole.format(marks.required)} reached by ${whole.format(marks.traces)} traces`;
      const summary = el(
        "summary",
        {},
        el("b", {}, marks.system),
        words,
        missing ? `, ${whole.format(missing)} missing` : "",
        bar,
      );
      const details = el("details", {}, summary);
      // A system has a thousand cells: they are made when somebody wants to see them.
      details.addEventListener("toggle", () => details.append(marksTable(marks)), { once: true });
      return details;
    }),
  );
}

/** The rows where something is missing come first. */
function marksTable(marks) {
  const lacks = (row) => row.slice(2).filter((count) => count === 0).length;
  const rows = [...marks.rows].sort((a, b) => lacks(b) - lacks(a));
  const head = ["command", "outcome", ...marks.situations].map((text, i) =>
    el("th", i > 1 ? { class: "figure" } : {}, text),
  );
  const body = rows.map(([command, outcome, ...counts]) =>
    el(
      "tr",
      {},
      el("td", {}, command),
      el("td", {}, outcome),
      ...counts.map((count) => {
        const kind = count < 0 ? "never" : count === 0 ? "missing" : "";
        const text = count < 0 ? "–" : count === 0 ? "missing" : short.format(count);
        return el(
          "td",
          { class: `figure ${kind}`, title: count < 0 ? "can't be" : String(count) },
          text,
        );
      }),
    ),
  );
  return el(
    "table",
    { class: "marks" },
    el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...body),
  );
}

function renderMutants() {
  if (!data.mutants) return;
  const { ways, rows } = data.mutants;
  const lines = rows.map((row) => [
    [
      el("code", {}, row.bug),
      row.upstream ? el("div", { class: "soft" }, row.upstream) : null,
    ].filter(Boolean),
    row.invariant,
    ...ways.map((way) => {
      if (!(way in row.found)) return "–";
      const found = row.found[way];
      if (!found) return el("span", { class: "missed" }, "missed");
      return `${found.invariant} in ${found.seconds.toFixed(1)} s, ${whole.format(found.commands)} commands`;
    }),
  ]);
  const missed = rows.filter((row) => Object.values(row.found).some((found) => !found)).length;
  section(
    "Planted bugs",
    el(
      "p",
      { class: "soft" },
      `${rows.length} bugs; ${missed ? `${missed} missed in some way` : "each found in every way"}.`,
    ),
    table(["bug", "invariant", ...ways], lines),
  );
}

function renderNotes() {
  const lines = [...data.notes.map((line) => [line, 1]), ...log.troubles];
  if (!lines.length) return;
  const items = lines.map(([line, count]) =>
    el("li", {}, count > 1 ? `${line} (${whole.format(count)} times)` : line),
  );
  section("Notes", el("ul", { class: "plain" }, ...items));
}

renderHead();
renderTiles();
renderCharts();
renderFindings();
renderLanes();
renderMarks();
renderMutants();
renderNotes();
themed(() => {}); // colours are tokens: the style sheet does it all
