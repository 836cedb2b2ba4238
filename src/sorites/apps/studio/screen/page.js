"use strict";
// Ask for the next image, paint it at true pixels, and say so after two animation frames: by then it is on the screen.
// The studio also asks for a confirmation before and after each photograph: the page answers with what it shows and where,
// and with a number that grows with every paint, so that a change in between does not go unnoticed.
const image = document.getElementById("image");
const state = document.getElementById("state");
const id = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
let shown = 0, check = 0, paint = 0;
let position = null;
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

// Something else on the page, such as a dialogue of an extension, may lie over the image.
function covered() {
  const box = image.getBoundingClientRect();
  const at = (x, y) => document.elementFromPoint(box.left + x * (box.width - 1), box.top + y * (box.height - 1));
  return [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5]].some(([x, y]) => at(x, y) !== image);
}

async function show(item) {
  position = { screen: [window.innerWidth, window.innerHeight], left: 0, top: 0, width: 0, height: 0 };
  if (item.black) {
    document.body.className = item.idle ? "" : "black";
  } else {
    const next = new Image();
    next.src = "image/" + item.number;
    await next.decode();
    image.src = next.src;
    await image.decode();
    position = place(item.place);
    document.body.className = "showing";
  }
  paint += 1;
  await confirm(item);
  shown = item.number;
}

async function confirm(item) {
  await painted();
  if (!item.black && covered()) throw new Error("something covers the image");
  const origin = [window.screenX, window.screenY];
  const said = JSON.stringify({ number: item.number, page: id, paint, check: item.check, origin, ...position });
  const answer = await fetch("shown", { method: "POST", body: said });
  if (!answer.ok) throw new Error("status " + answer.status);
  check = item.check;
}

async function run() {
  for (;;) {
    try {
      asking = new AbortController();
      const query = new URLSearchParams({ after: shown, check, page: id });
      const answer = await fetch("next?" + query, { cache: "no-store", signal: asking.signal });
      if (!answer.ok) throw new Error(answer.status === 404 ? "this link is no longer valid" : "status " + answer.status);
      const item = await answer.json();
      if (item.replaced) {
        document.body.className = "";
        state.textContent = "another page shows the images now; reload this one to use it instead";
        return;
      }
      state.textContent = "connected";
      if (item.number !== shown) await show(item);
      else if (item.check !== check) await confirm(item);
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
window.addEventListener("resize", () => { shown = 0; paint += 1; asking.abort(); });
run();
