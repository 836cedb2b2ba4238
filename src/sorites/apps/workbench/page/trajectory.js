// The trajectory of a sample: every shift and severity with the answers, boxes and explanation maps of the models.

import { LEGEND, counted, el, get, number, percent, say, url } from "./parts.js";

// Found boxes of a confidence below this are not drawn.
const FROM = 0.25;

export function openTrajectory(run, row, found, onclose) {
  const models = [...new Set(found.images.flatMap((image) => Object.keys(image.models)))];
  const shifts = [...new Set(found.images.map((image) => image.shift))];
  const chosen = found.images.find((image) => image.row === row);
  const at = chosen.severity && chosen.shift !== "clean" ? `&at=${encodeURIComponent(JSON.stringify({ [chosen.shift]: chosen.severity }))}` : "";
  const sections = el("div", {});
  const maps = new Maps(run, sections);
  const dialog = el("dialog", { "aria-label": `Images of ${found.sample}`, onclose: () => { maps.hide(); dialog.remove(); onclose(); } },
    el("div", { class: "bar head" }, el("h2", {}, `${found.class || "no label"} · ${found.sample}`),
      el("a", { href: `#/turn?run=${run}&image=${encodeURIComponent(found.sample)}${at}` }, "turn this image"),
      el("label", {}, "explanation map", maps.picker(models)),
      el("button", { onclick: () => dialog.close() }, "close")), sections);
  const boxed = found.images.some((image) => image.truth || Object.values(image.models).some((answer) => answer.boxes?.length));
  sections.append(...(boxed ? [el("p", { class: "soft" }, LEGEND)] : []), ...shifts.map((shift) => strip(run, found, shift, row)));
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector(".here")?.scrollIntoView({ block: "center", inline: "center" });
  return dialog;
}

function strip(run, found, shift, row) {
  const images = found.images.filter((image) => image.shift === shift);
  return el("section", {}, el("h3", {}, shift), el("div", { class: "strip", tabindex: 0 }, images.map((image) => {
    const setting = image.shift === "clean" ? "" : image.words || (image.severity !== null ? number(image.severity) : image.params || "");
    return el("figure", { class: image.row === row ? "here" : "", "data-row": image.row }, seen(run, image, `${shift} ${setting}`.trim()),
      el("figcaption", {}, setting, Object.entries(image.models).map(([model, answer]) => said(model, answer))));
  })));
}

// The image as a thumbnail; with boxes over the whole image, whose pixels they count.
function seen(run, image, alt) {
  const found = Object.values(image.models).flatMap((answer) => answer.boxes || []).filter((box) => box.conf >= FROM);
  if (!found.length && !image.truth) {
    return el("div", { class: "seen" }, el("img", { loading: "lazy", alt, src: url("thumbnail", { run, row: image.row, side: 300 }) }));
  }
  const overlay = el("svg", { "aria-hidden": "true" });
  const rect = (box, colour, dash) => el("rect", { x: box.x0, y: box.y0, width: Math.max(0, box.x1 - box.x0), height: Math.max(0, box.y1 - box.y0),
    fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash, "vector-effect": "non-scaling-stroke" });
  const picture = el("img", { loading: "lazy", alt, src: url("image", { run, row: image.row }), onload: () => {
    overlay.setAttribute("viewBox", `0 0 ${picture.naturalWidth} ${picture.naturalHeight}`);
    const lost = new Set(image.lost || []);
    overlay.replaceChildren(...found.map((box) => rect(box, "#4f9cff", null)),
      ...(image.truth || []).map((box, place) => rect(box, lost.has(place) ? "#ff4d4d" : "#3fbf6a", lost.has(place) ? "6 4" : null)));
  } });
  return el("div", { class: "seen" }, picture, overlay);
}

function said(model, answer) {
  const scores = Object.entries(answer.scores).map(([name, score]) => [el("span", { class: "whole" }, `${name} ${number(score)}`), " "]);
  const mark = { good: " ✓", bad: " ✗", soft: "" };
  const verdict = answer.correct === null || answer.correct === undefined ? "soft" : answer.correct ? "good" : "bad";
  const boxes = (answer.boxes || []).filter((box) => box.conf >= FROM).length;
  const text = answer.error ? answer.error : answer.boxes?.length || answer.answer === null ? counted(boxes) : `${answer.answer} ${percent(answer.conf)}${mark[verdict]}`;
  return el("div", {}, el("strong", {}, model), " ", el("span", { class: verdict }, text),
    answer.objects ? el("div", { class: answer.objects[0] < answer.objects[1] ? "bad" : "good" }, `finds ${answer.objects[0]} of ${answer.objects[1]} objects`) : null,
    answer.top5?.length ? el("details", {}, el("summary", {}, "top five"), el("ol", {}, answer.top5.map((name) => el("li", {}, name)))) : null,
    scores.length ? el("div", { class: "soft" }, scores) : null);
}

// Explanation maps over the images that can be seen, one after the other.
class Maps {
  constructor(run, sections) {
    Object.assign(this, { run, sections, model: "", waiting: [], busy: false });
    this.watch = new IntersectionObserver((entries) => entries.forEach((entry) => { if (entry.isIntersecting) this.want(entry.target); }));
  }

  picker(models) {
    const select = el("select", { onchange: () => { this.hide(); this.model = select.value; if (this.model) this.show(); } },
      el("option", { value: "" }, "none"), models.map((model) => el("option", { value: model }, model)));
    return select;
  }

  show() { this.sections.querySelectorAll("figure").forEach((figure) => this.watch.observe(figure)); }

  hide() {
    this.watch.disconnect();
    this.waiting = [];
    this.model = "";
    this.sections.querySelectorAll(".why").forEach((part) => part.remove());
  }

  want(figure) {
    this.watch.unobserve(figure);
    this.waiting.push(figure);
    this.work();
  }

  async work() {
    if (this.busy) return;
    this.busy = true;
    while (this.waiting.length) {
      const [figure, model] = [this.waiting.shift(), this.model];
      say(`${model}: explaining …`);
      const parts = await explained(this.run, figure.dataset.row, model);
      if (model === this.model) { figure.querySelector(".seen").after(...parts); say(""); }
    }
    this.busy = false;
  }
}

async function explained(run, row, model) {
  try {
    const map = await get("explained", { run, row, model });
    const text = map.empty ? `${map.class}: nothing stands out` : `${map.class}`;
    return [el("img", { class: "why", src: map.image, alt: `Where ${model} finds ${map.class}` }), el("small", { class: "why soft" }, `${text} (${map.method})`)];
  } catch (error) { return [el("small", { class: "why bad" }, error.message)]; }
}
