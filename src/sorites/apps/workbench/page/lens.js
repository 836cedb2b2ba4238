// A lens's field under the pointer: point spread function, MTF, the image as it is seen there, and the answers.

import { card, drawBoxes, el, get, imagePicker, latest, number, runPicker, say, withModels, writeAddress } from "./parts.js";

const SIDE = 240;
const RADIUS = 112;
const COLOURS = ["#d33", "#2a2", "#36d"];
const DESIGNED = "";

export async function show(main, state) {
  const [{ runs, extra, run }, listed] = await Promise.all([withModels(state.run), get("lenses")]);
  const bench = new LensBench(main, runs, extra, listed, { ...state, run });
  await bench.open();
  return () => { bench.closed = true; };
}

class LensBench {
  constructor(main, runs, extra, listed, state) {
    Object.assign(this, { main, runs, extra, ...listed, run: state.run, image: state.image || null });
    this.last = listed.fields.at(-1);
    this.lens = listed.lenses.find((lens) => lens.name === state.lens) || listed.lenses[0];
    this.error = listed.errors.find((error) => error.name === state.error) || null;
    this.field = Math.min(Math.max(Number(state.field) || 0, 0), this.last);
    this.azimuth = ((Number(state.azimuth) || 0) % 360 + 360) % 360;
    this.size = Math.min(Math.max(Number(state.size) || 0, 0), this.error?.top ?? 0);
    this.look = latest(() => this.ask());
  }

  async open() {
    say("loading the models …");
    const { samples } = await get("shifts", { run: this.run });
    say("");
    if (this.closed) return;
    this.samples = samples;
    this.image = this.image || samples[0]?.id;
    this.draw();
    await this.look();
  }

  draw() {
    this.picture = el("img", { alt: "The image as it is seen at this place of the field" });
    this.overlay = el("svg", { "aria-hidden": "true" });
    this.point = el("img", { alt: "Point spread function" });
    this.curves = el("div", {});
    this.numbers = el("p", { class: "soft" });
    this.answers = el("div", { class: "answers", "aria-live": "polite" });
    this.bench = el("div", { class: "panel" });
    const kind = el("select", { "aria-label": "Lens", onchange: () => this.choose(kind.value) },
      el("optgroup", { label: "as designed, best first" }, this.lenses.map((lens) => el("option", { value: lens.name }, lens.name))),
      el("optgroup", { label: "with a production error" }, this.errors.map((error) => el("option", { value: `error ${error.name}` }, `${error.lens}: ${error.name}`))));
    kind.value = this.error ? `error ${this.error.name}` : this.lens.name;
    this.main.replaceChildren(
      el("div", { class: "bar" }, kind,
        runPicker(this.runs, this.run, (key) => { this.run = key; this.image = null; this.open().catch((error) => say(error.message, true)); }, this.extra),
        imagePicker(this.samples, this.image, (image) => { this.image = image; this.look(); })),
      el("div", { class: "turn lens" },
        el("div", {}, this.bench, el("div", { class: "side" }, this.point, this.curves), this.numbers),
        el("div", {}, el("div", { class: "stage" }, this.picture, this.overlay), el("h2", { class: "unseen" }, "Answers"), this.answers)));
    this.drawBench();
  }

  choose(value) {
    this.error = this.errors.find((error) => `error ${error.name}` === value) || null;
    this.lens = this.lenses.find((lens) => lens.name === value) || this.lens;
    this.size = 0;
    this.drawBench();
    this.look();
  }

  drawBench() { this.bench.replaceChildren(...(this.error ? this.ofError() : this.ofField())); }

  ofError() {
    const { name, unit, top, about, field, lens } = this.error;
    return [el("h2", {}, `${lens}: ${name}`), el("p", { class: "soft" }, `${about[0].toUpperCase()}${about.slice(1)}. `,
      `Traced at ${number(field)} of the half field; the image draws its azimuth.`),
    this.slider(name, this.size, top, unit, (value) => { this.size = value; })];
  }

  ofField() {
    const { name, f_number, fov_deg, mtf50 } = this.lens;
    this.spot = el("circle", { r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2 });
    const most = Math.max(...this.lenses.flatMap((lens) => lens.mtf50));
    // Rings as sharp as the lens is at the traced fields; the frame is a sensor of 3 : 2 with its corners at the edge.
    const rings = [...this.fields].map((field, i) => [((field + (this.fields[i + 1] ?? 1)) / 2) * RADIUS, mtf50[i]]).reverse();
    const [halfWidth, halfHeight] = [RADIUS * 3 / Math.hypot(3, 2), RADIUS * 2 / Math.hypot(3, 2)];
    this.disc = el("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "field", role: "img", "aria-label": `Field of ${name}; a stronger colour is sharper`,
      onpointerdown: (event) => this.pointed(event), onpointermove: (event) => this.pointed(event) },
      rings.map(([radius, sharp]) => el("circle", { cx: SIDE / 2, cy: SIDE / 2, r: radius, fill: "var(--mark)", opacity: .06 + .5 * sharp / most },
        el("title", {}, `MTF50 ${number(sharp)} cycles per pixel`))),
      el("rect", { x: SIDE / 2 - halfWidth, y: SIDE / 2 - halfHeight, width: 2 * halfWidth, height: 2 * halfHeight, fill: "none", stroke: "currentColor", opacity: .5 }),
      el("circle", { cx: SIDE / 2, cy: SIDE / 2, r: RADIUS * this.last, fill: "none", stroke: "currentColor", opacity: .5, "stroke-dasharray": "3 4" }),
      this.spot);
    this.fieldSlider = this.slider("field", this.field, this.last, "", (value) => { this.field = value; });
    this.azimuthSlider = this.slider("azimuth", this.azimuth, 360, "°", (value) => { this.azimuth = value; });
    const facts = [f_number && `f/${number(f_number)}`, fov_deg && `${number(fov_deg)}° field of view`].filter(Boolean).join(", ");
    this.place();
    return [el("h2", {}, `${name}${facts ? ` · ${facts}` : ""}`), this.disc,
      el("p", { class: "soft" }, `Point at a place. A stronger colour is sharper; the dashed circle is the last traced field (${number(this.last)}).`),
      this.fieldSlider, this.azimuthSlider];
  }

  slider(name, value, top, unit, set) {
    const output = el("output", { class: "number" }, `${number(value)} ${unit}`);
    const range = el("input", { type: "range", min: 0, max: top, step: top / 360, "aria-label": unit ? `${name}, ${unit}` : name,
      oninput: () => { set(Number(range.value)); output.textContent = `${number(Number(range.value))} ${unit}`; this.place(); this.look(); } });
    range.value = value;
    const line = el("label", { class: "dial" }, name, range, output);
    line.put = (given) => { range.value = given; output.textContent = `${number(Number(range.value))} ${unit}`; };
    return line;
  }

  place() {
    if (this.error) return;
    const turn = this.azimuth * Math.PI / 180;
    this.spot.setAttribute("cx", SIDE / 2 + RADIUS * this.field * Math.cos(turn));
    this.spot.setAttribute("cy", SIDE / 2 + RADIUS * this.field * Math.sin(turn));
  }

  pointed(event) {
    if (event.pointerType !== "mouse" && event.type === "pointermove" && !event.buttons) return;
    const box = this.disc.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * SIDE - SIDE / 2;
    const y = (event.clientY - box.top) / box.height * SIDE - SIDE / 2;
    this.field = Math.min(Math.hypot(x, y) / RADIUS, this.last);
    this.azimuth = (Math.atan2(y, x) * 180 / Math.PI + 360) % 360;
    this.fieldSlider.put(this.field);
    this.azimuthSlider.put(this.azimuth);
    this.place();
    this.look();
  }

  asked() {
    return this.error ? { error: this.error.name, size: this.size }
      : { lens: this.lens.name, field: Number(this.field.toFixed(4)), azimuth: Number(this.azimuth.toFixed(2)) };
  }

  async ask() {
    const asked = { run: this.run, image: this.image, ...this.asked() };
    const began = performance.now();
    const answer = await get("lens", asked);
    if (this.closed) return;
    writeAddress("lens", asked);
    if (answer.error) { say(answer.error, true); return; }
    this.picture.src = answer.image;
    drawBoxes(this.overlay, answer);
    this.point.src = answer.point;
    this.curves.replaceChildren(mtf(answer.mtf));
    const halves = (name) => answer.mtf[`${name}_mtf50`].map((value) => value === null ? "> 0.5" : number(value)).join(", ");
    this.numbers.textContent = `MTF50 of red, green, blue in cycles per pixel: radial ${halves("radial")}; tangential ${halves("tangential")}`
      + (this.error && answer.place.azimuth !== null && answer.place.azimuth !== undefined ? `; azimuth ${answer.place.azimuth}°` : "");
    this.answers.replaceChildren(...Object.entries(answer.models).map(([model, found]) => card(model, found, answer)));
    say(`${Math.round(performance.now() - began)} ms`);
  }
}

// Contrast against frequency, by colour: full lines along the radius of the field, dashed across it.
function mtf(curves) {
  const [width, height, left, bottom] = [300, 150, 30, 20];
  const x = (frequency) => left + frequency / .5 * (width - left - 6);
  const y = (contrast) => 6 + (1 - contrast) * (height - bottom - 6);
  const line = (values, colour, dash) => el("polyline", { fill: "none", stroke: colour, "stroke-width": 1.5, "stroke-dasharray": dash,
    points: values.map((value, i) => `${x(curves.frequencies[i])},${y(value)}`).join(" ") });
  const text = (content, at) => el("text", { "font-size": 11, fill: "currentColor", ...at }, content);
  return el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "MTF, contrast against cycles per pixel; dashed: tangential" },
    [0, .5, 1].map((value) => [el("line", { x1: left, x2: width - 6, y1: y(value), y2: y(value), stroke: "currentColor", opacity: .18 }),
      text(String(value), { x: left - 4, y: y(value) + 4, "text-anchor": "end" })]),
    COLOURS.map((colour, i) => [line(curves.radial[i], colour, null), line(curves.tangential[i], colour, "4 3")]),
    text("0", { x: left, y: height - 4 }), text("0.5 cycles/px", { x: width - 6, y: height - 4, "text-anchor": "end" }));
}
