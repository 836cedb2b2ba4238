"""Folders of sliders: our own by shift and class, and released ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.messages import command, option
from sorites.diffusion.pipeline import TOY, Pipe
from sorites.diffusion.published import Packed, find_sliders
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sliders import RECORD, WEIGHTS, Slider, load, read_record

_NUMBERED = re.compile(r"(\d{1,4})_(.+)")


@dataclass(frozen=True)
class Concept:
    """A class: its number among the labels and its name."""

    number: int
    name: str

    @property
    def folder(self) -> str:
        """The name of its folder, as in CNS-Bench: ``022_bald eagle``."""
        return f"{self.number:03d}_{self.name}"


@dataclass(frozen=True)
class Shelf:
    """Sliders by shift and class, such as DIR/heavy_snow/022_bald eagle, or released ones."""

    root: Path
    places: Mapping[tuple[str, Concept], Path | Packed]

    @property
    def shifts(self) -> tuple[str, ...]:
        """The shifts' folder names."""
        return tuple(dict.fromkeys(shift for shift, _ in self.places))

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """The classes by number."""
        return tuple(sorted({concept for _, concept in self.places}, key=lambda concept: concept.number))

    @property
    def record(self) -> SliderRecord:
        """The record of its first slider: pipeline, recipe and sampler settings; empty for released ones."""
        return record_of(next(iter(self.places.values())))

    def slider(self, pipe: Pipe, shift: str, concept: Concept) -> Slider:
        """Return one slider, checked against the pipeline."""
        if (shift, concept) not in self.places:
            raise SoritesError(f"{self.root} has no slider {shift} for the class {concept.name}")
        return _load_cached(self.places[shift, concept], pipe, shift)

    def kept(self, shifts: Iterable[str], classes: Iterable[str]) -> Shelf:
        """Return the sliders of some shifts and classes; all of them where nothing is named."""
        chosen_shifts, chosen_classes = list(shifts), list(classes)
        for shift in chosen_shifts:
            if shift not in self.shifts:
                raise UnknownName("slider", shift, self.shifts)
        by_name = {name: concept for concept in self.concepts for name in _names(concept)}
        for name in chosen_classes:
            if name not in by_name:
                raise UnknownName("class with a slider", name, [concept.name for concept in self.concepts])
        concepts = {by_name[name] for name in chosen_classes}
        places = {
            (shift, concept): path
            for (shift, concept), path in self.places.items()
            if (not chosen_shifts or shift in chosen_shifts) and (not concepts or concept in concepts)
        }
        return Shelf(self.root, places)


def _names(concept: Concept) -> tuple[str, ...]:
    """Return how a class may be called: by name, by number, and by WordNet id if it is ImageNet's."""
    known, number = imagenet(), concept.number
    is_known = number < len(known.names) and known.names[number].casefold() == concept.name.casefold()
    return concept.name, str(number), *((known.ids[number],) if is_known else ())


@functools.lru_cache(maxsize=64)
def _load_cached(path: Path | Packed, pipe: Pipe, shift: str) -> Slider:
    refuse_other_pipeline(record_of(path), pipe, str(path))
    return load(path.unpack() if isinstance(path, Packed) else path, pipe.network, shift)


def record_of(place: Path | Packed) -> SliderRecord:
    """Return the record of a slider without reading its weights; an empty one for a released slider."""
    if isinstance(place, Packed) or not (place / RECORD).is_file():
        return SliderRecord()
    return read_record(place)


def refuse_other_pipeline(record: SliderRecord, pipe: Pipe, called: str) -> None:
    """Raise an error if a slider was trained on another pipeline, or with other words for its class.

    Args:
        record: The slider's record; that of released sliders is empty, and not checked.
        pipe: The pipeline that is to draw with it.
        called: The slider, for the message.
    """
    trained = record.pipeline_version
    if trained in ("", pipe.version):
        return
    if (record.base_version or trained) != pipe.base_version:
        raise SoritesError(
            f"the slider {called} was trained on another pipeline: {record.pipeline or 'unknown'},"
            f" version {trained}, and this one has version {pipe.version}. Check {option('pipeline', 'DIR')}",
            differs="pipeline",
        )
    word, given = record.word_version, pipe.word_versions.get(record.concept)
    if word and word != given:
        now = "another learnt word" if given else "the plain name of its class"
        raise SoritesError(
            f"the slider {called} was trained with a learnt word, and would be drawn with {now}. Check"
            f" {option('words', 'DIR')}",
            differs="words",
        )


def shelf(folder: str | Path, names: Mapping[int, str] | None = None) -> Shelf:
    """List the finished sliders of a folder, released ones of a folder or an archive, or those of ``toy``.

    Args:
        folder: A folder of our own sliders, a folder or .zip of released ones, or ``toy``.
        names: Class names by number, for released sliders, which have numbers only; ImageNet's by default.
    """
    root = Path(__file__).parent / "toy" / "sliders" if str(folder) == TOY else Path(folder)
    is_archive = root.suffix.lower() == ".zip" and root.is_file()
    if not root.is_dir() and not is_archive:
        raise SoritesError(
            f"{root} is not a folder. Expected a folder written by {command('generate sliders', out='DIR')},"
            " or released sliders as a folder or .zip"
        )
    places: dict[tuple[str, Concept], Path | Packed] = {}
    for path in () if is_archive else sorted(root.glob("*/*")):
        numbered = _NUMBERED.fullmatch(path.name)
        if numbered and (path / RECORD).is_file() and (path / WEIGHTS).is_file():
            places[path.parent.name, Concept(int(numbered[1]), numbered[2])] = path
    places = places or _released(root, names or {})
    if not places:
        raise SoritesError(
            f"{root} contains no finished slider: expected SHIFT/NUMBER_CLASS/{WEIGHTS} and {RECORD}, or"
            f" SHIFT_class_NUMBER_.../*_last.pt. To finish it, repeat the {command('generate sliders')} call"
            " that created it"
        )
    return Shelf(root, places)


def _released(root: Path, names: Mapping[int, str]) -> dict[tuple[str, Concept], Path | Packed]:
    default = imagenet().names
    return {
        (shift, Concept(number, names.get(number, default[number]))): place
        for (shift, number), place in find_sliders(root).items()
        if number < len(default)
    }


def sliders_for(pipe: Pipe, shelf: Shelf, shifts: Sequence[str], concept: Concept) -> tuple[Slider, ...]:
    """Return the sliders of several shifts for one class."""
    return tuple(shelf.slider(pipe, shift, concept) for shift in shifts)
