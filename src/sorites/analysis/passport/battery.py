"""Batteries: versioned lists of suites from which a passport is made, and the code that runs them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictInt, ValidationError

from sorites import core
from sorites.analysis.passport.document import BatteryInfo
from sorites.core import Model
from sorites.core.errors import Notice, SoritesError, UnknownName, tell
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.progress import Tick, phase
from sorites.datasets.context import build_context
from sorites.evaluation import plan as plans
from sorites.evaluation import runner
from sorites.evaluation.options import DEFAULT_BATCH
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage import shards
from sorites.io.files import locked
from sorites.io.readers import toml_file, toml_table
from sorites.io.validation import problems
from sorites.sources import stamps
from sorites.sources.foolbox import instead_note, usual_or_foolbox
from sorites.suites.suite import Strict, Suite, load

HERE = "sorites.analysis.passport"
NAMES = ("short", "standard", "full", "boxes")
# The battery of detectors.
FOR_BOXES = "boxes"


class Part(Strict):
    """A suite with overrides; None means the value of the battery, or else of the suite."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    suite: str
    shifts: tuple[str, ...] = ()
    limit: StrictInt | None = Field(default=None, gt=0)
    scorers: tuple[str, ...] = ()
    source: str | None = None
    """A fixed source of ImageNet's classes, used whatever source the user names."""
    make: Literal["context"] | None = None
    """Images to make before the part can run: cut-outs in common and uncommon contexts."""
    drawn: bool = False
    """Draw those contexts, instead of downloading photographs."""

    @property
    def own_images(self) -> bool:
        """Return whether the part runs on the source that the user names."""
        return self.source is None and self.make is None


class Battery(Strict):
    """A named list of parts; its version changes whenever it changes numbers of a passport."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    version: StrictInt = Field(gt=0)
    about: str = ""
    minutes: StrictInt = Field(gt=0)
    """Approximate duration with lite0 on two cores."""
    limit: StrictInt = Field(gt=0)
    refine: float | None = Field(default=None, gt=0, lt=1)
    scorers: tuple[str, ...] = ("msp",)
    detectors: bool = False
    """Return whether the battery is for detectors."""
    parts: tuple[Part, ...] = Field(min_length=1)

    def digest(self) -> str:
        """Return a hash of all settings of the battery and its suites."""
        left_out = {"about", "models"}
        suites = {
            part.suite: load(part.suite).model_dump(mode="json", exclude=left_out, exclude_defaults=True)
            for part in self.parts
        }
        own = self.model_dump(mode="json", exclude={"about", "minutes"}, exclude_defaults=True)
        content = {"battery": own, "suites": suites}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def info(self) -> BatteryInfo:
        """Return what a passport says about the battery."""
        return BatteryInfo(name=self.name, version=self.version, digest=self.digest(), scorer=self.scorers[0])

    def limit_of(self, part: Part, limit: int | None) -> int:
        """Return the number of samples of a part, given the maximum that the user asks for."""
        own = part.limit or self.limit
        return own if limit is None else min(own, limit)

    def recipe(
        self, part: Part, model: str, source: str | None, labels: str | None, limit: int | None
    ) -> Suite:
        """Return the suite of a part for one model; the user's limit can only make a part smaller."""
        own = load(part.suite)
        most = self.limit_of(part, limit)
        dials = bool(part.shifts or own.shifts) and self.refine is not None and not _is_grid(part, own)
        suite = own.override(
            shifts=part.shifts,
            source=part.source or source,
            models=(model,),
            only_scorers=part.scorers or self.scorers,
            labels=labels,
            refine=self.refine if dials else None,
        )
        return suite.model_copy(update={"limit": most, "reference": None, "similarity": ()})


def _is_grid(part: Part, suite: Suite) -> bool:
    from sorites.core import SHIFTS

    names = part.shifts or [dial.name for dial in suite.shifts]
    return not any(name in SHIFTS and SHIFTS.get(name).levels for name in names)


def load_battery(spec: str) -> Battery:
    """Load a built-in battery by name, or a battery from a TOML file.

    Raises:
        SoritesError: There is no such battery, or the file is invalid.
    """
    if spec in NAMES:
        text = files(HERE).joinpath("batteries", f"{spec}.toml").read_text(encoding="utf-8")
        return _validate({"name": spec, **toml_table(text)}, spec)
    if not spec.endswith(".toml"):
        raise UnknownName(
            "battery", spec, NAMES, f"Available: {', '.join(NAMES)}, or a path that ends in .toml."
        )
    return _validate({"name": Path(spec).stem, **toml_file(Path(spec), "a battery in TOML")}, spec)


def battery_for(model: Model, spec: str) -> Battery:
    """Return the battery for a model: for a detector, ``short`` stands for the battery of detectors.

    Raises:
        SoritesError: The battery is for the other kind of model.
    """
    boxes = model.output == "boxes"
    battery = load_battery(FOR_BOXES if boxes and spec == "short" else spec)
    if boxes and not battery.detectors:
        raise SoritesError(
            f"{model.name} is a detector, and the battery {spec} is for classifiers. Use"
            f" {option('battery', FOR_BOXES)}, or a TOML file with detectors = true."
        )
    if battery.detectors and not boxes:
        raise SoritesError(f"{model.name} is a classifier, and the battery {spec} is for detectors.")
    return battery


def _validate(data: dict[str, Any], where: str) -> Battery:
    try:
        battery = Battery.model_validate(data)
    except ValidationError as error:
        raise SoritesError(
            "\n".join(f"battery {where}: {line}" for line in problems(error, Battery))
        ) from error
    names = [part.name for part in battery.parts]
    if len(set(names)) < len(names):
        raise SoritesError(f"battery {where}: two parts have the same name.")
    for part in battery.parts:
        load(part.suite)
    return battery


# --- The runs behind a passport: one resumable run folder per part, with one progress bar over all

# Takes the number of finished images, and their part.
Advance = Callable[[int, str], None]
# Opens a progress bar: takes its name, the number of steps, and the number of steps already done.
Open = Callable[[str, int, int], Advance]
RUNS = "runs"
LOCK = "passport.lock"


@dataclass(frozen=True)
class Request:
    """The model and options of a passport."""

    model: str
    battery: Battery
    folder: Path
    source: str | None = None
    labels: str | None = None
    limit: int | None = None
    batch: int = DEFAULT_BATCH
    workers: int | None = None
    load: Callable[[str], Model] = core.model


def folders_of(request: Request) -> dict[str, Path]:
    """Return the run folders of the parts."""
    return run_folders(request.folder, [part.name for part in request.battery.parts])


def measure(request: Request, bar: Open, say: Callable[[str], None]) -> dict[str, str]:
    """Run what is missing of every part; return the parts that cannot be measured, with reasons."""
    with locked(request.folder, "passport", LOCK):
        _note_other_images(request)
        left_out = {part.name: why for part in request.battery.parts if (why := _why_not(part, request))}
        measured = [part for part in request.battery.parts if part.name not in left_out]
        load = request.load  # all parts share one model
        # Plan first, so that wrong names fail before any work.
        with phase("reading the images of the battery"):
            plans_made = {part.name: _plan(part, request, load) for part in measured if part.make is None}
        _make_context(measured, request, say)
        planned = {part.name: plans_made.get(part.name) or _plan(part, request, load) for part in measured}
        todo = {name: _missing(plan, folders_of(request)[name]) for name, plan in planned.items()}
        total = sum(plan.images() for plan in planned.values())
        advance = bar(request.battery.name, total, total - sum(todo.values()))
        for name, plan in planned.items():
            _run(name, plan, request, advance, say)
    return left_out


def _note_other_images(request: Request) -> None:
    """Warn if the parts of the user's images do not get the usual ones."""
    of_stamps = any(part.own_images and load(part.suite).source == "stamps" for part in request.battery.parts)
    if request.source is None and of_stamps and not stamps.available():
        tell(Notice(instead_note(f"the battery {request.battery.name}"), code="other_images"), 5)


def _why_not(part: Part, request: Request) -> str:
    if not part.own_images and not request.battery.detectors and not stamps.available():
        return "its images are made of Debian's photo cut-outs, and this machine has no apt-get to fetch them"
    if (
        part.own_images
        or request.labels is None
        or labels_of(request.labels).ids == labels_of("imagenet").ids
    ):
        return ""
    return "its images have ImageNet's classes, but the model is evaluated on others"


def _make_context(parts: list[Part], request: Request, say: Callable[[str], None]) -> None:
    for part in parts:
        if part.make == "context":
            out = context_folder(request)
            if not (out / "sorites.parquet").exists():
                say("Compositing cut-outs in common and uncommon contexts.")
            with phase("compositing"):
                build_context(
                    out, "stamps", limit=request.battery.limit_of(part, request.limit), drawn=part.drawn
                )


def context_folder(request: Request) -> Path:
    """Return the folder of the composited images."""
    return context_in(request.folder)


def context_in(folder: Path) -> Path:
    """Return the folder of the composited images of a passport."""
    return folder / "context"


def recipe_of(part: Part, request: Request) -> Suite:
    """Return the suite of a part."""
    if part.make == "context":
        source: str | None = f"context:{context_folder(request)}"
    else:
        source = request.source or usual_or_foolbox(load(part.suite).source)
    return request.battery.recipe(part, request.model, source, request.labels, request.limit)


def _plan(part: Part, request: Request, load: Callable[[str], Model]) -> Plan:
    return plans.make(recipe_of(part, request), load=load)


def _missing(plan: Plan, folder: Path) -> int:
    left = shards.missing(folder, plan.units(), plan.models)
    return sum(plan.images_of(unit) for unit in left)


def _run(name: str, plan: Plan, request: Request, advance: Advance, say: Callable[[str], None]) -> None:
    def open_bar(what: str, steps: int) -> Tick:
        evaluating = what == "evaluating"
        return lambda n: advance(n if evaluating else 0, name if evaluating else f"{name}: {what}")

    into = folders_of(request)[name]
    runner.execute(
        runner.prepare(plan), into, batch=request.batch, workers=request.workers, bar=open_bar, say=say
    )


def run_folders(folder: Path, parts: Iterable[str]) -> dict[str, Path]:
    """Return the run folders of an existing passport, by part."""
    return {name: folder / RUNS / name for name in parts}
