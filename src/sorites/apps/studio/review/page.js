"use strict";
// One sheet at a time. 1, 2, 3 flag, N writes a note, Enter or the right arrow goes on, the left arrow goes back, Z enlarges.
const by = (id) => document.getElementById(id);
let state = null, at = 0, flags = new Set();

function draw() {
  const image = state.images[at], seen = state.images.filter((p) => p.seen).length, all = state.images.length;
  flags = new Set(image.flags);
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

function marks() {
  for (const button of by("flags").children) button.setAttribute("aria-pressed", flags.has(button.dataset.kind));
  const last = at === state.images.length - 1;
  by("next").firstChild.textContent = (flags.size ? "Flag, " : "Right, ") + (last ? "done " : "next ");
}

function toggle(kind) {
  flags.has(kind) ? flags.delete(kind) : flags.add(kind);
  marks();
}

async function say() {
  const said = { number: at, flags: [...flags], note: by("note").value };
  const answer = await fetch("verdict", { method: "POST", body: JSON.stringify(said) });
  if (!answer.ok) throw new Error("the verdict was not kept: status " + answer.status);
  Object.assign(state.images[at], { seen: true, flags: said.flags, note: said.note });
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
  if (event.key === "Enter" && event.target.tagName === "BUTTON") return;
  const kind = Object.keys(state.kinds)[Number(event.key) - 1];
  if (kind) toggle(kind);
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
  by("next").addEventListener("click", next);
  by("back").addEventListener("click", back);
  at = Math.max(0, state.images.findIndex((p) => !p.seen));
  draw();
  document.documentElement.dataset.ready = "";
}
start();
