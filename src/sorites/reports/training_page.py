"""The page of a training: what the model reached, the curves on the way there, and what it was made from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.files import write_bytes
from sorites.reports.page import document, hero
from sorites.reports.parts.charts import COLOURS, PERCENT_AXIS, figure_of, plot
from sorites.reports.parts.markup import EMPTY, Html, between, count, grid, join, number, percent, several, tag
from sorites.reports.section import Section

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = Mapping[str, Any]
TRAINING, VALIDATION = "training", "validation"
WINDOW = 40
"""The curves of training are means over about this many of the shown steps' neighbours, divided into as many pieces."""


def training_page(
    record: Mapping[str, Any], history: Sequence[Row], out: Path, defaults: Mapping[str, Any] | None = None
) -> Path:
    """Write the page of a finished training from its record (``model.json``) and its history, whole or not at all.

    Keys of the recipe that are as in ``defaults`` are folded away.
    """
    name = str(record["recipe"]["name"])
    found = {"curves": _curves(history), "recipe": _recipe(record, defaults or {}), "origin": _origin(record)}
    page = document(f"{name} · training", _top(record, name, history), found, EMPTY)
    write_bytes(page.encode("utf-8", errors="replace"), out)
    return out


def _top(record: Mapping[str, Any], name: str, history: Sequence[Row]) -> Html:
    return hero(
        tag("p", f"Sorites · training · {name}", cls="kind"),
        tag("h1", _headline(record)),
        tag("p", _in_short(record), cls="short"),
        tag("p", _facts(record, history), cls="facts"),
    )


def _headline(record: Mapping[str, Any]) -> str:
    held = record["validation"]
    if held is None:
        return f"{record['network']}, trained for {several(record['steps'], 'step')}"
    return f"{percent(held['accuracy'])} of the validation pictures are right"


def _in_short(record: Mapping[str, Any]) -> str:
    held, parent = record["validation"], record["parent"]
    began = "random weights" if parent.get("weights") is None else f"the weights of {parent['spec']}"
    augmented = record["recipe"]["augment"]["names"]
    how = f"with the augmentation {augmented}" if augmented != "none" else "without augmentation"
    trained = f"The network {record['network']} was trained from {began} for {several(record['steps'], 'step')}, {how}."
    if held is None:
        return f"{trained} It was not judged by validation pictures."
    interval = between(percent(held["low"]), percent(held["high"]))
    return f"{trained} Validation accuracy {percent(held['accuracy'])} (95 %: {interval}, n = {count(held['n'])})."


def _facts(record: Mapping[str, Any], history: Sequence[Row]) -> str:
    speeds = sorted(row["pictures_per_second"] for row in history if "pictures_per_second" in row)
    counted = [several(n, f"{part} picture") for part, n in record["pictures"].items()]
    parts = [
        *counted,
        several(len(record["classes"]), "class", "classes"),
        f"{record['input']['size'][0]} px",
        f"batch {record['recipe']['batch'] * record['recipe']['accumulate']}",
        f"seed {record['recipe']['seed']}",
    ]
    parts += [f"{number(speeds[len(speeds) // 2])} pictures per second"] if speeds else []
    return " · ".join(parts)


def _curves(history: Sequence[Row]) -> Section:
    cards = [
        _card("Loss", "Cross-entropy; in training with what the recipe adds to it, such as label smoothing.", _losses(history)),
        _card(
            "Accuracy", "Of training pictures as the network saw them, augmented, and of validation pictures.", _shares(history)
        ),
        _card("Learning rate", "The highest of all layers.", _rates(history)),
    ]
    return Section("How it went", tag("div", *cards, cls="cards"), "Curves", _lead(history))


def _lead(history: Sequence[Row]) -> str:
    judged = any("validation_accuracy" in row for row in history)
    said = "Thin lines are single stretches of steps, thick ones their running mean."
    return f"{said} Dots are the validation part, with 95 % intervals of the accuracy." if judged else said


def _card(title: str, words: str, fig: go.Figure) -> Html:
    return tag("article", tag("h3", title), tag("p", words, cls="about"), plot(fig, f"{title} over the steps"), cls="card")


def _losses(history: Sequence[Row]) -> go.Figure:
    fig = figure_of([TRAINING, VALIDATION], "step", "loss", xaxis=_along(history))
    _trained(fig, history, "loss", ".3f")
    _validated(fig, history, "validation_loss", ".3f")
    return fig


def _shares(history: Sequence[Row]) -> go.Figure:
    fig = figure_of([TRAINING, VALIDATION], "step", "accuracy", xaxis=_along(history), yaxis=PERCENT_AXIS)
    _trained(fig, history, "accuracy", ".1%")
    _validated(fig, history, "validation_accuracy", ".1%")
    return fig


def _rates(history: Sequence[Row]) -> go.Figure:
    rows = [row for row in history if "lr" in row]
    fig = figure_of([], "step", "learning rate", xaxis=_along(history), yaxis={"rangemode": "tozero"})
    fig.add_trace(_line([row["step"] for row in rows], [row["lr"] for row in rows], "learning rate", COLOURS[2], ".3~g"))
    return fig.update_layout(showlegend=False)


def _along(history: Sequence[Row]) -> dict[str, Any]:
    """Return an axis of steps from the first to the last, with a margin."""
    last = max((row["step"] for row in history), default=1)
    return {"range": [-0.02 * last, 1.03 * last], "nticks": 6}


def _trained(fig: go.Figure, history: Sequence[Row], key: str, form: str) -> None:
    rows = [row for row in history if key in row]
    steps, values = [row["step"] for row in rows], [row[key] for row in rows]
    thin = _line(steps, values, TRAINING, COLOURS[0], form)
    fig.add_trace({**thin, "opacity": 0.28, "line": {**thin["line"], "width": 1}, "showlegend": False, "hoverinfo": "skip"})
    fig.add_trace(_line(steps, _smoothed(values), TRAINING, COLOURS[0], form))


def _validated(fig: go.Figure, history: Sequence[Row], key: str, form: str) -> None:
    rows = [row for row in history if key in row]
    if not rows:
        return
    trace = _line([row["step"] for row in rows], [row[key] for row in rows], VALIDATION, COLOURS[1], form)
    trace |= {"mode": "lines+markers", "marker": {"size": 8, "color": COLOURS[1]}}
    if key == "validation_accuracy":
        above = [row["high"] - row[key] for row in rows]
        below = [row[key] - row["low"] for row in rows]
        trace["error_y"] = {"type": "data", "array": above, "arrayminus": below, "thickness": 1.4, "width": 3}
    fig.add_trace(trace)


def _line(x: Sequence[float], y: Sequence[float], name: str, colour: str, form: str) -> dict[str, Any]:
    shown = f"<b>{name}</b><br>step %{{x}}<br>%{{y:{form}}}<extra></extra>"
    drawn = {"color": colour, "width": 2.2}
    return {"type": "scatter", "x": x, "y": y, "name": name, "mode": "lines", "line": drawn, "hovertemplate": shown}


def _smoothed(values: Sequence[float]) -> list[float]:
    """Return running means over a fortieth of the values, ahead of which there are fewer."""
    width = max(1, len(values) // WINDOW)
    return [math.fsum(values[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(values))]


def _recipe(record: Mapping[str, Any], defaults: Mapping[str, Any]) -> Section:
    usual = dict(_flat(defaults))
    held = [(key, value) for key, value in _flat(record["recipe"]) if value is not None and value != []]
    chosen = [(tag("code", key), _value(value)) for key, value in held if usual.get(key) != value]
    others = [(tag("code", key), _value(value)) for key, value in held if usual.get(key) == value]
    summary = tag("summary", several(len(others), "key"), " at the default")
    rest = tag("details", summary, grid(["key", "value"], others, text=2), cls="fold") if others else EMPTY
    body = join([tag("article", grid(["key", "value"], chosen, text=2), cls="card"), rest])
    return Section("The recipe", body, "Recipe", "Every key that is not at its default, as it was when the training began.")


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and data and isinstance(data[0], Mapping):
        for place, value in enumerate(data):
            yield from _flat(value, f"{path}.{place}")
    else:
        yield path, data


def _value(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:12]))
        return f"{shown} and {len(value) - 12} more" if len(value) > 12 else shown
    return str(value).lower() if isinstance(value, bool) else str(value)


def _origin(record: Mapping[str, Any]) -> Section:
    parent = record["parent"]
    rows = [
        ("network", record["network"]),
        ("begun from", parent["spec"] + (f" (weights {parent['weights']})" if parent.get("weights") else " (random weights)")),
        ("hash of the pictures", record["data_hash"]),
        ("hash of the recipe", record["recipe_hash"]),
        ("libraries", ", ".join(f"{name} {version}" for name, version in record["versions"].items())),
        ("classes", _value(record["classes"])),
    ]
    table = tag("article", grid(["of this model", "what it is"], rows, text=2), cls="card")
    use = tag("p", "Name it anywhere a model is named: ", tag("code", "--model trained:DIR"), ".", cls="lead")
    return Section("Where it comes from", join([use, table]), "Origin")
