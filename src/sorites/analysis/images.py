"""One row per image of a run: what every model answered, in columns that can be filtered and sorted.

The table of a run is long: one row per image, model and output. ``images`` makes it wide, so that a condition
on several models, such as "lite0 is wrong and lite2 is correct", is a filter of rows.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sorites.core import CLEAN
from sorites.core.labels import Labels, class_name
from sorites.core.table import RunLike, Table, read
from sorites.evaluation.reopen import class_names
from sorites.evaluation.storage.record import read_record

# The columns of an image that do not depend on a model.
OF_IMAGE = (
    "source",
    "split",
    "sample_id",
    "image_id",
    "family",
    "shift",
    "severity",
    "level",
    "params",
    "valid",
    "label",
    "sem_level",
    "cov_level",
)
ANSWER = ("pred", "conf", "correct", "error")
DIFFER, CLASS = "models differ", "class"
_SAMPLE = ["source", "sample_id"]


def images(run: str | Path | RunLike) -> pl.DataFrame:
    """Return one row per image of a run, with the answers of all models side by side.

    Args:
        run: A run folder, or a ``Run``.

    Returns:
        The columns of the image; ``class``, the name of its ground truth; for every model ``pred MODEL``,
            ``answer MODEL`` (the name of the class), ``conf MODEL``, ``correct MODEL`` and ``broken MODEL``
            (correct on the clean image of the sample, and wrong here), for detectors ``boxes MODEL`` (their
            number) instead; ``SCORER MODEL`` for every OOD score; ``models differ``; one column per attribute
            and per degree. Rows that refine a failure severity are not included.

    Raises:
        SoritesError: The folder has no predictions.
    """
    if isinstance(run, str | Path):
        return wide(read(run), class_names(read_record(run)))
    return wide(run.lazy(), class_names(read_record(run.folder)))


def wide(table: Table, labels: Labels | None = None) -> pl.DataFrame:
    """Return one row per image of a table; see ``images``.

    Args:
        table: The table of one run.
        labels: The names of its classes.
    """
    rows = table.lazy().filter(~pl.col("probe").fill_null(False))
    about = rows.unique("image_id", keep="first", maintain_order=True)
    columns = [*OF_IMAGE, "attrs", "degrees", "ground_truth"]
    made = about.select(columns).collect(engine="streaming")
    made = made.sort("shift", "severity", "sample_id", nulls_last=True, maintain_order=True)
    models = rows.select(pl.col("model").unique().sort()).collect(engine="streaming")["model"].to_list()
    answered = rows.select("image_id", "model", "output", "scorer", *ANSWER, "score", "boxes")
    for model in models:
        of_model = answered.filter(pl.col("model") == model).collect(engine="streaming")
        made = _with_model(made, of_model, model, labels)
    made = _with_names(made, "label", CLASS, labels)
    made = _with_broken(_with_difference(made, models), models)
    return _with_degrees(_with_attributes(made)).drop("ground_truth")


def _with_model(images: pl.DataFrame, rows: pl.DataFrame, model: str, labels: Labels | None) -> pl.DataFrame:
    boxes = rows.filter(pl.col("output") == "boxes")
    if boxes.height:
        counted = boxes.select(
            "image_id",
            pl.col("boxes").list.len().alias(f"boxes {model}"),
            pl.col("error").alias(f"error {model}"),
        )
        images = images.join(counted, on="image_id", how="left", maintain_order="left")
    answers = rows.filter(pl.col("output") == "label")
    if answers.height:
        renamed = answers.select("image_id", *(pl.col(name).alias(f"{name} {model}") for name in ANSWER))
        images = images.join(renamed, on="image_id", how="left", maintain_order="left")
        images = _with_names(images, f"pred {model}", f"answer {model}", labels)
    for (scorer,), scores in rows.filter(pl.col("output") == "ood").group_by("scorer", maintain_order=True):
        renamed = scores.select("image_id", pl.col("score").alias(f"{scorer} {model}"))
        images = images.join(renamed, on="image_id", how="left", maintain_order="left")
    return images


def _with_names(images: pl.DataFrame, column: str, name: str, labels: Labels | None) -> pl.DataFrame:
    """Add the names of classes as a categorical column."""
    present = images[column].drop_nulls().unique().sort()
    names = [class_name(labels, label) for label in present.to_list()]
    named = pl.col(column).replace_strict(present, pl.Series(names, dtype=pl.String), default=None)
    return images.with_columns(named.cast(pl.Categorical).alias(name))


def _with_difference(images: pl.DataFrame, models: list[str]) -> pl.DataFrame:
    answers = [f"pred {model}" for model in models if f"pred {model}" in images.columns]
    if len(answers) < 2:
        return images
    first, *others = map(pl.col, answers)
    return images.with_columns(
        pl.any_horizontal(*(first.ne_missing(other) for other in others)).alias(DIFFER)
    )


def _with_broken(images: pl.DataFrame, models: list[str]) -> pl.DataFrame:
    """Add whether a model was correct on the clean image of the sample and is wrong here."""
    clean = images.filter(pl.col("shift") == CLEAN).unique(_SAMPLE, keep="first", maintain_order=True)
    for model in models:
        correct = f"correct {model}"
        if correct not in images.columns:
            continue
        before = clean.select(*_SAMPLE, pl.col(correct).alias("before"))
        images = (
            images.join(before, on=_SAMPLE, how="left", nulls_equal=True, maintain_order="left")
            .with_columns((pl.col("before") & ~pl.col(correct)).alias(f"broken {model}"))
            .drop("before")
        )
    return images


def _with_attributes(images: pl.DataFrame) -> pl.DataFrame:
    """Replace the list of attributes by one column for each key."""
    listed = images.select("image_id", "attrs").explode("attrs", keep_nulls=False, empty_as_null=False)
    flat = listed.unnest("attrs") if listed.height else pl.DataFrame()
    if not flat.height:
        return images.drop("attrs")
    for (key,), entries in flat.group_by("key", maintain_order=True):
        if key not in images.columns:
            first = entries.unique("image_id", keep="first", maintain_order=True)
            column = first.select("image_id", pl.col("value").cast(pl.Categorical).alias(str(key)))
            images = images.join(column, on="image_id", how="left", maintain_order="left")
    return images.drop("attrs")


def _with_degrees(images: pl.DataFrame) -> pl.DataFrame:
    """Replace the list of degrees by one column for each measure; properties of the clean image apply to all
    images of its sample.
    """
    listed = images.select(*_SAMPLE, "image_id", "shift", "degrees").explode(
        "degrees", keep_nulls=False, empty_as_null=False
    )
    flat = listed.unnest("degrees") if listed.height else pl.DataFrame()
    if not flat.height:
        return images.drop("degrees")
    for (measure,), entries in flat.group_by("measure", maintain_order=True):
        name = str(measure)
        if name in images.columns:
            continue
        of_sample = entries["shift"].eq(CLEAN).all()
        keys = _SAMPLE if of_sample else ["image_id"]
        column = entries.select(*keys, pl.col("value").alias(name)).unique(keys, keep="first")
        images = images.join(column, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return images.drop("degrees")
