"""The runs behind a passport: each part of the battery as a run folder, resumable, with one bar over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sorites.datasets.context import build_context
from sorites.errors import SoritesError
from sorites.files import locked
from sorites.labels import labels as labels_of
from sorites.passports.battery import Battery, Part
from sorites.pipeline import plan as plans
from sorites.pipeline import runner, shards
from sorites.pipeline.plan import Plan
from sorites.progress import Tick
from sorites.suite import Suite

Advance = Callable[[int, str], None]
"""Takes how many pictures are done, and of which part."""
Open = Callable[[str, int, int], Advance]
"""Opens the bar by name, number of steps and steps already done."""
RUNS = "runs"
LOCK = "passport.lock"


@dataclass(frozen=True)
class Asked:
    """The model and the options of a passport."""

    model: str
    battery: Battery
    folder: Path
    source: str | None = None
    labels: str | None = None
    limit: int | None = None
    batch: int = runner.BATCH
    workers: int | None = None


def places(asked: Asked) -> dict[str, Path]:
    """Return the run folders of the parts."""
    return {part.name: asked.folder / RUNS / part.name for part in asked.battery.parts}


def measure(asked: Asked, bar: Open, say: Callable[[str], None]) -> dict[str, str]:
    """Do what is missing of every part; return the parts that cannot be measured, with the reason."""
    with locked(asked.folder, "passport", LOCK):
        left_out = {part.name: why for part in asked.battery.parts if (why := _why_not(part, asked))}
        wanted = [part for part in asked.battery.parts if part.name not in left_out]
        found = {part.name: _plan(part, asked) for part in wanted if part.make is None}  # first: a wrong name is an error at once
        _make_context(wanted, asked, say)
        planned = {part.name: found.get(part.name) or _plan(part, asked) for part in wanted}
        todo = {name: _missing(plan, places(asked)[name]) for name, plan in planned.items()}
        total = sum(plan.images() for plan in planned.values())
        advance = bar(asked.battery.name, total, total - sum(todo.values()))
        for name, plan in planned.items():
            _run(name, plan, asked, advance, say)
    return left_out


def _why_not(part: Part, asked: Asked) -> str:
    if part.own_pictures or asked.labels is None or labels_of(asked.labels).ids == labels_of("imagenet").ids:
        return ""
    return "its pictures are of ImageNet's classes, and the model was asked about others"


def _make_context(parts: list[Part], asked: Asked, say: Callable[[str], None]) -> None:
    for part in parts:
        if part.make == "context":
            out = context_folder(asked)
            if not (out / "sorites.parquet").exists():
                say("placing cut-outs in common and uncommon surroundings")
            build_context(out, "stamps", limit=asked.battery.limit_of(part, asked.limit), drawn=part.drawn)


def context_folder(asked: Asked) -> Path:
    """Return where cut-outs in surroundings are kept."""
    return asked.folder / "context"


def recipe_of(part: Part, asked: Asked) -> Suite:
    """Return the suite of a part."""
    source = f"context:{context_folder(asked)}" if part.make == "context" else asked.source
    return asked.battery.recipe(part, asked.model, source, asked.labels, asked.limit)


def _plan(part: Part, asked: Asked) -> Plan:
    plan = plans.make(recipe_of(part, asked))
    boxes = [name for name, model in plan.models.items() if model.output == "boxes"]
    if boxes:
        why = "a passport is of a classifier"
        raise SoritesError(f"{boxes[0]} finds boxes, and {why}. For detectors type: sorites run optics_bench_boxes --model MODEL")
    return plan


def _missing(plan: Plan, folder: Path) -> int:
    left = shards.missing(folder, plan.units(), plan.models)
    return sum(plan.images_of(unit) for unit in left)


def _run(name: str, plan: Plan, asked: Asked, advance: Advance, say: Callable[[str], None]) -> None:
    def opened(what: str, steps: int) -> Tick:
        return lambda n: advance(n if what == "evaluating" else 0, name if what == "evaluating" else f"{name}: {what}")

    into = places(asked)[name]
    runner.execute(runner.prepare(plan), into, batch=asked.batch, workers=asked.workers, bar=opened, say=say)


def held(folder: Path, parts: Iterable[str]) -> dict[str, Path]:
    """Return the run folders of a passport that was made."""
    return {name: folder / RUNS / name for name in parts}
