// The image: as large as fits, moved by dragging, made larger by wheel, pinch, keys or double click.

const LARGEST = 40;
const SLACK = 4;   // px that a pointer may move in a click

export class Stage {
  constructor(stage, world, image) {
    Object.assign(this, { stage, world, image, width: 1, height: 1, scale: 1, x: 0, y: 0, fitted: true, pointers: new Map() });
    this.tool = null;   // a drawing tool gets single pointers first
    new ResizeObserver(() => (this.fitted ? this.fit() : this.apply())).observe(stage);
    stage.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(Math.exp(-e.deltaY * (e.ctrlKey ? .01 : .0016)), e.clientX, e.clientY); }, { passive: false });
    stage.addEventListener("dblclick", (e) => { if (!this.tool) this.fitted ? this.zoom(2.5, e.clientX, e.clientY) : this.fit(); });
    stage.addEventListener("pointerdown", (e) => this.down(e));
    stage.addEventListener("pointermove", (e) => this.move(e));
    for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, (e) => this.up(e));
  }

  show(url, width, height) {
    Object.assign(this, { width, height });
    this.image.src = url;
    this.world.style.width = `${width}px`;
    this.world.style.height = `${height}px`;
    this.fit();
  }

  fit() {
    const { clientWidth: w, clientHeight: h } = this.stage;
    this.scale = Math.min(w / this.width, h / this.height) * .985;
    this.x = (w - this.width * this.scale) / 2;
    this.y = (h - this.height * this.scale) / 2;
    this.fitted = true;
    this.apply();
  }

  zoom(factor, clientX, clientY) {
    const frame = this.stage.getBoundingClientRect();
    const px = (clientX ?? frame.left + frame.width / 2) - frame.left, py = (clientY ?? frame.top + frame.height / 2) - frame.top;
    const least = Math.min(frame.width / this.width, frame.height / this.height) * .985;
    const scale = Math.min(Math.max(this.scale * factor, least), Math.max(LARGEST, least));
    this.x = px - (px - this.x) * scale / this.scale;
    this.y = py - (py - this.y) * scale / this.scale;
    this.scale = scale;
    this.fitted = scale <= least * 1.001;
    this.fitted ? this.fit() : this.apply();
  }

  apply() {
    const { clientWidth: w, clientHeight: h } = this.stage;
    const held = (at, size, room) => (size <= room ? (room - size) / 2 : Math.min(Math.max(at, room - size), 0));
    this.x = held(this.x, this.width * this.scale, w);
    this.y = held(this.y, this.height * this.scale, h);
    this.world.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.image.classList.toggle("coarse", this.scale >= 6 && !this.fitted);
    this.changed?.();
  }

  // From a pointer to pixels of the image itself.
  at(e) {
    const frame = this.stage.getBoundingClientRect();
    const clamp = (v, most) => Math.min(Math.max(v, 0), most);
    return [clamp((e.clientX - frame.left - this.x) / this.scale, this.width), clamp((e.clientY - frame.top - this.y) / this.scale, this.height)];
  }

  down(e) {
    if (e.target.closest("button")) return;
    this.stage.setPointerCapture(e.pointerId);
    this.pointers.set(e.pointerId, e);
    if (this.pointers.size === 2) { this.tool?.cancel(); this.drawing = false; return; }
    this.drawing = Boolean(this.tool) && e.button === 0 && !e.altKey && this.tool.down(this.at(e), e);
  }

  move(e) {
    const before = this.pointers.get(e.pointerId);
    if (!before) return;
    if (this.pointers.size === 1) {
      if (this.drawing) this.tool.move(this.at(e));
      else if (!this.fitted) { this.x += e.clientX - before.clientX; this.y += e.clientY - before.clientY; this.apply(); this.stage.classList.add("panning"); }
    } else if (this.pointers.size === 2) {
      const other = [...this.pointers.values()].find((p) => p.pointerId !== e.pointerId);
      const far = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY) || 1;
      this.x += (e.clientX - before.clientX) / 2;
      this.y += (e.clientY - before.clientY) / 2;
      this.zoom(far(e) / far(before), (e.clientX + other.clientX) / 2, (e.clientY + other.clientY) / 2);
    }
    this.pointers.set(e.pointerId, e);
  }

  up(e) {
    this.pointers.delete(e.pointerId);
    this.stage.classList.remove("panning");
    if (this.drawing) { this.drawing = false; this.tool.up(SLACK / this.scale); }
  }
}
