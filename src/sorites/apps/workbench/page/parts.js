// Shared parts: elements, requests, numbers and the address of a view.

export function el(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "rect", "g", "polyline", "title", "circle", "clipPath"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else if (key === "style") node.style.cssText = value; // the page may not have style attributes
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Found boxes that are named on an image; all are drawn.
const NAMED = 12;
const status = document.getElementById("status");

export function say(text, isError = false) {
  status.textContent = text;
  status.classList.toggle("error", isError);
}

export function url(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(given.map(([key, value]) =>
    [key, typeof value === "object" ? JSON.stringify(value) : String(value)]));
  return `api/${path}${given.length ? `?${text}` : ""}`;
}

async function answer(response) {
  const content = await response.json();
  if (!response.ok) throw new Error(content.error || `the server answered ${response.status}`);
  return content;
}

export async function get(path, query, signal) {
  return answer(await fetch(url(path, query), { signal }));
}

export async function post(path, body, type = "application/json") {
  return answer(await fetch(url(path), { method: "POST", headers: { "Content-Type": type }, body }));
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(digits)).toString();
}

export function counted(boxes) {
  return boxes === 1 ? "1 box" : `${boxes} boxes`;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

// The address holds the whole state of a view, so that it can be kept and sent.
export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "runs", state: Object.fromEntries(new URLSearchParams(query)) };
}

export function writeAddress(view, state) {
  const given = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  const hash = `#/${view}${query ? `?${query}` : ""}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

export function parsed(text, otherwise) {
  try { return text ? JSON.parse(text) : otherwise; } catch { return otherwise; }
}

export function runPicker(runs, key, onchange, extra = []) {
  const options = [...extra, ...runs.map((run) => [run.key, `${run.suite || run.folder} · ${run.folder}`])];
  const select = el("select", { "aria-label": "Run", onchange: () => onchange(select.value) },
    options.map(([value, text]) => el("option", { value }, text)));
  select.value = key;
  return select;
}

// The runs whose models can be asked, and models that were given alone, with the one to begin with.
export async function withModels(wanted) {
  const { runs, models } = await get("runs");
  const usable = runs.filter((run) => !run.error);
  if (!usable.length && !models.length) throw new Error("Start the workbench with a run or a model: sorites view lite0");
  const extra = models.length ? [["", `models: ${models.join(", ")}`]] : [];
  const known = usable.some((run) => run.key === wanted) || (wanted === "" && models.length);
  return { runs: usable, extra, run: known ? wanted : models.length ? "" : usable[0].key };
}

export function imagePicker(samples, image, onchange) {
  const pick = el("select", { "aria-label": "Image", onchange: () => onchange(pick.value) },
    samples.map((sample) => el("option", { value: sample.id }, `${sample.class || "no label"} · ${sample.id}`)));
  if (!samples.some((sample) => sample.id === image)) pick.prepend(el("option", { value: image }, image));
  pick.value = image;
  return pick;
}

// What a model answers to an image, and what else is known of it.
export function card(model, found, answer, more) {
  const label = answer.label;
  const sought = (answer.truth || []).filter((box) => model in box.found);
  const verdict = found.correct === null || found.correct === undefined ? "" : found.correct ? "good" : "bad";
  const boxes = found.boxes?.length || (label === null && found.answer === null);
  return el("article", { class: "panel" }, el("h3", {}, model),
    found.error ? el("p", { class: "bad" }, found.error) : null,
    boxes ? el("p", {}, `${counted(found.boxes.filter((box) => box.conf >= answer.from).length)} of confidence ${percent(answer.from)} or more`,
      sought.length ? el("div", { class: sought.every((box) => box.found[model]) ? "good" : "bad" },
        `finds ${sought.filter((box) => box.found[model]).length} of ${sought.length} objects`) : null)
      : el("p", { class: verdict }, `${found.answer} ${verdict ? (found.correct ? "✓" : "✗") : ""}`),
    found.conf !== null && found.conf !== undefined ? [el("div", { class: "meter" }, el("i", { style: `width:${100 * found.conf}%` })), el("small", {}, `confidence ${percent(found.conf)}`)] : null,
    found.top5?.length ? el("ol", {}, found.top5.map((name) => el("li", {}, name))) : null,
    Object.entries(found.scores).map(([name, score]) => el("div", { class: "soft" }, `${name} ${number(score, 4)}`)),
    more ? el("p", {}, more) : null);
}

export const LEGEND = "Blue: found boxes. Green: objects. Red, dashed: objects that no model finds.";

// Draws found boxes (blue), objects of the ground truth (green), and those that no model finds (red, dashed, named).
export function drawBoxes(overlay, answer) {
  overlay.setAttribute("viewBox", `0 0 ${answer.width} ${answer.height}`);
  const found = Object.values(answer.models).flatMap((model) => (model.boxes || []).filter((box) => box.conf >= answer.from))
    .sort((a, b) => b.conf - a.conf);
  const size = answer.width / 32;
  const rect = ([x0, y0, x1, y1], colour, dash) => el("rect", { x: x0, y: y0, width: Math.max(0, x1 - x0), height: Math.max(0, y1 - y0), fill: "none", stroke: colour,
    "stroke-width": 2, "stroke-dasharray": dash || null, "vector-effect": "non-scaling-stroke" });
  // A name begins at the left side of its box, or ends at the right one where it would leave the image; it moves down below earlier names.
  const taken = [];
  const named = (text, [x0, , x1], wanted, colour) => {
    const wide = text.length * size * 0.6;
    const inside = x0 + wide < answer.width;
    const right = inside ? x0 + 2 + wide : Math.min(x1, answer.width) - 2;
    let y = Math.min(Math.max(wanted, size), answer.height - 3);
    const meets = () => taken.find((other) => Math.abs(other.y - y) < size && other.left < right && right - wide < other.right);
    for (let other = meets(), turns = 0; other && turns < 30; other = meets(), turns += 1) y = other.y + size;
    if (y > answer.height - 3) return null;
    taken.push({ y, left: right - wide, right });
    return el("text", { x: inside ? x0 + 2 : right, "text-anchor": inside ? null : "end", y, "font-size": size, fill: colour, class: "over" }, text);
  };
  const corners = (box) => [box.x0, box.y0, box.x1, box.y1];
  const truths = (answer.truth || []).map(({ xyxy, name, found: by }) => [xyxy, name, Object.values(by).some(Boolean)]);
  overlay.replaceChildren(
    ...found.map((box) => rect(corners(box), "#4f9cff")),
    ...truths.map(([xyxy, name, here]) => el("g", {}, rect(xyxy, here ? "#3fbf6a" : "#ff4d4d", here ? null : "6 4"),
      here ? null : named(`${name}: not found`, xyxy, xyxy[3] - 3, "#ff8080"))),
    ...found.slice(0, NAMED).map((box) => named(`${box.name} ${percent(box.conf)}`, corners(box), box.y0 + size, "#8fc1ff")).filter(Boolean));
}

// Calls a slow function again and again while its inputs change: one call at a time, and only for the latest state.
export function latest(work) {
  let busy = false;
  let again = false;
  return async function run() {
    if (busy) { again = true; return; }
    busy = true;
    try { await work(); } catch (error) { say(error.message, true); }
    busy = false;
    if (again) { again = false; run(); }
  };
}
