"""Train all arms alike, evaluate them together, and keep both so that a comparison that was stopped goes on."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.engines import ENGINES
from sorites.errors import MissingExtra, SoritesError
from sorites.pipeline.run import run
from sorites.progress import Bar, ToldBar
from sorites.rng import digest
from sorites.suite import load as load_suite
from sorites.training import history
from sorites.training.arms.members import DEFAULT, Member, members
from sorites.training.folder import is_finished
from sorites.training.loop import named_changes, no_bar, train
from sorites.training.recipe import Recipe, load

BATCH = 64
"""Pictures per call of a model: small networks gain from more than a suite's usual few."""
PULSE = 1.0
"""Seconds between two looks at how far the trainings are."""


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

    ``changes`` are those of ``train``. ``limit`` is how many pictures of a suite's source the models are judged by. Whatever is
    finished in ``out`` already is not done again; an arm or a seed that is added later joins the others.
    """
    made = prepare(recipe, out, arms=arms, seeds=seeds, suites=suites, **changes)
    train_all(made, device=device, workers=workers)
    return evaluate(made, limit=limit)


def prepare(
    recipe: str | Path | Recipe, out: str | Path, *, arms: Sequence[str], seeds: int, suites: Sequence[str] = (), **changes: Any
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
    """Keep a bar of all trainings while they run elsewhere, by the histories that they write beside their checkpoints."""
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
    for key, lengths in (("step", [s.steps for s in base.stretches]), ("epoch", [s.epochs for s in base.stretches])):
        if rows and None not in lengths:
            return int(99 * rows[-1][key] / sum(length or 0 for length in lengths))
    return 0


def evaluate(made: Compared, *, limit: int | None = None, bar: Bar | None = None) -> dict[str, pl.LazyFrame]:
    """Return the tables of all trained models by suite; another set of them or another limit has a run folder of its own."""
    models = {member.name: f"trained:{member.folder(made.out)}" for member in made.members}
    held = digest(*models, limit, size=4).hex()
    where = made.out / "runs"
    return {
        suite: run(suite, models=models, limit=limit, batch=BATCH, out=where / f"{Path(suite).stem}_{held}", bar=bar)
        for suite in made.suites
    }
