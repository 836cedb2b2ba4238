"""The filter for images that no longer show their class: four votes, a rule over them, and their
quality against hand labels.

An image made by increasing a nuisance may lose the object itself. Four similarities are computed:
to a text that names the class, to one that names it in the shift, and to the clean image in two
encoders. Each has a threshold, and a similarity at or below it is a vote to set the image aside.
Dünkel et al., "CNS-Bench", ICCV 2025, sections 3.4, 4.2 and I.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import ImageU8
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table
from sorites.io.paths import is_file
from sorites.io.readers import json_file, toml_file
from sorites.io.tables import sheet
from sorites.measures.neighbours import directions

# Similarities to "a photo of a CLASS" and "a photo of a CLASS in SHIFT" (100 x cosine), and to the
# clean image in the encoder of the texts and in one of images alone (cosine).
VOTES = ("class_text", "shift_text", "joint_image", "own_image")

# The name of a label by hand beside the similarities: 1 where the image is out of its class, 0
# where it shows it.
OUTSIDE = "outside"

# The thresholds of the published code, for CLIP ViT-B/16 and for the softmax of DINOv2 ViT-L/14's
# features.
PUBLISHED: Mapping[str, float] = dict(
    zip(VOTES, (28.7394449, 35.2928484, 0.805859378, 0.781161878), strict=True)
)

# The share of out-of-class images that each vote alone has to set aside.
REMOVED = 0.9

# The number of the four that must pass for an image to stay. The paper sets aside an image with
# two votes against it; its code keeps one with two votes for it.
NEEDED: Mapping[str, int] = {"paper": 3, "code": 2}

Array = NDArray[np.floating]
Encoder = Callable[[Sequence[ImageU8]], Array]


def similarities(
    images: Sequence[ImageU8],
    untouched: Sequence[ImageU8],
    texts: tuple[Sequence[str], Sequence[str]],
    joint: tuple[Encoder, Callable[[Sequence[str]], Array]],
    alone: Encoder,
    softmax: bool = False,
) -> pl.DataFrame:
    """Return the four similarities of each image; ``untouched`` and both lists of ``texts`` hold
    one entry per image.

    ``joint`` encodes images and texts into one space, ``alone`` only images. ``softmax`` takes
    the softmax of the latter's features first, as the published code does.
    """
    sizes = {len(images), len(untouched), *map(len, texts)}
    if len(sizes) != 1:
        raise SoritesError(
            f"wanted an untouched image and two texts for each of {len(images)} images, got {sorted(sizes)}"
        )
    of_images, of_start = (joint[0](some) for some in (images, untouched))
    named = (joint[1](texts[0]), joint[1](texts[1]))
    return similarities_of_features((of_images, of_start), named, (alone(images), alone(untouched)), softmax)


def similarities_of_features(
    joint: tuple[Array, Array],
    texts: tuple[Array, Array] | None,
    alone: tuple[Array, Array],
    softmax: bool = False,
) -> pl.DataFrame:
    """Return the same from features, N x D each: of the images and of their clean images in
    both spaces, and of the texts.

    Without texts, which an image without a class has not, the similarities to them are null.
    """
    seen, start = (directions(rows, "images") for rows in joint)
    own = [directions(_soft(rows) if softmax else rows, "images") for rows in alone]
    named = (
        [None, None] if texts is None else [100 * (seen * directions(rows, "texts")).sum(1) for rows in texts]
    )
    found = [*named, (seen * start).sum(1), (own[0] * own[1]).sum(1)]
    return pl.DataFrame(dict(zip(VOTES, found, strict=True)), dict.fromkeys(VOTES, pl.Float64))


def _soft(features: Array) -> Array:
    raised = np.exp(features - features.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def read_scores(file: str | Path) -> pl.DataFrame:
    """Read similarities from a CSV or parquet file: ``image_id``, the four votes, and ``outside``
    where it is labelled.
    """
    path = Path(file)
    frame = sheet(path, infer_schema=True)
    _check(frame, str(path))
    return frame


def scores_of(table: Table) -> pl.DataFrame:
    """Return the similarities that a run's table holds in ``degrees``, one row per image, with
    ``outside`` where it is annotated.

    Rows are those of the images that a filter encoded or that somebody labelled; ``outside`` is
    null where an image shows its class in part, and ``annotated`` says whether anybody looked at
    it.
    """
    degrees = (
        table.lazy().filter(pl.col("degrees").is_not_null()).select("image_id", "degrees").unique("image_id")
    )
    known = degrees.explode("degrees").unnest("degrees").filter(pl.col("measure").is_in([*VOTES, OUTSIDE]))
    value, measure = pl.col("value"), pl.col("measure")
    columns = {name: value.filter(measure == name).first() for name in (*VOTES, OUTSIDE)}
    wide = known.group_by("image_id").agg(**columns, annotated=(measure == OUTSIDE).any())
    return wide.with_columns(pl.col(OUTSIDE) > 0).sort("image_id").collect(engine="streaming")


def calibrate(scores: pl.DataFrame, removed: float = REMOVED, name: str = "scores") -> dict[str, float]:
    """Return for each vote the least threshold that sets aside at least ``removed`` of the images
    labelled ``outside``.
    """
    _check(scores, name)
    if "outside" not in scores.columns or not scores["outside"].any():
        raise SoritesError(
            f"{name}: thresholds need rows labelled by hand: a column outside that is true where the class is"
            f" lost. None of {scores.height} rows is. Label some, or take the published thresholds"
            " (PUBLISHED)."
        )
    lost = scores.filter(pl.col("outside"))
    for vote in VOTES:
        if not lost[vote].count():
            raise SoritesError(
                f"{name}: none of the {lost.height} rows labelled outside has a value in {vote}"
            )
    return {
        vote: float(lost[vote].drop_nulls().sort()[math.ceil(removed * lost[vote].count()) - 1])
        for vote in VOTES
    }


def stays(
    scores: pl.DataFrame, thresholds: Mapping[str, float] = PUBLISHED, rule: str = "paper"
) -> pl.Series:
    """Return whether each image stays (``valid``) by a rule: ``paper``, ``code``, or ``text``,
    the class text alone.

    The answer is null where a similarity that the rule needs is missing.
    """
    _check(scores, "scores")
    if rule == "text":
        return scores.select(valid=pl.col(VOTES[0]) > thresholds[VOTES[0]]).to_series()
    if rule not in NEEDED:
        raise UnknownName("rule", rule, (*NEEDED, "text"), "It is paper, code or text.")
    passes = pl.sum_horizontal((pl.col(vote) > thresholds[vote]).cast(pl.Int32) for vote in VOTES)
    complete = pl.all_horizontal(pl.col(vote).is_not_null() for vote in VOTES)
    return scores.select(valid=pl.when(complete).then(passes >= NEEDED[rule])).to_series()


def facts(scores: pl.DataFrame, valid: pl.Series, trajectory: str | None = None) -> pl.DataFrame:
    """Return ``image_id`` and ``valid`` for ``table.write_facts``: images are marked, never removed.

    With the name of a ``trajectory`` column, a trajectory stays only as a whole, as in the published set.
    """
    if "image_id" not in scores.columns:
        raise SoritesError(f"facts need image_id; got {', '.join(scores.columns)}")
    marked = scores.with_columns(valid=valid)
    whole = (
        pl.col("valid") if trajectory is None else pl.col("valid").all(ignore_nulls=False).over(trajectory)
    )
    return marked.select("image_id", valid=whole)


def quality(scores: pl.DataFrame, thresholds: Mapping[str, float] = PUBLISHED) -> pl.DataFrame:
    """Return ``tpr``, ``fpr``, ``accuracy`` and ``n`` against the labels (``outside``) for each
    vote and each rule (table 2b).

    Positive is out of class: tpr is the share of out-of-class images set aside, fpr the share of
    the others set aside.
    """
    labelled = scores.filter(pl.col("outside").is_not_null())
    if not labelled.height:
        raise SoritesError("quality needs rows labelled by hand in the column outside; none is")
    kept = {vote: labelled[vote] > thresholds[vote] for vote in VOTES}
    kept |= {rule: stays(labelled, thresholds, rule) for rule in ("text", *NEEDED)}
    rows = []
    for name, valid in kept.items():
        judged = labelled.with_columns(aside=~valid).drop_nulls("aside")
        lost, sound = judged.filter("outside")["aside"], judged.filter(~pl.col("outside"))["aside"]
        right = int(lost.sum()) + len(sound) - int(sound.sum())
        accuracy = right / judged.height if judged.height else None
        rows.append(
            {
                "filter": name,
                "tpr": lost.mean(),
                "fpr": sound.mean(),
                "accuracy": accuracy,
                "n": judged.height,
            }
        )
    kinds = {"tpr": pl.Float64, "fpr": pl.Float64, "accuracy": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=kinds)


def stages(rows: pl.DataFrame, names: Sequence[str], by: str = "severity") -> pl.DataFrame:
    """Count the images that each stage of a selection leaves, by scale (table 8); a stage is a
    boolean column.
    """
    for name in (by, *names):
        if name not in rows.columns:
            raise UnknownName("column", name, rows.columns)
    return rows.group_by(by).agg(pl.len().alias("all"), *(pl.col(name).sum() for name in names)).sort(by)


def _check(scores: pl.DataFrame, name: str) -> None:
    for vote in VOTES:
        if vote not in scores.columns:
            raise SoritesError(f"{name}: wanted the columns {', '.join(VOTES)}; {vote} is missing")
        if not scores[vote].dtype.is_numeric():
            raise SoritesError(f"{name}: wanted numbers in {vote}, got {scores[vote].dtype}")
        odd = scores.with_row_index("row", offset=1).filter(pl.col(vote).cast(pl.Float64).is_nan())
        if odd.height:
            raise SoritesError(f"{name}, row {odd['row'][0]}: {vote} is not a number")


# The thresholds of the out-of-class filter: the published ones, those of a file, or calibrated on
# images labelled by hand.


WORDS = ("published", "calibrated")


@dataclass(frozen=True)
class Thresholds:
    """One number per vote, or none yet where they are to be calibrated."""

    name: str
    values: Mapping[str, float] | None

    @property
    def calibrated(self) -> bool:
        return self.values is None

    def chosen(self, scores: pl.DataFrame) -> Mapping[str, float]:
        """Return the numbers; those to be calibrated follow from the rows of ``scores`` that are
        labelled ``outside``.
        """
        return calibrate(scores, name="the annotated images") if self.values is None else self.values


def read_thresholds(spec: str | Path) -> Thresholds:
    """Return thresholds by word or from a TOML or JSON file with one number per vote.

    The record that a filter leaves beside a run (``facts/out_of_class.json``) is such a file, so
    that thresholds calibrated on an annotated run serve another.
    """
    if spec == "calibrated":
        return Thresholds("calibrated", None)
    if spec == "published":
        return Thresholds("published", PUBLISHED)
    path = Path(spec)
    if not is_file(path):
        raise SoritesError(
            f"--thresholds: wanted {' or '.join(WORDS)}, or a file with one number per vote; got"
            f" {str(spec)!r}"
        )
    wanted = "--thresholds as a file with one number per vote"
    data: Any = json_file(path, wanted) if path.suffix == ".json" else toml_file(path, wanted)
    held = data.get("thresholds", data) if isinstance(data, dict) else {}
    held = held if isinstance(held, dict) else {}
    wrong = [vote for vote in VOTES if not _is_number(held.get(vote))]
    if wrong:
        raise SoritesError(
            f"--thresholds: wanted a number for each of {', '.join(VOTES)} in {path}; {wrong[0]} has none"
        )
    return Thresholds(str(path), {vote: float(held[vote]) for vote in VOTES})


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
        and math.isfinite(value)
    )
