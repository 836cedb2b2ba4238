"""Select the images of a run that are worth a person's look: those that are not easy, as CNS-Bench
did (appendix I).

(i) All images. (ii) Trajectories whose clean image is already wrong or far from its class's text
are left out. (iii) Images that are easy are left out and counted as in class: right by the judge
and by one of the other models, and near to the class's text. (iv) The rest is for people; with
their answers the images in class are counted once more (Table 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.apps.annotation.answers import chosen_answers
from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.core.table import read
from sorites.metrics.intervals import wilson_interval

# The likeness to the class's text that "sorites filter" keeps (100 × cosine), and the published
# threshold.
ALIGNMENT, ABOVE = "class_text", 24.0

# The question of the task in_class, and the answer that counts as in class; "partly" does not.
QUESTION, IN_CLASS = "class", "class"

_STAGES = ("all", "whole", "easy")


@dataclass(frozen=True)
class Selection:
    """Every image of a run with the stage it reached, and the models that judged it."""

    images: pl.DataFrame
    judge: str
    others: tuple[str, ...]
    above: float | None

    @property
    def hard(self) -> pl.DataFrame:
        """Return the images that are left for people."""
        return self.images.filter(pl.col("whole") & ~pl.col("easy")).drop(_STAGES[1:])

    def statistics(self, answers: Path | None = None) -> pl.DataFrame:
        """Return Table 8: by severity, how many images there are, in whole trajectories, easy, and
        in class by people too.
        """
        frame = self.images.with_columns(found=pl.lit(False))
        if answers is not None:
            seen = in_class(answers)
            frame = (
                frame.drop("found")
                .join(seen, on="image_id", how="left")
                .with_columns(pl.col("found").fill_null(False))
            )
        easy = pl.col("whole") & pl.col("easy")
        people = pl.col("whole") & ~pl.col("easy")
        counts = {"i": pl.len(), "ii": pl.col("whole").sum(), "iii": easy.sum(), "for_people": people.sum()}
        if answers is not None:
            counts["iv"] = (easy | (pl.col("whole") & pl.col("found"))).sum()
        return frame.group_by("severity").agg(**counts).sort("severity")


def in_class(answers: Path) -> pl.DataFrame:
    """Return the images that people found in class: image_id, found."""
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
    above: float | None = ABOVE,
    limit: int | None = None,
    seed: int = 0,
) -> Selection:
    """Split the images of a run into easy ones and those for people.

    ``judge`` is the model that must be right, ``others`` those of which one must be; by default the
    first and the rest of the run's models. ``above`` is the least likeness to the class's text;
    None asks for none. ``limit`` images for people are drawn in equal parts of every shift and
    severity; the others are left out.
    """
    table = read(run).filter((pl.col("output") == "label") & ~pl.col("probe").fill_null(False))
    models = (
        table.select(pl.col("model").unique(maintain_order=True))
        .collect(engine="streaming")["model"]
        .sort()
        .to_list()
    )
    first, rest = _judges(models, judge, others)
    images = _judged(table, first, rest, above, Path(run))
    whole = _whole(images)
    marked = images.join(whole, on="sample_id", how="left").with_columns(pl.col("whole").fill_null(False))
    easy = pl.col("by_judge") & pl.col("by_another") & pl.col("near")
    staged = marked.with_columns(easy=(easy | (pl.col("shift") == CLEAN)).fill_null(False))
    kept = staged.select("image_id", "sample_id", "class", "shift", "severity", "whole", "easy").sort(
        "image_id"
    )
    chosen = Selection(kept, first, rest, above)
    return chosen if limit is None else Selection(_stratified(kept, limit, seed), first, rest, above)


def _judges(models: Sequence[str], judge: str | None, others: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    for name in (*([judge] if judge else []), *others):
        if name not in models:
            raise UnknownName("model", name, models, f"The run has {', '.join(models)}.")
    first = judge or models[0]
    rest = tuple(others) or tuple(name for name in models if name != first)
    if not rest:
        raise SoritesError(
            f"wanted a judge and at least one other model; the run has only {first}. Run it with another"
            " --model"
        )
    return first, rest


def _judged(
    table: pl.LazyFrame, judge: str, others: Sequence[str], above: float | None, run: Path
) -> pl.DataFrame:
    """Return one row per image: whether the judge is right, one of the others, and whether it is
    near to its class's text.
    """
    right = pl.col("correct").fill_null(False)
    class_ = (
        pl.col("attrs")
        .list.eval(pl.element().filter(pl.element().struct.field("key") == "class"))
        .list.first()
    )
    aligned = pl.col("degrees").list.eval(
        pl.element().filter(pl.element().struct.field("measure") == ALIGNMENT).struct.field("value")
    )
    images = table.group_by("image_id").agg(
        pl.col("sample_id", "shift").first(),
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
            f"{run} holds no likeness to the texts of classes. Measure it with: sorites filter {run}"
            " --encoder NAME --second NAME; or do without it: --above none"
        )
    return images.with_columns(
        near=(pl.col("likeness") > above) | (pl.col("likeness").is_null() & (pl.col("shift") == CLEAN))
    )


def _whole(images: pl.DataFrame) -> pl.DataFrame:
    """Return for each sample whether its clean image is right and near: only then do its shifted
    ones tell about the shift.
    """
    clean = images.filter(pl.col("shift") == CLEAN)
    return clean.group_by("sample_id").agg(whole=(pl.col("by_judge") & pl.col("near")).all())


def _stratified(images: pl.DataFrame, limit: int, seed: int) -> pl.DataFrame:
    """Leave at most ``limit`` images for people, in equal parts of every shift and severity as far
    as there are enough.
    """
    if limit < 1:
        raise SoritesError(f"--limit wants a whole number above 0, got {limit}")
    hard = images.filter(pl.col("whole") & ~pl.col("easy"))
    drawn = hard.with_columns(
        order=pl.col("image_id").map_elements(lambda id_: digest(seed, id_).hex(), pl.String)
    )
    ranked = drawn.with_columns(place=pl.col("order").rank("ordinal").over("shift", "severity"))
    kept = ranked.sort("place", "order").head(limit)["image_id"]
    return images.filter(~(pl.col("whole") & ~pl.col("easy")) | pl.col("image_id").is_in(kept.implode()))


# The user study: a random sample of a run's images for two people each, and the share that is out of
# class, with its interval.


# The images of the published study.
COUNT = 300

# The questions that a study may ask, and the answer whose share it is about.
QUESTIONS = {"class": '"not class"', "visible": '"clear"'}


def draw(run: str | Path, count: int = COUNT, seed: int = 0) -> pl.DataFrame:
    """Return a random sample of the shifted images that no filter set aside: image_id, sample_id,
    shift, severity.
    """
    if count < 1:
        raise SoritesError(f"wanted a whole number of images above 0, got {count}")
    kept = pl.col("valid").fill_null(True) & ~pl.col("probe").fill_null(False) & (pl.col("shift") != CLEAN)
    images = read(run).filter(kept).select("image_id", "sample_id", "shift", "severity").unique("image_id")
    frame = images.collect(engine="streaming")
    if not frame.height:
        raise SoritesError(f"{run} holds no shifted images to show to people")
    order = pl.col("image_id").map_elements(lambda id_: digest("study", seed, id_).hex(), pl.String)
    return frame.with_columns(order=order).sort("order").head(count).drop("order")


def shares(answers: str | Path) -> pl.DataFrame:
    """Return what people found: by question, shift and severity (null for all) the share, n, its 95
    % interval and one sigma.

    For the question ``class`` it is the share out of class, for ``visible`` the share in which the
    shift is clearly seen.
    """
    rows = chosen_answers(Path(answers)).filter(pl.col("question").is_in(list(QUESTIONS)))
    if not rows.height:
        raise SoritesError(
            f"{answers} has no answers to {' or '.join(QUESTIONS)}; serve one of these tasks first"
        )
    hit = rows.with_columns(hit=pl.col("value") == pl.col("question").replace_strict(QUESTIONS))
    levels = hit.with_columns(pl.lit(None, pl.String).alias("shift"))
    whole = levels.with_columns(pl.lit(None, pl.Float64).alias("severity"))
    keys = ["question", "shift", "severity"]
    both = (
        pl.concat([whole, levels, hit])
        .group_by(keys)
        .agg(share=pl.col("hit").mean(), n=pl.len().cast(pl.Int64))
    )
    sigma = (pl.col("share") * (1 - pl.col("share")) / pl.col("n")).sqrt()
    found = both.with_columns(**wilson_interval(pl.col("share"), pl.col("n")), sigma=sigma)
    return found.select(*keys, "share", "n", "low", "high", "sigma").sort(keys, nulls_last=False)
