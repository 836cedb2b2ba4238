"""Compare two models on the same images, shift by shift (``sorites.compare``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.analysis.comparison.detectors import CONFIDENCE, BoxComparison
from sorites.analysis.comparison.pairs import (
    ALL,
    IN_PART,
    SHIFT_COLUMNS,
    Curves,
    Matrix,
    Side,
    curves,
    grid_rows,
    matrix,
    paired,
    refuse_unlike,
    shifts_of,
    side,
    together,
)
from sorites.analysis.comparison.severities import Array, Points, failure_severities
from sorites.analysis.comparison.statistics import (
    FlipTest,
    detectable_drop,
    flip_test,
    mcnemar_mid,
    weighted_drops,
    weighted_means,
)
from sorites.analysis.options import FALSE_ALARMS
from sorites.analysis.passport.battery import run_folders
from sorites.analysis.passport.document import NAME as PASSPORT
from sorites.analysis.passport.document import read_passport
from sorites.core import CLEAN, MODELS
from sorites.core.errors import InvalidOption, SoritesError
from sorites.core.messages import command, option
from sorites.core.specs import split_spec
from sorites.evaluation.storage.overlap import overlap_notes
from sorites.metrics import paired_difference
from sorites.metrics.detection.operating import checked_conf

# --- Images that only one of the models was evaluated on: errors, and images excluded by a filter


REMEDIES = {
    "error": "Fix the cause and repeat the run's command",
    "aside": "Filter both runs with the same settings",
}


def refuse_one_sided(base: Side, new: Side, shared: bool) -> list[str]:
    """Refuse images that failed, or were filtered out, for one model only; return notes about the rest.

    A model that fails on hard images would otherwise be evaluated on the easy ones alone. ``shared``
    leaves such images out instead.
    """
    return [note for part in base.parts for note in _check_part(part, base, new, shared)]


def _check_part(part: str, base: Side, new: Side, shared: bool) -> list[str]:
    mine, theirs = pl.collect_all([_states(grid_rows(side, part)) for side in (base, new)])
    both = mine.join(theirs, on=IN_PART, suffix="_new", nulls_equal=True).sort(IN_PART)
    judged = both.filter(~pl.any_horizontal("error", "aside", "error_new", "aside_new"))
    excluded = [_describe(both.filter(pl.col("error") & pl.col("error_new")), "failed for both models")]
    for kind, remedy in REMEDIES.items():
        one_sided = " and ".join(
            filter(None, (_one_sided(both, kind, base, ""), _one_sided(both, kind, new, "_new")))
        )
        if one_sided and not shared:
            raise SoritesError(
                f"{one_sided}. {remedy}, or pass {option('shared')} to compare the {judged.height} images"
                " evaluated for both models."
            )
        excluded.append(one_sided)
    notes = [f"{reason}; they are left out." for reason in excluded if reason]
    if missing := sorted(set(both["shift"]) - set(judged["shift"])):
        notes.append(f"Not compared, because no image was evaluated for both models: {', '.join(missing)}.")
    return notes


def _one_sided(both: pl.DataFrame, kind: str, side: Side, suffix: str) -> str:
    """Describe the images that failed or were filtered out on this side only."""
    other = "" if suffix else "_new"
    rows = both.filter(pl.col(f"{kind}{suffix}") & ~pl.col(f"{kind}{other}"))
    if kind == "aside":
        return _describe(rows, f"were filtered out only in {side.path}")
    first = next(iter(rows[f"why{suffix}"].drop_nulls()), "")
    return _describe(rows, f"failed only for {side.model} of {side.path} (first error: {first})")


def _describe(rows: pl.DataFrame, what: str) -> str:
    if not rows.height:
        return ""
    if rows.height == 1:
        what = what.replace("were ", "was ", 1)
    return f"{rows.height} {'images' if rows.height > 1 else 'image'} ({shifts_of(rows)}) {what}"


def _states(grid: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row per grid image: whether it failed, why, and whether it was filtered out."""
    return grid.group_by(IN_PART).agg(
        pl.col("shift").first(),
        error=pl.col("error").is_not_null().any(),
        why=pl.col("error").drop_nulls().first(),
        aside=(~pl.col("valid").fill_null(True)).any(),
    )


# Stands for the clean images where a metric needs a shift name.
_AS_SHIFT = "(clean)"


@dataclass(frozen=True)
class Comparison:
    """Changes from a base model to a new one, on the images both were evaluated on."""

    base: Side
    new: Side
    names: tuple[str, str]
    notes: tuple[str, ...]
    table: pl.LazyFrame
    pairs: pl.DataFrame
    matrix: Matrix
    rate: float = FALSE_ALARMS
    shared: bool = False
    other_versions: bool = False

    @property
    def shifts(self) -> tuple[str, ...]:
        """The shifts, clean images first."""
        return self.matrix.dials

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """The shifts, clean images first and the mean over all shifts last."""
        moved = [name for name in self.matrix.dials if name != CLEAN]
        return (*self.matrix.dials, ALL) if len(moved) > 1 else self.matrix.dials

    @functools.cached_property
    def worse(self) -> FlipTest:
        """The joint test of drops above 0, as the gate does it; the mean over shifts is not in the family."""
        base, new = self.matrix.columns(self.matrix.dials)
        return flip_test(base - new, self.rate)

    @functools.cached_property
    def better(self) -> FlipTest:
        """The joint test of the same shifts for gains."""
        base, new = self.matrix.columns(self.matrix.dials)
        return flip_test(new - base, self.rate)

    @functools.cached_property
    def curves(self) -> Mapping[str, Curves]:
        """Correctness along each shift that has ordered severities."""
        return curves(self.table, *self.names)

    def points(self, measure: str, dial: str) -> Points:
        """Return ``failure_severity`` or ``half_accuracy_severity`` of both models under a shift."""
        return failure_severities(self.curves[dial], measure)

    @functools.cached_property
    def dials(self) -> pl.DataFrame:
        """One row per shift: accuracies, drop and interval, flips, and the one-sided test of the drop.

        ``low`` and ``high`` are the 95 % interval of this shift alone. ``p``, ``p_family`` and ``bound`` are
        those of the gate's rule ``drop > 0``: ``p_family`` is corrected over all shifts, and the lower bound
        is above 0 exactly where it is at most the rate. They are null where ``judged`` is false: too few
        samples. ``detectable`` is the drop detected with 80 % power, null where there is none.
        """
        drops = _drops(_clean_once(self.table, self.base), *self.names)
        counts = _counts(self.pairs)
        rows = drops.join(counts, on="dial", how="left")
        tests = _tests(self)
        order = {name: i for i, name in enumerate(self.places)}
        joined = rows.join(tests, on="dial").sort(pl.col("dial").replace_strict(order, return_dtype=pl.Int64))
        return joined.select(SHIFT_COLUMNS)

    @functools.cached_property
    def settings(self) -> pl.DataFrame:
        """One row per setting: images, accuracies, flips each way, and McNemar's mid-p."""
        keys = ["shift", "severity", "params"]
        each = self.pairs.group_by(keys).agg(
            n=pl.len(), base=pl.col("correct").mean(), new=pl.col("correct_new").mean(), **_SIDES
        )
        p = [mcnemar_mid(lost, gained) for lost, gained in each.select("lost", "gained").iter_rows()]
        return each.with_columns(pl.Series("p", p, pl.Float64)).sort(keys, nulls_last=True)

    @functools.cached_property
    def changed(self) -> pl.DataFrame:
        """The flipped images: for each sample, shift and direction the one of least severity."""
        flipped = self.pairs.filter(pl.col("correct") != pl.col("correct_new")).with_columns(
            lost=pl.col("correct")
        )
        first = flipped.sort("severity", "image_id", nulls_last=True)
        return first.unique(["source", "sample_id", "shift", "lost"], keep="first", maintain_order=True)


_SIDES = {
    "lost": (pl.col("correct") & ~pl.col("correct_new")).sum().cast(pl.Int64),
    "gained": (~pl.col("correct") & pl.col("correct_new")).sum().cast(pl.Int64),
}


def compare(
    base: str | Path,
    new: str | Path | None = None,
    *,
    base_model: str | None = None,
    model: str | None = None,
    shared: bool = False,
    other_versions: bool = False,
    conf: float | None = None,
    rate: float = FALSE_ALARMS,
) -> Comparison | BoxComparison:
    """Compare the models of two run folders (or passports) on the same images.

    Args:
        base: Run folder or passport of the baseline model.
        new: Run folder or passport of the new model; default: BASE, for two of its models.
        base_model: Model of BASE, if it has several.
        model: Model of NEW, if it has several.
        shared: Compare only the images for which both have predictions. By default different images are
            refused.
        other_versions: Allow different versions of the libraries that make images.
        conf: Of detectors: the confidence from which a box finds an object, for the objects lost and gained;
            default 0.25.
        rate: Rate at which two equal models raise a false alarm on any shift.

    Returns:
        The comparison of classifiers or of detectors; its tables are computed when they are first read.

    Raises:
        SoritesError: The runs are unfinished or have different images, or one model failed on some images.
    """
    for given in (base, new or base):
        _refuse_model(given)
    sides = (_open(base, base_model, "base_model"), _open(new or base, model, "model"))
    if new is None and sides[0].model == sides[1].model:
        raise SoritesError(
            f"both sides are {sides[0].model} of {base}; name a second run, or two of its models"
        )
    if conf is not None and sides[1].output != "boxes":
        raise InvalidOption(
            "conf", f"{option('conf', 'X')} is for detectors, but {sides[1].model} is a classifier"
        )
    notes = [*refuse_unlike(*sides, other_versions, shared), *refuse_one_sided(*sides, shared)]
    notes += [
        note
        for side in sides
        for part in side.parts.values()
        for note in overlap_notes({n: c for n, c in part.trained_on.items() if n == side.model})
    ]
    names = _names(*sides)
    table = together(*sides, names)
    if sides[0].output == "boxes":
        at = checked_conf(CONFIDENCE if conf is None else conf)
        return BoxComparison(*sides, names, tuple(notes), table, rate, shared, other_versions, at)
    pairs = paired(_clean_once(table, sides[0]), *names)
    return Comparison(*sides, names, tuple(notes), table, pairs, matrix(pairs), rate, shared, other_versions)


def _clean_once(table: pl.LazyFrame, base: Side) -> pl.LazyFrame:
    """Keep the clean images of the first part only; other parts repeat them or frame them differently."""
    return table.filter((pl.col("shift") != CLEAN) | (pl.col("run_id") == next(iter(base.parts))))


def _refuse_model(given: str | Path) -> None:
    """Refuse the spec of a model in place of a run, with the commands that make one.

    Raises:
        SoritesError: It is the spec of a model.
    """
    spec = str(given)
    if "://" not in spec and not Path(spec).exists() and split_spec(spec)[0] in MODELS:
        steps = command("run", "SUITE", models=[f"base={spec}", "new=SPEC"], out="RUN")
        raise SoritesError(
            f"{spec} is a model, and a comparison reads runs. Evaluate both models on the same images:"
            f" {steps}, then compare them: {command('compare', 'RUN', base_model='base', model='new')}"
        )


def _open(path: str | Path, model: str | None, option_name: str) -> Side:
    """Open a run folder, or all runs of a passport."""
    return side(path, runs_of(Path(path)), model, option_name)


def runs_of(folder: Path) -> dict[str, Path]:
    """Return the run folders of a side by part: the folder itself, or all runs of a passport."""
    if not (folder / PASSPORT).exists():
        return {"run": folder}
    return run_folders(folder, [run.part for run in read_passport(folder).runs])


def _names(base: Side, new: Side) -> tuple[str, str]:
    """Return display names of the models, with the version or folder where both have the same name."""
    if base.model != new.model:
        return base.model, new.model
    if base.version != new.version:
        return f"{base.model} ({base.version[:6]})", f"{new.model} ({new.version[:6]})"
    return f"{base.model} ({base.path})", f"{new.model} ({new.path})"


def _drops(table: pl.LazyFrame, base: str, new: str) -> pl.DataFrame:
    """Return the paired difference under each shift as a drop, with its interval; clean counts as a shift."""
    clean = pl.col("shift") == CLEAN
    named = table.with_columns(shift=pl.when(clean).then(pl.lit(_AS_SHIFT)).otherwise("shift"))
    each = paired_difference(named, by=("model", "shift"), other=base).filter(pl.col("model") == new)
    pooled = (
        paired_difference(table, by=("model",), other=base)
        .filter(pl.col("model") == new)
        .with_columns(shift=pl.lit(ALL))
    )
    rows = pl.concat([each, pooled.select(each.columns)])
    return rows.select(
        dial=pl.col("shift").replace({_AS_SHIFT: CLEAN}),
        n="n",
        drop=(0 - pl.col("value")).round(12) + 0.0,
        # The order of a summation changes the last digits.
        low=(0 - pl.col("high")).round(12) + 0.0,
        high=(0 - pl.col("low")).round(12) + 0.0,
    )


def _counts(pairs: pl.DataFrame) -> pl.DataFrame:
    """Count the flipped images of each shift, and of all shifts."""
    each = pairs.group_by(dial="shift").agg(**_SIDES)
    pooled = each.filter(pl.col("dial") != CLEAN).select(
        pl.lit(ALL).alias("dial"), pl.col("lost", "gained").sum()
    )
    return pl.concat([each, pooled])


def _tests(comparison: Comparison) -> pl.DataFrame:
    """Return the accuracies of each shift, and the test of its drop."""
    base, new = comparison.matrix.columns(comparison.places)
    weights = comparison.matrix.weights(comparison.places)
    family = comparison.worse
    several = [dial in comparison.matrix.several for dial in comparison.places]
    rows = [_test(base[:, i], new[:, i], weights[:, i], family, i, several[i]) for i in range(len(family.n))]
    if ALL in comparison.places:
        pooled = flip_test((base - new)[:, -1:], comparison.rate, weights=weights[:, -1:])
        of_all = _test(base[:, -1], new[:, -1], weights[:, -1], pooled, 0, several[-1])
        rows.append({**of_all, "p_family": None})
    return pl.DataFrame(
        [{"dial": dial, **row} for dial, row in zip(comparison.places, rows, strict=True)],
        schema_overrides=dict.fromkeys(("p", "p_family", "bound", "detectable"), pl.Float64),
        infer_schema_length=None,
    )


def _test(
    base: Array, new: Array, weights: Array, test: FlipTest, i: int, several: bool
) -> dict[str, object]:
    judged, detectable = bool(test.judged[i]), None
    drops = weighted_drops(base - new, weights)
    if judged and drops is not None:
        detectable = detectable_drop(drops, float(test.levels[i]), share=test.share, several=several)
    return {
        "base": weighted_means(base, weights).item(),
        "new": weighted_means(new, weights).item(),
        "p": float(test.p[i]) if judged else None,
        "p_family": float(test.p_family[i]) if judged else None,
        "bound": float(test.bound[i]) if judged else None,
        "detectable": detectable,
        "judged": judged,
    }
