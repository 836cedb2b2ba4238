"""Tables of many simulated runs whose truth is known, and how often 95 % intervals hold it; the
laws stand in ``coverage_laws``.

Every draw is a run of its own (``run_id``), so that one question answers all draws. A sample has an
ease of its own, which its images share, and an image is right where ease and noise together lie
above the severity. Scores are normal. Truths that have no closed form come from one draw of very
many samples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import ndtr
from scipy.stats import norm

from sorites.core.table import SCHEMA

SHARED = 0.7
"""The share of the variance of a verdict that is the sample's own ease, and so shared by all its images."""
SETTINGS = {"clean": (-1.6,), "blur": (-1.0, -0.4, 0.3, 1.0), "noise": (-0.8, 0.0, 0.8)}
SKILL = {"weak": -0.3}
MANY = 200_000
Row = dict[str, Any]
Ask = Callable[[pl.DataFrame], pl.DataFrame]
Make = Callable[[np.random.Generator, int, int], pl.DataFrame]
GroundTruth = Callable[[Row], float | None]


@dataclass(frozen=True)
class Law:
    """A question about simulated runs, and the truth of each row of the answer; None leaves a row out."""

    ask: Ask
    truth: GroundTruth
    make: Make


def columns(count: int, **given: Any) -> pl.DataFrame:
    """Rows of the table with what is given; a plain value stands in every row."""
    base = {
        "source": "s",
        "probe": False,
        "model": "m",
        "output": "label",
        "known": True,
        "seed": 0,
        "family": "f",
    }
    made = {
        name: value if isinstance(value, np.ndarray | pl.Series) else pl.repeat(value, count, eager=True)
        for name, value in {**base, **given}.items()
    }
    frame = pl.DataFrame(made)
    lacking = [pl.lit(None, SCHEMA[name]).alias(name) for name in SCHEMA if name not in frame.columns]
    return frame.with_columns(lacking).select(SCHEMA.names()).cast(dict(SCHEMA))


def named(prefix: str, numbers: np.ndarray) -> pl.Series:
    names = pl.Series([f"{prefix}{number:07d}" for number in range(int(numbers.max()) + 1)])
    return names.gather(numbers)


def verdicts(
    rng: np.random.Generator, n: int, draws: int, easy: float = 0.0, models: tuple[str, ...] = ("m",)
) -> pl.DataFrame:
    """Runs of ``n`` samples: clean and two shifts, every model."""
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    ease = rng.normal(size=draws * n)
    parts = []
    for model in models:
        own = np.sqrt(SHARED) * ease
        for shift, settings in SETTINGS.items():
            for place, setting in enumerate(settings):
                right = (
                    own + np.sqrt(1 - SHARED) * rng.normal(size=len(ease)) + easy + SKILL.get(model, 0.0)
                    > setting
                )
                parts.append(
                    columns(
                        len(ease),
                        run_id=named("r", run),
                        sample_id=named("p", sample),
                        image_id=named(f"{shift}{place}", sample),
                        shift=shift,
                        severity=float(place + (shift != "clean")),
                        model=model,
                        correct=right,
                        conf=ndtr(rng.normal(size=len(ease)) * 0.5 + own - setting).astype(np.float32),
                    )
                )
    return pl.concat(parts)


def share(setting: float, easy: float = 0.0) -> float:
    return float(norm.sf(setting - easy))


def mean_share(easy: float = 0.0) -> float:
    return float(np.mean([np.mean([share(s, easy) for s in SETTINGS[shift]]) for shift in ("blur", "noise")]))


def scores(rng: np.random.Generator, n: int, draws: int, apart: float = 1.0, each: int = 1) -> pl.DataFrame:
    """Runs of n/2 in-distribution and n/2 OOD samples with ``each`` images of a sample, whose scores
    share most of their noise.
    """
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    ood = sample % 2 == 1
    own = rng.normal(size=len(run))
    parts = []
    for k in range(each):
        noise = own if each == 1 else np.sqrt(SHARED) * own + np.sqrt(1 - SHARED) * rng.normal(size=len(run))
        score = (apart * ood + noise).astype(np.float32)
        right = rng.random(len(run)) < norm.sf(score - 1)
        parts.append(
            columns(
                len(run),
                run_id=named("r", run),
                sample_id=named("p", sample),
                image_id=named(f"i{k}", sample),
                shift="clean",
                severity=0.0,
                params=f'{{"k": {k}}}',
                output="ood",
                scorer="s",
                score=score,
                known=~ood,
                correct=right,
                label=np.where(ood, -1, 1).astype(np.int32),
                split="val" if k % 2 else "test",
            )
        )
    return pl.concat(parts)


def degrees(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``n`` images whose degree is skewed: the square of a normal number."""
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    entry = pl.struct(measure=pl.lit("ssim"), value=pl.lit(pl.Series(rng.normal(size=len(run)) ** 2)))
    made = columns(
        len(run),
        run_id=named("r", run),
        sample_id=named("p", sample),
        image_id=named("i", sample),
        shift="blur",
        severity=1.0,
    )
    return made.with_columns(degrees=pl.concat_list(entry)).cast(dict(SCHEMA))


def settings(rng: np.random.Generator, n: int, draws: int, each: int = 4) -> pl.DataFrame:
    """Runs of ``n`` samples with ``each`` images, a third of them at an uncommon time, where the model is
    right less often.
    """
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    common, ease = rng.random(len(run)) < 2 / 3, rng.normal(size=len(run))
    usual = pl.lit(pl.Series(common))
    entry = pl.struct(
        key=pl.lit("time"), value=pl.when(usual).then(pl.lit("day")).otherwise(pl.lit("night")), common=usual
    )
    parts = []
    for k in range(each):
        noise = np.sqrt(SHARED) * ease + np.sqrt(1 - SHARED) * rng.normal(size=len(run))
        made = columns(
            len(run),
            run_id=named("r", run),
            sample_id=named("p", sample),
            image_id=named(f"i{k}", sample),
            shift="blur",
            severity=float(k),
            correct=noise < norm.ppf(np.where(common, 0.85, 0.6)),
            label=1,
        )
        parts.append(made.with_columns(attrs=pl.concat_list(entry)).cast(dict(SCHEMA)))
    return pl.concat(parts)


def failures(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs whose trajectories fail at a severity of their own, as refined ones do, under two shifts
    that are related.
    """
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    own, parts = rng.normal(size=len(run)), []
    for shift in ("blur", "noise"):
        at = norm.cdf(np.sqrt(SHARED) * own + np.sqrt(1 - SHARED) * rng.normal(size=len(run)))
        ids = {"run_id": named("r", run), "sample_id": named("p", sample), "shift": shift}
        for k, (severity, right) in enumerate(((0.9 * at, True), (at, False), (np.ones(len(run)), False))):
            parts.append(
                columns(
                    len(run), **ids, image_id=named(f"{shift}{k}", sample), severity=severity, correct=right
                )
            )
    return pl.concat(parts)


LIGHT = {"on": 0.0, "off": 0.5}
ISO = {100: -1.0, 400: -0.3, 800: -0.2}
AUTOMATIC = -0.6


def shots(
    rng: np.random.Generator, n: int, draws: int, models: tuple[str, ...] = ("m", "weak")
) -> pl.DataFrame:
    """Runs of ``n`` samples under two lights, at three camera settings and with one automatic shot."""
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    own, parts = np.sqrt(SHARED) * rng.normal(size=draws * n), []
    points = [(light, f'"mode": "manual", "iso": {iso}', at) for light in LIGHT for iso, at in ISO.items()]
    points += [(light, '"mode": "auto"', AUTOMATIC) for light in LIGHT]
    for light, params, at in points:
        for model in models:
            margin = own + np.sqrt(1 - SHARED) * rng.normal(size=len(own)) + SKILL.get(model, 0.0)
            margin -= at + LIGHT[light]
            right = margin > 0
            parts.append(
                columns(
                    len(own),
                    run_id=named("r", run),
                    sample_id=named("p", sample),
                    image_id=named(f"{light}{params}", sample),
                    shift="camera",
                    params=f'{{"light": "{light}", {params}, "shutter": 0.1, "aperture": 8}}',
                    model=model,
                    correct=right,
                    pred=np.where(right, 1, 2 + rng.integers(0, 3, len(own))).astype(np.int32),
                    conf=ndtr(np.abs(margin) + 0.5 * rng.normal(size=len(own))).astype(np.float32),
                )
            )
    return pl.concat(parts)


def lensed(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``n`` samples through two lenses at two field positions, with skewed degrees that the images of
    a sample share in part.
    """
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    ease, parts = rng.normal(size=draws * n), []
    for lens, position in ((lens, position) for lens in range(2) for position in range(2)):
        own = np.sqrt(SHARED) * ease + np.sqrt(1 - SHARED) * rng.normal(size=len(ease))
        entry = pl.struct(measure=pl.lit("ssim"), value=pl.lit(pl.Series(own**2)))
        made = columns(
            len(ease),
            run_id=named("r", run),
            sample_id=named("p", sample),
            image_id=named(f"{lens}{position}", sample),
            shift="lens",
            params=f'{{"lens": "{lens}", "field": {position}.0, "quality": 0.5}}',
            correct=own > lens / 2 + position - 1.2,
        )
        parts.append(made.with_columns(degrees=pl.concat_list(entry)).cast(dict(SCHEMA)))
    return pl.concat(parts)


def placed(rng: np.random.Generator, n: int, draws: int, each: int = 4) -> pl.DataFrame:
    """Runs of ``n`` in-distribution and ``n`` judged samples with a location, a third of them uncommon, where
    scores are higher.
    """
    known = scores(rng, n, draws, apart=0.0, each=each)
    known = known.with_columns(source=pl.lit("id"), known=pl.lit(True))
    common = pl.lit(pl.Series(np.tile(rng.random(n * draws) < 2 / 3, each)))
    judged = scores(rng, n, draws, apart=0.0, each=each)
    entry = pl.struct(
        key=pl.lit("location"),
        value=pl.when(common).then(pl.lit("street")).otherwise(pl.lit("lake")),
        common=common,
    )
    higher = pl.col("score") + pl.when(common).then(0.5).otherwise(1.5)
    judged = judged.with_columns(attrs=pl.concat_list(entry), score=higher, known=pl.lit(True))
    return pl.concat([known.cast(dict(SCHEMA)), judged.cast(dict(SCHEMA))])


def scored_curve(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``n`` samples at all settings with a score that falls roughly as accuracy does."""
    made = verdicts(rng, n, draws)
    places = {
        "clean0": 0.3,
        "blur0": 0.2,
        "blur1": 0.9,
        "blur2": 0.8,
        "blur3": 1.5,
        "noise0": 0.6,
        "noise1": 0.4,
    }
    at = (
        pl.col("image_id")
        .str.extract(r"^([a-z]+\d)")
        .replace_strict(places, default=1.2, return_dtype=pl.Float64)
    )
    noise = pl.lit(pl.Series(0.5 * rng.normal(size=made.height)))
    score = at + noise - pl.col("conf").cast(pl.Float64)
    return made.with_columns(output=pl.lit("ood"), scorer=pl.lit("s"), score=score).cast(dict(SCHEMA))


def graded(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``scores`` whose OOD images have two semantic levels."""
    made = scores(rng, n, draws, each=4)
    level = pl.col("sample_id").str.slice(1).cast(pl.Int64) % 4 // 2
    return made.with_columns(
        sem_level=pl.when(~pl.col("known")).then(level), cov_level=pl.when(~pl.col("known")).then(1),
        score=pl.col("score") + pl.when(~pl.col("known")).then(0.7 * level).otherwise(0.0),
    ).cast(dict(SCHEMA))  # fmt: skip


def checked(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``verdicts`` of which a filter removed some images, the difficult ones more often."""
    made = verdicts(rng, n, draws)
    kept = pl.lit(pl.Series(rng.random(made.height))) < 0.6 + 0.35 * pl.col("conf")
    return made.with_columns(valid=kept)


SLOPE = 0.8
"""The slope of the line on which the accuracies of simulated models lie."""


def on_a_line(rng: np.random.Generator, n: int, draws: int, models: int = 12) -> pl.DataFrame:
    """Runs of ``n`` samples that all models share, clean and under one shift; the true accuracies of the models
    lie near a line.
    """
    clean = rng.uniform(0.5, 0.95, (draws, 1, models))
    shifted = np.clip(SLOPE * clean - 0.1 + rng.normal(0, 0.03, clean.shape), 0.01, 0.99)
    own = np.sqrt(SHARED) * rng.normal(size=(draws, n, 1))
    run, sample, model = (axis.ravel() for axis in np.indices((draws, n, models)))
    parts = []
    for severity, (shift, truth) in enumerate({"clean": clean, "blur": shifted}.items()):
        right = own + np.sqrt(1 - SHARED) * rng.normal(size=(draws, n, models)) < norm.ppf(truth)
        parts.append(
            columns(
                right.size,
                run_id=named("r", run),
                sample_id=named("p", sample),
                image_id=named(shift, sample),
                shift=shift,
                severity=float(severity),
                model=named("m", model),
                correct=right.ravel(),
            )
        )
    return pl.concat(parts)


def always(value: float) -> GroundTruth:
    return lambda row: value


def large(ask: Ask, make: Make, *by: str, many: int = MANY) -> GroundTruth:
    """Return the truth as one draw of very many samples has it; rows are told apart by the columns ``by``."""

    @functools.cache
    def found() -> dict[tuple[Any, ...], float]:
        answer = ask(make(np.random.default_rng(99), many, 1))
        return {tuple(row[key] for key in by): row["value"] for row in answer.to_dicts()}

    return lambda row: found().get(tuple(row[key] for key in by))


def covered(law: Law, n: int, draws: int, seed: int = 1, cells: int = 2_000_000) -> float:
    """Return the share of intervals that hold the truth; see ``covered_all``."""
    return covered_all({"": law}, n, draws, seed, cells)[""]


def covered_all(
    laws: Mapping[str, Law], n: int, draws: int, seed: int = 1, cells: int = 2_000_000
) -> dict[str, float]:
    """Return, for laws about the same runs, the share of intervals that hold the truth.

    An end that is null lies beyond, and no interval does not count. NaN where there is no interval at all.
    """
    rng, batch = np.random.default_rng(seed), max(1, cells // (n * 8))
    hits: dict[str, list[bool]] = {name: [] for name in laws}
    (make,) = {law.make for law in laws.values()}
    for start in range(0, draws, batch):
        table = make(rng, n, min(batch, draws - start))
        for name, law in laws.items():
            for row in law.ask(table).to_dicts():
                truth, low, high = law.truth(row), row["low"], row["high"]
                if truth is not None and not (low is None and high is None):
                    above = low is None or low <= truth + 1e-9
                    hits[name].append(above and (high is None or truth <= high + 1e-9))
    return {name: float(np.mean(found)) if found else float("nan") for name, found in hits.items()}
