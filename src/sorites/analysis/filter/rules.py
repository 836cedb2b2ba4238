"""Rules of the out-of-class filter: four votes, a rule over them, and their quality.

An image made by increasing a nuisance may lose the object itself. Four similarities are computed: to a text
that names the class, to a text that also names the shift, and to the clean image in two encoders. A
similarity at or below its threshold is a vote to remove the image. Dünkel et al., "CNS-Bench", ICCV 2025,
sections 3.4, 4.2 and I.
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
from sorites.core.messages import option
from sorites.core.table import Table
from sorites.io.paths import is_file
from sorites.io.readers import json_file, toml_file
from sorites.io.tables import sheet
from sorites.measures.neighbours import directions

# Similarities to "a photo of a CLASS" and "a photo of a CLASS in SHIFT" (100 x cosine), and to the
# clean image in the image-text encoder and in the second encoder (cosine).
VOTES = ("class_text", "shift_text", "joint_image", "own_image")

# The measure that stores an annotation beside the similarities: 1 out of class, 0 in class.
OUTSIDE = "outside"

# Thresholds of the published code, for CLIP ViT-B/16 and for the softmax of DINOv2 ViT-L/14 features.
PUBLISHED: Mapping[str, float] = dict(
    zip(VOTES, (28.7394449, 35.2928484, 0.805859378, 0.781161878), strict=True)
)

# Share of out-of-class images that each vote alone has to remove.
REMOVED = 0.9

# Number of votes that must pass for an image to be kept. The paper removes images with two votes against
# them; its code keeps images with two votes for them.
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
    """Return the four similarities of each image.

    Args:
        images: The shifted images.
        untouched: The clean image of each.
        texts: The class text and the shift text of each.
        joint: Encodes images, and texts, into one space.
        alone: Encodes images.
        softmax: Apply a softmax to the features of ``alone``, as the published code does.
    """
    sizes = {len(images), len(untouched), *map(len, texts)}
    if len(sizes) != 1:
        raise SoritesError(
            f"Expected a clean image and two texts for each of {len(images)} images, got {sorted(sizes)}."
        )
    image_features, clean_features = (joint[0](batch) for batch in (images, untouched))
    text_features = (joint[1](texts[0]), joint[1](texts[1]))
    return similarities_of_features(
        (image_features, clean_features), text_features, (alone(images), alone(untouched)), softmax
    )


def similarities_of_features(
    joint: tuple[Array, Array],
    texts: tuple[Array, Array] | None,
    alone: tuple[Array, Array],
    softmax: bool = False,
) -> pl.DataFrame:
    """Return the four similarities from features (N x D each); see ``similarities``.

    Args:
        joint: Features of the images and of their clean images in the image-text space.
        texts: Features of both texts; None, for images without a class, gives null similarities.
        alone: Features of the images and of their clean images in the second space.
        softmax: Apply a softmax to ``alone`` first.
    """
    shifted, clean = (directions(rows, "images") for rows in joint)
    own = [directions(_softmax(rows) if softmax else rows, "images") for rows in alone]
    to_texts = (
        [None, None]
        if texts is None
        else [100 * (shifted * directions(rows, "texts")).sum(1) for rows in texts]
    )
    columns = [*to_texts, (shifted * clean).sum(1), (own[0] * own[1]).sum(1)]
    return pl.DataFrame(dict(zip(VOTES, columns, strict=True)), dict.fromkeys(VOTES, pl.Float64))


def _softmax(features: Array) -> Array:
    raised = np.exp(features - features.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def read_scores(file: str | Path) -> pl.DataFrame:
    """Read similarities from a CSV or Parquet file: ``image_id``, the four votes, optionally ``outside``."""
    path = Path(file)
    frame = sheet(path, infer_schema=True)
    _check(frame, str(path))
    return frame


def scores_of(table: Table) -> pl.DataFrame:
    """Return the similarities in the ``degrees`` of a table, one row per encoded or annotated image.

    ``outside`` is null for images that show their class in part; ``annotated`` says whether an image has an
    annotation.
    """
    degrees = (
        table.lazy().filter(pl.col("degrees").is_not_null()).select("image_id", "degrees").unique("image_id")
    )
    entries = degrees.explode("degrees").unnest("degrees").filter(pl.col("measure").is_in([*VOTES, OUTSIDE]))
    value, measure = pl.col("value"), pl.col("measure")
    columns = {name: value.filter(measure == name).first() for name in (*VOTES, OUTSIDE)}
    wide = entries.group_by("image_id").agg(**columns, annotated=(measure == OUTSIDE).any())
    return wide.with_columns(pl.col(OUTSIDE) > 0).sort("image_id").collect(engine="streaming")


def calibrate(scores: pl.DataFrame, removed: float = REMOVED, name: str = "scores") -> dict[str, float]:
    """Return for each vote the least threshold that removes a share ``removed`` of out-of-class images.

    Raises:
        SoritesError: No row is labelled, or no labelled row has a value.
    """
    _check(scores, name)
    if "outside" not in scores.columns or not scores["outside"].any():
        raise SoritesError(
            f"{name}: thresholds need annotated rows, with outside true where the class is lost; none of"
            f" {scores.height} rows is. Annotate some, or use the published thresholds (PUBLISHED)."
        )
    lost = scores.filter(pl.col("outside"))
    for vote in VOTES:
        if not lost[vote].count():
            raise SoritesError(
                f"{name}: none of the {lost.height} rows labelled outside has a value in {vote}."
            )
    return {
        vote: float(lost[vote].drop_nulls().sort()[math.ceil(removed * lost[vote].count()) - 1])
        for vote in VOTES
    }


def is_kept(
    scores: pl.DataFrame, thresholds: Mapping[str, float] = PUBLISHED, rule: str = "paper"
) -> pl.Series:
    """Return whether each image is kept (``valid``).

    Args:
        scores: The four similarities of each image.
        thresholds: One number per vote.
        rule: ``paper`` or ``code`` (see ``NEEDED``), or ``text`` for the class text alone.

    Returns:
        A boolean series; null where a similarity that the rule needs is missing.
    """
    _check(scores, "scores")
    if rule == "text":
        return scores.select(valid=pl.col(VOTES[0]) > thresholds[VOTES[0]]).to_series()
    if rule not in NEEDED:
        raise UnknownName("rule", rule, (*NEEDED, "text"), "Available: paper, code, text.")
    passes = pl.sum_horizontal((pl.col(vote) > thresholds[vote]).cast(pl.Int32) for vote in VOTES)
    complete = pl.all_horizontal(pl.col(vote).is_not_null() for vote in VOTES)
    return scores.select(valid=pl.when(complete).then(passes >= NEEDED[rule])).to_series()


def facts(scores: pl.DataFrame, valid: pl.Series, trajectory: str | None = None) -> pl.DataFrame:
    """Return ``image_id`` and ``valid`` for ``table.write_facts``; images are marked, never removed.

    With a ``trajectory`` column, a trajectory is valid only as a whole, as in the published set.
    """
    if "image_id" not in scores.columns:
        raise SoritesError(f"Facts need the column image_id, got {', '.join(scores.columns)}.")
    marked = scores.with_columns(valid=valid)
    whole = (
        pl.col("valid") if trajectory is None else pl.col("valid").all(ignore_nulls=False).over(trajectory)
    )
    return marked.select("image_id", valid=whole)


def quality(scores: pl.DataFrame, thresholds: Mapping[str, float] = PUBLISHED) -> pl.DataFrame:
    """Return ``tpr``, ``fpr``, ``accuracy`` and ``n`` of each vote and rule against annotations (table 2b).

    Positive is out of class: tpr is the share of out-of-class images removed, fpr the share of the others
    removed.
    """
    labelled = scores.filter(pl.col("outside").is_not_null())
    if not labelled.height:
        raise SoritesError("No row is annotated in the column outside.")
    valid_by_filter = {vote: labelled[vote] > thresholds[vote] for vote in VOTES}
    valid_by_filter |= {rule: is_kept(labelled, thresholds, rule) for rule in ("text", *NEEDED)}
    rows = []
    for name, valid in valid_by_filter.items():
        judged = labelled.with_columns(aside=~valid).drop_nulls("aside")
        lost, in_class = judged.filter("outside")["aside"], judged.filter(~pl.col("outside"))["aside"]
        correct = int(lost.sum()) + len(in_class) - int(in_class.sum())
        accuracy = correct / judged.height if judged.height else None
        rows.append(
            {
                "filter": name,
                "tpr": lost.mean(),
                "fpr": in_class.mean(),
                "accuracy": accuracy,
                "n": judged.height,
            }
        )
    kinds = {"tpr": pl.Float64, "fpr": pl.Float64, "accuracy": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=kinds)


def stages(rows: pl.DataFrame, names: Sequence[str], by: str = "severity") -> pl.DataFrame:
    """Count the images left by each stage (a boolean column) of a selection, by severity (table 8)."""
    for name in (by, *names):
        if name not in rows.columns:
            raise UnknownName("column", name, rows.columns)
    return rows.group_by(by).agg(pl.len().alias("all"), *(pl.col(name).sum() for name in names)).sort(by)


def _check(scores: pl.DataFrame, name: str) -> None:
    for vote in VOTES:
        if vote not in scores.columns:
            raise SoritesError(f"{name}: column {vote} is missing; expected {', '.join(VOTES)}.")
        if not scores[vote].dtype.is_numeric():
            raise SoritesError(f"{name}: column {vote} must be numeric, got {scores[vote].dtype}.")
        odd = scores.with_row_index("row", offset=1).filter(pl.col(vote).cast(pl.Float64).is_nan())
        if odd.height:
            raise SoritesError(f"{name}, row {odd['row'][0]}: {vote} is NaN.")


# --- Thresholds: published, from a file, or calibrated on annotated images


WORDS = ("published", "calibrated")


@dataclass(frozen=True)
class Thresholds:
    """One number per vote; None if they have to be calibrated."""

    name: str
    values: Mapping[str, float] | None

    @property
    def calibrated(self) -> bool:
        return self.values is None

    def chosen(self, scores: pl.DataFrame) -> Mapping[str, float]:
        """Return the thresholds, calibrated on the annotated rows of ``scores`` if necessary."""
        return calibrate(scores, name="the annotated images") if self.values is None else self.values


def read_thresholds(spec: str | Path) -> Thresholds:
    """Return thresholds by name, or from a TOML or JSON file with one number per vote.

    The record of a filter (``facts/out_of_class.json``) is such a file, so thresholds calibrated on an
    annotated run can be used for another.
    """
    if spec == "calibrated":
        return Thresholds("calibrated", None)
    if spec == "published":
        return Thresholds("published", PUBLISHED)
    path = Path(spec)
    if not is_file(path):
        raise SoritesError(
            f"{option('thresholds', None)}: expected {' or '.join(WORDS)}, or a file with one number per"
            f" vote; got {str(spec)!r}."
        )
    expected = f"{option('thresholds', None)} as a file with one number per vote"
    data: Any = json_file(path, expected) if path.suffix == ".json" else toml_file(path, expected)
    values = data.get("thresholds", data) if isinstance(data, dict) else {}
    values = values if isinstance(values, dict) else {}
    wrong = [vote for vote in VOTES if not _is_number(values.get(vote))]
    if wrong:
        raise SoritesError(
            f"{option('thresholds', None)}: {path} has no number for {wrong[0]}; expected one for each of"
            f" {', '.join(VOTES)}."
        )
    return Thresholds(str(path), {vote: float(values[vote]) for vote in VOTES})


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
        and math.isfinite(value)
    )
