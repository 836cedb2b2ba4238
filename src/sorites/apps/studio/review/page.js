"use strict";
// One sheet at a time. A click chooses photographs; 1, 2, 3 flag them, or all photographs of the image if none is chosen. N writes a note,
// Enter or the right arrow goes on, the left arrow goes back, Escape chooses none, Z enlarges.
const by = (id) => document.getElementById(id);
let state = null, at = 0, flags = new Set(), shots = new Map(), chosen = new Set();

function draw() {
  const image = state.images[at], seen = state.images.filter((p) => p.seen).length, all = state.images.length;
  flags = new Set(image.flags);
  shots = new Map(Object.entries(image.shots).map(([number, kinds]) => [Number(number), new Set(kinds)]));
  chosen.clear();
  by("name").textContent = image.name;
  by("sheet").src = "sheet/" + at;
  by("sheet").alt = "every photograph of " + image.name;
  by("note").value = image.note;
  by("count").textContent = `sheet ${at + 1} of ${all}, ${seen} seen`;
  by("filled").style.width = (100 * seen) / all + "%";
  by("progress").setAttribute("aria-valuenow", seen);
  by("progress").setAttribute("aria-valuemax", all);
  by("back").disabled = at === 0;
  marks();
}

const kindsOf = (number) => shots.get(number) ?? new Set();
const isOn = (kind) => (chosen.size ? [...chosen].every((number) => kindsOf(number).has(kind)) : flags.has(kind));

function marks() {
  for (const button of by("flags").children) button.setAttribute("aria-pressed", isOn(button.dataset.kind));
  const doubts = state.images[at].doubts, doubted = Object.keys(doubts).length;
  [...by("tiles").children].forEach((button, number) => {
    const found = [...kindsOf(number)].map((kind) => state.kinds[kind]), doubt = doubts[number] ? [doubts[number]] : [];
    button.setAttribute("aria-pressed", chosen.has(number));
    button.classList.toggle("flagged", found.length > 0);
    button.classList.toggle("doubted", doubt.length > 0 && found.length === 0);
    button.title = [state.sheet.tiles[number].name, ...found, ...doubt].join(", ");
    button.setAttribute("aria-label", button.title);
    button.firstChild.textContent = found.map((name) => name[0].toUpperCase()).join(" ") || (doubt.length ? "?" : "");
  });
  const marked = [...shots.values()].filter((kinds) => kinds.size).length, last = at === state.images.length - 1;
  const which = chosen.size ? `${chosen.size} chosen` : flags.size ? "all photographs of the image" : "none chosen: flags are for all photographs";
  const unlike = doubted ? `; ${doubted} marked ? do not match the reference: flag what is wrong` : "";
  by("about").textContent = `${which}; ${marked} flagged one by one${unlike}`;
  by("next").firstChild.textContent = (flags.size || marked ? "Flag, " : "Right, ") + (last ? "done " : "next ");
}

function toggle(kind) {
  const on = !isOn(kind);
  const sets = chosen.size ? [...chosen].map((number) => (shots.set(number, kindsOf(number)), shots.get(number))) : [flags];
  for (const kinds of sets) on ? kinds.add(kind) : kinds.delete(kind);
  marks();
}

function choose(number) {
  chosen.has(number) ? chosen.delete(number) : chosen.add(number);
  marks();
}

function tiles() {
  const { size, side, tiles } = state.sheet, share = (value, whole) => (100 * value) / whole + "%";
  tiles.forEach((tile, number) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(document.createElement("span"));
    Object.assign(button.style, {
      left: share(tile.at[0], size[0]), top: share(tile.at[1], size[1]), width: share(side, size[0]), height: share(side, size[1]),
    });
    button.addEventListener("click", () => choose(number));
    by("tiles").append(button);
  });
}

async function say() {
  const single = Object.fromEntries([...shots].map(([number, kinds]) => [number, [...kinds]]));
  const said = { number: at, flags: [...flags], shots: single, note: by("note").value };
  const answer = await fetch("verdict", { method: "POST", body: JSON.stringify(said) });
  if (!answer.ok) throw new Error("the verdict was not kept: status " + answer.status);
  Object.assign(state.images[at], { seen: true, flags: said.flags, shots: said.shots, note: said.note });
}

async function next() {
  try {
    await say();
    at = Math.min(at + 1, state.images.length - 1);
    draw();
    if (state.images.every((p) => p.seen)) by("count").textContent = "all " + state.images.length + " seen. Thank you";
  } catch (error) {
    by("count").textContent = error.message;
  }
}

function back() {
  at = Math.max(0, at - 1);
  draw();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === by("note")) {
    if (event.key === "Escape") by("view").focus();
    if (event.key === "Enter") { event.preventDefault(); by("view").focus(); next(); }
    return;
  }
  // Enter presses the focused button; on a photograph, Space chooses it and Enter goes on.
  if (event.key === "Enter" && event.target.tagName === "BUTTON" && !event.target.closest("#tiles")) return;
  const kind = Object.keys(state.kinds)[Number(event.key) - 1];
  if (kind) toggle(kind);
  else if (event.key === "Escape") { chosen.clear(); marks(); }
  else if (event.key === "n" || event.key === "N") { event.preventDefault(); by("note").focus(); }
  else if (event.key === "z" || event.key === "Z") by("view").classList.toggle("large");
  else if (event.key === "Enter" || event.key === "ArrowRight") { event.preventDefault(); next(); }
  else if (event.key === "ArrowLeft") { event.preventDefault(); back(); }
});

async function start() {
  state = await (await fetch("state", { cache: "no-store" })).json();
  by("who").textContent = state.reviewer;
  Object.entries(state.kinds).forEach(([kind, name], number) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.kind = kind;
    button.append(name[0].toUpperCase() + name.slice(1) + " ");
    const key = document.createElement("kbd");
    key.textContent = number + 1;
    button.append(key);
    button.addEventListener("click", () => toggle(kind));
    by("flags").append(button);
  });
  tiles();
  by("next").addEventListener("click", next);
  by("back").addEventListener("click", back);
  at = Math.max(0, state.images.findIndex((p) => !p.seen));
  draw();
  document.documentElement.dataset.ready = "";
}
start();
