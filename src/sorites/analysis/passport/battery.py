"""A battery: a fixed, versioned list of suites that a passport is made from. Data only, in TOML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictInt, ValidationError

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import labels as labels_of
from sorites.core.progress import Tick
from sorites.datasets.context import build_context
from sorites.evaluation import plan as plans
from sorites.evaluation import runner
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage import shards
from sorites.io.files import locked
from sorites.io.readers import toml_file, toml_table
from sorites.io.validation import mistakes
from sorites.suites.suite import Strict, Suite, load

HERE = "sorites.analysis.passport"
NAMES = ("short", "standard", "full")


class Part(Strict):
    """A suite with what the battery sets otherwise; None is as the battery, or else the suite, has it."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    suite: str
    shifts: tuple[str, ...] = ()
    limit: StrictInt | None = Field(default=None, gt=0)
    scorers: tuple[str, ...] = ()
    source: str | None = None
    """Images that the part is about, whatever the model is judged on elsewhere; they are of
    ImageNet's classes.
    """
    make: Literal["context"] | None = None
    """The images that must be made before the part can run: cut-outs in common and uncommon places."""
    drawn: bool = False
    """True where those places are drawn, so that no photograph is fetched."""

    @property
    def own_images(self) -> bool:
        """Return whether the part runs on the images that the user names."""
        return self.source is None and self.make is None


class Battery(Strict):
    """A named list of parts.

    Its version changes whenever a number of a passport could change because of it.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    version: StrictInt = Field(gt=0)
    about: str = ""
    minutes: StrictInt = Field(gt=0)
    """The approximate minutes that it takes with lite0 on two cores."""
    limit: StrictInt = Field(gt=0)
    refine: float | None = Field(default=None, gt=0, lt=1)
    scorers: tuple[str, ...] = ("msp",)
    parts: tuple[Part, ...] = Field(min_length=1)

    def digest(self) -> str:
        """Return a hash of everything that the battery sets and of the suites behind it."""
        left_out = {"about", "models"}
        suites = {
            part.suite: load(part.suite).model_dump(mode="json", exclude=left_out, exclude_defaults=True)
            for part in self.parts
        }
        own = self.model_dump(mode="json", exclude={"about", "minutes"}, exclude_defaults=True)
        held = {"battery": own, "suites": suites}
        return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:16]

    def limit_of(self, part: Part, limit: int | None) -> int:
        """Return how many samples a part takes, where the user asks for at most ``limit``."""
        own = part.limit or self.limit
        return own if limit is None else min(own, limit)

    def recipe(
        self, part: Part, model: str, source: str | None, labels: str | None, limit: int | None
    ) -> Suite:
        """Return the suite of a part for one model; a limit of the user's only ever makes a part smaller."""
        own = load(part.suite)
        most = self.limit_of(part, limit)
        dials = bool(part.shifts or own.shifts) and self.refine is not None and not _is_grid(part, own)
        suite = own.override(
            shifts=part.shifts,
            source=part.source or source,
            models=(model,),
            scorers=part.scorers or self.scorers,
            labels=labels,
            refine=self.refine if dials else None,
        )
        return suite.model_copy(update={"limit": most, "reference": None, "similarity": ()})


def _is_grid(part: Part, suite: Suite) -> bool:
    from sorites.core import SHIFTS

    names = part.shifts or [dial.name for dial in suite.shifts]
    return not any(name in SHIFTS.names() and SHIFTS.get(name).levels for name in names)


def load_battery(spec: str) -> Battery:
    """Return a built-in battery by name, or one of the user's from its TOML file."""
    if spec in NAMES:
        text = files(HERE).joinpath("batteries", f"{spec}.toml").read_text(encoding="utf-8")
        return _checked({"name": spec, **toml_table(text)}, spec)
    if not spec.endswith(".toml"):
        raise UnknownName(
            "battery", spec, NAMES, f"There are {', '.join(NAMES)}, or give a path that ends in .toml."
        )
    return _checked({"name": Path(spec).stem, **toml_file(Path(spec), "a battery in TOML")}, spec)


def _checked(held: dict[str, Any], where: str) -> Battery:
    try:
        found = Battery.model_validate(held)
    except ValidationError as error:
        raise SoritesError(
            "\n".join(f"battery {where}: {line}" for line in mistakes(error, Battery))
        ) from error
    names = [part.name for part in found.parts]
    if len(set(names)) < len(names):
        raise SoritesError(f"battery {where}: two parts have the same name")
    for part in found.parts:
        load(part.suite)
    return found


# The runs behind a passport: each part of the battery as a run folder, resumable, with one bar over all
# of them.


# Takes how many images are done, and of which part.
Advance = Callable[[int, str], None]
# Opens the bar by name, number of steps and steps already done.
Open = Callable[[str, int, int], Advance]
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
        # first: a wrong name is an error at once
        found = {part.name: _plan(part, asked) for part in wanted if part.make is None}
        _make_context(wanted, asked, say)
        planned = {part.name: found.get(part.name) or _plan(part, asked) for part in wanted}
        todo = {name: _missing(plan, places(asked)[name]) for name, plan in planned.items()}
        total = sum(plan.images() for plan in planned.values())
        advance = bar(asked.battery.name, total, total - sum(todo.values()))
        for name, plan in planned.items():
            _run(name, plan, asked, advance, say)
    return left_out


def _why_not(part: Part, asked: Asked) -> str:
    if part.own_images or asked.labels is None or labels_of(asked.labels).ids == labels_of("imagenet").ids:
        return ""
    return "its images are of ImageNet's classes, and the model was asked about others"


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
        raise SoritesError(
            f"{boxes[0]} finds boxes, and {why}. For detectors type: sorites run optics_bench_boxes --model"
            " MODEL"
        )
    return plan


def _missing(plan: Plan, folder: Path) -> int:
    left = shards.missing(folder, plan.units(), plan.models)
    return sum(plan.images_of(unit) for unit in left)


def _run(name: str, plan: Plan, asked: Asked, advance: Advance, say: Callable[[str], None]) -> None:
    def opened(what: str, steps: int) -> Tick:
        return lambda n: advance(
            n if what == "evaluating" else 0, name if what == "evaluating" else f"{name}: {what}"
        )

    into = places(asked)[name]
    runner.execute(runner.prepare(plan), into, batch=asked.batch, workers=asked.workers, bar=opened, say=say)


def held(folder: Path, parts: Iterable[str]) -> dict[str, Path]:
    """Return the run folders of a passport that was made."""
    return {name: folder / RUNS / name for name in parts}
