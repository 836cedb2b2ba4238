"""A folder of sliders: which classes and shifts it holds, and the pipeline that they were trained on."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.diffusion import sliders
from sorites.diffusion.pipeline import TOY, Pipe
from sorites.diffusion.sliders import FACTS, WEIGHTS, Slider
from sorites.errors import SoritesError, UnknownName
from sorites.reading.texts import json_file

_NUMBERED = re.compile(r"(\d{1,4})_(.+)")


@dataclass(frozen=True)
class Concept:
    """A class: its number among the labels, and the words for it."""

    number: int
    name: str

    @property
    def folder(self) -> str:
        """Return the name of its folder, as in CNS-Bench: ``022_bald eagle``."""
        return f"{self.number:03d}_{self.name}"


@dataclass(frozen=True)
class Shelf:
    """Sliders by shift and class: DIR/heavy_snow/022_bald eagle."""

    root: Path
    places: dict[tuple[str, Concept], Path]

    @property
    def shifts(self) -> tuple[str, ...]:
        """Return the folders' names of the shifts."""
        return tuple(dict.fromkeys(shift for shift, _ in self.places))

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """Return the classes, by number."""
        return tuple(sorted({concept for _, concept in self.places}, key=lambda one: one.number))

    @property
    def facts(self) -> dict[str, Any]:
        """Return what is recorded with its first slider: the pipeline, the recipe, how pictures are drawn."""
        found = json_file(next(iter(self.places.values())) / FACTS, "the facts of a slider")
        return found if isinstance(found, dict) else {}

    def slider(self, pipe: Pipe, shift: str, concept: Concept) -> Slider:
        """Return one slider, checked against the pipeline."""
        if (shift, concept) not in self.places:
            raise SoritesError(f"{self.root} has no slider {shift} for the class {concept.name}")
        return _loaded(self.places[shift, concept], pipe, shift)

    def kept(self, shifts: Iterable[str], classes: Iterable[str]) -> Shelf:
        """Return only some of the shifts and classes."""
        some, only = list(shifts), list(classes)
        for shift in some:
            if shift not in self.shifts:
                raise UnknownName("slider", shift, self.shifts)
        names = {name for concept in self.concepts for name in (concept.name, str(concept.number))}
        for name in only:
            if name not in names:
                raise UnknownName("class with a slider", name, [concept.name for concept in self.concepts])
        places = {
            (shift, concept): path
            for (shift, concept), path in self.places.items()
            if (not some or shift in some) and (not only or concept.name in only or str(concept.number) in only)
        }
        return Shelf(self.root, places)


@functools.lru_cache(maxsize=64)
def _loaded(path: Path, pipe: Pipe, shift: str) -> Slider:
    return sliders.load(path, pipe.parts.unet, shift)


def shelf(folder: str | Path) -> Shelf:
    """Read which sliders a folder holds, or the embedded ones for ``toy``. One without its facts does not count."""
    root = Path(__file__).parent / "toy" / "sliders" if str(folder) == TOY else Path(folder)
    if not root.is_dir():
        raise SoritesError(f'{root} is not a folder. Wanted the folder of "sorites generate sliders --out DIR"')
    found: dict[tuple[str, Concept], Path] = {}
    for path in sorted(root.glob("*/*")):
        numbered = _NUMBERED.fullmatch(path.name)
        if numbered and (path / FACTS).is_file() and (path / WEIGHTS).is_file():
            found[path.parent.name, Concept(int(numbered[1]), numbered[2])] = path
    if not found:
        raise SoritesError(
            f"{root} holds no finished slider: wanted SHIFT/NUMBER_CLASS/{WEIGHTS} with {FACTS} beside it. Type the command "
            '"sorites generate sliders" that made it again to finish it'
        )
    return Shelf(root, found)


def together(pipe: Pipe, shelf: Shelf, shifts: Sequence[str], concept: Concept) -> tuple[Slider, ...]:
    """Return the sliders of several shifts for one class."""
    return tuple(shelf.slider(pipe, shift, concept) for shift in shifts)
