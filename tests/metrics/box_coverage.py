"""Questions about simulated runs of detectors whose truth is known, one or more for every metric of boxes with an
interval; ``proof.coverage`` measures them with those of ``coverage_laws``.

A sample has one to three objects and a clean image, two severities of blur and one of noise. Whether an object
is found depends on the ease of its sample, its own, and that of the image; found boxes are misplaced, and every
image has some boxes where nothing is. There are two classes, or ten of which the rarest has 2 % of the objects.
The truth is the value of 100,000 samples of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl
from scipy.special import ndtr
from tests.metrics.coverage import Ask, Law, Make, columns, large, named

from sorites import metrics
from sorites.metrics.grids import AXES

SIZES = (20, 100, 1000)
TWO = (0.5, 0.5)
TEN = (0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)
"""The share of objects of each class."""
MANY_SAMPLES = 100_000
RESAMPLES = 100
SETTINGS = (("clean", 0.0, -0.8), ("blur", 1.0, -0.3), ("blur", 2.0, 0.4), ("noise", 1.0, 0.0))
"""Shift, severity, and the ease below which an object is not found."""
SKILL = {"m": 0.0, "weak": -0.2}
OF_SAMPLE, OF_OBJECT, OF_IMAGE = 0.35, 0.35, 0.3
"""The shares of the variance of the ease."""
SIDE, APART = 40.0, 100.0


def detections(
    rng: np.random.Generator,
    n: int,
    draws: int,
    shares: Sequence[float] = TWO,
    settings: Sequence[tuple[str, float, float]] = SETTINGS,
    models: tuple[str, ...] = ("m",),
    unknown: float = 0.0,
) -> pl.DataFrame:
    """Runs of ``n`` samples at every setting, with the boxes of every model.

    A share of objects may be ``unknown``: their boxes have the class of another. Boxes then have an OOD score,
    which is greater for those that are wrong.
    """
    size = n * draws
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    count = rng.integers(1, 4, size)
    of, place = np.repeat(np.arange(size), count), np.concatenate([np.arange(k) for k in count])
    label = rng.choice(len(shares), len(of), p=shares)
    ease = np.sqrt(OF_SAMPLE) * rng.normal(size=size)[of] + np.sqrt(OF_OBJECT) * rng.normal(size=len(of))
    foreign, mood = rng.random(len(of)) < unknown, rng.normal(size=size)
    named_so = np.where(foreign, len(shares), label)
    truth = _lists(size, of, APART * place, np.zeros(len(of)), named_so, None, known=~foreign)
    parts = []
    for model in models:
        for shift, severity, least in settings:
            found = ease + np.sqrt(OF_IMAGE) * rng.normal(size=len(of)) + SKILL[model] > least
            false = np.repeat(np.arange(size), rng.poisson(0.7, size))
            moved = rng.normal(0, 4, (2, int(found.sum())))
            made = columns(
                size,
                run_id=named("r", run),
                sample_id=named("p", sample),
                image_id=named(f"{shift}{severity:g}-", sample),
                shift=shift,
                severity=severity,
                model=model,
                output="ood" if unknown else "boxes",
                scorer="s" if unknown else None,
            )
            image, wrong = np.concatenate([of[found], false]), np.append(foreign[found], np.ones(len(false)))
            score = 1.5 * wrong + 0.7 * mood[image] + rng.normal(size=len(image))
            boxes = _lists(
                size,
                image,
                np.concatenate([APART * place[found] + moved[0], APART * rng.integers(0, 4, len(false))]),
                np.concatenate([moved[1], np.full(len(false), 200.0)]),
                np.concatenate([label[found], rng.choice(len(shares), len(false), p=shares)]),
                np.concatenate([rng.beta(4, 2, len(moved[0])), rng.beta(2, 3, len(false))]),
                score=score if unknown else None,
            )
            kinds = {name: made.schema[name] for name in ("ground_truth", "boxes")}
            parts.append(made.with_columns(ground_truth=truth, boxes=boxes).cast(kinds))
    return pl.concat(parts)


def _lists(
    size: int,
    of: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    label: np.ndarray,
    conf: np.ndarray | None,
    score: np.ndarray | None = None,
    known: np.ndarray | None = None,
) -> pl.Series:
    """Return a list of boxes for each of ``size`` images, from the image, place, class and confidence of each."""
    flat = pl.DataFrame({"x0": x, "y0": y, "x1": x + SIDE, "y1": y + SIDE, "label": label, "conf": conf})
    more = {"area": None, "crowd": False, "known": known} if conf is None else {"score": score}
    flat = flat.with_columns(**{name: _column(values) for name, values in more.items()})
    boxes = pl.DataFrame({"image": of, "box": flat.to_struct()})
    grouped = boxes.group_by("image").agg("box")
    every = pl.DataFrame({"image": np.arange(size)}).join(
        grouped, on="image", how="left", maintain_order="left"
    )
    return every["box"].fill_null([])


def _column(values: np.ndarray | bool | None) -> pl.Series | pl.Expr:
    return pl.Series(values) if isinstance(values, np.ndarray) else pl.lit(values)


STEPS = 10
"""Severities of a sample in ``lost_objects``."""


def lost_objects(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``n`` samples with severities of their own, whose objects are lost one after another."""
    size = n * draws
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    count = rng.integers(1, 4, size)
    of, place = np.repeat(np.arange(size), count), np.concatenate([np.arange(k) for k in count])
    lost_at = ndtr(np.sqrt(0.5) * (rng.normal(size=size)[of] + rng.normal(size=len(of))))
    label, below = np.zeros(len(of), np.int32), np.zeros(len(of))
    truth, parts = _lists(size, of, APART * place, below, label, None), []
    for step in range(STEPS + 1):
        severity = (step - rng.random(size)) / STEPS if step else np.zeros(size)
        found = lost_at > severity[of]
        made = columns(
            size,
            run_id=named("r", run),
            sample_id=named("p", sample),
            image_id=named(f"{step}-", sample),
            shift="blur" if step else "clean",
            severity=severity,
            output="boxes",
        )
        where = APART * place[found]
        boxes = _lists(size, of[found], where, below[found], label[found], np.full(len(where), 0.9))
        kinds = {name: made.schema[name] for name in ("ground_truth", "boxes")}
        parts.append(made.with_columns(ground_truth=truth, boxes=boxes).cast(kinds))
    return pl.concat(parts)


JOINT = {(1, 0): -0.3, (2, 0): 0.4, (0, 1): -0.4, (1, 1): 0.3, (2, 1): 0.9}
"""The severities of two shifts, and the ease below which an object is not found."""


def together(
    rng: np.random.Generator, n: int, draws: int, points: Sequence[tuple[int, int]] = tuple(JOINT)
) -> pl.DataFrame:
    """Runs of ``n`` samples under two shifts at once."""
    names = {f"{blur}{noise}": JOINT[blur, noise] for blur, noise in points}
    settings = (SETTINGS[0], *((name, 1.0, least) for name, least in names.items()))
    made, clean = detections(rng, n, draws, settings=settings), pl.col("shift") == "clean"
    blur, noise = (pl.col("shift").str.slice(place, 1) for place in (0, 1))
    return made.with_columns(
        params=pl.when(~clean).then(
            pl.concat_str(pl.lit('{"blur": '), blur, pl.lit(', "noise": '), noise, pl.lit("}"))
        ),
        severity=pl.when(clean).then("severity"),
        shift=pl.when(clean).then("shift").otherwise(pl.lit("blur x noise")),
    ).cast({"params": made.schema["params"]})


def plain(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of detections with unknown objects, as boxes without scores."""
    made = scored(rng, n, draws)
    return made.with_columns(output=pl.lit("boxes"), scorer=None).cast(dict(made.schema))


clean_two: Make = partial(detections, settings=SETTINGS[:1])
clean_ten: Make = partial(detections, shares=TEN, settings=SETTINGS[:1])
pooled: Make = partial(detections, settings=SETTINGS[1:4:2])
curve: Make = partial(detections, settings=SETTINGS[:3:2])
both: Make = partial(detections, settings=SETTINGS[1:3], models=("m", "weak"))
grid: Make = partial(together, points=((1, 0), (2, 1)))
scored: Make = partial(detections, settings=SETTINGS[:2], unknown=0.3)
RUN, GRID = ("run_id",), ("run_id", "shift")
drawn = {"resamples": RESAMPLES}


def _of(ask: Ask, make: Make, *by: str) -> Law:
    return Law(ask, large(ask, make, *by, many=MANY_SAMPLES), make)


def _against(table: pl.DataFrame) -> pl.DataFrame:
    asked = metrics.map_corruption_error(table, ("model", "run_id"), reference="m", **drawn)
    return asked.filter(pl.col("model") == "weak")


def _ap50(ask: Ask) -> Ask:
    """Return the average precision of an answer of TIDE; costs have no interval."""
    return lambda table: ask(table).filter(pl.col("error") == "AP50")


LAWS: dict[str, Law] = {
    "map": _of(partial(metrics.map, by=RUN, **drawn), clean_two),
    "map, ten classes": _of(partial(metrics.map, by=RUN, **drawn), clean_ten),
    "map, settings pooled": _of(partial(metrics.map, by=RUN, **drawn), pooled),
    "map_numbers": _of(partial(metrics.map_numbers, by=RUN, **drawn), pooled, "number"),
    "mean_map": _of(partial(metrics.mean_map, by=RUN, **drawn), pooled),
    "mean_map_numbers": _of(partial(metrics.mean_map_numbers, by=RUN, **drawn), pooled, "number"),
    "dial_map": _of(partial(metrics.dial_map, by=("run_id", "shift"), **drawn), curve, "shift"),
    "map_drop": _of(
        partial(metrics.map_drop, by=("run_id", "shift", "severity"), **drawn), curve, "severity"
    ),
    "map_corruption_error": _of(_against, both),
    "grid_map": _of(partial(metrics.grid_map, by=GRID, **drawn), grid, *AXES),
    "tide": _of(_ap50(partial(metrics.tide, by=RUN, **drawn)), pooled, "error"),
    "mean_tide": _of(_ap50(partial(metrics.mean_tide, by=RUN, **drawn)), pooled, "error"),
    "box_precision": _of(partial(metrics.box_precision, by=RUN), detections),
    "box_recall": _of(partial(metrics.box_recall, by=RUN), detections),
    "box_f1": _of(partial(metrics.box_f1, by=RUN), detections),
    "box_confusion": _of(partial(metrics.box_confusion, by=RUN), detections, "label", "pred"),
    "box_failure_severity": _of(partial(metrics.box_failure_severity, by=("run_id", "shift")), lost_objects),
    "grid_recall": _of(partial(metrics.grid_recall, by=GRID), together, *AXES),
    "grid_kept": _of(partial(metrics.grid_kept, by=GRID), together, *AXES),
    "box_failure_contour": _of(partial(metrics.box_failure_contour, by=GRID, resamples=400), together, *AXES),
    "box_interaction": _of(partial(metrics.box_interaction, by=GRID), together, *AXES),
    "box_survival": _of(
        partial(metrics.box_survival, by=("run_id", "shift")), detections, "shift", "severity"
    ),
    "box_failure_histogram": _of(
        partial(metrics.box_failure_histogram, by=("run_id", "shift")), detections, "shift", "above"
    ),
    "box_auroc": _of(partial(metrics.box_auroc, by=RUN), scored),
    "box_fpr95": _of(partial(metrics.box_fpr95, by=RUN), scored),
    "unknown_recall": _of(partial(metrics.unknown_recall, by=RUN), plain),
    "unknown_flagged": _of(partial(metrics.unknown_flagged, by=RUN), scored),
}
