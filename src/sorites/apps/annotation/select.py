"""Select the images of a run that need human inspection, as in CNS-Bench (appendix I).

(i) Start with all images. (ii) Drop samples whose clean image is misclassified or far from its class's text.
(iii) Count easy images as in class without inspection: correct for the judge and for one of the other models,
and close to the class's text. (iv) The rest is for annotators; their answers complete the count (Table 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.apps.annotation.answers import chosen_answers
from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import command, option
from sorites.core.rng import digest
from sorites.core.table import read
from sorites.metrics.intervals import wilson_interval
from sorites.metrics.rows import SAMPLE_KEY

# The similarity to the class's text that ``sorites filter`` stores (100 x cosine), and the published
# threshold.
TEXT_SIMILARITY, PUBLISHED_THRESHOLD = "class_text", 24.0

# The question of the task in_class, and the answer that counts as in class ("partly" does not).
QUESTION, IN_CLASS = "class", "class"

_STAGES = ("all", "whole", "easy")


@dataclass(frozen=True)
class Selection:
    """All images of a run with the stage they reached, and the models that judged them."""

    images: pl.DataFrame
    judge: str
    others: tuple[str, ...]
    above: float | None

    @property
    def hard(self) -> pl.DataFrame:
        """Return the images for annotators."""
        return self.images.filter(pl.col("whole") & ~pl.col("easy")).drop(_STAGES[1:])

    def statistics(self, answers: Path | None = None) -> pl.DataFrame:
        """Return Table 8: by severity, the number of images at each stage."""
        frame = self.images.with_columns(found=pl.lit(False))
        if answers is not None:
            answered = in_class(answers)
            frame = (
                frame.drop("found")
                .join(answered, on="image_id", how="left")
                .with_columns(pl.col("found").fill_null(False))
            )
        easy = pl.col("whole") & pl.col("easy")
        people = pl.col("whole") & ~pl.col("easy")
        counts = {"i": pl.len(), "ii": pl.col("whole").sum(), "iii": easy.sum(), "for_people": people.sum()}
        if answers is not None:
            counts["iv"] = (easy | (pl.col("whole") & pl.col("found"))).sum()
        return frame.group_by("severity").agg(**counts).sort("severity")


def in_class(answers: Path) -> pl.DataFrame:
    """Return the images that annotators judged: image_id, and whether in class (``found``)."""
    rows = chosen_answers(answers, QUESTION)
    return (
        rows.drop_nulls("image_id")
        .select("image_id", found=pl.col("value") == f'"{IN_CLASS}"')
        .unique("image_id")
    )


def select(
    run: str | Path,
    judge: str | None = None,
    others: Sequence[str] = (),
    above: float | None = PUBLISHED_THRESHOLD,
    limit: int | None = None,
    seed: int = 0,
) -> Selection:
    """Split the images of a run into easy ones and those for annotators.

    Args:
        run: The run folder.
        judge: The model that must be correct; by default the first of the run.
        others: Models of which one must be correct; by default the rest.
        above: Minimum similarity to the class's text; None for no minimum.
        limit: Draw at most this many images for annotators, in equal parts by shift and severity.
        seed: Seed of the draw.
    """
    table = read(run).filter((pl.col("output") == "label") & ~pl.col("probe").fill_null(False))
    models = (
        table.select(pl.col("model").unique(maintain_order=True))
        .collect(engine="streaming")["model"]
        .sort()
        .to_list()
    )
    first, rest = _judges(models, judge, others)
    images = _rate_images(table, first, rest, above, Path(run))
    complete = _complete_samples(images)
    marked = images.join(complete, on=SAMPLE_KEY, how="left", nulls_equal=True).with_columns(
        pl.col("whole").fill_null(False)
    )
    easy = pl.col("by_judge") & pl.col("by_another") & pl.col("near")
    staged = marked.with_columns(easy=(easy | (pl.col("shift") == CLEAN)).fill_null(False))
    staged_images = staged.select(
        "image_id", "sample_id", "class", "shift", "severity", "whole", "easy"
    ).sort("image_id")
    selection = Selection(staged_images, first, rest, above)
    return selection if limit is None else Selection(_limit(staged_images, limit, seed), first, rest, above)


def _judges(models: Sequence[str], judge: str | None, others: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    for name in (*([judge] if judge else []), *others):
        if name not in models:
            raise UnknownName("model", name, models, f"The run has {', '.join(models)}.")
    first = judge or models[0]
    rest = tuple(others) or tuple(name for name in models if name != first)
    if not rest:
        raise SoritesError(
            f"Selecting needs a judge and at least one other model; the run has only {first}. Run "
            f"it with another {option('model', 'NAME')}."
        )
    return first, rest


def _rate_images(
    table: pl.LazyFrame, judge: str, others: Sequence[str], above: float | None, run: Path
) -> pl.DataFrame:
    """Return one row per image: correct for the judge, for another model, and close to its class's text."""
    right = pl.col("correct").fill_null(False)
    class_ = (
        pl.col("attrs")
        .list.eval(pl.element().filter(pl.element().struct.field("key") == "class"))
        .list.first()
    )
    aligned = pl.col("degrees").list.eval(
        pl.element().filter(pl.element().struct.field("measure") == TEXT_SIMILARITY).struct.field("value")
    )
    images = table.group_by("image_id").agg(
        pl.col(*SAMPLE_KEY, "shift").first(),
        pl.col("severity").first().fill_null(0.0),
        class_.first().struct.field("value").alias("class"),
        by_judge=right.filter(pl.col("model") == judge).any(),
        by_another=right.filter(pl.col("model").is_in(list(others))).any(),
        likeness=aligned.first().list.first(),
    ).collect(engine="streaming")  # fmt: skip
    if above is None:
        return images.with_columns(near=pl.lit(True))
    if images.filter(pl.col("shift") != CLEAN)["likeness"].is_null().all():
        raise SoritesError(
            f"{run} has no similarities to class texts. Measure them with "
            f"{command('filter', str(run), encoder='NAME', second='NAME')}, or skip them with "
            f"{option('above', 'none')}."
        )
    return images.with_columns(
        near=(pl.col("likeness") > above) | (pl.col("likeness").is_null() & (pl.col("shift") == CLEAN))
    )


def _complete_samples(images: pl.DataFrame) -> pl.DataFrame:
    """Return for each sample whether its clean image is correct and close.

    Otherwise its shifted images say nothing about the shift.
    """
    clean = images.filter(pl.col("shift") == CLEAN)
    return clean.group_by(SAMPLE_KEY).agg(whole=(pl.col("by_judge") & pl.col("near")).all())


def _limit(images: pl.DataFrame, limit: int, seed: int) -> pl.DataFrame:
    """Keep at most ``limit`` images for annotators, in equal parts by shift and severity if possible."""
    if limit < 1:
        raise SoritesError(f"{option('limit', None)} must be at least 1, got {limit}")
    hard = images.filter(pl.col("whole") & ~pl.col("easy"))
    drawn = hard.with_columns(
        order=pl.col("image_id").map_elements(lambda id_: digest(seed, id_).hex(), pl.String)
    )
    ranked = drawn.with_columns(place=pl.col("order").rank("ordinal").over("shift", "severity"))
    selected = ranked.sort("place", "order").head(limit)["image_id"]
    return images.filter(~(pl.col("whole") & ~pl.col("easy")) | pl.col("image_id").is_in(selected.implode()))


# The user study: a random sample of a run's images for two annotators each.


# Number of images in the published study.
STUDY_IMAGES = 300

# The questions of a study, and the answer whose share is reported.
QUESTIONS = {"class": '"not class"', "visible": '"clear"'}


def draw_study(run: str | Path, count: int = STUDY_IMAGES, seed: int = 0) -> pl.DataFrame:
    """Draw a random sample of the valid shifted images: image_id, sample_id, shift, severity."""
    if count < 1:
        raise SoritesError(f"the number of images must be at least 1, got {count}")
    is_eligible = (
        pl.col("valid").fill_null(True) & ~pl.col("probe").fill_null(False) & (pl.col("shift") != CLEAN)
    )
    images = (
        read(run).filter(is_eligible).select("image_id", "sample_id", "shift", "severity").unique("image_id")
    )
    frame = images.collect(engine="streaming")
    if not frame.height:
        raise SoritesError(f"{run} has no shifted images for annotators")
    order = pl.col("image_id").map_elements(lambda id_: digest("study", seed, id_).hex(), pl.String)
    return frame.with_columns(order=order).sort("order").head(count).drop("order")


def study_shares(answers: str | Path) -> pl.DataFrame:
    """Return the shares of a study by question, shift and severity (null for all).

    The share is that of out-of-class images for the question ``class``, and of clearly visible shifts for
    ``visible``.
    """
    rows = chosen_answers(Path(answers)).filter(pl.col("question").is_in(list(QUESTIONS)))
    if not rows.height:
        raise SoritesError(
            f"{answers} has no answers to {' or '.join(QUESTIONS)}; serve one of these tasks first"
        )
    hit = rows.with_columns(hit=pl.col("value") == pl.col("question").replace_strict(QUESTIONS))
    by_severity = hit.with_columns(pl.lit(None, pl.String).alias("shift"))
    overall = by_severity.with_columns(pl.lit(None, pl.Float64).alias("severity"))
    keys = ["question", "shift", "severity"]
    counts = (
        pl.concat([overall, by_severity, hit])
        .group_by(keys)
        .agg(share=pl.col("hit").mean(), n=pl.len().cast(pl.Int64))
    )
    sigma = (pl.col("share") * (1 - pl.col("share")) / pl.col("n")).sqrt()
    bounded = counts.with_columns(**wilson_interval(pl.col("share"), pl.col("n")), sigma=sigma)
    return bounded.select(*keys, "share", "n", "low", "high", "sigma").sort(keys, nulls_last=False)
