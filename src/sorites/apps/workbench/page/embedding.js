// A map of the images of a run by the features of a model. A lasso around points becomes a filter.

import { el, get, number, percent, say } from "./parts.js";

const SIDE = 400;
const EDGE = 12;
// A filter travels in the address, so that it can hold only so many images.
const MOST = 500;

// Draws into a panel; `search` returns the run and the query, `filter` takes the ids of the images in a lasso.
export function drawMap(panel, models, search, filter, open) {
  const model = el("select", { "aria-label": "Model of the map", onchange: () => draw() }, models.map((name) => el("option", { value: name }, name)));
  const by = el("select", { "aria-label": "Kind of map", onchange: () => draw() },
    el("option", { value: "components" }, "principal components"), el("option", { value: "neighbours" }, "t-SNE"), el("option", { value: "umap" }, "UMAP"));
  const told = el("p", { class: "soft" });
  const plot = el("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "plot", role: "application", "aria-label": "Images by their features", tabindex: 0,
    onpointerdown: begin, onpointermove: move, onpointerup: end, onkeydown: press });
  const cursor = el("rect", { class: "cursor", width: 9, height: 9, x: -4.5, y: -4.5 });
  let place = [SIDE / 2, SIDE / 2];
  const put = () => cursor.setAttribute("transform", `translate(${place})`);
  const lasso = el("polyline", { class: "lasso" });
  let points = [];
  let path = null;
  let corners = [];
  put();
  panel.replaceChildren(el("div", { class: "bar" }, el("h2", {}, "Map"), model, by), plot, told);

  async function draw() {
    told.textContent = "placing the images …";
    try {
      const answer = await get("embedding", { ...search(), model: model.value, by: by.value });
      points = placed(answer.points);
      plot.replaceChildren(...points.map(({ row, x, y, correct }) => el("circle", { cx: x, cy: y, r: 3.2, "data-row": row,
        class: correct === null ? "none" : correct ? "yes" : "no" })), lasso, cursor);
      const some = answer.total > points.length ? `${number(points.length)} of ${number(answer.total)} images, evenly spaced. ` : "";
      told.textContent = `${some}Green: correct, red rings: wrong. Draw around points to filter; click one to open it. With the keyboard: arrows move, space sets a corner, Enter filters or opens.`
        + (answer.share ? ` The axes have ${answer.share.map(percent).join(" and ")} of the variance.` : "");
    } catch (error) { plot.replaceChildren(); told.textContent = error.message; }
  }

  function at(event) {
    const box = plot.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width * SIDE, (event.clientY - box.top) / box.height * SIDE];
  }

  function begin(event) { path = [at(event)]; plot.setPointerCapture(event.pointerId); }

  function move(event) {
    if (!path) return;
    path.push(at(event));
    lasso.setAttribute("points", path.map((point) => point.join(",")).join(" "));
  }

  function end(event) {
    if (!path) return;
    const drawn = path;
    path = null;
    finish(drawn, at(event));
  }

  // The same with the keyboard: a cursor, corners, and Enter.
  function press(event) {
    const step = event.shiftKey ? 2 : 10;
    const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (by) {
      place = place.map((value, i) => Math.min(Math.max(value + by[i], 0), SIDE));
      put();
    } else if (event.key === " ") {
      corners.push(place);
      lasso.setAttribute("points", corners.map((point) => point.join(",")).join(" "));
    } else if (event.key === "Enter") finish(corners.length > 2 ? [...corners, corners[0]] : [], place);
    else if (event.key === "Escape") { corners = []; lasso.setAttribute("points", ""); } else return;
    event.preventDefault();
  }

  function finish(drawn, [x, y]) {
    corners = [];
    lasso.setAttribute("points", "");
    if (drawn.length < 4) {
      const near = points.map((point) => [Math.hypot(point.x - x, point.y - y), point.row]).sort((a, b) => a[0] - b[0])[0];
      if (near && near[0] < 10) open(near[1]);
      return;
    }
    const ids = points.filter((point) => inside(point, drawn)).map((point) => point.id);
    if (!ids.length) say("no image is inside");
    else if (ids.length > MOST) say(`${number(ids.length)} images are inside; draw around at most ${MOST}`, true);
    else filter(ids);
  }

  return draw();
}

function placed(points) {
  const scale = (values) => { const [low, high] = [Math.min(...values), Math.max(...values)]; return (value) => EDGE + (value - low) / (high - low || 1) * (SIDE - 2 * EDGE); };
  const [across, down] = [scale(points.map((point) => point[2])), scale(points.map((point) => point[3]))];
  return points.map(([row, id, x, y, correct]) => ({ row, id, x: across(x), y: SIDE - down(y), correct }));
}

// Even-odd rule: a ray to the right crosses the outline an odd number of times.
function inside({ x, y }, outline) {
  let odd = false;
  outline.forEach(([x1, y1], i) => {
    const [x0, y0] = outline[(i || outline.length) - 1];
    if ((y0 > y) !== (y1 > y) && x < (x1 - x0) * (y - y0) / (y1 - y0) + x0) odd = !odd;
  });
  return odd;
}
