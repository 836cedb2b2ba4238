// One image after the other: shows, takes the answer, goes on at once. The queue brings answers to the server meanwhile.

import { Boxes } from "./boxes.js";
import { asked, Queue, response } from "./queue.js";
import { filled, made, Questions } from "./questions.js";
import { Stage } from "./stage.js";

const AHEAD = 12;      // images that are fetched before they are needed
const AT_ONCE = 3;
const LEFT = 8;        // with so few images left, ask for more
const $ = (id) => document.getElementById(id);
const token = decodeURIComponent(location.hash.slice(1));
const state = { items: [], at: 0, done: 0, left: 0, work: "", values: new Map(), shownAt: 0, looked: 0,
  asking: false, version: 0, asked: -1 };   // version counts clicks; asked is its value when the server was last asked for work
const images = new Map();   // assignment -> {url, width, height} or a promise of it
let questions, queue, stage;

start();

async function start() {
  if (!token) return say("This page needs the whole link that you were given, with what stands after the #.");
  stage = new Stage($("stage"), $("world"), $("image"));
  queue = new Queue(token, told);
  const known = await untilAnswered(() => asked("api/task", token));
  if (!known) return;
  setUp(known);
  queue.send();
  await more();
  document.documentElement.dataset.ready = "yes";
  if (!remembered("instructions")) openSheet();
}

function setUp({ task, annotator }) {
  document.title = task.title;
  $("title").textContent = filled(task.title);
  $("title").title = `for ${annotator}`;
  for (const place of document.querySelectorAll(".words")) place.replaceChildren(...paragraphs(task.instructions));
  questions = new Questions($("questions"), task, (now) => { if (now) save(); });
  const boxes = task.questions.find((question) => question.kind === "boxes");
  if (boxes) {
    questions.boxesId = boxes.id;
    questions.boxes = new Boxes($("overlay"), stage, boxes.choices.map((choice) => choice.value), () => questions.show());
    stage.tool = questions.boxes;
    stage.changed = () => questions.boxes.draw();
    $("stage").classList.add("drawing");
  }
  $("save").hidden = questions.quick;
  describeKeys(task, boxes);
  listen();
}

// The word that a paragraph begins with, up to its colon, stands out.
function paragraphs(text) {
  return text.trim().split(/\n\s*\n/).map((one) => {
    const [, lead, rest] = /^([^:.\n]{1,30}:)?([\s\S]*)$/.exec(one);
    return made("p", {}, ...(lead ? [made("strong", { textContent: lead })] : []), rest);
  });
}

function listen() {
  $("undo").addEventListener("click", undo);
  $("save").addEventListener("click", save);
  $("help").addEventListener("click", openSheet);
  $("begin").addEventListener("click", () => $("sheet").close());
  $("sheet").addEventListener("close", () => { remember("instructions"); state.shownAt = performance.now(); });
  $("in").addEventListener("click", () => stage.zoom(1.5));
  $("out").addEventListener("click", () => stage.zoom(1 / 1.5));
  $("fit").addEventListener("click", () => stage.fit());
  addEventListener("keydown", pressed);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) state.looked += performance.now() - state.shownAt;
    state.shownAt = performance.now();
  });
}

function pressed(e) {
  if ($("sheet").open || e.isComposing) return;
  const writing = e.target instanceof HTMLTextAreaElement;
  if (writing && !(e.key === "Enter" && (e.ctrlKey || e.metaKey))) { if (e.key === "Escape") e.target.blur(); return; }
  if (handled(e)) e.preventDefault();
}

function handled(e) {
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "z") return undo(), true;
  if (e.ctrlKey && e.key !== "Enter" || e.metaKey || e.altKey) return false;
  if (e.key === "Delete" && questions.boxes) return questions.boxes.remove();
  if (e.key === "Backspace" || e.key === "ArrowLeft") return e.repeat || undo(), true;
  if (e.key === "Enter") return e.repeat || questions.quick || save(), !questions.quick;
  if (e.key === "?") return openSheet(), true;
  if (e.key === "+" || e.key === "=") return stage.zoom(1.5), true;
  if (e.key === "-") return stage.zoom(1 / 1.5), true;
  if (e.key === "Escape") return stage.fit(), true;
  return !e.repeat && e.key.length === 1 && Boolean(current()) && questions.key(e.key);
}

function describeKeys(task, boxes) {
  const lines = ["Enter saves and goes on", "Backspace goes back and takes the last answer away", "+ and − zoom, Esc fits; or wheel, pinch, double click", "? shows this"];
  if (questions.quick) lines[0] = "A choice goes on at once";
  if (boxes) lines.push("Delete removes the chosen box; Alt and drag moves the image");
  $("keys").replaceChildren(...lines.map((text) => made("li", { textContent: text })));
}

const current = () => state.items[state.at];

// Ask what there is to do. Answers that are still on their way count as given.
async function more() {
  if (state.asking) return;
  state.asking = true;
  state.asked = queue.waiting().length ? -1 : state.version;
  try {
    const found = await untilAnswered(() => asked("api/work", token));
    if (found) taken(found);
  } finally { state.asking = false; }
  if (!current()) nothingLeft();
  settle();
}

// The server hands out more once it has what was answered: ask again when little is left and all clicks have arrived.
function settle() {
  const due = questions && !state.asking && state.asked !== state.version && !queue.waiting().length;
  if (due && state.items.length - state.at <= LEFT) more();
}

function taken(found) {
  if (state.work === "qualifying" && found.state !== "qualifying") Object.assign(state, { items: [], at: 0 });   // closed, nothing to go back to
  const waiting = new Map(queue.waiting().map((click) => [click.assignment, click]));
  const have = new Set(state.items.map((item) => item.assignment));
  const fresh = found.items.filter((item) => !have.has(item.assignment));
  const here = current();
  const first = !state.items.length;
  state.items.push(...fresh.map((item) => ({ ...item, answered: waiting.has(item.assignment) ? waiting.get(item.assignment).action === "answer" : item.answered })));
  for (const click of waiting.values()) if (click.value) state.values.set(click.assignment, click.value);
  Object.assign(state, { work: found.state, done: found.done, left: found.left });
  if (!here && first) state.at = state.items.findIndex((item) => !item.answered);
  if (state.at < 0) state.at = state.items.length;
  if (!here && current()) show();
  count();
}

async function show() {
  const item = current();
  stage.stage.dataset.shown = "";
  $("undo").disabled = !before();
  $("questions").inert = $("save").disabled = !item;
  if (!item) return nothingLeft();
  questions.begin(item, state.values.get(item.assignment));
  count();
  say(images.get(item.assignment)?.url ? "" : "Loading the image …");
  if (!images.get(item.assignment)?.url) $("world").hidden = true;
  const image = await fetched(item);
  if (item !== current()) return;
  if (!image) return gone(item);
  say("");
  $("world").hidden = false;
  $("image").alt = item.class ? `Picture, asked for ${item.class}` : "Picture";
  stage.show(image.url, image.width, image.height);
  questions.boxes?.draw();
  await $("image").decode().catch(() => {});
  if (item !== current()) return;
  stage.stage.dataset.shown = item.assignment;
  Object.assign(state, { shownAt: performance.now(), looked: 0 });
  preload();
}

// An image that cannot be read is passed over; the server keeps a note of it.
function gone(item) {
  toast("One image could not be shown and is left out.");
  state.items.splice(state.items.indexOf(item), 1);
  state.version += 1;
  show();
  settle();
}

function nothingLeft() {
  $("world").hidden = true;
  $("questions").inert = true;
  if (queue.waiting().length) return say("Your answers are on their way. You can go on when the connection is back.");
  if (state.work === "suspended") return say("Thank you. The last answers differ too often from the known ones, so there are no further images for now. If you think that is a mistake, ask the person who gave you the link.");
  if (state.work === "refused") return say("Thank you. These answers differ too much from the known ones to go on. If you think that is a mistake, ask the person who gave you the link.");
  say(state.asking || state.asked !== state.version ? "One moment …" : "Thank you. There is nothing left to do for you.");
}

function before() {
  for (let i = state.at - 1; i >= 0; i--) if (state.items[i].answered) return state.items[i];
  return null;
}

function save() {
  const item = current();
  if (!item || stage.stage.dataset.shown !== String(item.assignment)) return;   // only what is seen can be answered
  const value = questions.answers();
  if (!value) return toast("Please answer every question.");
  const seconds = Math.round(state.looked + performance.now() - state.shownAt) / 1000;
  state.version += 1;
  queue.add({ assignment: item.assignment, action: "answer", value, seconds });
  state.values.set(item.assignment, value);
  item.answered = true;
  state.done += 1;
  forward();
}

function forward() {
  do { state.at += 1; } while (current()?.answered);
  show();
  settle();
}

function undo() {
  const item = before();
  if (!item) return;
  state.version += 1;
  queue.add({ assignment: item.assignment, action: "undo" });
  item.answered = false;
  state.done = Math.max(state.done - 1, 0);
  state.at = state.items.indexOf(item);
  show();
}

function fetched(item) {
  const known = images.get(item.assignment);
  if (known) return Promise.resolve(known);
  const coming = untilAnswered(() => response(`api/image/${item.assignment}`, token), [404, 410, 422]).then((answer) => {
    if (!answer) { images.delete(item.assignment); return null; }
    const size = (name) => Number(answer.found.headers.get(name));
    const image = { url: URL.createObjectURL(answer.body), width: size("X-Width"), height: size("X-Height") };
    images.set(item.assignment, image);
    return image;
  });
  images.set(item.assignment, coming);
  return coming;
}

function preload() {
  const wanted = state.items.slice(state.at, state.at + AHEAD);
  const near = new Set(state.items.slice(Math.max(state.at - LEFT, 0), state.at + AHEAD).map((item) => item.assignment));
  for (const [assignment, image] of images) {
    if (!near.has(assignment) && image.url) { URL.revokeObjectURL(image.url); images.delete(assignment); }
  }
  let running = [...images.values()].filter((image) => !image.url).length;
  for (const item of wanted) {
    if (running >= AT_ONCE) return;
    if (!images.has(item.assignment)) { running += 1; fetched(item).then(preload); }
  }
}

// Try until the server answers; an answer that says no is shown, or returned as null where it is expected.
async function untilAnswered(ask, expected = []) {
  for (let i = 0; ; i++) {
    try { const found = await ask(); if (i) told({ waiting: queue.waiting().length, state: "saved" }); return found; } catch (error) {
      if (expected.includes(error.status)) return null;
      if (error.final) { say(error.message); told({ state: "refused", waiting: 0 }); return null; }
      told({ state: "waiting", waiting: queue.waiting().length });
      await pause(Math.min(400 * 2 ** Math.min(i, 4), 5000));
    }
  }
}

function told({ waiting, state: now, refused }) {
  if (refused) return toast(`An answer was not taken: ${refused}`);
  const words = { saved: waiting ? "saving …" : "saved", waiting: waiting ? `offline · ${waiting} kept here` : "offline", refused: "not valid" };
  const shown = waiting || now !== "saved" ? words[now] ?? words.saved : words.saved;
  $("connection").textContent = shown;
  $("connection").dataset.state = now;
  if (now === "saved" && !waiting) settle();
}

function count() {
  const item = current();
  const place = item ? `${item.place + 1} of ${item.of}` : "";
  const kind = state.work === "qualifying" ? "Trial " : "";
  $("count").textContent = item ? `${kind}${place} · ${state.done} done` : `${state.done} done`;
  $("fill").style.width = item ? `${100 * item.place / item.of}%` : "100%";
}

function openSheet() { if (!$("sheet").open) $("sheet").showModal(); }

function say(text) { $("notice").textContent = text; $("notice").hidden = !text; }

let fading;
function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { $("toast").hidden = true; }, 4000);
}

function remembered(what) { try { return localStorage.getItem(`sorites-seen:${token.slice(0, 12)}:${what}`); } catch { return null; } }
function remember(what) { try { localStorage.setItem(`sorites-seen:${token.slice(0, 12)}:${what}`, "yes"); } catch { /* no storage */ } }
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
