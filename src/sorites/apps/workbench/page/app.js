// Shows the view that the address names.

import { readAddress, say } from "./parts.js";
import * as runs from "./runs.js";
import * as explore from "./explore.js";
import * as turn from "./turn.js";
import * as lens from "./lens.js";

const views = { runs, explore, turn, lens };
const main = document.getElementById("view");
let leave = () => {};

async function show() {
  const { view, state } = readAddress();
  const chosen = views[view] || runs;
  leave();
  leave = () => {};
  main.replaceChildren();
  say("");
  document.querySelectorAll("nav a").forEach((link) => {
    if (views[link.dataset.view] === chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  try {
    leave = (await chosen.show(main, state)) || leave;
  } catch (error) {
    say(error.message, true);
  }
}

// Whatever a click asks for may fail: the server says why.
addEventListener("unhandledrejection", (event) => { event.preventDefault(); say(event.reason?.message || String(event.reason), true); });
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const view = { 1: "runs", 2: "explore", 3: "turn", 4: "lens" }[event.key];
  if (view && !document.querySelector("dialog[open]")) location.hash = `#/${view}`;
});
show();
