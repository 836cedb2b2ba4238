"""Questions about simulated runs whose truth is known, one or more for every metric with an interval;
``proof.coverage`` measures them all.

Every metric has a law of its own, also where its interval is computed as that of another.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
from scipy.stats import norm
from tests.metrics.coverage import (
    SETTINGS,
    SHARED,
    SLOPE,
    Ask,
    GroundTruth,
    Law,
    Make,
    Row,
    always,
    checked,
    columns,
    degrees,
    failures,
    graded,
    large,
    lensed,
    mean_share,
    named,
    on_a_line,
    placed,
    scored_curve,
    scores,
    settings,
    share,
    shots,
    verdicts,
)  # fmt: skip

from sorites import metrics
from sorites.core.table import SCHEMA
from sorites.metrics import comparison, line

RUN = ("run_id",)
CURVE = ("run_id", "shift", "severity")
SIZES = (20, 100, 1000)
two: Make = partial(verdicts, models=("m", "weak"))
four: Make = partial(scores, each=4)
near: Make = partial(scores, apart=2.5, each=4)


def by_simulation(ask: Ask, make: Make, *by: str) -> Law:
    return Law(ask, large(ask, make, *by), make)


def _at(row: Row) -> float:
    return SETTINGS[row["shift"]][int(row["severity"]) - (row["shift"] != "clean")]


def _half(row: Row) -> float:
    curve = [share(SETTINGS["clean"][0]), *(share(setting) for setting in SETTINGS[row["shift"]])]
    k = next(i for i, value in enumerate(curve) if value <= curve[0] / 2)
    return k - 1 + (curve[k - 1] - curve[0] / 2) / (curve[k - 1] - curve[k])


def _other(truth: GroundTruth) -> GroundTruth:
    """Leave out the reference, whose errors are 1 without doubt."""
    return lambda row: None if row["model"] == "m" else truth(row)


def _bin(row: Row) -> float:
    mean = 1.0 if row["pool"] == "ood" else 0.0
    ends = (-np.inf if row["bin"] == 0 else row["left"], np.inf if row["bin"] == 4 else row["right"])
    return float(norm.cdf(ends[1] - mean) - norm.cdf(ends[0] - mean))


def _f1(row: Row) -> float:
    caught, false = norm.sf(row["threshold"] - 2.5), norm.sf(row["threshold"])
    return float(2 * caught / (caught + false + 1))


def _over_models(estimate: str) -> Ask:
    """Estimates over models, whose points are normal; the columns x, y and z hold those of each draw."""

    def ask(frame: pl.DataFrame) -> pl.DataFrame:
        rows = []
        for _, some in frame.group_by("run_id"):
            x, y, z = (some[name].to_numpy() for name in ("x", "y", "z"))
            rows.append(comparison._tau(x, y) if estimate == "tau" else line.partial(x, y, z))
        return pl.DataFrame([{key: row[key] for key in ("value", "low", "high")} for row in rows])

    return ask


def points(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    z, own, other = rng.normal(size=(3, n * draws))
    x = np.sqrt(0.4) * z + np.sqrt(0.6) * own
    inside = 0.5 * (x - np.sqrt(0.4) * z)
    return pl.DataFrame(
        {"run_id": np.repeat(np.arange(draws), n), "x": x, "y": 0.3 * z + inside + 0.5 * other, "z": z}
    )


JOINT = {(0, 0): -1.6, (1, 0): -0.8, (0, 1): -0.6, (1, 1): 0.6}
"""The thresholds of two shifts alone and together."""


def together(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``n`` samples under two shifts at once."""
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    own = np.sqrt(SHARED) * rng.normal(size=draws * n)
    parts = []
    for (blur, noise), setting in JOINT.items():
        clean = not blur and not noise
        parts.append(
            columns(
                len(own),
                run_id=named("r", run),
                sample_id=named("p", sample),
                image_id=named(f"{blur}{noise}", sample),
                shift="clean" if clean else "blur x noise",
                severity=0.0 if clean else None,
                params=None if clean else f'{{"blur": {blur}, "noise": {noise}}}',
                correct=own + np.sqrt(1 - SHARED) * rng.normal(size=len(own)) > setting,
            )
        )
    return pl.concat(parts)


def two_sets(rng: np.random.Generator, n: int, draws: int) -> pl.DataFrame:
    """Runs of ``scores`` whose OOD samples belong to two sets of one group."""
    second = pl.col("sample_id").str.slice(1).cast(pl.Int64) % 4 == 3
    group = pl.struct(key=pl.lit("group"), value=pl.lit("near"), common=pl.lit(None, pl.Boolean))
    ood = scores(rng, n, draws, each=4).with_columns(
        source=pl.when("known").then("source").when(second).then(pl.lit("ninco")).otherwise(pl.lit("ssb")),
        attrs=pl.when(~pl.col("known")).then(pl.concat_list(group)),
    )
    return ood.cast(dict(SCHEMA))


def confused(rng: np.random.Generator, n: int, draws: int, each: int = 4) -> pl.DataFrame:
    """Runs of ``n`` samples of class 1 with ``each`` images, a quarter of which look like class 2."""
    run, sample = np.repeat(np.arange(draws), n), np.tile(np.arange(n), draws)
    own, parts = np.sqrt(SHARED) * rng.normal(size=draws * n), []
    for k in range(each):
        place = norm.cdf(own + np.sqrt(1 - SHARED) * rng.normal(size=len(own)))
        pred = 1 + np.searchsorted([0.6, 0.85], place)
        ids = {"run_id": named("r", run), "sample_id": named("p", sample), "image_id": named(f"i{k}", sample)}
        parts.append(
            columns(
                len(own),
                **ids,
                shift="blur",
                severity=float(k),
                label=1,
                pred=pred.astype(np.int32),
                correct=pred == 1,
            )
        )
    return pl.concat(parts)


_EXCESS = share(JOINT[1, 0]) + share(JOINT[0, 1]) - share(JOINT[0, 0]) - share(JOINT[1, 1])

_CORR = (0.3 * np.sqrt(0.4) + 0.5 * 0.6) / np.sqrt(0.09 + 0.15 + 0.25)

PHOTOGRAPHED = ("model", "run_id")
MANY_SCENES = 100_000


one_model: Make = partial(shots, models=("m",))


def photographed(ask: Ask, *by: str, make: Make = one_model) -> Law:
    return Law(ask, large(ask, make, *by, many=MANY_SCENES), make)


def _gain(table: pl.DataFrame) -> pl.DataFrame:
    """The gain of each policy of camera control over automatic exposure."""
    found = metrics.camera_control(table, PHOTOGRAPHED).filter(pl.col("policy") != "auto")
    return found.with_columns(value="gain", low="gain_low", high="gain_high")


LAWS: dict[str, Law] = {
    "accuracy": Law(partial(metrics.accuracy, by=CURVE), lambda row: share(_at(row)), verdicts),
    "accuracy, settings pooled": Law(
        lambda t: metrics.accuracy(t.filter(pl.col("shift") == "blur"), RUN),
        always(float(np.mean([share(s) for s in SETTINGS["blur"]]))),
        verdicts,
    ),
    "mean_accuracy": Law(partial(metrics.mean_accuracy, by=RUN), always(mean_share()), verdicts),
    "mean_accuracy, near 1": Law(
        partial(metrics.mean_accuracy, by=RUN), always(mean_share(1.5)), partial(verdicts, easy=1.5)
    ),
    "accuracy_drop": Law(
        partial(metrics.accuracy_drop, by=CURVE), lambda row: share(-1.6) - share(_at(row)), verdicts
    ),
    "accuracy_drop, settings pooled": Law(
        partial(metrics.accuracy_drop, by=RUN), always(share(-1.6) - mean_share()), verdicts
    ),
    "paired_difference": by_simulation(
        partial(metrics.paired_difference, by=("model", "run_id"), other="m"), two
    ),
    "half_accuracy_severity": Law(
        partial(metrics.half_accuracy_severity, by=("run_id", "shift"), resamples=400), _half, verdicts
    ),
    "interaction": Law(
        lambda t: metrics.interaction(t, by=("run_id", "shift")).drop_nulls("first"),
        always(_EXCESS),
        together,
    ),
    "failure_severity": Law(partial(metrics.failure_severity, by=("run_id", "shift")), always(0.5), failures),
    "failure_severity, shifts pooled": Law(
        partial(metrics.failure_severity, by=RUN, relative=True), always(0.5), failures
    ),
    "survival": by_simulation(
        partial(metrics.survival, by=("run_id", "shift")), verdicts, "shift", "severity"
    ),
    "corruption_error": Law(
        ask := partial(metrics.corruption_error, by=("model", "run_id"), reference="m"),
        _other(large(ask, two, "model")),
        two,
    ),
    "relative_corruption_error": Law(
        rise := partial(metrics.relative_corruption_error, by=("model", "run_id"), reference="m"),
        _other(large(rise, two, "model")),
        two,
    ),
    "reliability": by_simulation(partial(metrics.reliability, by=RUN, bins=5), verdicts, "bin"),
    "partition_accuracy": Law(
        lambda t: metrics.partition_accuracy(t, RUN).filter(pl.col("kinds").is_null()),
        lambda row: (0.85, 0.6)[row["uncommon"]],
        settings,
    ),
    "attribute_accuracy": Law(
        lambda t: metrics.attribute_accuracy(t, RUN).filter(pl.col("class").is_null()),
        lambda row: {"day": 0.85, "night": 0.6}[row["attribute"]],
        settings,
    ),
    "attribute_gap": Law(
        lambda t: metrics.attribute_gap(t, RUN).filter(
            pl.col("class").is_null() & (pl.col("kind") == "time")
        ),
        always(0.25),
        settings,
    ),
    "confusion": Law(
        partial(metrics.confusion, by=RUN), lambda row: {1: 0.6, 2: 0.25, 3: 0.15}[row["pred"]], confused
    ),
    "mean_degree": Law(partial(metrics.mean_degree, by=RUN), always(1.0), degrees),
    "disagreement": by_simulation(partial(metrics.disagreement, by=RUN), two),
    "auroc": Law(partial(metrics.auroc, by=RUN), always(float(norm.cdf(1 / np.sqrt(2)))), four),
    "auroc, near 1": Law(partial(metrics.auroc, by=RUN), always(float(norm.cdf(2.5 / np.sqrt(2)))), near),
    "auroc, one image per sample": Law(
        partial(metrics.auroc, by=RUN), always(float(norm.cdf(1 / np.sqrt(2)))), scores
    ),
    "aupr_out": by_simulation(partial(metrics.aupr_out, by=RUN), four),
    "fpr95_ood_pos": Law(
        partial(metrics.fpr95_ood_pos, by=RUN), always(float(norm.sf(2.5 - 1.6448536))), near
    ),
    "f1": Law(partial(metrics.f1, by=RUN, split="val"), _f1, near),
    "f1_at_tpr95": by_simulation(partial(metrics.f1_at_tpr95, by=RUN), four),
    "near_far": by_simulation(partial(metrics.near_far, by=RUN), two_sets, "metric"),
    "augrc": by_simulation(partial(metrics.augrc, by=RUN), four),
    "scod": by_simulation(partial(metrics.scod, by=RUN), four),
    "aurc": by_simulation(partial(metrics.aurc, by=RUN), four),
    "risk_coverage": by_simulation(partial(metrics.risk_coverage, by=RUN, points=4), four, "coverage"),
    "mean_score": Law(partial(metrics.mean_score, by=RUN), always(0.0), partial(scores, apart=0.0, each=4)),
    "score_histogram": Law(
        partial(metrics.score_histogram, by=RUN, framework="semantic", bins=5), _bin, four
    ),
    "rank_agreement": Law(_over_models("tau"), always(float(2 / np.pi * np.arcsin(_CORR))), points),
    "on_the_line": Law(partial(metrics.on_the_line, by=RUN), always(SLOPE), on_a_line),
    "partial_correlation": Law(
        _over_models("partial"), always(float(0.5 * np.sqrt(0.6) / np.sqrt(0.15 + 0.25))), points
    ),
    "dial_accuracy": Law(
        partial(metrics.dial_accuracy, by=("run_id", "shift")),
        lambda row: float(np.mean([share(s) for s in (*SETTINGS["clean"], *SETTINGS[row["shift"]])])),
        verdicts,
    ),
    "dial_drop": Law(
        partial(metrics.dial_drop, by=("run_id", "shift")),
        lambda row: (
            share(-1.6) - float(np.mean([share(s) for s in (*SETTINGS["clean"], *SETTINGS[row["shift"]])]))
        ),
        verdicts,
    ),
    "edited_accuracy": Law(partial(metrics.edited_accuracy, by=CURVE), lambda row: share(_at(row)), verdicts),
    "filtered_accuracy": by_simulation(
        partial(metrics.filtered_accuracy, by=CURVE), checked, "shift", "severity", "version"
    ),
    "grid_accuracy": Law(
        partial(metrics.grid_accuracy, by=("run_id", "shift")),
        lambda row: share(JOINT[int(row["first"]), int(row["second"])]),
        together,
    ),
    "failure_contour": by_simulation(
        partial(metrics.failure_contour, by=("run_id", "shift"), resamples=400), together, "first"
    ),
    "failure_histogram": by_simulation(
        partial(metrics.failure_histogram, by=("run_id", "shift")), verdicts, "shift", "above"
    ),
    "lens_accuracy": by_simulation(partial(metrics.lens_accuracy, by=("run_id", "lens")), lensed, "lens"),
    "lens_field": by_simulation(
        partial(metrics.lens_field, by=("run_id", "lens_field")), lensed, "lens_field"
    ),
    "lens_degree": Law(partial(metrics.lens_degree, by=("run_id", "lens_field")), always(1.0), lensed),
    "aupr_in": by_simulation(partial(metrics.aupr_in, by=RUN), four),
    "aupr_in_trapz": by_simulation(partial(metrics.aupr_in_trapz, by=RUN), four),
    "aupr_out_trapz": by_simulation(partial(metrics.aupr_out_trapz, by=RUN), four),
    "fpr95_id_pos": by_simulation(partial(metrics.fpr95_id_pos, by=RUN), near),
    "ood": by_simulation(partial(metrics.ood, by=RUN), four, "metric"),
    "level_map": by_simulation(partial(metrics.level_map, by=RUN), graded, "sem_level"),
    "ood_share": by_simulation(
        partial(metrics.ood_share, by=("model", "scorer", "run_id"), source="id"),
        placed,
        "attribute",
        "class",
    ),
    "score_accuracy": by_simulation(partial(metrics.score_accuracy, by=RUN), scored_curve, "kind"),
    "setting_accuracy": photographed(
        partial(metrics.setting_accuracy, by=(*PHOTOGRAPHED, "light", "exposure", "iso")),
        "light",
        "exposure",
        "iso",
    ),
    "setting_share": photographed(partial(metrics.setting_share, by=PHOTOGRAPHED)),
    "setting_table": photographed(partial(metrics.setting_table, by=PHOTOGRAPHED), "light", "what"),
    "camera_control": photographed(partial(metrics.camera_control, by=PHOTOGRAPHED), "policy"),
    "camera_control, gain": photographed(_gain, "policy"),
    "control_policies": photographed(partial(metrics.control_policies, by=PHOTOGRAPHED), "policy", "shots"),
    "control_transfer": photographed(
        partial(metrics.control_transfer, by=PHOTOGRAPHED), "model", "chooser", "policy", make=shots
    ),
    "solution_space": photographed(partial(metrics.solution_space, by=RUN), "settings", "right", make=shots),
    "solution_overlap": photographed(partial(metrics.solution_overlap, by=RUN), "outcome", make=shots),
}

DRAWS = 2000
