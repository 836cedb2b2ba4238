"use strict";
(() => {
  const root = document.documentElement;
  const charts = [...document.querySelectorAll(".chart")];
  const hidden = new Set();
  const drawn = new Set();

  const css = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // These colours follow the page's light or dark scheme; the colours of the models are legible on both.
  const theme = () => ({
    "font.color": css("soft"),
    "font.family": css("sans"),
    "xaxis.gridcolor": css("faint"),
    "yaxis.gridcolor": css("faint"),
    "legend.font.color": css("ink"),
    "hoverlabel.bgcolor": css("card"),
    "hoverlabel.bordercolor": css("line"),
    "hoverlabel.font.color": css("ink"),
    "hoverlabel.font.family": css("sans"),
  });

  const set = (layout, path, value) => {
    const keys = path.split(".");
    const last = keys.pop();
    const owner = keys.reduce((at, key) => (at[key] ??= {}), layout);
    owner[last] = value;
  };

  const shown = (trace) => (hidden.has(trace.legendgroup) ? "legendonly" : trace.legendgroup ? true : (trace.visible ?? true));

  // A model is hidden on the whole page at once, so that all charts show the same models.
  const keys = [...document.querySelectorAll(".legend-bar button")];
  const follow = () => {
    drawn.forEach((chart) => Plotly.restyle(chart, { visible: chart.data.map(shown) }));
    keys.forEach((key) => key.setAttribute("aria-pressed", String(!hidden.has(key.dataset.model))));
  };

  const toggle = (model) => {
    if (!hidden.delete(model)) hidden.add(model);
    follow();
  };

  const isolate = (model) => {
    const all = [...drawn].flatMap((chart) => chart.data.map((trace) => trace.legendgroup)).filter(Boolean);
    const alone = !hidden.has(model) && all.every((other) => other === model || hidden.has(other));
    hidden.clear();
    if (!alone) all.filter((other) => other !== model).forEach((other) => hidden.add(other));
    follow();
  };

  // A click waits to see whether it is the first half of a double click.
  const PATIENCE_MS = 300;
  let waiting;
  const once = (model) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => toggle(model), PATIENCE_MS);
  };
  const twice = (model) => {
    clearTimeout(waiting);
    isolate(model);
  };

  // Keys do in a chart's legend what clicks do: Enter or space hides a model, with shift it is seen alone.
  const byKeys = (chart) =>
    chart.querySelectorAll(".legend .legendtoggle").forEach((key) => {
      const trace = key.__data__?.[0]?.trace;
      if (!trace?.legendgroup || key.tabIndex === 0) return;
      const model = trace.legendgroup;
      const say = { tabindex: 0, role: "button", "aria-label": `Show ${trace.name}`, "aria-pressed": String(!hidden.has(model)) };
      Object.entries(say).forEach(([name, value]) => key.setAttribute(name, value));
      key.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        (event.shiftKey ? isolate : toggle)(model);
        [...chart.querySelectorAll(".legend .legendtoggle")].find((one) => one.__data__?.[0]?.trace?.legendgroup === model)?.focus();
      });
    });

  const draw = (chart) => {
    const { data, layout } = JSON.parse(chart.nextElementSibling.textContent);
    Object.entries(theme()).forEach(([path, value]) => set(layout, path, value));
    data.forEach((trace) => (trace.visible = shown(trace)));
    const config = { responsive: true, displayModeBar: false, displaylogo: false, showTips: false, doubleClickDelay: PATIENCE_MS };
    Plotly.newPlot(chart, data, layout, config);
    drawn.add(chart);
    const answer = (change) => (event) => {
      const model = event.data[event.curveNumber].legendgroup;
      if (model) change(model);
      return !model;
    };
    chart.on("plotly_afterplot", () => byKeys(chart));
    byKeys(chart);
    chart.on("plotly_legendclick", answer(once));
    chart.on("plotly_legenddoubleclick", answer(twice));
  };

  const missing = () => charts.filter((chart) => !drawn.has(chart));

  // Charts are drawn from the top. Those that fit into a short time are drawn before the page counts as loaded, so that nobody
  // sees it empty; on a very long page the rest follows one chart at a time, and the page can be read meanwhile.
  const AT_ONCE_MS = 3000;
  const drawAll = async () => {
    const begun = performance.now();
    for (let next = missing()[0]; next; next = missing()[0]) {
      draw(next);
      if (performance.now() - begun > AT_ONCE_MS) await new Promise((later) => setTimeout(later));
    }
    root.dataset.ready = "true";
  };

  const recolour = () => drawn.forEach((chart) => Plotly.relayout(chart, theme()));

  // Paper is light and as wide as a sheet, and a printer does not resize charts, so they are drawn again for it. Paper cannot
  // be clicked either, so everything is unfolded and drawn.
  const folds = [...document.querySelectorAll("details.fold")];
  const ON_PAPER = 0.66;
  let closed = [];
  const paper = (on) => {
    root.classList.toggle("paper", on);
    if (on) closed = folds.filter((fold) => !fold.open);
    closed.forEach((fold) => (fold.open = on));
    missing().forEach(draw);
    drawn.forEach((chart) => {
      const height = (chart.dataset.height ??= chart.layout.height);
      const size = on ? { width: chart.clientWidth, height: Math.round(ON_PAPER * height) } : { width: null, height: Number(height) };
      Plotly.relayout(chart, { ...theme(), ...size, autosize: !on });
    });
  };

  document.querySelectorAll(".picker").forEach((picker) => {
    const parts = [...picker.parentElement.querySelectorAll(".picks")];
    const show = () => {
      const wanted = picker.querySelector("input:checked").value;
      parts.forEach((part) => (part.hidden = part.dataset.pick !== wanted));
    };
    picker.hidden = false;
    picker.addEventListener("change", show);
    show();
  });

  // The menus of a gallery leave the images that have all chosen facts.
  document.querySelectorAll(".gallery").forEach((gallery) => {
    const bar = gallery.querySelector(".filters");
    const menus = [...bar.querySelectorAll("select")];
    const items = [...gallery.querySelectorAll("[data-facts]")].map((item) => [item, JSON.parse(item.dataset.facts)]);
    const show = () => {
      const fits = items.map(([, facts]) => menus.every((menu) => !menu.value || facts[menu.dataset.fact] === menu.value));
      items.forEach(([item], i) => (item.hidden = !fits[i]));
      const left = fits.filter(Boolean).length;
      bar.querySelector(".shown").textContent = `${left} of ${items.length} shown`;
      gallery.querySelector(".none").hidden = left > 0;
    };
    bar.hidden = menus.length === 0;
    bar.addEventListener("change", show);
    show();
  });

  // Every chart has an address, and the numbers that it draws can be taken as CSV.
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const rows = (trace) => {
    const name = trace.name ?? "";
    const [x, y, z] = [trace.x, trace.y, trace.z].map((values) => (values ? [...values] : []));
    if (z.length) return z.flatMap((line, i) => [...line].map((value, j) => [name, x[j] ?? j, y[i] ?? i, value]));
    const error = trace.error_y?.array ? [...trace.error_y.array] : [];
    return Array.from({ length: Math.max(x.length, y.length) }, (_, i) => [name, x[i], y[i], error[i] ?? ""]);
  };
  const csv = (chart) => {
    const traces = chart._fullData ?? [];
    const last = traces.some((trace) => trace.z) ? "z" : "error";
    return [["series", "x", "y", last], ...traces.flatMap(rows)].map((row) => row.map(cell).join(",")).join("\n");
  };
  const tool = (text, label, href) => {
    const link = document.createElement("a");
    Object.assign(link, { textContent: text, href, title: label });
    link.setAttribute("aria-label", label);
    return link;
  };
  charts.forEach((chart) => {
    const section = chart.closest("section")?.id ?? "page";
    const place = charts.filter((other) => (other.closest("section")?.id ?? "page") === section).indexOf(chart) + 1;
    chart.id ||= `${section}-${place}`;
    const numbers = tool("CSV", `The numbers of chart ${chart.id} as CSV`, `#${chart.id}`);
    numbers.download = `${chart.id}.csv`;
    numbers.addEventListener("click", () => (numbers.href = `data:text/csv;charset=utf-8,${encodeURIComponent(csv(chart))}`));
    const tools = document.createElement("div");
    tools.className = "tools";
    tools.append(tool("link", `Link to chart ${chart.id}`, `#${chart.id}`), numbers);
    chart.nextElementSibling.after(tools);
  });

  // Words that are typed leave the sections that hold them all; Enter goes to the first.
  const list = document.querySelector("nav ul");
  const links = [...(list?.querySelectorAll("a") ?? [])];
  if (links.length > 3) {
    const find = document.createElement("input");
    Object.assign(find, { type: "search", placeholder: "search" });
    find.setAttribute("aria-label", "Search the sections");
    const holds = (link) => {
      const text = (document.querySelector(link.getAttribute("href"))?.textContent ?? "").toLowerCase();
      return find.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
    };
    find.addEventListener("input", () => links.forEach((link) => (link.parentElement.hidden = !holds(link))));
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") links.find((link) => !link.parentElement.hidden)?.click();
    });
    const item = document.createElement("li");
    item.className = "find";
    item.append(find);
    list.append(item);
  }

  // A long table shows its first rows; words that are typed leave the rows that hold them all.
  document.querySelectorAll(".findable").forEach((part) => {
    const table = part.querySelector("table");
    const lines = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    const find = document.createElement("input");
    Object.assign(find, { type: "search", placeholder: `search ${part.dataset.what}` });
    find.setAttribute("aria-label", `Search ${part.dataset.what}`);
    find.addEventListener("input", () => {
      const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      table.classList.toggle("all", words.length > 0);
      lines.forEach(([row, text]) => (row.hidden = !words.every((word) => text.includes(word))));
    });
    part.prepend(find);
  });

  // A table that scrolls can be scrolled by keys.
  document.querySelectorAll(".scroll").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  });

  keys.forEach((key) => key.addEventListener("click", () => once(key.dataset.model)));
  keys.forEach((key) => key.addEventListener("dblclick", () => twice(key.dataset.model)));
  keys.forEach((key) =>
    key.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      isolate(key.dataset.model);
    }),
  );
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  drawAll();
})();
