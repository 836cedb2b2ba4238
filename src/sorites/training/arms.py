"""List the trainings of a comparison: each arm with each seed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.progress import Bar, ToldBar
from sorites.core.rng import digest
from sorites.evaluation.engines import ENGINES
from sorites.evaluation.run import run
from sorites.metrics import judged_rows, normal_interval, select_rows
from sorites.metrics.intervals import paired_interval
from sorites.suites.suite import load as load_suite
from sorites.training import history
from sorites.training.loop import named_changes, no_bar, train
from sorites.training.recipe import Recipe, load
from sorites.training.session import is_finished

DEFAULT = ("none", "optics", "augmix", "cascade")


@dataclass(frozen=True)
class Member:
    """One training of a comparison. An arm is the name of an augmentation; ``a+b`` is the chain ``a,b``."""

    arm: str
    seed: int

    @property
    def name(self) -> str:
        """The name of the trained model in the table, and of its folder."""
        return f"{self.arm}_{self.seed}"

    def folder(self, out: Path) -> Path:
        return out / "models" / self.name

    def recipe(self, base: Recipe) -> Recipe:
        """Return the recipe with this arm's augmentation and seed."""
        return base.override({"augment.names": self.arm.replace("+", ","), "seed": self.seed})


def members(arms: Sequence[str], seeds: int, first: int = 0) -> tuple[Member, ...]:
    """Return the trainings, seed by seed, so that a comparison that is stopped has whole seeds; the
    first arm is what the others are compared with.
    """
    named = [arm.strip() for arm in arms]
    twice = next((arm for arm in named if named.count(arm) > 1), None)
    if twice is not None or "" in named:
        raise SoritesError(
            f"arms: wanted each augmentation once, such as {','.join(DEFAULT)}, got {','.join(arms)!r}"
        )
    if len(named) < 2:
        raise SoritesError(
            f"arms: wanted at least two to compare, such as {','.join(DEFAULT)}, got {','.join(arms)!r}"
        )
    if seeds < 1:
        raise SoritesError(f"arms: wanted at least one seed, got {seeds}")
    return tuple(Member(arm, first + place) for place in range(seeds) for arm in named)


# Measure what one arm gains over another, image by image and seed by seed.


# The columns within which numbers are averaged over shifts: the OpticsBench aberrations at one
# severity, for example.
GROUP = ("family", "severity")


def verdicts(table: pl.LazyFrame, members: Sequence[Member]) -> pl.DataFrame:
    """Return one row per image and training: arm, seed, shift, its family and severity, and whether
    the answer was right.
    """
    rows, _ = select_rows(table, ["model"])
    names = pl.DataFrame(
        {
            "model": [m.name for m in members],
            "arm": [m.arm for m in members],
            "seed": [m.seed for m in members],
        },
        {"model": pl.String, "arm": pl.String, "seed": pl.Int64},
    )
    judged = judged_rows(rows).drop("seed").join(names.lazy(), on="model")
    clean = pl.col("shift") == CLEAN
    return judged.select(
        "arm", "seed", "shift", "source", "sample_id", "image_id",
        family=pl.when(clean).then(pl.lit(CLEAN)).otherwise(pl.col("family")),
        severity=pl.when(clean).then(0.0).otherwise(pl.col("severity")),
        right=pl.col("correct").cast(pl.Float64),
    ).collect(engine="streaming")  # fmt: skip


def frames(table: pl.LazyFrame, members: Sequence[Member]) -> dict[str, pl.DataFrame]:
    """Return what a page of arms shows of one suite's table: accuracies and gains over the first
    arm, by family and by shift.

    Where OpticsAugment is among the arms and is not the first, the gains over it are there too
    (Table IX of the paper).
    """
    rows, arms = verdicts(table, members), list(dict.fromkeys(member.arm for member in members))
    found = {
        "accuracies": accuracies(rows),
        "gains": gains(rows, arms[0]),
        "shift_gains": gains(rows, arms[0], ("shift", "severity")),
    }
    others = [arm for arm in arms[1:] if arm != "optics"]
    if "optics" in arms[1:] and others:
        found["over_optics"] = gains(rows.filter(pl.col("arm").is_in(["optics", *others])), "optics")
    return found


def accuracies(rows: pl.DataFrame, by: Sequence[str] = GROUP) -> pl.DataFrame:
    """Return the accuracy of each arm by family and severity: value, n (samples), seeds, shifts,
    low and high.
    """
    each = _over_samples(rows.with_columns(value="right"), [*by, "arm"])
    spread = (pl.col("square") - pl.col("value") ** 2) / pl.col("n")
    bounds = normal_interval(pl.col("value"), spread)
    return _with_seeds(
        each.with_columns(**bounds), rows.with_columns(value="right"), [*by, "arm"], (0.0, 1.0)
    )


def gains(rows: pl.DataFrame, over: str, by: Sequence[str] = GROUP) -> pl.DataFrame:
    """Return the accuracy of each other arm minus that of the arm ``over``, on the same images
    with the same seeds.
    """
    arms = rows["arm"].unique().sort().to_list()
    if over not in arms:
        raise UnknownName("arm", over, arms, f"There are {', '.join(arms)}.")
    theirs = rows.filter(pl.col("arm") == over).select("seed", "image_id", theirs="right")
    pairs = rows.filter(pl.col("arm") != over).join(theirs, on=["seed", "image_id"])
    pairs = pairs.with_columns(value=pl.col("right") - pl.col("theirs"))
    keys = [*by, "arm"]
    each = _over_samples(pairs, keys)
    bounds = paired_interval(pl.col("value"), pl.col("square"), pl.col("apart"), pl.col("n"))
    return _with_seeds(each.with_columns(**bounds), pairs, keys, (-1.0, 1.0)).with_columns(over=pl.lit(over))


def _over_samples(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return means over samples of each sample's own mean, over its shifts and seeds."""
    own = rows.group_by([*keys, "source", "sample_id"]).agg(
        pl.col("value").mean(), apart=pl.col("value").abs().mean()
    )
    shifts = rows.group_by(keys).agg(shifts=pl.col("shift").unique().sort())
    means = own.group_by(keys).agg(
        pl.col("value").mean(), square=(pl.col("value") ** 2).mean(), apart=pl.col("apart").mean(), n=pl.len()
    )
    return means.join(shifts, on=keys, nulls_equal=True)


def _with_seeds(
    each: pl.DataFrame, rows: pl.DataFrame, keys: list[str], limits: tuple[float, float]
) -> pl.DataFrame:
    """Widen intervals over images by the scatter of the seeds' means, and keep them within the limits."""
    own = rows.group_by([*keys, "seed"]).agg(pl.col("value").mean())
    seeds = own.group_by(keys).agg(seeds=pl.len(), scatter=pl.col("value").std())
    found = each.join(seeds, on=keys, nulls_equal=True)
    widest = {count: _student(count) / math.sqrt(count) for count in found["seeds"].unique()}
    half = pl.col("scatter").fill_null(0) * pl.col("seeds").replace_strict(widest, return_dtype=pl.Float64)
    middle = (pl.col("low") + pl.col("high")) / 2
    whole = (((pl.col("high") - pl.col("low")) / 2) ** 2 + half**2).sqrt()
    bounded = found.with_columns(low=(middle - whole).clip(*limits), high=(middle + whole).clip(*limits))
    return bounded.select(*keys, "shifts", "value", "n", "seeds", "low", "high").sort(keys, nulls_last=True)


def _student(seeds: int) -> float:
    """Return the 97.5 % point of Student's t for the mean of so many seeds; 0 for one, of which no
    scatter is known.
    """
    if seeds < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf(0.975, seeds - 1))


# Train all arms alike, evaluate them together, and keep both so that a comparison that was stopped goes
# on.


# Images per call of a model: small networks gain from more than a suite's usual few.
BATCH = 64
# Seconds between two looks at how far the trainings are.
PULSE = 1.0


@dataclass(frozen=True)
class Compared:
    """A comparison: the recipe, the folder, the trainings, and the suites that they are judged by."""

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
    """Train every arm with every seed, evaluate all in one run per suite, and return the tables by suite.

    ``changes`` are those of ``train``. ``limit`` is how many images of a suite's source the
    models are judged by. Whatever is finished in ``out`` already is not done again; an arm or a
    seed that is added later joins the others.
    """
    made = prepare(recipe, out, arms=arms, seeds=seeds, suites=suites, **changes)
    train_all(made, device=device, workers=workers)
    return evaluate(made, limit=limit)


def prepare(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    arms: Sequence[str],
    seeds: int,
    suites: Sequence[str] = (),
    **changes: Any,
) -> Compared:
    """Return a comparison of which every part has been read and checked, before anything runs."""
    base = load(recipe).override(named_changes(changes))
    chosen = tuple(suites) or base.suites
    if not chosen:
        raise SoritesError(f"recipe {base.name} names no suites to compare arms by; name one with --suite")
    for suite in chosen:
        load_suite(suite)
    made = Compared(base, Path(out), members(arms, seeds, base.seed), chosen)
    _check_augmentations(made)
    return made


def _check_augmentations(made: Compared) -> None:
    """Make each augmentation once, so that an unknown name is reported before anything runs."""
    try:
        named = importlib.import_module("sorites.training.augment.named")
    except ModuleNotFoundError as error:
        raise MissingExtra("training", "train") from error
    for arm in made.arms:
        asked = Member(arm, made.recipe.seed).recipe(made.recipe).augment
        named.of_recipe(asked.names, made.recipe.data.size or 32, asked.options)


def train_all(made: Compared, *, device: str | None = None, workers: int = 2, bar: ToldBar = no_bar) -> None:
    """Train what is not trained yet, ``workers`` trainings at a time in processes of one thread each."""
    work = functools.partial(train_member, made.recipe, made.out, device)
    unfinished = [member for member in made.members if not is_finished(member.folder(made.out))]
    for member in made.members:
        if member not in unfinished:
            work(member)  # nothing is left to do there, but the folder of another recipe is refused
    if not unfinished:
        return
    with _watched(made, bar) as tell:
        for member, _ in ENGINES.get("processes")(unfinished, work, workers):
            tell(f"{member.name} is trained")


def train_member(base: Recipe, out: Path, device: str | None, member: Member) -> None:
    """Train one member where that is not done."""
    try:
        train(member.recipe(base), member.folder(out), device=device, workers=1, checkpoint_seconds=20)
    except SoritesError as error:  # some of its kinds do not travel between processes
        raise SoritesError(f"{member.name}: {error}") from None


@contextlib.contextmanager
def _watched(made: Compared, bar: ToldBar) -> Iterator[Callable[[str], None]]:
    """Keep a bar of all trainings while they run elsewhere, by the histories that they write beside
    their checkpoints.
    """
    done, words = threading.Event(), [""]

    def percent() -> int:
        return sum(_percent(made.recipe, member.folder(made.out)) for member in made.members)

    def watch() -> None:
        shown = percent()
        tick = bar("training", 100 * len(made.members), shown)
        while not done.wait(PULSE):
            now = percent()
            tick(now - shown, words[0])
            shown = now

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda text: words.__setitem__(0, text)
    finally:
        done.set()
        watcher.join()


def _percent(base: Recipe, folder: Path) -> int:
    """Return how many percent of a training are done, as its folder has it."""
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


def evaluate(made: Compared, *, limit: int | None = None, bar: Bar | None = None) -> dict[str, pl.LazyFrame]:
    """Return the tables of all trained models by suite; another set of them or another limit has a
    run folder of its own.
    """
    models = {member.name: f"trained:{member.folder(made.out)}" for member in made.members}
    held = digest(*models, limit, size=4).hex()
    where = made.out / "runs"
    return {
        suite: run(
            suite, models=models, limit=limit, batch=BATCH, out=where / f"{Path(suite).stem}_{held}", bar=bar
        )
        for suite in made.suites
    }
