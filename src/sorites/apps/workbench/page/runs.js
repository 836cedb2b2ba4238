// The runs that were found, and curves that fill in while one is running.

import { el, get, number, percent, say, url, writeAddress } from "./parts.js";

const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `var(--line-${i})`);
const NAMES = { accuracy: ["Accuracy", "accuracies"], map: ["Mean average precision", "mAP of COCO"] };
const EVERY_MS = 4000;

export async function show(main, state) {
  const list = el("div", { class: "wide" });
  const curves = el("section", { "aria-label": "Curves" });
  const pages = el("div", {});
  main.append(el("h2", {}, "Runs"), list, pages, curves);
  let chosen = state.run || null;
  let beside = state.beside || null; // a second run, whose curves are shown beside
  let known = { runs: [], pages: [] };
  let timer = null;
  let stopped = false;
  const drawn = new Map();

  // What has not changed stays as it is, with the focus of the keyboard.
  function redraw(part, state, make) {
    const text = JSON.stringify(state);
    if (drawn.get(part) !== text) part.replaceChildren(...make());
    drawn.set(part, text);
  }

  async function refresh() {
    try { await look(); } catch (error) { say(error.message, true); }
    if (!stopped) timer = setTimeout(refresh, EVERY_MS);
  }

  async function look() {
    known = await get("runs");
    if (stopped) return;
    const readable = known.runs.filter((run) => !run.error).map((run) => run.key);
    chosen = readable.includes(chosen) ? chosen : readable[0];
    beside = readable.includes(beside) && beside !== chosen ? beside : null;
    drawList();
    redraw(pages, known.pages, () => known.pages.length ? [others(known.pages)] : []);
    await drawAll();
  }

  function drawList() {
    redraw(list, [known, chosen, beside], () => [known.runs.length ? table(known.runs, { chosen, beside }, pick, put) : nothing(known.models)]);
  }

  function pick(key) { change(key, beside === key ? null : beside, ".name[aria-pressed=true]"); }

  function put(key) { change(chosen, beside === key ? null : key, `[data-beside="${key}"]`); }

  function change(first, second, focused) {
    [chosen, beside] = [first, second];
    writeAddress("runs", { run: chosen, beside });
    drawList();
    list.querySelector(focused)?.focus();
    drawAll().catch((error) => say(error.message, true));
  }

  // Answers may arrive in another order than they were asked for.
  async function drawAll() {
    const shown = [chosen, beside].filter(Boolean);
    const found = await Promise.all(shown.map((key) => get("curves", { run: key })));
    if (stopped || shown.join() !== [chosen, beside].filter(Boolean).join()) return;
    const name = (key) => known.runs.find((run) => run.key === key)?.folder;
    curves.className = shown.length > 1 ? "pair" : "";
    redraw(curves, [shown, found], () => found.map((answer, i) => section(answer, shown.length > 1 ? name(shown[i]) : null)));
  }

  await refresh();
  return () => { stopped = true; clearTimeout(timer); };
}

function nothing(models) {
  return el("p", {}, models.length ? "No run was found here. " : "No run was found here. Make one: sorites run demo. ",
    models.length ? el("a", { href: "#/turn" }, `Turn a shift with ${models.join(", ")}`) : null);
}

// Pages that belong to no run, such as passports and comparisons.
function others(folders) {
  return el("div", { class: "pages" }, el("h2", { class: "apart" }, "Pages"), el("ul", {}, folders.map(({ key, folder, pages }) =>
    el("li", {}, el("span", { class: "soft path" }, folder), " ", links(key, pages)))));
}

function links(key, pages) {
  return pages.map((name) => [el("a", { href: url("page", { run: key, name }), target: "_blank" }, name), " "]);
}

function table(runs, { chosen, beside }, pick, put) {
  const rows = runs.map((run) => el("tr", {},
    el("td", {}, el("button", { class: "name", onclick: () => pick(run.key), disabled: Boolean(run.error), "aria-pressed": String(run.key === chosen) },
      run.folder.split(/[\\/]/).pop()), el("div", { class: "soft path" }, run.suite ? `${run.suite} · ${run.folder}` : run.folder)),
    el("td", { "data-name": "models" }, run.error ? el("span", { class: "bad" }, run.error) : run.models.join(", ")),
    el("td", { "data-name": "shifts" }, (run.shifts || []).length > 6 ? `${run.shifts.length} shifts` : (run.shifts || []).join(", ")),
    el("td", { class: "number", "data-name": "rows" }, number(run.rows)),
    el("td", { "data-name": "open" }, run.error ? null : el("a", { href: `#/explore?run=${run.key}` }, "explore"), " ",
      run.error ? null : el("a", { href: `#/turn?run=${run.key}` }, "turn"), " ",
      links(run.key, run.pages),
      run.error || run.key === chosen || runs.length < 2 ? null : el("button", { "data-beside": run.key, "aria-pressed": String(run.key === beside),
        title: "Show the curves of this run beside those of the chosen one", onclick: () => put(run.key) }, "beside"))));
  return el("table", { class: "runs" }, el("thead", {}, el("tr", {},
    ["run", "models", "shifts", "rows", "open"].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows));
}

function section({ metric, curves, unfinished }, name) {
  const models = [...new Set(curves.map((point) => point.model))];
  const shifts = [...new Set(curves.map((point) => point.shift))].filter((shift) => shift !== "clean");
  const legend = el("p", {}, models.map((model, i) =>
    [el("span", { style: `color:${COLOURS[i % COLOURS.length]}`, "aria-hidden": "true" }, "● "), el("span", { class: "model" }, model)]));
  return el("div", {},
    el("h2", { class: "apart" }, name ? `${NAMES[metric][0]} · ${name}` : NAMES[metric][0]),
    el("p", { class: unfinished.length ? "bad" : "soft" }, unfinished.length ? unfinished.join(" ")
      : `Lines are ${NAMES[metric][1]} in %; bars are 95 % intervals over samples.`),
    legend,
    el("div", { class: "panels" }, shifts.map((shift) => panel(NAMES[metric][0], shift, curves, models))));
}

function panel(what, shift, curves, models) {
  const points = curves.filter((point) => (point.shift === shift || point.shift === "clean") && point.value !== null);
  const numeric = points.filter((point) => point.severity !== null || point.shift === "clean");
  const top = Math.max(...numeric.map((point) => point.severity || 0), 0) || 1;
  const last = numeric.find((point) => point.severity === top)?.words || number(top);
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
        el("title", {}, `${model}, ${point.words || "clean"}: ${percent(point.value)} (n ${point.n})`))));
  });
  const grid = [0, .5, 1].map((value) => [
    el("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), stroke: "currentColor", opacity: .18 }),
    el("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end", "font-size": 11, fill: "currentColor" }, `${100 * value}`)]);
  return el("article", { class: "panel" }, el("h3", {}, shift),
    el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${what} along ${shift}` }, grid, lines,
      el("text", { x: left, y: height - 5, "font-size": 11, fill: "currentColor" }, "clean"),
      el("text", { x: width - 8, y: height - 5, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, last)));
}
