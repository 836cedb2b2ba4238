"use strict";
(() => {
  const root = document.documentElement;
  const charts = [...document.querySelectorAll(".chart")];
  const hidden = new Set();
  const drawn = new Set();

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Colours that follow the page's light or dark scheme; the models' own pens read on both.
  const theme = () => ({
    "font.color": css("--soft"),
    "font.family": css("--sans"),
    "xaxis.gridcolor": css("--faint"),
    "yaxis.gridcolor": css("--faint"),
    "legend.font.color": css("--ink"),
    "hoverlabel.bgcolor": css("--card"),
    "hoverlabel.bordercolor": css("--line"),
    "hoverlabel.font.color": css("--ink"),
    "hoverlabel.font.family": css("--sans"),
  });

  const set = (layout, path, value) => {
    const keys = path.split(".");
    const last = keys.pop();
    const owner = keys.reduce((at, key) => (at[key] ??= {}), layout);
    owner[last] = value;
  };

  const shown = (trace) => (hidden.has(trace.legendgroup) ? "legendonly" : true);

  // A model is hidden on the whole page at once: no two charts disagree about what is shown.
  const follow = () => drawn.forEach((chart) => Plotly.restyle(chart, { visible: chart.data.map(shown) }));

  const toggle = (model) => {
    if (!hidden.delete(model)) hidden.add(model);
    follow();
  };

  const isolate = (model, all) => {
    const alone = !hidden.has(model) && all.every((other) => other === model || hidden.has(other));
    hidden.clear();
    if (!alone) all.filter((other) => other !== model).forEach((other) => hidden.add(other));
    follow();
  };

  const draw = async (chart) => {
    const { data, layout } = JSON.parse(chart.nextElementSibling.textContent);
    Object.entries(theme()).forEach(([path, value]) => set(layout, path, value));
    data.forEach((trace) => (trace.visible = shown(trace)));
    const config = { responsive: true, displayModeBar: false, displaylogo: false, showTips: false };
    await Plotly.newPlot(chart, data, layout, config);
    drawn.add(chart);
    const models = [...new Set(data.map((trace) => trace.legendgroup))];
    chart.on("plotly_legendclick", (event) => {
      toggle(event.data[event.curveNumber].legendgroup);
      return false;
    });
    chart.on("plotly_legenddoubleclick", (event) => {
      isolate(event.data[event.curveNumber].legendgroup, models);
      return false;
    });
  };

  // One chart at a time, from the top, with a breath between: the page can be read while the rest is drawn.
  const drawAll = async () => {
    for (const chart of charts) {
      await draw(chart);
      await new Promise((next) => setTimeout(next));
    }
    root.dataset.ready = "true";
  };

  const recolour = () => Promise.all([...drawn].map((chart) => Plotly.relayout(chart, theme())));

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

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  addEventListener("beforeprint", () => (root.classList.add("paper"), recolour()));
  addEventListener("afterprint", () => (root.classList.remove("paper"), recolour()));
  drawAll();
})();
