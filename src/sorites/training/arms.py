"""Compare training augmentations ("arms"): train every arm with every seed, evaluate them, report gains."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.progress import Bar, TextBar
from sorites.core.rng import digest
from sorites.evaluation.engines import ENGINES
from sorites.evaluation.run import run
from sorites.io.files import write_bytes
from sorites.metrics import judged_rows, select_rows
from sorites.metrics.intervals import clustered_wilson_interval, paired_interval
from sorites.models.trained import read_record
from sorites.reports.training import arms_page
from sorites.suites.suite import load as load_suite
from sorites.training import history
from sorites.training.detection.arms import box_results
from sorites.training.detection.steps import refuse_moves
from sorites.training.loop import PAGE as TRAINING_PAGE
from sorites.training.loop import named_changes, no_progress, train
from sorites.training.recipe import Recipe, load
from sorites.training.session import is_finished

DEFAULT = ("none", "optics", "augmix", "cascade")


@dataclass(frozen=True)
class Member:
    """One training of a comparison: an arm and a seed.

    An arm is the name of an augmentation; ``a+b`` is the chain ``a,b``.
    """

    arm: str
    seed: int

    @property
    def name(self) -> str:
        """The name of the trained model in result tables, and of its folder."""
        return f"{self.arm}_{self.seed}"

    def folder(self, out: Path) -> Path:
        return out / "models" / self.name

    def recipe(self, base: Recipe) -> Recipe:
        """Return the base recipe with this member's augmentation and seed."""
        return base.override({"augment.names": self.arm.replace("+", ","), "seed": self.seed})


def members(arms: Sequence[str], seeds: int, first: int = 0) -> tuple[Member, ...]:
    """Return all trainings, ordered seed by seed so that an interrupted comparison has complete seeds.

    The first arm is the baseline that the others are compared with.

    Args:
        arms: Names of augmentations, at least two.
        seeds: Number of seeds per arm.
        first: The first seed.
    """
    names = [arm.strip() for arm in arms]
    duplicate = next((arm for arm in names if names.count(arm) > 1), None)
    if duplicate is not None or "" in names:
        raise SoritesError(
            f"arms: each augmentation must be named exactly once, as in {','.join(DEFAULT)}; got "
            f"{','.join(arms)!r}"
        )
    if len(names) < 2:
        raise SoritesError(
            f"arms: need at least two to compare, such as {','.join(DEFAULT)}; got {','.join(arms)!r}"
        )
    if seeds < 1:
        raise SoritesError(f"arms: need at least one seed, got {seeds}")
    return tuple(Member(arm, first + offset) for offset in range(seeds) for arm in names)


# Accuracies and gains, paired by image and seed.


# Results are averaged over the shifts within these groups, e.g. the OpticsBench aberrations at one severity.
GROUP = ("family", "severity")


def verdicts(table: pl.LazyFrame, members: Sequence[Member]) -> pl.DataFrame:
    """Return one row per image and training: arm, seed, shift, family, severity, and correctness."""
    rows, _ = select_rows(table, ["model"])
    names = pl.DataFrame(
        {
            "model": [m.name for m in members],
            "arm": [m.arm for m in members],
            "seed": [m.seed for m in members],
        },
        {"model": pl.String, "arm": pl.String, "seed": pl.Int64},
    )
    rated = judged_rows(rows).drop("seed").join(names.lazy(), on="model")
    clean = pl.col("shift") == CLEAN
    return rated.select(
        "arm", "seed", "shift", "source", "sample_id", "image_id",
        family=pl.when(clean).then(pl.lit(CLEAN)).otherwise(pl.col("family")),
        severity=pl.when(clean).then(0.0).otherwise(pl.col("severity")),
        right=pl.col("correct").cast(pl.Float64),
    ).collect(engine="streaming")  # fmt: skip


def comparison_tables(table: pl.LazyFrame, members: Sequence[Member]) -> dict[str, pl.DataFrame]:
    """Return the tables of a comparison page for one suite.

    Returns:
        ``accuracies``, ``gains`` over the first arm by family, ``shift_gains`` by shift, and ``over_optics``
        (gains over OpticsAugment, Table IX of the paper) if that is an arm but not the first.
    """
    rows, arms = verdicts(table, members), list(dict.fromkeys(member.arm for member in members))
    tables = {
        "accuracies": accuracies(rows),
        "gains": gains(rows, arms[0]),
        "shift_gains": gains(rows, arms[0], ("shift", "severity")),
    }
    others = [arm for arm in arms[1:] if arm != "optics"]
    if "optics" in arms[1:] and others:
        tables["over_optics"] = gains(rows.filter(pl.col("arm").is_in(["optics", *others])), "optics")
    return tables


def box_comparison_tables(table: pl.LazyFrame, members: Sequence[Member]) -> dict[str, pl.DataFrame]:
    """Return the tables of ``comparison_tables`` for detectors, with mAP in the place of accuracy."""
    arms = list(dict.fromkeys(member.arm for member in members))
    results = box_results(table, {member.name: (member.arm, member.seed) for member in members})
    tables = {
        "accuracies": results.precisions(GROUP),
        "gains": results.gains(arms[0], GROUP),
        "shift_gains": results.gains(arms[0], ("shift", "severity")),
    }
    others = [arm for arm in arms[1:] if arm != "optics"]
    if "optics" in arms[1:] and others:
        tables["over_optics"] = results.gains("optics", GROUP).filter(pl.col("arm") != arms[0])
    return tables


def accuracies(rows: pl.DataFrame, by: Sequence[str] = GROUP) -> pl.DataFrame:
    """Return the accuracy of each arm by family and severity: value, n samples, seeds, shifts, low, high."""
    each = _over_samples(rows.with_columns(value="right"), [*by, "arm"])
    value = pl.col("value")
    spread = pl.col("square") - value**2
    bounds = clustered_wilson_interval(value, spread, pl.col("n"), pl.col("rows"))
    return _with_seeds(
        each.with_columns(**bounds), rows.with_columns(value="right"), [*by, "arm"], (0.0, 1.0)
    )


def gains(rows: pl.DataFrame, over: str, by: Sequence[str] = GROUP) -> pl.DataFrame:
    """Return the accuracy of every other arm minus that of arm ``over``, on the same images and seeds."""
    arms = rows["arm"].unique().sort().to_list()
    if over not in arms:
        raise UnknownName("arm", over, arms, f"Available: {', '.join(arms)}.")
    baseline = rows.filter(pl.col("arm") == over).select("seed", "source", "image_id", theirs="right")
    pairs = rows.filter(pl.col("arm") != over).join(
        baseline, on=["seed", "source", "image_id"], nulls_equal=True
    )
    pairs = pairs.with_columns(value=pl.col("right") - pl.col("theirs"))
    keys = [*by, "arm"]
    each = _over_samples(pairs, keys)
    bounds = paired_interval(pl.col("value"), pl.col("square"), pl.col("apart"), pl.col("n"))
    return _with_seeds(each.with_columns(**bounds), pairs, keys, (-1.0, 1.0)).with_columns(over=pl.lit(over))


def _over_samples(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Average over samples, after averaging each sample over its shifts and seeds."""
    own = rows.group_by([*keys, "source", "sample_id"]).agg(
        pl.col("value").mean(), apart=pl.col("value").abs().mean(), rows=pl.len()
    )
    shifts = rows.group_by(keys).agg(shifts=pl.col("shift").unique().sort())
    means = own.group_by(keys).agg(
        pl.col("value").mean(),
        square=(pl.col("value") ** 2).mean(),
        apart=pl.col("apart").mean(),
        rows=pl.col("rows").sum(),
        n=pl.len(),
    )
    return means.join(shifts, on=keys, nulls_equal=True)


def _with_seeds(
    each: pl.DataFrame, rows: pl.DataFrame, keys: list[str], limits: tuple[float, float]
) -> pl.DataFrame:
    """Widen image-level intervals by the variation between seeds, and clip them to ``limits``."""
    own = rows.group_by([*keys, "seed"]).agg(pl.col("value").mean())
    seeds = own.group_by(keys).agg(seeds=pl.len(), scatter=pl.col("value").std())
    joined = each.join(seeds, on=keys, nulls_equal=True)
    factor = {count: _student(count) / math.sqrt(count) for count in joined["seeds"].unique()}
    seed_half = pl.col("scatter").fill_null(0) * pl.col("seeds").replace_strict(
        factor, return_dtype=pl.Float64
    )
    center = (pl.col("low") + pl.col("high")) / 2
    half = (((pl.col("high") - pl.col("low")) / 2) ** 2 + seed_half**2).sqrt()
    widened = joined.with_columns(low=(center - half).clip(*limits), high=(center + half).clip(*limits))
    return widened.select(*keys, "shifts", "value", "n", "seeds", "low", "high").sort(keys, nulls_last=True)


def _student(seeds: int) -> float:
    """Return the 97.5 % quantile of Student's t for the mean of ``seeds`` values, or 0 for a single seed."""
    if seeds < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf(0.975, seeds - 1))


# Training and evaluation. Both can be resumed.


# Images per forward pass; small networks run faster with more than a suite's default.
IMAGES_PER_BATCH = 64
# Seconds between two updates of the progress bar.
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Comparison:
    """A comparison: base recipe, output folder, trainings, and the suites for evaluation."""

    recipe: Recipe
    out: Path
    members: tuple[Member, ...]
    suites: tuple[str, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.arm for member in self.members))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(member.seed for member in self.members))


def compare(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    arms: Sequence[str] = DEFAULT,
    seeds: int = 1,
    suites: Sequence[str] = (),
    limit: int | None = None,
    device: str | None = None,
    workers: int = 2,
    **changes: Any,
) -> dict[str, pl.LazyFrame]:
    """Train every arm with every seed and evaluate all models in one run per suite.

    Finished trainings and evaluations in ``out`` are reused; arms and seeds can be added later.

    Args:
        recipe: A recipe, its name, or the path of a TOML file.
        out: Folder for the trained models and the runs.
        arms: Augmentations to compare; the first is the baseline.
        seeds: Number of seeds per arm.
        suites: Suites to evaluate with; by default those of the recipe.
        limit: Evaluate only this many images of each suite's source.
        device: Torch device; by default a GPU if there is one.
        workers: Number of trainings to run in parallel.
        **changes: Recipe keys to override, as in ``train``.

    Returns:
        The result tables by suite.
    """
    comparison = prepare(recipe, out, arms=arms, seeds=seeds, suites=suites, **changes)
    train_all(comparison, device=device, workers=workers)
    return evaluate(comparison, limit=limit)


def prepare(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    arms: Sequence[str],
    seeds: int,
    suites: Sequence[str] = (),
    **changes: Any,
) -> Comparison:
    """Return a comparison after loading and checking all its parts, so that mistakes fail early."""
    base = load(recipe).override(named_changes(changes))
    selected = tuple(suites) or base.suites
    if not selected:
        raise SoritesError(
            f"Recipe {base.name} names no suites to compare arms with; add {option('suite', 'SUITE')}."
        )
    for suite in selected:
        load_suite(suite)
    comparison = Comparison(base, Path(out), members(arms, seeds, base.seed), selected)
    _check_augmentations(comparison)
    return comparison


def _check_augmentations(comparison: Comparison) -> None:
    """Build each augmentation once, so that an unknown name fails before any training."""
    try:
        module = importlib.import_module("sorites.training.augment.named")
    except ModuleNotFoundError as error:
        raise MissingExtra("training", "train") from error
    for arm in comparison.arms:
        augment = Member(arm, comparison.recipe.seed).recipe(comparison.recipe).augment
        made = module.of_recipe(augment.names, comparison.recipe.data.size or 32, augment.options)
        if comparison.recipe.task == "boxes":
            refuse_moves(made, augment.names)


class OneTraining(Protocol):
    """One of several trainings that are based on one recipe."""

    @property
    def name(self) -> str: ...

    def folder(self, out: Path) -> Path: ...

    def recipe(self, base: Recipe) -> Recipe: ...


def train_all(
    comparison: Comparison, *, device: str | None = None, workers: int = 2, bar: TextBar = no_progress
) -> None:
    """Train all unfinished members, ``workers`` at a time, in single-threaded processes."""
    train_members(
        comparison.recipe, comparison.out, comparison.members, device=device, workers=workers, bar=bar
    )


def train_members(
    base: Recipe,
    out: Path,
    members: Sequence[OneTraining],
    *,
    device: str | None = None,
    workers: int = 2,
    bar: TextBar = no_progress,
) -> None:
    """Train all unfinished ones of several trainings, ``workers`` at a time, in single-threaded processes."""
    work = functools.partial(train_member, base, out, device)
    unfinished = [member for member in members if not is_finished(member.folder(out))]
    for member in members:
        if member not in unfinished:
            work(member)  # already trained; this only refuses a folder of a different recipe
    if not unfinished:
        return
    with _watched(base, out, members, bar) as set_text:
        for member, _ in ENGINES.get("processes")(unfinished, work, workers):
            set_text(f"{member.name} is trained")


def train_member(base: Recipe, out: Path, device: str | None, member: OneTraining) -> None:
    """Train one member unless it is finished."""
    try:
        train(member.recipe(base), member.folder(out), device=device, workers=1, checkpoint_seconds=20)
    except SoritesError as error:  # some subclasses cannot be pickled
        raise SoritesError(f"{member.name}: {error}") from None


@contextlib.contextmanager
def _watched(
    base: Recipe, out: Path, members: Sequence[OneTraining], bar: TextBar
) -> Iterator[Callable[[str], None]]:
    """Update a progress bar while members train in other processes, from the histories they write."""
    done, text_holder = threading.Event(), [""]

    def percent() -> int:
        return sum(_percent(base, member.folder(out)) for member in members)

    def watch() -> None:
        last = percent()
        tick = bar("training", 100 * len(members), last)
        while not done.wait(POLL_SECONDS):
            now = percent()
            tick(now - last, text_holder[0])
            last = now

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda text: text_holder.__setitem__(0, text)
    finally:
        done.set()
        watcher.join()


def _percent(base: Recipe, folder: Path) -> int:
    """Return the percentage of a training that is done, read from its folder."""
    if is_finished(folder):
        return 100
    try:
        rows = history.read(folder)
    except (OSError, ValueError):
        return 0
    for key, lengths in (
        ("step", [s.steps for s in base.stretches]),
        ("epoch", [s.epochs for s in base.stretches]),
    ):
        if rows and None not in lengths:
            return int(99 * rows[-1][key] / sum(length or 0 for length in lengths))
    return 0


def evaluate(
    comparison: Comparison, *, limit: int | None = None, bar: Bar | None = None
) -> dict[str, pl.LazyFrame]:
    """Evaluate all trained models and return the tables by suite.

    Each combination of models and ``limit`` has its own run folder.
    """
    models = {member.name: f"trained:{member.folder(comparison.out)}" for member in comparison.members}
    key = digest(*models, limit, size=4).hex()
    runs = comparison.out / "runs"
    return {
        suite: run(
            suite,
            models=models,
            limit=limit,
            batch=IMAGES_PER_BATCH,
            out=runs / f"{Path(suite).stem}_{key}",
            bar=bar,
        ).table
        for suite in comparison.suites
    }


# Files of a comparison of arms, in its folder.
PAGE, GAINS = "arms.html", "gains.csv"


class Results(NamedTuple):
    """The files of a comparison of arms, and the gains over the first arm."""

    page: Path
    file: Path
    gains: pl.DataFrame


def write_results(comparison: Comparison, tables: Mapping[str, pl.LazyFrame]) -> Results:
    """Write the page of the arms and ``gains.csv``."""
    detectors = comparison.recipe.task == "boxes"
    tables_of = box_comparison_tables if detectors else comparison_tables
    by_suite = {suite: tables_of(table, comparison.members) for suite, table in tables.items()}
    about = {"recipe": comparison.recipe.name, "arms": comparison.arms, "seeds": comparison.seeds}
    about["quantity"] = "mAP" if detectors else "accuracy"
    about["trainings"] = [_entry(comparison, member) for member in comparison.members]
    page, file = comparison.out / PAGE, comparison.out / GAINS
    arms_page(about, by_suite, page)
    gains = pl.concat([own["gains"].with_columns(suite=pl.lit(suite)) for suite, own in by_suite.items()])
    write_bytes(gains.with_columns(pl.col("shifts").list.join(" ")).write_csv().encode(), file)
    return Results(page, file, gains)


def _entry(comparison: Comparison, member: Member) -> dict[str, Any]:
    """Return what the page of the arms says about one training."""
    folder = member.folder(comparison.out)
    return {
        "name": member.name,
        "arm": member.arm,
        "seed": member.seed,
        "accuracy": (read_record(folder).validation or {}).get("accuracy"),
        "model": f"trained:{folder}",
        "page": (folder / TRAINING_PAGE).relative_to(comparison.out).as_posix(),
    }
