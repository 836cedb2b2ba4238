"""Text output that several verbs share: tables and the summary of a run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl

from sorites.cli.output import say, without_controls
from sorites.core import CLEAN, METRICS
from sorites.core.errors import SoritesError
from sorites.core.messages import noun
from sorites.core.table import read
from sorites.evaluation.fit import read_fits
from sorites.metrics.detection.scenes import without_ground_truth

# Console width in characters, large enough that no name is truncated or wrapped.
WIDE = 10_000

# Absolute values below this are printed as 0: they are rounding errors.
NOISE = 1e-15

FAILED = "median failure severity (%)"
# Resamples for the intervals of a summary.
FEW = 200


def print_frame(frame: pl.DataFrame, format: str = "table") -> None:
    """Print a frame to stdout; formats for programs are printed exactly."""
    say(format_frame(frame, format), nl=False, exact=format != "table")


def format_frame(frame: pl.DataFrame, format: str) -> str:
    """Return a frame as text: rounded for people (``table``), or exact for programs (``csv``, ``json``)."""
    if format == "csv":
        nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
        spelled = [
            pl.Series(name, [json.dumps(value) for value in frame[name].to_list()], pl.String)
            for name in nested
        ]
        return frame.with_columns(spelled).write_csv()
    if format == "json":
        return frame.write_json() + "\n"
    if format != "table":
        raise SoritesError(f"--format must be table, csv or json, got {format!r}")
    return _draw_table(frame)


def _draw_table(frame: pl.DataFrame) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numeric = {name for name, dtype in frame.schema.items() if dtype.is_numeric()}
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in frame.columns:
        table.add_column(
            without_controls(name, ""), justify="right" if name in numeric else "left", no_wrap=True
        )
    for row in frame.iter_rows():
        cells = ("–" if v is None else _number(v) if isinstance(v, float) else str(v) for v in row)
        table.add_row(*(without_controls(cell, "") for cell in cells))
    screen = io.StringIO()
    Console(file=screen, width=WIDE, markup=False, emoji=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in screen.getvalue().splitlines()) + "\n"


def _number(value: float) -> str:
    """Return a number with four significant digits; rounding errors around 0 become 0."""
    return f"{0.0 if abs(value) < NOISE else value:.4g}"


def print_run_summary(folder: Path, echo: Callable[[str], None] = say, worked: bool = True) -> None:
    """Print the summary of a run: headline numbers per model, errors, files written and the next command.

    Args:
        folder: The run folder.
        echo: The function that prints a line.
        worked: False if the run was already complete, so that nothing was evaluated.
    """
    table = read(folder)
    outputs = table.select(pl.col("output").unique()).collect(engine="streaming")["output"].to_list()
    answer = headline(folder)
    if answer.height:
        echo(format_frame(answer, "table"))
        if answer[FAILED].drop_nulls().len():
            echo(
                "median failure severity: in % of the largest severity of this run; an image that is"
                " misclassified when clean has failure severity 0"
            )
    for heading, frame in attribute_headlines(folder):
        echo(heading)
        echo(format_frame(frame, "table"))
    if "boxes" in outputs:
        echo(format_frame(box_headline(folder), "table"))
        if without_ground_truth(table):
            echo("no mAP: the source has no ground-truth boxes")
    counts = table.select(
        rows=pl.len(), errors=pl.col("error").count(), probes=pl.col("probe").sum()
    ).collect(engine="streaming")
    rows, errors, probes = counts.row(0)
    if errors:
        first = (
            table.filter(pl.col("error").is_not_null()).select("sample_id", "error").head(1).collect().row(0)
        )
        echo(
            f"{errors} {noun(errors, 'row has', 'rows have')} errors, which no mean includes. The first,"
            f" {named_error(*first)}"
        )
    for model, fits in read_fits(folder).items():
        if fits.left_out:
            why = "unreadable, or of classes that the model does not have"
            images = noun(fits.left_out, "training image was", "training images were")
            echo(f"{fits.left_out} {images} skipped for {model}: {why}")
    counted = f"{rows} {noun(rows, 'row')}"
    what = f"wrote {counted} to" if worked else f"nothing to do; {counted} in"
    echo(f"{what} {folder / 'predictions'}" + (f", {probes} of them probes" if probes else ""))
    metric = "accuracy" if answer.height else "map"
    echo(f"next: sorites report {folder}   or   sorites metrics {folder} {metric} --by model,shift")


def named_error(sample: str, error: str) -> str:
    """Return an error with the name of its sample, once: the error of a file begins with its path."""
    path, _, reason = error.partition(": ")
    is_named = bool(reason) and (path == sample or path.endswith(f"/{sample}"))
    return error if is_named else f"{sample}: {error}"


def headline(folder: Path) -> pl.DataFrame:
    """Return clean and shifted accuracy, drop and median failure severity of each model but detectors."""
    whole = read(folder)
    boxes = whole.filter(pl.col("output") == "boxes").select(pl.col("model").unique())
    detectors = boxes.collect(engine="streaming")["model"].to_list()
    table = whole.filter(~pl.col("model").is_in(detectors))
    models = table.select(pl.col("model").unique().sort()).collect(engine="streaming")
    clean = METRICS.get("accuracy")(table.filter(pl.col("shift") == CLEAN), by=["model"])
    shifted = METRICS.get("mean_accuracy")(table)
    drop = METRICS.get("accuracy_drop")(table, by=["model"])
    half = METRICS.get("failure_severity")(table, by=["model"], relative=True)
    frame = models.join(clean.select("model", "n"), on="model", how="left")
    for name, part in (("clean", clean), ("shifted", shifted), ("drop", drop), (FAILED, half)):
        frame = frame.join(part.select("model", _percent_with_interval().alias(name)), on="model", how="left")
    return frame


def attribute_headlines(folder: Path) -> list[tuple[str, pl.DataFrame]]:
    """Return accuracy by the number of uncommon attributes, and the gaps between common and uncommon ones.

    Empty if the source marks no attribute as common or uncommon.
    """
    table = read(folder)
    common = pl.col("attrs").list.eval(pl.element().struct.field("common").is_not_null()).list.any()
    if not table.filter(common.fill_null(False)).head(1).collect(engine="streaming").height:
        return []
    partitions = METRICS.get("partition_accuracy")(table).select(
        "model", "uncommon", pl.col("kinds").fill_null("all"), "n", _percent_with_interval().alias("accuracy")
    )
    gaps = (
        METRICS.get("attribute_gap")(table)
        .filter(pl.col("class").is_null())
        .select("model", "kind", "n_common", "n_uncommon", _percent_with_interval().alias("gap in points"))
    )
    return [
        ("accuracy by the number of uncommon attributes, and by which these are", partitions),
        ("accuracy where an attribute is common minus where it is uncommon", gaps),
    ]


def box_headline(folder: Path) -> pl.DataFrame:
    """Return clean and shifted mAP, drop and median failure severity of each detector."""
    table = read(folder).filter(pl.col("output") == "boxes")
    models = table.select(pl.col("model").unique().sort()).collect(engine="streaming")
    clean = METRICS.get("map")(table.filter(pl.col("shift") == CLEAN), by=["model"], resamples=FEW)
    drop = METRICS.get("map_drop")(table, by=["model"], resamples=FEW)
    half = METRICS.get("box_failure_severity")(table, by=["model"], relative=True)
    shifted = METRICS.get("mean_map")(table, by=["model"], resamples=FEW)
    frame = models.join(
        clean.select("model", "n", _percent_with_interval().alias("clean mAP")), on="model", how="left"
    )
    for name, part in (
        ("shifted mAP", shifted),
        ("drop", drop),
        ("median failure severity of objects (%)", half),
    ):
        frame = frame.join(part.select("model", _percent_with_interval().alias(name)), on="model", how="left")
    return frame


def _percent_with_interval() -> pl.Expr:
    """Format a fraction as percent with its 95 % interval."""

    def number(column: str) -> pl.Expr:
        return ((100 * pl.col(column)).round(1) + 0.0).cast(pl.String).fill_null("–")

    return pl.format("{}  [{}, {}]", number("value"), number("low"), number("high"))
