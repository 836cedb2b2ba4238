// Boxes on the image: drawn, moved, adjusted by eight handles, labelled, removed. Corners are pixels of the image itself.

const COLOURS = ["#6cb2ff", "#ffb454", "#63c98b", "#ff7d72", "#c79bff", "#f4e04d", "#4fd6d2", "#ff9ad5"];
const SVG = "http://www.w3.org/2000/svg";
const HANDLES = [[0, 0], [.5, 0], [1, 0], [1, .5], [1, 1], [.5, 1], [0, 1], [0, .5]];
const REACH = 14;   // px around a handle that take hold of it

export class Boxes {
  constructor(overlay, stage, labels, changed) {
    Object.assign(this, { overlay, stage, labels, changed, list: [], chosen: -1, label: labels[0], held: null });
  }

  colour(label) { return COLOURS[Math.max(this.labels.indexOf(label), 0) % COLOURS.length]; }

  set(list) { this.list = list.map((one) => ({ label: one.label, box: [...one.box] })); this.chosen = -1; this.draw(); }

  value() {
    const round = (v) => Math.round(v * 100) / 100;
    return this.list.map(({ box: [a, b, c, d], label }) => ({ box: [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)].map(round), label }));
  }

  down([x, y]) {
    const before = { list: structuredClone(this.list), chosen: this.chosen };
    const handle = this.handleAt(x, y), inside = handle ? -1 : this.boxAt(x, y);
    if (handle) this.held = { kind: "handle", handle, before };
    else if (inside >= 0) { this.chosen = inside; this.held = { kind: "move", from: [x, y], box: [...this.list[inside].box], before }; }
    else {
      this.list.push({ label: this.label, box: [x, y, x, y] });
      this.chosen = this.list.length - 1;
      this.held = { kind: "handle", handle: [1, 1], fresh: true, before };
    }
    this.draw();
    return true;
  }

  move([x, y]) {
    if (!this.held) return;
    const one = this.list[this.chosen], { kind } = this.held;
    if (kind === "handle") {
      const [h, v] = this.held.handle;
      if (h !== .5) one.box[h * 2] = x;
      if (v !== .5) one.box[v * 2 + 1] = y;
    } else {
      const [a, b, c, d] = this.held.box, { width, height } = this.stage;
      const dx = Math.min(Math.max(x - this.held.from[0], -a), width - c), dy = Math.min(Math.max(y - this.held.from[1], -b), height - d);
      one.box = [a + dx, b + dy, c + dx, d + dy];
    }
    this.draw();
  }

  up(slack) {
    const held = this.held;
    this.held = null;
    const one = this.list[this.chosen];
    if (one) {
      const [a, b, c, d] = one.box;
      one.box = [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)];
      if (held?.fresh && (Math.abs(c - a) < slack || Math.abs(d - b) < slack)) { this.list.pop(); this.chosen = -1; }
      else if (one.box[0] === one.box[2] || one.box[1] === one.box[3]) { this.list = held.before.list; this.chosen = held.before.chosen; }
    }
    this.draw();
  }

  cancel() { if (this.held) { this.list = this.held.before.list; this.chosen = this.held.before.chosen; this.held = null; this.draw(); } }

  relabel(label) { this.label = label; if (this.chosen >= 0) this.list[this.chosen].label = label; this.draw(); }

  choose(i) { this.chosen = i; this.draw(); }

  remove(i = this.chosen) { if (i < 0) return false; this.list.splice(i, 1); this.chosen = -1; this.draw(); return true; }

  handleAt(x, y) {
    const one = this.list[this.chosen];
    if (!one) return null;
    const [a, b, c, d] = one.box, reach = REACH / this.stage.scale;
    const near = HANDLES.map((h) => [Math.hypot(a + (c - a) * h[0] - x, b + (d - b) * h[1] - y), h]).sort((p, q) => p[0] - q[0])[0];
    return near[0] <= reach ? near[1] : null;
  }

  // The smallest box around a point, so that a small box inside a large one can be reached.
  boxAt(x, y) {
    const size = ([a, b, c, d]) => (c - a) * (d - b);
    const found = this.list.map((one, i) => [one.box, i]).filter(([[a, b, c, d]]) => a <= x && x <= c && b <= y && y <= d);
    const chosen = found.find(([, i]) => i === this.chosen);
    return chosen ? chosen[1] : found.length ? found.sort((p, q) => size(p[0]) - size(q[0]))[0][1] : -1;
  }

  draw() {
    const { width, height, scale } = this.stage;
    this.overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.overlay.replaceChildren(...this.list.flatMap((one, i) => this.shapes(one, i === this.chosen, scale)));
    this.changed?.();
  }

  shapes({ box: [a, b, c, d], label }, chosen, scale) {
    const colour = this.colour(label);
    const rect = shape("rect", { class: chosen ? "box chosen" : "box", stroke: colour, "stroke-width": (chosen ? 3.5 : 2.5) / scale, x: Math.min(a, c), y: Math.min(b, d), width: Math.abs(c - a), height: Math.abs(d - b) });
    const tag = shape("text", { class: "tag", x: Math.min(a, c) + 4 / scale, y: Math.min(b, d) + 16 / scale, "font-size": 14 / scale, "stroke-width": 3 / scale });
    tag.textContent = label;
    const handles = HANDLES.map(([h, v]) => shape("circle", { class: "handle", r: 6 / scale, "stroke-width": 1.5 / scale, cx: a + (c - a) * h, cy: b + (d - b) * v }));
    return chosen ? [rect, tag, ...handles] : [rect, tag];
  }
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
