"use strict";
// Ask for the next image, paint it at true pixels, and say so after two animation frames: by then it is on the screen.
const image = document.getElementById("image");
const state = document.getElementById("state");
let shown = 0;
let asking = new AbortController();

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

function place(where) {
  const ratio = window.devicePixelRatio || 1;
  const screen = [Math.round(window.innerWidth * ratio), Math.round(window.innerHeight * ratio)];
  const shrink = Math.min(1, screen[0] / image.naturalWidth, screen[1] / image.naturalHeight);
  const width = Math.round(image.naturalWidth * shrink), height = Math.round(image.naturalHeight * shrink);
  const left = where === "centre" ? Math.floor((screen[0] - width) / 2) : 0;
  const top = where === "centre" ? Math.floor((screen[1] - height) / 2) : 0;
  Object.assign(image.style, {
    width: width / ratio + "px", height: height / ratio + "px", left: left / ratio + "px", top: top / ratio + "px",
  });
  return { screen, left, top, width, height };
}

async function show(item) {
  let where = { screen: [window.innerWidth, window.innerHeight], left: 0, top: 0, width: 0, height: 0 };
  if (item.black) {
    document.body.className = item.idle ? "" : "black";
  } else {
    const next = new Image();
    next.src = "image/" + item.number;
    await next.decode();
    image.src = next.src;
    await image.decode();
    where = place(item.place);
    document.body.className = "showing";
  }
  await painted();
  const said = JSON.stringify({ number: item.number, ...where });
  await fetch("shown", { method: "POST", body: said });
  shown = item.number;
}

async function run() {
  for (;;) {
    try {
      asking = new AbortController();
      const answer = await fetch("next?after=" + shown, { cache: "no-store", signal: asking.signal });
      if (!answer.ok) throw new Error(answer.status === 404 ? "this link is no longer valid" : "status " + answer.status);
      const item = await answer.json();
      state.textContent = "connected";
      if (item.number !== shown) await show(item);
    } catch (error) {
      if (error.name === "AbortError") continue;
      state.textContent = "waiting for the studio (" + error.message + ")";
      await wait(500);
    }
  }
}

const full = () => document.fullscreenElement || document.documentElement.requestFullscreen().catch(() => {});
document.addEventListener("keydown", (event) => { if (event.key === "f" || event.key === "F") full(); });
document.addEventListener("click", full);
window.addEventListener("resize", () => { shown = 0; asking.abort(); });
run();
