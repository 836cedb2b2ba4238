"""A battery: a fixed, versioned list of suites that a passport is made from. Data only, in TOML."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictInt, ValidationError

from sorites.errors import SoritesError, UnknownName
from sorites.frame import Strict
from sorites.reading.mistakes import mistakes
from sorites.reading.texts import toml_file, toml_table
from sorites.suite import Suite, load

HERE = "sorites.passports"
NAMES = ("short", "standard", "full")


class Part(Strict):
    """A suite with what the battery sets otherwise; None is as the battery, or else the suite, has it."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    suite: str
    shifts: tuple[str, ...] = ()
    limit: StrictInt | None = Field(default=None, gt=0)
    scorers: tuple[str, ...] = ()
    source: str | None = None
    """Pictures that the part is about, whatever the model is judged on elsewhere; they are of ImageNet's classes."""
    make: Literal["context"] | None = None
    """The pictures that must be made before the part can run: cut-outs in common and uncommon places."""
    drawn: bool = False
    """True where those places are drawn, so that no photograph is fetched."""

    @property
    def own_pictures(self) -> bool:
        """Return whether the part runs on the pictures that the user names."""
        return self.source is None and self.make is None


class Battery(Strict):
    """A named list of parts. Its version changes whenever a number of a passport could change because of it."""

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
            part.suite: load(part.suite).model_dump(mode="json", exclude=left_out, exclude_defaults=True) for part in self.parts
        }
        own = self.model_dump(mode="json", exclude={"about", "minutes"}, exclude_defaults=True)
        held = {"battery": own, "suites": suites}
        return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:16]

    def limit_of(self, part: Part, limit: int | None) -> int:
        """Return how many samples a part takes, where the user asks for at most ``limit``."""
        own = part.limit or self.limit
        return own if limit is None else min(own, limit)

    def recipe(self, part: Part, model: str, source: str | None, labels: str | None, limit: int | None) -> Suite:
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
        raise UnknownName("battery", spec, NAMES, f"There are {', '.join(NAMES)}, or give a path that ends in .toml.")
    return _checked({"name": Path(spec).stem, **toml_file(Path(spec), "a battery in TOML")}, spec)


def _checked(held: dict[str, Any], where: str) -> Battery:
    try:
        found = Battery.model_validate(held)
    except ValidationError as error:
        raise SoritesError("\n".join(f"battery {where}: {line}" for line in mistakes(error, Battery))) from error
    names = [part.name for part in found.parts]
    if len(set(names)) < len(names):
        raise SoritesError(f"battery {where}: two parts have the same name")
    for part in found.parts:
        load(part.suite)
    return found
