"""Pages of training: one for a single training, and one that compares training arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.messages import option
from sorites.io.files import write_bytes
from sorites.reports.components.charts import COLOURS, PERCENT_AXIS, SYMBOLS, figure_of, plot
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    points,
    several,
    tag,
)
from sorites.reports.page import document, hero
from sorites.reports.section import Section

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = Mapping[str, Any]
TRAINING, VALIDATION = "training", "validation"
# Training curves are smoothed by running means over 1 / SMOOTHING_PIECES of their points.
SMOOTHING_PIECES = 40


def training_page(
    record: Mapping[str, Any], history: Sequence[Row], out: Path, defaults: Mapping[str, Any] | None = None
) -> Path:
    """Write the page of a finished training atomically.

    Args:
        record: The content of ``model.json``.
        history: The rows of the training history.
        out: The file to write.
        defaults: The default recipe; keys at their default are folded away.
    """
    name = str(record["recipe"]["name"])
    page_sections = {
        "curves": _curves(history, _finds_boxes(record)),
        "recipe": _recipe(record, defaults or {}),
        "origin": _origin(record),
    }
    page = document(f"{name} · training", _top(record, name, history), page_sections, EMPTY)
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
    validation = record["validation"]
    if validation is None:
        return f"{record['network']}, trained for {several(record['steps'], 'step')}"
    return f"{percent(validation['accuracy'])} of the validation images are classified correctly"


def _in_short(record: Mapping[str, Any]) -> str:
    validation, parent = record["validation"], record["parent"]
    began = "random weights" if parent.get("weights") is None else f"the weights of {parent['spec']}"
    augmented = record["recipe"]["augment"]["names"]
    how = f"with the augmentation {augmented}" if augmented != "none" else "without augmentation"
    trained = f"{record['network']} was trained from {began} for {several(record['steps'], 'step')}, {how}."
    if validation is None and _finds_boxes(record):
        return f"{trained} mAP and TIDE are those of a run on images with ground-truth boxes."
    if validation is None:
        return f"{trained} It was not evaluated on validation images."
    interval = between(percent(validation["low"]), percent(validation["high"]))
    return (
        f"{trained} Validation accuracy {percent(validation['accuracy'])} (95 %: {interval}, n ="
        f" {count(validation['n'])})."
    )


def _facts(record: Mapping[str, Any], history: Sequence[Row]) -> str:
    speeds = sorted(row["images_per_second"] for row in history if "images_per_second" in row)
    counted = [several(n, f"{part} image") for part, n in record["images"].items()]
    parts = [
        *counted,
        several(len(record["classes"]), "class", "classes"),
        f"{record['input']['size'][0]} px",
        f"batch {record['recipe']['batch'] * record['recipe']['accumulate']}",
        f"seed {record['recipe']['seed']}",
    ]
    parts += [f"{number(speeds[len(speeds) // 2])} images per second"] if speeds else []
    return " · ".join(parts)


def _finds_boxes(record: Mapping[str, Any]) -> bool:
    return bool(record["recipe"].get("task") == "boxes")


def _curves(history: Sequence[Row], finds_boxes: bool) -> Section:
    of_labels = "Cross-entropy; for training including terms of the recipe, such as label smoothing."
    of_boxes = (
        "The focal loss of classes, the GIoU loss of boxes and the cross-entropy of the centre-ness, per"
        " location with an object; training images are augmented, validation images are not."
    )
    accuracy = _card(
        "Accuracy",
        "Training images as the model sees them, augmented, and validation images.",
        _shares(history),
    )
    cards = [
        _card("Loss", of_boxes if finds_boxes else of_labels, _losses(history)),
        *([] if finds_boxes else [accuracy]),
        _card("Learning rate", "The highest of all layers.", _rates(history)),
    ]
    return Section("Training curves", tag("div", *cards, cls="cards"), "Curves", _lead(history))


def _lead(history: Sequence[Row]) -> str:
    validated = any("validation_accuracy" in row for row in history)
    lead = "Thin lines are logged values, thick lines their running mean."
    return f"{lead} Dots are the validation set, with 95 % intervals of the accuracy." if validated else lead


def _card(title: str, words: str, fig: go.Figure) -> Html:
    return tag(
        "article",
        tag("h3", title),
        tag("p", words, cls="about"),
        plot(fig, f"{title} over the steps"),
        cls="card",
    )


def _losses(history: Sequence[Row]) -> go.Figure:
    fig = figure_of([TRAINING, VALIDATION], "step", "loss", xaxis=_step_axis(history))
    _add_training_trace(fig, history, "loss", ".3f")
    _add_validation_trace(fig, history, "validation_loss", ".3f")
    return fig


def _shares(history: Sequence[Row]) -> go.Figure:
    fig = figure_of([TRAINING, VALIDATION], "step", "accuracy", xaxis=_step_axis(history), yaxis=PERCENT_AXIS)
    _add_training_trace(fig, history, "accuracy", ".1%")
    _add_validation_trace(fig, history, "validation_accuracy", ".1%")
    return fig


def _rates(history: Sequence[Row]) -> go.Figure:
    rows = [row for row in history if "lr" in row]
    fig = figure_of([], "step", "learning rate", xaxis=_step_axis(history), yaxis={"rangemode": "tozero"})
    fig.add_trace(
        _line([row["step"] for row in rows], [row["lr"] for row in rows], "learning rate", COLOURS[2], ".3~g")
    )
    return fig.update_layout(showlegend=False)


def _step_axis(history: Sequence[Row]) -> dict[str, Any]:
    """Return an axis over all steps, with a margin."""
    last = max((row["step"] for row in history), default=1)
    return {"range": [-0.02 * last, 1.03 * last], "nticks": 6}


def _add_training_trace(fig: go.Figure, history: Sequence[Row], key: str, form: str) -> None:
    rows = [row for row in history if key in row]
    steps, values = [row["step"] for row in rows], [row[key] for row in rows]
    thin = _line(steps, values, TRAINING, COLOURS[0], form)
    fig.add_trace(
        {
            **thin,
            "opacity": 0.28,
            "line": {**thin["line"], "width": 1},
            "showlegend": False,
            "hoverinfo": "skip",
        }
    )
    fig.add_trace(_line(steps, _smoothed(values), TRAINING, COLOURS[0], form))


def _add_validation_trace(fig: go.Figure, history: Sequence[Row], key: str, form: str) -> None:
    rows = [row for row in history if key in row]
    if not rows:
        return
    trace = _line([row["step"] for row in rows], [row[key] for row in rows], VALIDATION, COLOURS[1], form)
    trace |= {"mode": "lines+markers", "marker": {"size": 8, "color": COLOURS[1]}}
    if key == "validation_accuracy":
        above = [None if row["high"] is None else row["high"] - row[key] for row in rows]
        below = [None if row["low"] is None else row[key] - row["low"] for row in rows]
        trace["error_y"] = {"type": "data", "array": above, "arrayminus": below, "thickness": 1.4, "width": 3}
    fig.add_trace(trace)


def _line(x: Sequence[float], y: Sequence[float], name: str, colour: str, form: str) -> dict[str, Any]:
    hover = f"<b>{name}</b><br>step %{{x}}<br>%{{y:{form}}}<extra></extra>"
    stroke = {"color": colour, "width": 2.2}
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "name": name,
        "mode": "lines",
        "line": stroke,
        "hovertemplate": hover,
    }


def _smoothed(values: Sequence[float]) -> list[float]:
    """Return running means over the preceding values."""
    width = max(1, len(values) // SMOOTHING_PIECES)
    return [math.fsum(values[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(values))]


def _recipe(record: Mapping[str, Any], defaults: Mapping[str, Any]) -> Section:
    default_values = dict(_flat(defaults))
    entries = [(key, value) for key, value in _flat(record["recipe"]) if value is not None and value != []]
    chosen = [(tag("code", key), _value(value)) for key, value in entries if default_values.get(key) != value]
    others = [(tag("code", key), _value(value)) for key, value in entries if default_values.get(key) == value]
    summary = tag("summary", several(len(others), "key"), " at the default")
    rest = tag("details", summary, grid(["key", "value"], others, text=2), cls="fold") if others else EMPTY
    body = join([tag("article", grid(["key", "value"], chosen, text=2), cls="card"), rest])
    return Section(
        "The recipe",
        body,
        "Recipe",
        "Every key that differs from its default.",
    )


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and data and isinstance(data[0], Mapping):
        for i, value in enumerate(data):
            yield from _flat(value, f"{path}.{i}")
    else:
        yield path, data


def _value(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(str, value[:12]))
        return f"{text} and {len(value) - 12} more" if len(value) > 12 else text
    return str(value).lower() if isinstance(value, bool) else str(value)


def _origin(record: Mapping[str, Any]) -> Section:
    parent = record["parent"]
    rows = [
        ("network", record["network"]),
        (
            "initial weights",
            parent["spec"]
            + (f" (weights {parent['weights']})" if parent.get("weights") else " (random weights)"),
        ),
        ("hash of the images", record["data_hash"]),
        ("hash of the recipe", record["recipe_hash"]),
        ("libraries", ", ".join(f"{name} {version}" for name, version in record["versions"].items())),
        ("classes", _value(record["classes"])),
    ]
    table = tag("article", grid(["property", "value"], rows, text=2), cls="card")
    reference = tag("code", option("models", ["trained:DIR"]))
    use = tag("p", "Use it wherever a model is named: ", reference, ".", cls="lead")
    return Section("Provenance", join([use, table]), "Origin")


# --- The page of arms: trainings that differ only in augmentation

# Tables of one suite: ``accuracies`` and ``gains`` by family and severity, ``shift_gains`` by shift, and
# optionally ``over_optics``.
Frames = Mapping[str, pl.DataFrame]
# The quantity of detectors.
MAP = "mAP"
WORDS = {"none": "no augmentation", "optics": "OpticsAugment", "augmix": "AugMix", "cascade": "the cascade"}


def arms_page(about: Mapping[str, Any], suites: Mapping[str, Frames], out: Path) -> Path:
    """Write the page that compares training arms, atomically.

    Args:
        about: The name of the recipe, the arms, seeds and trainings, and the quantity of the tables
            (``accuracy``, or ``mAP`` of detectors).
        suites: The tables of each suite.
        out: The file to write.
    """
    page_sections: dict[str, Section] = {}
    for suite, frames in suites.items():
        of_suite = _suite_sections(frames, about["arms"], len(about["seeds"]), about["quantity"])
        for name, section in of_suite.items():
            page_sections[f"{suite}-{name}" if len(suites) > 1 else name] = section
    page_sections["trainings"] = _trainings(about["trainings"])
    first = next(iter(suites.values()))
    page = document(f"{about['recipe']} · arms", _arms_top(about, first), page_sections, EMPTY)
    write_bytes(page.encode("utf-8", errors="replace"), out)
    return out


def _arms_top(about: Mapping[str, Any], frames: Frames) -> Html:
    arms, seeds = about["arms"], len(about["seeds"])
    samples = int(frames["accuracies"]["n"].max() or 0)  # type: ignore[arg-type]
    facts = [several(len(arms), "arm"), several(seeds, "seed"), several(samples, "image")]
    return hero(
        tag("p", f"Sorites · training · {about['recipe']}", cls="kind"),
        tag("h1", _arms_headline(frames["gains"], arms, about["quantity"])),
        tag("p", _arms_summary(frames["gains"], arms), cls="short"),
        tag("p", " · ".join(facts), cls="facts"),
    )


def _arms_headline(gains: pl.DataFrame, arms: Sequence[str], quantity: str) -> str:
    """Return the largest significant gain, and the change of that arm on clean images."""
    unit = " of mAP" if quantity == MAP else ""
    shifted = gains.filter((pl.col("family") != CLEAN) & (pl.col("arm") != arms[0]))
    if not shifted.height:
        return "What does each augmentation gain?"
    significant = shifted.filter(pl.col("low") > 0).sort("value", descending=True)
    if not significant.height:
        return f"No arm gains significantly over {_arm_name(arms[0])}"
    best = significant.row(0, named=True)
    text = f"{_name(best['arm'])} gains {points(best['value'])}{unit} on {_condition_name(best)}"
    clean = gains.filter((pl.col("family") == CLEAN) & (pl.col("arm") == best["arm"]))
    return f"{text}, and {points(clean['value'].item())} on clean images" if clean.height else text


def _name(arm: str) -> str:
    """Return the name of an arm, capitalised."""
    name = _arm_name(arm)
    return name[:1].upper() + name[1:]


def _arms_summary(gains: pl.DataFrame, arms: Sequence[str]) -> str:
    """Return for each arm where it gains most, and its change on clean images."""
    summaries = []
    for arm in arms[1:]:
        own = gains.filter(pl.col("arm") == arm)
        clean, shifted = own.filter(pl.col("family") == CLEAN), own.filter(pl.col("family") != CLEAN)
        if not shifted.height:
            continue
        best = shifted.sort("value", descending=True).row(0, named=True)
        what = "gains most" if best["value"] > 0 else "gains nowhere and loses least"
        text = f"{_name(arm)} {what} on {_condition_name(best)}: {_gain(best)}"
        summaries.append(
            f"{text}; clean images {_gain(clean.row(0, named=True))}." if clean.height else f"{text}."
        )
    return f"Against {_arm_name(arms[0])}: {' '.join(summaries)}" if summaries else ""


def _arm_name(arm: str) -> str:
    return WORDS.get(arm, arm)


def _condition_name(row: Mapping[str, Any]) -> str:
    if row["family"] == CLEAN:
        return "clean images"
    if row["severity"] is None:
        return str(row["family"] if len(row["shifts"]) > 1 else row["shifts"][0])
    several_shifts = len(row["shifts"]) > 1
    name = f"{row['family']} at severity" if several_shifts else f"{row['shifts'][0]} at"
    return f"{name} {number(row['severity'])}"


def _gain(row: Mapping[str, Any]) -> str:
    return f"{points(row['value'])} ({_gain_interval(row)})"


def _gain_cell(row: Mapping[str, Any]) -> Html:
    """Return a gain with its interval on a second line, which keeps columns narrow."""
    return join([points(row["value"]), tag("small", _gain_interval(row))])


def _gain_interval(row: Mapping[str, Any]) -> str:
    ends = (row["low"], row["high"])
    return between(*(DASH if end is None else f"{100 * end:+.1f}".replace("-", "−") for end in ends))


def _suite_sections(frames: Frames, arms: Sequence[str], seeds: int, quantity: str) -> dict[str, Section]:
    suite_sections = {
        quantity.lower(): _accuracy(frames["accuracies"], arms, quantity),
        "gains": _gains(frames["gains"], arms, arms[0], seeds, quantity),
    }
    if "over_optics" in frames:
        others = [arm for arm in arms if arm not in ("optics", arms[0])]
        suite_sections["optics"] = _gains(
            frames["over_optics"], ["optics", *others], "optics", seeds, quantity
        )
    suite_sections["shifts"] = _by_shift(frames["shift_gains"], arms)
    return suite_sections


def _accuracy(rows: pl.DataFrame, arms: Sequence[str], quantity: str) -> Section:
    title = quantity if quantity == MAP else quantity.capitalize()
    cards = []
    for family in [name for name in rows["family"].unique().sort() if name != CLEAN]:
        own = rows.filter((pl.col("family") == family) & pl.col("severity").is_not_null())
        if own["severity"].n_unique() > 1:
            drawn = plot(
                _curve(pl.concat([rows.filter(pl.col("family") == CLEAN), own]), arms, quantity),
                f"{title} over {family}",
            )
            cards.append(tag("article", tag("h3", family), drawn, cls="card"))
    table = grid(
        ["", *map(_arm_name, arms)],
        [_arms_line(rows, condition, arms, _share) for condition in _conditions(rows)],
    )
    body = join(
        [tag("div", *cards, cls="cards two wide"), tag("div", tag("article", table, cls="card"), cls="below")]
    )
    images = several(max(rows["n"].to_list(), default=0), "image")
    lead = (
        "Means over the shifts of a family at one severity, and over seeds, with 95 % intervals; "
        f"n = {images}. Severity 0 is the clean images."
    )
    if quantity == MAP:
        lead = (
            f"{lead} mAP is COCO's, the mean over IoU 0.50 to 0.95; intervals come from halves of the images."
        )
    return Section(f"{title} of the arms", body, title, lead)


def _curve(rows: pl.DataFrame, arms: Sequence[str], quantity: str) -> go.Figure:
    fig = figure_of([_arm_name(arm) for arm in arms], "severity", quantity, yaxis=PERCENT_AXIS)
    for i, arm in enumerate(arms):
        own = rows.filter(pl.col("arm") == arm).sort("severity")
        above, below = (own["high"] - own["value"]).to_list(), (own["value"] - own["low"]).to_list()
        colour = COLOURS[i % len(COLOURS)]
        hover = f"<b>{_arm_name(arm)}</b><br>severity %{{x}}<br>%{{y:.1%}}<extra></extra>"
        fig.add_trace(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": _arm_name(arm),
                "hovertemplate": hover,
                "x": own["severity"].to_list(),
                "y": own["value"].to_list(),
                "line": {"color": colour, "width": 2.2},
                "marker": {"size": 8, "color": colour, "symbol": SYMBOLS[i % len(SYMBOLS)]},
                "error_y": {
                    "type": "data",
                    "array": above,
                    "arrayminus": below,
                    "thickness": 1.4,
                    "width": 3,
                },
            }
        )
    return fig


def _conditions(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return each family and severity once, clean first."""
    keys = rows.select("family", "severity", "shifts").unique(["family", "severity"])
    return sorted(
        keys.to_dicts(), key=lambda row: (row["family"] != CLEAN, row["family"], row["severity"] or 0.0)
    )


Format = Callable[[Mapping[str, Any]], object]


def _arms_line(
    rows: pl.DataFrame, condition: Mapping[str, Any], arms: Sequence[str], cell: Format
) -> list[object]:
    """Return a line of a table: a family and severity, and one cell per arm."""
    here = rows.filter(
        (pl.col("family") == condition["family"])
        & pl.col("severity").eq_missing(pl.lit(condition["severity"]))
    )
    cells = {row["arm"]: cell(row) for row in here.to_dicts()}
    return [_condition_name(condition), *(cells.get(arm, DASH) for arm in arms)]


def _share(row: Mapping[str, Any]) -> Html:
    return join([percent(row["value"]), tag("small", between(percent(row["low"]), percent(row["high"])))])


def _gains(rows: pl.DataFrame, arms: Sequence[str], over: str, seeds: int, quantity: str) -> Section:
    others = [arm for arm in arms if arm != over]
    lines = [_arms_line(rows, condition, others, _gain_cell) for condition in _conditions(rows)]
    table = tag("article", grid(["", *map(_arm_name, others)], lines), cls="card")
    unit = "points of mAP" if quantity == MAP else "points"
    lead = f"On the same images with the same seeds, in {unit} with 95 % intervals; {_scatter(seeds)}."
    return Section(f"Gains over {_arm_name(over)}", table, f"Over {_arm_name(over)}", lead)


def _scatter(seeds: int) -> str:
    """State whether the intervals include the variance between seeds."""
    if seeds == 1:
        return "with one seed, the intervals do not include the variance between seeds"
    included = "the intervals include the variance between seeds"
    # Student's t has one degree of freedom with two seeds.
    wide = ", which makes them wide with two seeds and about seven times narrower with five"
    return f"{included}{wide}" if seeds == 2 else included


def _by_shift(rows: pl.DataFrame, arms: Sequence[str]) -> Section:
    shifted = rows.filter(pl.col("shift") != CLEAN).sort("shift", "severity", nulls_last=True)
    lines = [
        [
            row["shift"],
            DASH if row["severity"] is None else number(row["severity"]),
            _arm_name(row["arm"]),
            _gain(row),
            count(row["n"]),
        ]
        for row in shifted.to_dicts()
    ]
    table = grid(["shift", "severity", "arm", f"gain over {_arm_name(arms[0])}", "n"], lines, text=1)
    return Section("Shift by shift", folded("Every shift and severity", table, len(lines)), "Shifts")


def _trainings(rows: Sequence[Mapping[str, Any]]) -> Section:
    # Detectors have no validation accuracy.
    validated = any(row["accuracy"] is not None for row in rows)
    lines = [
        [
            tag("a", row["name"], href=row["page"]),
            row["arm"],
            row["seed"],
            *([percent(row["accuracy"])] if validated else []),
            tag("code", row["model"]),
        ]
        for row in rows
    ]
    header = ["training", "arm", "seed", *(["validation"] if validated else []), "model"]
    table = tag("article", grid(header, lines, text=2), cls="card")
    return Section(
        "The trainings",
        table,
        "Trainings",
        "Each has its own page, and can be used wherever a model is named.",
    )
