// The runs that were found, and curves that fill in while one is running.

import { el, get, number, percent, say, url, writeAddress } from "./parts.js";

const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `var(--line-${i})`);
const NAMES = { accuracy: ["Accuracy", "accuracies"], map: ["Mean average precision", "mAP of COCO"] };
const EVERY_MS = 4000;

export async function show(main, state) {
  const list = el("div", { class: "wide" });
  const curves = el("section", { "aria-label": "Curves" });
  main.append(el("h2", {}, "Runs"), list, curves);
  let chosen = state.run || null;
  let known = [];
  let timer = null;
  let stopped = false;

  async function refresh() {
    const { runs, models } = await get("runs");
    if (stopped) return;
    known = runs;
    chosen = runs.some((run) => run.key === chosen) ? chosen : runs.find((run) => !run.error)?.key;
    list.replaceChildren(runs.length ? table(runs, chosen, pick) : nothing(models));
    if (chosen) await draw(curves, chosen, () => stopped);
    if (!stopped) timer = setTimeout(() => refresh().catch((error) => say(error.message, true)), EVERY_MS);
  }

  function pick(key) {
    chosen = key;
    writeAddress("runs", { run: key });
    list.replaceChildren(table(known, chosen, pick));
    list.querySelector("[aria-pressed=true]")?.focus();
    draw(curves, key, () => stopped).catch((error) => say(error.message, true));
  }

  await refresh();
  return () => { stopped = true; clearTimeout(timer); };
}

function nothing(models) {
  return el("p", {}, models.length ? "No run was found here. " : "No run was found here. Make one: sorites run demo. ",
    models.length ? el("a", { href: "#/turn" }, `Turn a shift with ${models.join(", ")}`) : null);
}

function table(runs, chosen, pick) {
  const rows = runs.map((run) => el("tr", {},
    el("td", {}, el("button", { onclick: () => pick(run.key), disabled: Boolean(run.error), "aria-pressed": String(run.key === chosen) },
      run.folder.split(/[\\/]/).pop()), el("div", { class: "soft path" }, run.suite ? `${run.suite} · ${run.folder}` : run.folder)),
    el("td", { "data-name": "models" }, run.error ? el("span", { class: "bad" }, run.error) : run.models.join(", ")),
    el("td", { "data-name": "shifts" }, (run.shifts || []).length > 6 ? `${run.shifts.length} shifts` : (run.shifts || []).join(", ")),
    el("td", { class: "number", "data-name": "rows" }, number(run.rows)),
    el("td", { "data-name": "open" }, run.error ? null : el("a", { href: `#/explore?run=${run.key}` }, "explore"), " ",
      run.error ? null : el("a", { href: `#/turn?run=${run.key}` }, "turn"), " ",
      run.pages.map((name) => [el("a", { href: url("page", { run: run.key, name }), target: "_blank" }, name), " "]))));
  return el("table", { class: "runs" }, el("thead", {}, el("tr", {},
    ["run", "models", "shifts", "rows", "open"].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows));
}

async function draw(section, key, stopped) {
  const { metric, curves, unfinished } = await get("curves", { run: key });
  if (stopped()) return;
  const models = [...new Set(curves.map((point) => point.model))];
  const shifts = [...new Set(curves.map((point) => point.shift))].filter((name) => name !== "clean");
  const legend = el("p", {}, models.map((model, i) =>
    [el("span", { style: `color:${COLOURS[i % COLOURS.length]}`, "aria-hidden": "true" }, "● "), `${model}  `]));
  section.replaceChildren(
    el("h2", { class: "apart" }, NAMES[metric][0]),
    el("p", { class: unfinished.length ? "bad" : "soft" }, unfinished.length ? unfinished.join(" ")
      : `Lines are ${NAMES[metric][1]}; bars are 95 % intervals over samples.`),
    legend,
    el("div", { class: "panels" }, shifts.map((shift) => panel(NAMES[metric][0], shift, curves, models))));
}

function panel(what, shift, curves, models) {
  const points = curves.filter((point) => (point.shift === shift || point.shift === "clean") && point.value !== null);
  const numeric = points.filter((point) => point.severity !== null || point.shift === "clean");
  const top = Math.max(...numeric.map((point) => point.severity || 0), 0) || 1;
  const [width, height, left, bottom] = [260, 150, 34, 22];
  const x = (severity) => left + (severity || 0) / top * (width - left - 8);
  const y = (value) => 8 + (1 - value) * (height - bottom - 8);
  const lines = models.map((model, i) => {
    const own = numeric.filter((point) => point.model === model).sort((a, b) => (a.severity || 0) - (b.severity || 0));
    const colour = COLOURS[i % COLOURS.length];
    return el("g", { style: `stroke:${colour};fill:none` },
      el("polyline", { points: own.map((point) => `${x(point.severity)},${y(point.value)}`).join(" "), "stroke-width": 2 }),
      own.filter((point) => point.low !== null && point.high !== null).map((point) =>
        el("line", { x1: x(point.severity), x2: x(point.severity), y1: y(point.low), y2: y(point.high), opacity: .5 })),
      own.map((point) => el("circle", { cx: x(point.severity), cy: y(point.value), r: 2.5, style: `fill:${colour}` },
        el("title", {}, `${model}, ${number(point.severity || 0)}: ${percent(point.value)} (n ${point.n})`))));
  });
  const grid = [0, .5, 1].map((value) => [
    el("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), stroke: "currentColor", opacity: .18 }),
    el("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end", "font-size": 11, fill: "currentColor" }, `${100 * value}`)]);
  return el("article", { class: "panel" }, el("h3", {}, shift),
    el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${what} along ${shift}` }, grid, lines,
      el("text", { x: left, y: height - 5, "font-size": 11, fill: "currentColor" }, "0"),
      el("text", { x: width - 8, y: height - 5, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, number(top))));
}
