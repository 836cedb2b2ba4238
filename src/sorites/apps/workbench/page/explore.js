// A grid of images that scrolls through all rows, with filters; a click opens the trajectory of a sample.

import { drawMap } from "./embedding.js";
import { openTrajectory } from "./trajectory.js";
import { el, get, number, parsed, percent, post, runPicker, say, url, writeAddress } from "./parts.js";

const PAGE = 120;
const WAIT_MS = 120;

export async function show(main, state) {
  const { runs } = await get("runs");
  const usable = runs.filter((run) => !run.error);
  if (!usable.length) { main.append(el("p", {}, "No run was found. Make one: sorites run demo")); return null; }
  const explorer = new Explorer(main, usable, state);
  await explorer.open();
  return () => explorer.close();
}

class Explorer {
  constructor(main, runs, state) {
    this.main = main;
    this.run = runs.some((run) => run.key === state.run) ? state.run : runs[0].key;
    this.runs = runs;
    this.query = parsed(state.q, { where: [] });
    this.query.where = this.query.where || [];
    this.open_image = state.image ?? null; // rows move while a run fills in, ids do not
    this.open_row = this.open_image === null ? state.row ?? null : null;
    this.mapped = state.map === "1";
    this.paired = state.clean === "1"; // the clean image beside each image
    this.pages = new Map();
    this.tiles = new Map();
    this.total = 0;
    this.controller = new AbortController();
  }

  async open() {
    const { columns, tasks } = await get("columns", { run: this.run });
    Object.assign(this, { columns, tasks });
    this.bar = el("div", { class: "bar" });
    this.chips = el("div", { class: "bar", "aria-label": "Filters", role: "group" });
    this.space = el("div", { class: "space" });
    this.grid = el("div", { id: "grid", tabindex: 0, role: "region", "aria-label": "Images" }, this.space);
    this.map = el("section", { class: "panel map-panel", "aria-label": "Map of features", hidden: !this.mapped });
    this.main.replaceChildren(this.bar, this.chips, el("div", { class: "beside" }, this.map, this.grid));
    this.drawBar();
    this.grid.addEventListener("scroll", () => this.draw());
    this.grid.addEventListener("keydown", (event) => this.move(event));
    this.resize?.disconnect();
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(this.grid);
    await this.search();
    if (this.open_image !== null) await this.trajectory({ image: this.open_image });
    else if (this.open_row !== null) await this.trajectory({ row: Number(this.open_row) });
  }

  close() {
    this.controller.abort();
    this.resize?.disconnect();
    this.dialog?.remove();
  }

  address() {
    writeAddress("explore", { run: this.run, q: JSON.stringify(this.query), image: this.open_image, map: this.mapped ? 1 : null, clean: this.paired ? 1 : null });
  }

  drawBar() {
    const column = el("select", { "aria-label": "Column to filter by", onchange: () => this.drawValue(column.value) },
      el("option", { value: "" }, "add a filter …"), this.columns.map(({ name }) => el("option", { value: name }, name)));
    this.value = el("span", {});
    const sort = el("select", { "aria-label": "Sort by", onchange: () => { this.query.sort = sort.value || null; this.search(); } },
      el("option", { value: "" }, "shift, severity"), this.columns.map(({ name }) => el("option", { value: name }, name)));
    sort.value = this.query.sort || "";
    const order = el("button", { "aria-label": "Reverse the order",
      onclick: () => { this.query.descending = !this.query.descending; this.search(); } }, "⇅");
    this.bar.replaceChildren(
      runPicker(this.runs, this.run, (key) => { this.run = key; this.query = { where: [] }; this.open_image = this.open_row = null;
        this.address(); this.open(); }),
      column, this.value, el("label", {}, "sort", sort), order,
      el("button", { onclick: () => { this.mapped = !this.mapped; this.address(); this.drawBar(); this.drawMap(); }, "aria-pressed": String(this.mapped) }, "map"),
      el("button", { onclick: () => { this.paired = !this.paired; this.address(); this.drawBar(); this.redraw(); }, "aria-pressed": String(this.paired) }, "beside clean"),
      el("button", { onclick: () => this.copy() }, "copy as Python"),
      el("button", { onclick: () => this.keep("tag") }, "tag"),
      el("button", { onclick: () => this.keep("folder") }, "to a folder"),
      el("button", { onclick: () => this.keep("annotation") }, "annotate"));
  }

  drawValue(name) {
    const column = this.columns.find((entry) => entry.name === name);
    if (!column) { this.value.replaceChildren(); return; }
    const add = (operator, value) => { this.query.where.push([name, operator, value]); this.value.replaceChildren(); this.drawBar(); this.search(); };
    if (column.kind === "bool") {
      this.value.replaceChildren(el("button", { onclick: () => add("is", true) }, `yes (${number(column.true)})`),
        " ", el("button", { onclick: () => add("is", false) }, `no (${number(column.false)})`));
    } else if (column.kind === "number") {
      const low = el("input", { type: "number", step: "any", "aria-label": `${name} from`, placeholder: number(column.low), size: 8 });
      const high = el("input", { type: "number", step: "any", "aria-label": `${name} to`, placeholder: number(column.high), size: 8 });
      const apply = () => { if (low.value) this.query.where.push([name, "at least", Number(low.value)]);
        if (high.value) this.query.where.push([name, "at most", Number(high.value)]); this.drawBar(); this.search(); };
      this.value.replaceChildren(low, " to ", high, " ", el("button", { onclick: apply }, "apply"));
    } else if (column.kind === "choice") {
      const select = el("select", { "aria-label": `${name} is`, onchange: () => add("is", select.value) },
        el("option", {}, "choose …"), column.values.map(([value, count]) => el("option", { value }, `${value} (${number(count)})`)));
      this.value.replaceChildren(select);
    } else {
      const text = el("input", { type: "search", "aria-label": `${name} contains`, placeholder: "contains …",
        onchange: () => add("contains", text.value) });
      this.value.replaceChildren(text);
    }
  }

  drawChips() {
    this.chips.replaceChildren(...this.query.where.map(([column, operator, value], place) =>
      el("span", { class: "chip" }, `${column} ${operator} ${Array.isArray(value) ? value.length + " values" : value}`,
        el("button", { "aria-label": `Remove the filter on ${column}`,
          onclick: () => { this.query.where.splice(place, 1); this.search(); } }, "×"))));
  }

  // Draws all tiles again, after their content has changed.
  redraw() {
    this.tiles.clear();
    this.space.replaceChildren();
    this.draw();
  }

  // Arrow keys move from image to image; the grid scrolls with them.
  move(event) {
    const at = [...this.tiles].find(([, tile]) => tile.contains(event.target))?.[0];
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.across, ArrowUp: -this.across }[event.key];
    if (at === undefined || !by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const to = at + by;
    if (to < 0 || to >= this.total) return;
    this.tiles.get(to)?.firstChild?.focus();
    this.draw();
  }

  async search() {
    this.controller.abort();
    this.controller = new AbortController();
    this.pages.clear();
    this.tiles.clear();
    this.space.replaceChildren();
    this.drawChips();
    this.address();
    const began = performance.now();
    try {
      await this.load(0);
      say(`${number(this.total)} images · ${Math.round(performance.now() - began)} ms`);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
      return;
    }
    this.grid.scrollTop = 0;
    this.draw();
    this.drawMap();
  }

  drawMap() {
    this.map.hidden = !this.mapped;
    this.draw(); // the grid has another width
    if (!this.mapped) return;
    const models = this.runs.find((run) => run.key === this.run).models;
    drawMap(this.map, models, () => ({ run: this.run, q: this.query }),
      (ids) => { this.query.where.push(["image_id", "in", ids]); this.search(); }, (row) => this.trajectory({ row }));
  }

  async load(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, null);
    const answer = await get("images", { run: this.run, q: this.query, start: page * PAGE, count: PAGE }, this.controller.signal);
    this.total = answer.total;
    this.pages.set(page, answer.images);
  }

  // Only the tiles that can be seen exist. Browsers limit the height of an element, so that of millions of rows is scaled.
  draw() {
    if (!this.grid.clientWidth) return; // hidden, as while a trajectory is printed
    const side = innerWidth < 500 ? 120 : 170;
    const across = Math.max(1, Math.floor(this.grid.clientWidth / (this.paired ? 1.6 * side : side)));
    this.across = across;
    const [width, height] = [this.grid.clientWidth / across, (this.paired ? 0.8 * side : side) + 68];
    const lines = Math.ceil(this.total / across);
    const full = lines * height;
    const shown = Math.min(full, 8_000_000);
    this.space.style.height = `${shown}px`;
    const ratio = shown > this.grid.clientHeight ? (full - this.grid.clientHeight) / (shown - this.grid.clientHeight) : 1;
    const top = this.grid.scrollTop * Math.max(ratio, 1);
    const first = Math.floor(top / height) * across;
    const last = Math.min(this.total, first + (Math.ceil(this.grid.clientHeight / height) + 1) * across);
    for (const [place, tile] of this.tiles) if (place < first || place >= last) { tile.remove(); this.tiles.delete(place); }
    for (let place = first; place < last; place += 1) {
      const image = this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
      if (!this.tiles.has(place)) { this.tiles.set(place, el("div", { class: "tile" })); this.space.append(this.tiles.get(place)); }
      const tile = this.tiles.get(place);
      if (image && !tile.firstChild) tile.append(this.tile(image));
      const y = this.grid.scrollTop + Math.floor(place / across) * height - top;
      tile.style.cssText = `left:${(place % across) * width}px;top:${y}px;width:${width}px;height:${height}px`;
    }
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.fetchMissing(first, last), WAIT_MS);
  }

  async fetchMissing(first, last) {
    const wanted = [];
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) if (!this.pages.has(page)) wanted.push(page);
    if (!wanted.length) return;
    try { await Promise.all(wanted.map((page) => this.load(page))); this.draw(); } catch (error) { if (error.name !== "AbortError") say(error.message, true); }
  }

  tile(image) {
    const answers = Object.keys(image).filter((name) => name.startsWith("answer ")).map((name) => name.slice(7));
    const setting = image.shift === "clean" ? "" : image.words || (image.severity !== null ? number(image.severity) : image.params || "");
    const about = setting ? `${setting} · ${image.shift}` : image.shift;
    const seen = (row, alt) => el("img", { alt, src: url("thumbnail", { run: this.run, row, side: 170 }) });
    return el("button", { onclick: () => this.trajectory({ row: image.row }) },
      el("span", { class: "images" }, this.paired && image.clean !== null ? seen(image.clean, "the clean image") : null,
        seen(image.row, `${image.class || image.sample_id}, ${about}`)),
      el("div", {}, el("small", {}, image.class || "no label"), el("small", { class: "soft", title: about }, about),
        el("small", {}, answers.map((model) => el("span", { class: image[`correct ${model}`] === null ? "soft" : image[`correct ${model}`] ? "good" : "bad",
          title: `${model}: ${image[`answer ${model}`]}` }, image[`correct ${model}`] ? "✓ " : image[`correct ${model}`] === false ? "✗ " : "– ")),
          this.query.sort && image[this.query.sort] !== undefined ? ` ${number(image[this.query.sort])}` : null)));
  }

  async trajectory(of) {
    const found = await get("trajectory", { run: this.run, ...of });
    this.open_image = found.image_id;
    this.address();
    this.dialog?.remove();
    this.dialog = openTrajectory(this.run, found.row, found, () => { this.open_image = null; this.address(); });
  }

  async copy() {
    const { code } = await get("code", { run: this.run, q: this.query });
    try { await navigator.clipboard.writeText(code); say("copied"); } catch { say("copy it from here"); }
    const dialog = el("dialog", { "aria-label": "Python code", onclose: () => dialog.remove() }, el("pre", {}, code), el("button", { onclick: () => dialog.close() }, "close"));
    document.body.append(dialog);
    dialog.showModal();
  }

  // Asks for a name, and for the task of an annotation; then shows the command that goes on with the selection.
  keep(as) {
    const what = { tag: "Tag", folder: "Write to a folder:", annotation: "Annotate" }[as];
    const name = el("input", { required: true, pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]{0,63}", title: "letters, digits, dots, dashes and underscores", "aria-label": "Name" });
    const task = as === "annotation" ? el("select", { "aria-label": "Task" }, this.tasks.map((each) => el("option", { value: each }, each))) : null;
    const told = el("p", { role: "status" });
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); send(); } },
      el("p", {}, el("label", {}, "name ", name)), task ? el("p", {}, el("label", {}, "task ", task)) : null,
      el("div", { class: "bar" }, el("button", {}, "make"), el("button", { type: "button", onclick: () => dialog.close() }, "close")), told);
    const dialog = el("dialog", { "aria-label": what, class: "small", onclose: () => dialog.remove() }, el("h2", {}, `${what} ${number(this.total)} images`), form);
    const send = async () => {
      told.textContent = "working …";
      told.className = "";
      try {
        const done = await post("select", JSON.stringify({ run: this.run, q: this.query, as, name: name.value, task: task?.value }));
        told.replaceChildren(`${number(done.count)} images. Next:`, el("pre", {}, done.next));
        if (as === "tag") { // a new column
          this.columns = (await get("columns", { run: this.run })).columns;
          this.drawBar();
        }
      } catch (error) { told.textContent = error.message; told.className = "bad"; }
    };
    document.body.append(dialog);
    dialog.showModal();
  }
}
