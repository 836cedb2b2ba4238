"""The section on what was evaluated: images by source, why some have no label, and models' inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites.core import split_spec
from sorites.evaluation.estimate import input_words
from sorites.reports.components.markup import EMPTY, Html, count, grid, join, several, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View
from sorites.sources import foolbox, stamps

# What the photographs of a built-in source are, and their licence.
ORIGINS: Mapping[str, str] = {
    "stamps": stamps.ORIGIN,
    "stamps_ood": stamps.ORIGIN,
    "composites": f"{stamps.ORIGIN}, in photographed and drawn places",
    foolbox.NAME: foolbox.ORIGIN,
}


@add_section(order=78)
def data(view: View) -> Section | None:
    """The sources with their numbers of samples and labels, and the preprocessing of each model."""
    images = _images(view)
    if not images.height:
        return None
    parts = [tag("article", _sources(view, images), *_reasons(view), cls="card")]
    if inputs := _inputs(view):
        parts.append(tag("article", inputs, cls="card"))
    lead = (
        "A sample is one photographed scene; all its shifted images share it, and intervals treat samples as"
        " independent. Images without a label are not judged as correct or misclassified."
    )
    return Section("What was evaluated", tag("div", *parts, cls="stack"), "Data", lead)


def _images(view: View) -> pl.DataFrame:
    """Return the numbers of samples, and of those with a label, by source."""
    return (
        view.table.filter(pl.col("output").is_in(["label", "boxes"]))
        .group_by("source")
        .agg(
            samples=pl.col("sample_id").n_unique(),
            labelled=pl.col("sample_id").filter(_labelled()).n_unique(),
            images=pl.col("image_id").n_unique(),
        )
        .sort("source")
        .collect(engine="streaming")
    )


def _labelled() -> pl.Expr:
    return pl.col("label").is_not_null() | pl.col("ground_truth").is_not_null()


def _sources(view: View, images: pl.DataFrame) -> Html:
    specs = _specs(view)
    lines = []
    for row in images.to_dicts():
        name = row["source"] or DEFAULT
        kind = split_spec(specs.get(name, name))[0]
        counts = (count(row[key]) for key in ("samples", "labelled", "images"))
        lines.append([name, ORIGINS.get(kind, specs.get(name, "")), *counts])
    head = ["source", "origin", "samples", "with a label", "images"]
    return grid(head, lines, text=2, caption="Images")


# The name of a source in tables that do not name it.
DEFAULT = "images"


def _specs(view: View) -> dict[str, str]:
    """Return the spec of each source, by its name in the table."""
    specs: dict[str, str] = {}
    for record in view.records:
        suite = record.suite
        specs[suite.source_name or split_spec(suite.source)[0]] = suite.source
        specs |= {entry.name: entry.spec for entry in suite.sources}
    return specs


def _ood(view: View) -> set[str]:
    """Return the names of the sources whose images are OOD."""
    entries = [entry for record in view.records for entry in record.suite.sources]
    return {entry.name for entry in entries if entry.role == "ood"}


def _reasons(view: View) -> list[Html]:
    """Return why images have no label, or one that a model does not have."""
    texts = [*_without_label(view), *_unknown(view)]
    return [tag("ul", *(tag("li", text) for text in texts), cls="told")] if texts else []


def _without_label(view: View) -> list[str]:
    rows = (
        view.table.filter(pl.col("output").is_in(["label", "boxes"]), ~_labelled())
        .select("source", "sample_id")
        .unique()
        .collect(engine="streaming")
    )
    specs, ood = _specs(view), _ood(view)
    return [
        _why(source or DEFAULT, specs.get(source, source or DEFAULT), samples.height, source in ood)
        for (source,), samples in sorted(rows.partition_by("source", as_dict=True).items())
    ]


def _why(source: str, spec: str, samples: int, ood: bool) -> str:
    has = "has" if samples == 1 else "have"
    text = f"{several(samples, 'sample')} of {source} {has} no label"
    if ood:
        return f"{text}, because OOD images need none."
    if split_spec(spec)[0] != "folder":
        return f"{text}: the source gives none, or one that is not a class of the suite."
    return f"{text}: they are in no class folder, and no WordNet id is in their names."


def _unknown(view: View) -> list[str]:
    """Return a sentence for each model that lacks the class of some samples."""
    lacking = (
        view.table.filter(pl.col("output") == "label", ~pl.col("known"), pl.col("label").is_not_null())
        .group_by("model")
        .agg(samples=pl.struct("source", "sample_id").n_unique())
        .sort("model")
        .collect(engine="streaming")
    )
    return [
        f"{several(n, 'sample')} {'is' if n == 1 else 'are'} of a class that {model} does not have: missing,"
        " not misclassified."
        for model, n in lacking.iter_rows()
    ]


def inputs_of(view: View) -> dict[str, tuple[Mapping[str, Any], bool]]:
    """Return the preprocessing of each model, and whether the suite cuts a frame first."""
    return {
        name: (described, record.suite.frame is not None)
        for record in view.records
        for name, described in record.inputs.items()
        if name in view.models
    }


def assumed_note(view: View) -> str:
    """Return a warning about models that do not declare their preprocessing; empty if all do."""
    assumed = {name: described.get("assumed", ()) for name, (described, _) in inputs_of(view).items()}
    undeclared = [f"{name} ({', '.join(fields)})" for name, fields in assumed.items() if fields]
    if not undeclared:
        return ""
    return (
        f"The preprocessing of {', '.join(undeclared)} is assumed, because the model does not declare it."
        " If it was trained with another, all its numbers are too low;"
        " docs/models.md says how to declare it."
    )


def _inputs(view: View) -> Html:
    rows = []
    for name, (described, framed) in inputs_of(view).items():
        fields = described.get("assumed", ())
        declared = tag("b", f"assumed: {', '.join(fields)}", cls="assumed") if fields else "declared"
        words = input_words({key: value for key, value in described.items() if key != "assumed"}, framed)
        rows.append([name, declared if described else "unknown", words])
    if not rows:
        return EMPTY
    table = grid(["model", "preprocessing", "input"], rows, text=3, caption="Preprocessing of each model")
    return join([table])
