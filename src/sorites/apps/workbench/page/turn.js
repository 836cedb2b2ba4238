// One image under one or two dials: pixels, answers, OOD scores, where each model fails, and the map of both dials.

import { LEGEND, card, drawBoxes, el, get, imagePicker, number, parsed, percent, post, runPicker, say, withModels, writeAddress } from "./parts.js";

const CELLS = 7;

export async function show(main, state) {
  const { runs, extra, run } = await withModels(state.run);
  const turner = new Turner(main, runs, extra, { ...state, run });
  await turner.open();
  return () => turner.close();
}

class Turner {
  constructor(main, runs, extra, state) {
    Object.assign(this, { main, runs, extra, run: state.run, image: state.image || null, at: parsed(state.at, {}) });
    this.fails = {};
    this.busy = false;
    this.again = false;
    this.epoch = 0;
  }

  async open() {
    say("loading the models …");
    const { shifts, samples, models } = await get("shifts", { run: this.run });
    say("");
    Object.assign(this, { shifts, samples, models });
    this.image = this.image || samples[0]?.id;
    const names = Object.keys(this.at).filter((name) => shifts.some((shift) => shift.name === name));
    this.names = [names[0] || shifts[0].name, names[1] || ""];
    this.at = Object.fromEntries(this.names.filter(Boolean).map((name) => [name, Number(this.at[name]) || 0]));
    this.draw();
    this.key = (event) => this.press(event);
    addEventListener("keydown", this.key);
    await this.turn();
  }

  close() { removeEventListener("keydown", this.key); this.epoch += 1; this.stream?.getTracks().forEach((track) => track.stop()); }

  draw() {
    this.picture = el("img", { alt: "The image as the models see it" });
    this.overlay = el("svg", { "aria-hidden": "true" });
    this.stage = el("div", { class: "stage", ondragover: (event) => { event.preventDefault(); this.stage.classList.add("over"); },
      ondragleave: () => this.stage.classList.remove("over"), ondrop: (event) => this.dropped(event) }, this.picture, this.overlay);
    this.legend = el("small", { class: "soft" });
    this.side = el("div", { class: "side" });
    this.answers = el("div", { class: "answers", "aria-live": "polite" });
    this.maps = el("div", { class: "panels" });
    this.dials = el("div", { class: "dials" });
    const file = el("input", { type: "file", class: "file", accept: "image/*", "aria-label": "Your own image", onchange: () => file.files[0] && this.upload(file.files[0]) });
    const pick = imagePicker(this.samples, this.image, (image) => { this.image = image; this.reset(); });
    this.main.replaceChildren(
      el("div", { class: "bar" }, runPicker(this.runs, this.run, (key) => { this.close(); this.run = key; this.image = null; this.at = {}; this.epoch += 1; this.open().catch((error) => say(error.message, true)); }, this.extra),
        pick, file, el("button", { onclick: () => this.webcam() }, "webcam"),
        el("span", { class: "soft" }, "or drop an image below")),
      el("div", { class: "turn" }, el("div", {}, this.stage, this.legend, this.side),
        el("div", {}, this.dials, el("div", { class: "bar" },
          el("button", { onclick: () => this.bisect(), title: "Key: b" }, "find failure severities (b)"),
          el("button", { onclick: () => this.drawMap(), title: "Key: m" }, "map of both dials (m)")), el("h2", { class: "unseen" }, "Answers"), this.answers, this.maps)));
    this.drawDials();
  }

  drawDials() {
    this.dials.replaceChildren(...[0, 1].map((place) => this.dial(place)));
  }

  dial(place) {
    const name = this.names[place];
    const shift = this.shifts.find((entry) => entry.name === name);
    const groups = [["in this run", this.shifts.filter((entry) => entry.in_run)], ["all shifts", this.shifts.filter((entry) => !entry.in_run)]];
    const select = el("select", { "aria-label": `Shift ${place + 1}`, onchange: () => this.choose(place, select.value) },
      place ? el("option", { value: "" }, "second shift …") : null,
      groups.filter(([, entries]) => entries.length).map(([label, entries]) =>
        el("optgroup", { label }, entries.map((entry) => el("option", { value: entry.name }, entry.name)))));
    select.value = name;
    if (!shift) return el("div", { class: "dial" }, select);
    const output = el("output", { class: "number" }, number(this.at[name]));
    const range = el("input", { type: "range", min: 0, max: shift.top, step: shift.top / 400, value: this.at[name], "aria-label": `${name}, ${shift.unit}`,
      oninput: () => { this.at[name] = Number(range.value); output.textContent = number(this.at[name]); this.turn(); } });
    return el("div", { class: "dial", title: shift.about }, select, range, output, el("small", { class: "soft words", "data-shift": name }, "\u00a0"));
  }

  choose(place, name) {
    this.names[place] = name;
    this.at = Object.fromEntries(this.names.filter(Boolean).map((entry) => [entry, this.at[entry] || 0]));
    this.reset();
    this.drawDials();
  }

  reset() { this.fails = {}; this.epoch += 1; this.maps.replaceChildren(); this.turn(); }

  // One request at a time; while it runs, only the latest position of the dial is remembered.
  async turn() {
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    writeAddress("turn", { run: this.run, image: this.image, at: JSON.stringify(this.at) });
    const began = performance.now();
    try {
      const answer = await get("turn", { run: this.run, image: this.image, at: this.at });
      this.shown(answer);
      say(`${Math.round(performance.now() - began)} ms`);
    } catch (error) { say(error.message, true); }
    this.busy = false;
    if (this.again) { this.again = false; this.turn(); }
  }

  shown(answer) {
    this.last = answer;
    if (answer.error) { say(answer.error, true); return; }
    this.picture.src = answer.image;
    drawBoxes(this.overlay, answer);
    this.legend.textContent = answer.truth || Object.values(answer.models).some((model) => model.boxes?.length) ? LEGEND : "";
    this.dials.querySelectorAll(".words").forEach((line) => { line.textContent = answer.words[line.dataset.shift] ?? ""; });
    this.side.classList.toggle("alone", !answer.point);
    this.side.replaceChildren(...(answer.point ? [el("img", { src: answer.point, alt: "The image of a point" })] : []), histogram(answer.histogram));
    this.answers.replaceChildren(...Object.entries(answer.models).map(([model, found]) => card(model, found, answer, this.fails[model])));
  }

  press(event) {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "b") this.bisect();
    if (event.key === "m") this.drawMap();
  }

  async bisect() {
    const [shift] = this.names;
    const epoch = this.epoch;
    for (const model of this.models) {
      this.fails[model] = "searching …";
      if (this.last) this.shown(this.last);
      try {
        const found = await get("fails", { run: this.run, image: this.image, at: this.at, shift, model });
        if (epoch !== this.epoch) return;
        this.fails[model] = found.fails === null ? `does not fail up to ${found.holds_words}` :
          found.holds === null ? "fails at severity 0" : `fails at ${number(found.fails, 4)} (${found.fails_words})`;
      } catch (error) { this.fails[model] = error.message; }
      if (this.last) this.shown(this.last);
    }
  }

  async drawMap() {
    const [across, up] = this.names;
    if (!up) { say("choose a second shift for the map"); return; }
    const epoch = ++this.epoch;
    const top = this.shifts.find((entry) => entry.name === up).top;
    const bodies = Object.fromEntries(this.models.map((model) => [model, el("tbody", {})]));
    this.maps.replaceChildren(...this.models.map((model) => el("article", { class: "panel" }, el("h3", {}, model),
      el("table", { class: "map", "aria-label": `Correct (green) and wrong (red) answers of ${model}` }, bodies[model]),
      el("small", { class: "soft" }, `${across} to the right, ${up} upwards; green: correct (or as at 0; as many objects as at 0), red with ×: wrong (fewer)`))));
    let first = {};
    for (let step = 0; step < CELLS; step += 1) {
      const fixed = { [up]: step === CELLS - 1 ? top : top * step / (CELLS - 1) };
      const { cells } = await get("map", { run: this.run, image: this.image, at: fixed, shift: across, cells: CELLS });
      if (epoch !== this.epoch) return;
      for (const model of this.models) {
        if (!step) first[model] = cells[0].models[model];
        bodies[model].prepend(el("tr", {}, cells.map((cell) => {
          const found = cell.models[model];
          const right = found.objects ? found.objects[0] > 0 && found.objects[0] >= first[model].objects[0]
            : found.correct ?? (found.answer === null ? null : found.answer === first[model].answer);
          const text = found.objects ? `finds ${found.objects.join(" of ")} objects` : found.answer;
          // A mark besides the colour, for those who do not tell red from green.
          return el("td", { class: right === null ? "none" : right ? "yes" : "no", title: `${number(cell.severities[across])}, ${number(cell.severities[up])}: ${text}` }, right === false ? "×" : "");
        })));
      }
    }
  }

  async dropped(event) {
    event.preventDefault();
    this.stage.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (file) await this.upload(file);
  }

  async upload(blob) {
    try {
      this.image = (await post("drop", blob, "application/octet-stream")).image;
      this.draw();
      this.reset();
    } catch (error) { say(error.message, true); }
  }

  async webcam() {
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: true });
      const video = el("video", { autoplay: true, playsinline: true });
      video.srcObject = this.stream;
      await video.play();
      const canvas = el("canvas", { width: video.videoWidth, height: video.videoHeight });
      canvas.getContext("2d").drawImage(video, 0, 0);
      this.stream.getTracks().forEach((track) => track.stop());
      canvas.toBlob((blob) => this.upload(blob), "image/png");
    } catch (error) { say(`the webcam cannot be used: ${error.message}`, true); }
  }
}

function histogram(channels) {
  const most = Math.max(1, ...channels.flat());
  const bins = channels[0].length;
  const line = (counts) => counts.map((count, i) => `${i / (bins - 1) * 256},${100 - 96 * Math.sqrt(count / most)}`).join(" ");
  return el("svg", { viewBox: "0 0 256 102", preserveAspectRatio: "none", role: "img", "aria-label": "Histogram of red, green and blue" },
    channels.map((counts, i) => el("polyline", { points: line(counts), fill: "none", stroke: ["#d33", "#2a2", "#36d"][i], "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" })));
}
