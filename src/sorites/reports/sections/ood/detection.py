"""The section on OOD detection: dot charts and tables of AUROC, FPR95 and AUPR, by definition of OOD."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.components.charts import (
    MARKS,
    NONE,
    Dot,
    Dots,
    Key,
    Scale,
    dot_chart,
    heat,
    ordered,
    same,
    scale,
    shaded,
)
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
    tag,
)
from sorites.reports.components.scorers import estimate, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

VIEWS = {"semantic": "by label", "model-specific": "by correctness"}
RANDOM = 0.5

# AUROC of each model and scorer, by the name of the series.
Rows = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Chart:
    """A chart: its title, its quantity, the rows of each series, and the mark of the first series."""

    title: str
    number: str
    rows: Rows
    first: int


def ood_dots(view: View) -> Html:
    """Return charts of all OOD images and of each kind; empty with fewer than two scorers."""
    if len(scorers(view)) < 2:
        return EMPTY
    charts = [Chart("all OOD images", "AUROC in %", _frameworks(view), 0)]
    charts += [
        Chart(
            "kind by kind",
            "AUROC in % against clean, correctly classified images",
            kinds(view),
            len(VIEWS),
        )
    ]
    drawn = [chart for chart in charts if 0 < len(chart.rows) <= MARKS - chart.first]
    on = _shared(drawn)
    cards = [card for model in view.models for chart in drawn if (card := _card(view, model, chart, on))]
    return tag("div", *cards, cls="cards two wide") if cards else EMPTY


def _frameworks(view: View) -> Rows:
    by_name = {name: view.compute(metrics.ood, framework=framework) for framework, name in VIEWS.items()}
    aurocs = {
        name: rows.filter(pl.col("value").is_not_null() & (pl.col("metric") == "auroc"))
        for name, rows in by_name.items()
    }
    return {name: rows for name, rows in aurocs.items() if rows.height}


def kinds(view: View) -> Rows:
    """Return the AUROC of each kind of OOD image against clean, correct images; empty without two kinds.

    Near comes before far, and shifted images come last.
    """
    auroc = view.compute(metrics.auroc, framework="combined", by=("model", "scorer", "kind", "group"))
    by_kind = auroc.filter(pl.col("value").is_not_null() & pl.col("kind").is_not_null())
    if by_kind["kind"].n_unique() < 2:
        return {}
    present = by_kind.select("kind", "group").unique().rows()
    present.sort(key=lambda kind: (kind[0] == "C-OOD", kind[1] is None, kind[1] != "near", kind[1]))
    same_kind = {
        (kind, group): (pl.col("kind") == kind) & pl.col("group").eq_missing(group) for kind, group in present
    }
    return {
        f"{group} {kind}" if group else kind: by_kind.filter(selected)
        for (kind, group), selected in same_kind.items()
    }


def _shared(charts: Sequence[Chart]) -> Scale:
    frames = [rows.select("value", "low", "high") for chart in charts for rows in chart.rows.values()]
    values = [value for frame in frames for row in frame.iter_rows() for value in row if value is not None]
    return scale([RANDOM, *values])


def _card(view: View, model: str, chart: Chart, on: Scale) -> Html:
    model_rows = {name: rows.filter(pl.col("model") == model) for name, rows in chart.rows.items()}
    dots = _dots(view, model_rows)
    if not dots:
        return EMPTY
    best = {name: dots[name] for name in ordered(dots)}
    keys = {
        name: _key(rows, chart.first + i) for i, (name, rows) in enumerate(model_rows.items()) if rows.height
    }
    label = f"AUROC of each scorer, {model}, {chart.title}: {', '.join(best)}"
    about = tag(
        "p", f"{chart.number}, with 95 % intervals; the scorer with the best mean comes first.", cls="about"
    )
    drawn = dot_chart(best, keys, on, {"a random score": RANDOM}, label)
    return tag("article", tag("h3", f"{model} · {chart.title}"), about, drawn, cls="card")


def _key(rows: pl.DataFrame, mark: int) -> Key:
    return Key(mark, f"{same(rows['id'])} in-distribution, {same(rows['ood'])} OOD")


def _dots(view: View, model_rows: Rows) -> Dots:
    cells: dict[str, dict[str, Dot]] = {scorer: {} for scorer in scorers(view)}
    for name, rows in model_rows.items():
        for row in rows.to_dicts():
            cells[row["scorer"]][name] = _dot(row)
    return {scorer: dots for scorer, dots in cells.items() if dots}


def _dot(row: Mapping[str, Any]) -> Dot:
    return Dot.of(row, f"n = {row['id']} + {row['ood']}")


# --- FPR at 95 % of every scorer for each set and group of OOD images, in both conventions (ImageNet-ES,
# figure 8)

CONVENTIONS = {
    "fpr95_ood_pos": "FPR95, OOD positive: In-distribution images flagged where 95 % of OOD images are",
    "fpr95_id_pos": "FPR95, in-distribution positive: OOD images passed where 95 % of the ID images are",
}
# The in-distribution images are those of the AUROC: all clean images of known classes, whether the model
# classifies them correctly or not (OpenOOD). ImageNet-ES compares with correctly classified images.
IN_DISTRIBUTION = "clean images of known classes"
CORRECT = "clean, correctly classified images"
IMAGENET_ES = "imagenet_es"

# Rows by model and scorer.
Cells = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True)
class Column:
    """A column: its name, its group (near, far) if it is a set of one, and its cells by convention."""

    name: str
    group: str
    cells: Mapping[str, Cells]


def ood_sets(view: View) -> Html:
    """Return two tables per model, one per convention; empty if there is only one set and group."""
    sources = view.table.select(pl.col("source").unique()).collect(engine="streaming")["source"]
    conventions = [("semantic", "clean", IN_DISTRIBUTION)]
    if IMAGENET_ES in sources:
        conventions.insert(0, ("combined", "same", CORRECT))
    for framework, against, words in conventions:
        columns = _columns(view, framework, against)
        if len(columns) > 1:
            cards = [card for model in view.models for card in _cards(view, model, columns, words)]
            return tag("div", *cards, cls="cards two wide")
    return EMPTY


def near_far_table(view: View) -> Html:
    """Return AUROC and FPR95 on near and far OOD images, averaged over sets and pooled; empty without any."""
    rows = {name: view.compute(metrics.near_far, average=name) for name in ("sets", "images")}
    averaged = rows["sets"].filter(pl.col("metric").is_in(list(NEAR_FAR)))
    groups = sorted(averaged["group"].unique(), key=lambda name: (name != "near", name))
    if not groups:
        return EMPTY
    cells = {
        (row["model"], row["scorer"], row["group"], row["metric"], average): row
        for average, frame in rows.items()
        for row in frame.to_dicts()
    }
    lines = [
        [
            model,
            scorer,
            *(_averaged(cells, (model, scorer, group, name)) for group in groups for name in NEAR_FAR),
        ]
        for model, scorer in _models_and_scorers(view, cells)
    ]
    head = ["", "scorer", *(_near_far_head(averaged, group, name) for group in groups for name in NEAR_FAR)]
    caption = (
        f"AUROC and FPR95 (OOD positive) against {IN_DISTRIBUTION}: the mean over the sets of a group, each"
        " weighted equally, as in OpenOOD, with its interval; below, with the images of all sets pooled"
    )
    return folded("Near and far OOD: AUROC and FPR95", grid(head, lines, text=2, caption=caption), len(lines))


# The numbers of the table of near and far OOD images.
NEAR_FAR = {"auroc": "AUROC", "fpr95_ood_pos": "FPR95"}


def _near_far_head(rows: pl.DataFrame, group: str, name: str) -> Html:
    sets = same(rows.filter(pl.col("group") == group)["sets"])
    return join([f"{group} {NEAR_FAR[name]}", tag("small", f"{sets} {'set' if sets == '1' else 'sets'}")])


def _averaged(cells: Mapping[Any, Mapping[str, Any]], key: tuple[str, ...]) -> Html:
    mean, pooled = (cells.get((*key, average)) for average in ("sets", "images"))
    if mean is None:
        return estimate(None)
    note = "" if pooled is None else f"pooled {percent(pooled['value'])}"
    return estimate(dict(mean), note)


def _columns(view: View, framework: str, against: str) -> list[Column]:
    """Return near sets, all near, far sets, all far, then sets without a group."""
    by_group, by_set = (
        _fpr(view, framework, against, by)
        for by in (("model", "scorer", "kind", "group"), ("model", "scorer", "group", "set", "kind"))
    )
    several = by_set["set"].n_unique() > 1
    columns = []
    for group in sorted(by_group["group"].unique(), key=lambda name: (name is None, name != "near", name)):
        mine = by_set.filter(pl.col("group").eq_missing(pl.lit(group, pl.String)))
        sets = mine["set"].unique().sort().to_list()
        if several:
            columns += [
                Column(
                    str(name),
                    group or "",
                    _cells(mine.filter(pl.col("set").eq_missing(pl.lit(name, pl.String)))),
                )
                for name in sets
            ]
        if group is not None and (len(sets) > 1 or not several):
            columns.append(Column(f"all {group}", "", _cells(by_group.filter(pl.col("group") == group))))
    return columns


def _fpr(view: View, framework: str, against: str, by: Sequence[str]) -> pl.DataFrame:
    rows = view.compute(metrics.ood, framework=framework, against=against, by=tuple(by))
    return rows.filter(
        pl.col("value").is_not_null()
        & (pl.col("kind") == "S-OOD")
        & pl.col("metric").is_in(list(CONVENTIONS))
    )


def _cells(rows: pl.DataFrame) -> dict[str, Cells]:
    return {
        name: {(row["model"], row["scorer"]): row for row in rows.filter(pl.col("metric") == name).to_dicts()}
        for name in CONVENTIONS
    }


def _cards(view: View, model: str, columns: Sequence[Column], words: str) -> list[Html]:
    present = [
        name
        for name in scorers(view)
        if any((model, name) in column.cells["fpr95_ood_pos"] for column in columns)
    ]
    if not present:
        return []
    return [
        tag(
            "article",
            tag("h3", f"{model} · {title.split(':')[0]}"),
            _table(model, present, columns, name, title, words),
            cls="card",
        )
        for name, title in CONVENTIONS.items()
    ]


def _table(
    model: str, present: Sequence[str], columns: Sequence[Column], name: str, title: str, words: str
) -> Html:
    """Return a table of scorers by sets, the scorer with the lowest mean first."""
    cells = {scorer: [column.cells[name].get((model, scorer)) for column in columns] for scorer in present}
    best = sorted(cells, key=lambda scorer: _mean(cells[scorer]))
    rows = [
        (scorer, [_cell(scorer, column, row) for column, row in zip(columns, cells[scorer], strict=True)])
        for scorer in best
    ]
    heads = [
        _head(column, [row["ood"] for cells_of_scorer in cells.values() if (row := cells_of_scorer[i])])
        for i, column in enumerate(columns)
    ]
    in_distribution = same(row["id"] for cells_of_scorer in cells.values() for row in cells_of_scorer if row)
    about = (
        f"{title.split(': ')[1]}, in % with 95 % intervals; 0 is best. Against {in_distribution}"
        f" {words}; n counts OOD images. A group pools the images of its sets. The scorer with the"
        " lowest mean comes first."
    )
    shown = [row for cells_of_scorer in cells.values() for row in cells_of_scorer if row]
    if any(row["low"] is None for row in shown):
        about += " A number without an interval has too few images: its threshold cannot be bracketed."
    return join([tag("p", about, cls="about"), heat("scorer", heads, rows, "", named=True)])


def _mean(rows: Sequence[Mapping[str, Any] | None]) -> float:
    return statistics.fmean(row["value"] for row in rows if row)


def _head(column: Column, ood: Sequence[int]) -> Html:
    n = f"n = {same(ood)}" if ood else ""
    return join([column.name, *(tag("small", text) for text in (column.group, n) if text)])


def _cell(scorer: str, column: Column, row: Mapping[str, Any] | None) -> Html:
    if row is None:
        return NONE
    low, high = row["low"], row["high"]
    bounded = low is not None and high is not None
    interval = (
        f"95 %: {between(percent(low), percent(high))}" if bounded else "too few images for an interval"
    )
    counts = f"n = {count(row['id'])} + {count(row['ood'])}"
    hover = f"{scorer}, {column.name}: {percent(row['value'])}, {interval}, {counts}"
    return shaded(
        f"{100 * row['value']:.0f}",
        1 - 2 * row["value"],
        hover,
        f"{100 * low:.0f}–{100 * high:.0f}" if bounded else None,
    )


# --- The section

FRAMEWORKS = {
    "semantic": (
        "By label: OOD images show none of the model's classes; shifted images of its classes are"
        " in-distribution"
    ),
    "model-specific": "By correctness: OOD images are those that the model misclassifies",
}
NUMBERS = {
    "auroc": "AUROC",
    "fpr95_ood_pos": "FPR95, OOD positive",
    "fpr95_id_pos": "FPR95, in-distribution positive",
    "aupr_in": "AUPR-in",
    "aupr_out": "AUPR-out",
}


@add_section(order=61)
def ood(view: View) -> Section | None:
    """Dot charts, FPR per set, one table per definition of OOD, kinds, and score against accuracy."""
    by_label, by_correctness = (_framework(view, name) for name in FRAMEWORKS)
    every = (by_label, near_far_table(view), by_correctness, _combined(view), _settings(view))
    tables = [table for table in every if table]
    if not tables:
        return None
    lead = (
        "A score should be high for OOD (out-of-distribution) images. AUROC is the probability that an OOD"
        " image scores above an in-distribution image; 50 % is chance. FPR95 is the false positive rate at"
        " the"
        " threshold that detects 95 % of the positive class; 0 is best. OOD is defined in two ways: by label,"
        " images that show none of the model's classes; by correctness, images that the model misclassifies."
        " The 95 % intervals are clustered by sample."
    )
    return Section(
        "Can the score separate OOD from in-distribution images?",
        tag("div", ood_dots(view), ood_sets(view), *tables, cls="stack"),
        "OOD",
        lead,
    )


def _framework(view: View, framework: str) -> Html:
    rows = view.compute(metrics.ood, framework=framework).filter(pl.col("value").is_not_null())
    cells = {(row["model"], row["scorer"], row["metric"]): row for row in rows.to_dicts()}
    lines = []
    for model, scorer in _models_and_scorers(view, cells):
        numbers = [cells[model, scorer, name] for name in NUMBERS]
        counts = [count(numbers[0][name]) for name in ("id", "ood", "missing")]
        lines.append([model, scorer, *map(estimate, numbers), *counts])
    head = ["", "scorer", *NUMBERS.values(), "ID images", "OOD images", "no score"]
    table = grid(head, lines, text=2, caption=FRAMEWORKS[framework])
    summary = f"{VIEWS[framework].capitalize()}: AUROC, FPR95 and AUPR of each scorer"
    return folded(summary, table, len(lines)) if lines else EMPTY


def _models_and_scorers(view: View, cells: dict[Any, Any]) -> list[tuple[str, str]]:
    present = {key[:2] for key in cells}
    return [
        (model, scorer) for model in view.models for scorer in scorers(view) if (model, scorer) in present
    ]


def _combined(view: View) -> Html:
    """Return the AUROC of each kind of OOD image against clean, correct images, if there are both kinds."""
    by_kind = kinds(view)
    cells = {
        (row["model"], row["scorer"], name): row for name, rows in by_kind.items() for row in rows.to_dicts()
    }
    lines = [
        [model, scorer, *(_kind(cells.get((model, scorer, name))) for name in by_kind)]
        for model, scorer in _models_and_scorers(view, cells)
    ]
    caption = (
        "AUROC against clean, correctly classified images: unknown classes (S-OOD), misclassified shifted"
        " images (C-OOD)"
    )
    table = grid(["", "scorer", *by_kind], lines, text=2, caption=caption)
    return (
        folded("Kind by kind: AUROC of each scorer for S-OOD and C-OOD", table, len(lines))
        if lines
        else EMPTY
    )


def _kind(row: dict[str, Any] | None) -> Html:
    return estimate(row, f"n = {row['id']} + {row['ood']}") if row else estimate(None)


def _settings(view: View) -> Html:
    """Return the correlation of mean score and accuracy over settings."""
    correlations = view.compute(metrics.score_accuracy).filter(pl.col("value").is_not_null())
    cells = {(row["model"], row["scorer"], row["kind"]): row for row in correlations.to_dicts()}
    lines = []
    for model, scorer in _models_and_scorers(view, cells):
        numbers = [cells.get((model, scorer, kind)) for kind in ("pearson", "spearman")]
        lines.append(
            [model, scorer, *map(_correlation, numbers), count(max(row["n"] for row in numbers if row))]
        )
    caption = (
        "Correlation of mean score and accuracy over settings; −1 means that the score rises exactly as"
        " accuracy"
        " falls"
    )
    table = grid(["", "scorer", "Pearson", "Spearman", "settings"], lines, text=2, caption=caption)
    return (
        folded("Over settings: correlation of mean score and accuracy", table, len(lines)) if lines else EMPTY
    )


def _correlation(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    interval = f"{number(row['low'], 2)} to {number(row['high'], 2)}" if row["low"] is not None else ""
    return join([number(row["value"], 2), tag("small", interval)])
