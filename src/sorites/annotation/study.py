"""The user study: a random sample of a run's images for two people each, and the share that is out of class, with its interval.

CNS-Bench had 300 images looked at by two people each, found 3 out of class, and states 1 % with a one-sigma margin of 0.5 %
(appendix J); Table 9 counts by scale where the shift is clearly seen.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sorites.annotation.answers import chosen_answers
from sorites.core import CLEAN
from sorites.errors import SoritesError
from sorites.metrics._intervals import wilson_interval
from sorites.rng import digest
from sorites.table import read

COUNT = 300
"""The images of the published study."""

QUESTIONS = {"class": '"not class"', "visible": '"clear"'}
"""The questions that a study may ask, and the answer whose share it is about."""


def draw(run: str | Path, count: int = COUNT, seed: int = 0) -> pl.DataFrame:
    """Return a random sample of the shifted images that no filter set aside: image_id, sample_id, shift, severity."""
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
    """Return what people found: by question, shift and severity (null for all) the share, n, its 95 % interval and one sigma.

    For the question ``class`` it is the share out of class, for ``visible`` the share in which the shift is clearly seen.
    """
    rows = chosen_answers(Path(answers)).filter(pl.col("question").is_in(list(QUESTIONS)))
    if not rows.height:
        raise SoritesError(f"{answers} has no answers to {' or '.join(QUESTIONS)}; serve one of these tasks first")
    hit = rows.with_columns(hit=pl.col("value") == pl.col("question").replace_strict(QUESTIONS))
    levels = hit.with_columns(pl.lit(None, pl.String).alias("shift"))
    whole = levels.with_columns(pl.lit(None, pl.Float64).alias("severity"))
    keys = ["question", "shift", "severity"]
    both = pl.concat([whole, levels, hit]).group_by(keys).agg(share=pl.col("hit").mean(), n=pl.len().cast(pl.Int64))
    sigma = (pl.col("share") * (1 - pl.col("share")) / pl.col("n")).sqrt()
    found = both.with_columns(**wilson_interval(pl.col("share"), pl.col("n")), sigma=sigma)
    return found.select(*keys, "share", "n", "low", "high", "sigma").sort(keys, nulls_last=False)
