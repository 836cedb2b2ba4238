"""Sets of classes and shifts to train sliders for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, OpenLabels, imagenet, labels, open_labels
from sorites.diffusion.shelves import Concept
from sorites.diffusion.toy.world import SHAPES, STYLES
from sorites.io.readers import lines, parse_integer
from sorites.sources.papers.cns_bench import classes

# The fourteen shifts of CNS-Bench, as worded in prompts.
CNS_SHIFTS = (
    "cartoon style",
    "plush toy style",
    "pencil sketch style",
    "painting style",
    "the design of sculpture",
    "graffiti style",
    "video game renditions style",
    "the style of a tattoo",
    "heavy snow",
    "heavy rain",
    "heavy fog",
    "heavy smog",
    "heavy dust",
    "heavy sandstorm",
)
TOY_SHIFTS = STYLES[1:]
SETS = {"cns": CNS_SHIFTS, "toy": TOY_SHIFTS}


def concepts(which: str, only: Iterable[str] = ()) -> list[Concept]:
    """Return classes for sliders.

    Args:
        which: ``"cns"`` (100 classes), ``"imagenet"`` (1000), ``"toy"`` (4), or a file with lines ``NAME`` or
            ``NUMBER<tab>NAME``.
        only: Keep only these classes, by name or number; those of ImageNet also by WordNet id.
    """
    available = _available(which)
    by_key = {concept.name: concept for concept in available} | {
        str(concept.number): concept for concept in available
    }
    if which in ("cns", "imagenet"):
        by_key |= {imagenet().ids[concept.number]: concept for concept in available}
    selected = []
    for name in only:
        if name not in by_key:
            raise UnknownName("class", name, [concept.name for concept in available])
        selected.append(by_key[name])
    return [concept for concept in available if concept in selected] if selected else available


def _available(which: str) -> list[Concept]:
    """Return all classes of a set or file."""
    if which == "cns":
        return [Concept(number, name) for number, name in classes().items()]
    if which == "imagenet":
        hundred = classes()
        return [Concept(i, hundred.get(i, name)) for i, name in enumerate(imagenet().names)]
    if which == "toy":
        return [Concept(number, name) for number, name in enumerate(SHAPES)]
    return _from_file(Path(which))


def _from_file(file: Path) -> list[Concept]:
    concepts: list[Concept] = []
    for index, line in enumerate(
        text for text in lines(file, "cns, toy, or a file of classes, one per line") if text.strip()
    ):
        number, tab, name = line.partition("\t")
        class_number = parse_integer(number) if tab else index
        concept = Concept(-1 if class_number is None else class_number, (name if tab else line).strip())
        if not 0 <= concept.number < 1000 or not plain(concept.name):
            raise SoritesError(
                f"{file}: expected one class per line, or a number below 1000, a tab and a class; "
                f"got {line[:80]!r}"
            )
        concepts.append(concept)
    if not concepts or len({concept.number for concept in concepts}) < len(concepts):
        raise SoritesError(
            f"{file}: expected one or more classes with different numbers, got {len(concepts)}"
        )
    return concepts


def are_published(concepts: Iterable[Concept]) -> bool:
    """Return whether all classes are classes of CNS-Bench with their numbers."""
    return {(concept.number, concept.name) for concept in concepts} <= set(classes().items())


def label_space(concepts: Sequence[Concept], spec: str | None = None) -> Labels:
    """Return the labels with which a source of real images is read.

    Args:
        concepts: The classes.
        spec: Labels by name or file. By default those of ImageNet, for its classes, or the names of the
            classes; then other classes of the source are read too, and can be skipped.
    """
    if spec is not None:
        return labels(spec)
    if _of_imagenet(concepts):
        return open_labels()
    names = tuple(concept.name for concept in concepts)
    return OpenLabels(names, names)


def labels_of(concepts: Sequence[Concept], space: Labels) -> dict[Concept, int]:
    """Return the label of each class: by WordNet id for classes of ImageNet, then by name.

    Raises:
        UnknownName: A class is not among the labels.
    """
    ids = imagenet().ids if _of_imagenet(concepts) else ()
    found = {}
    for concept in concepts:
        label = space.get(*ids[concept.number : concept.number + 1], concept.name)
        if label is None:
            raise UnknownName("class among the labels", concept.name, space.names)
        found[concept] = label
    return found


def _of_imagenet(concepts: Iterable[Concept]) -> bool:
    """Return whether all classes are ImageNet's, with their numbers."""
    names = dict(enumerate(imagenet().names))
    return all(
        concept.name in (classes().get(concept.number), names.get(concept.number)) for concept in concepts
    )


def plain(name: str) -> bool:
    """Return whether a name can be used as a folder."""
    return bool(re.fullmatch(r"[\w][\w ,.'()-]{0,99}", name))


def shift_folder(words: str) -> str:
    """Return the folder name of a shift: ``heavy_snow`` for "heavy snow"."""
    folder = words.strip().lower().replace(" ", "_")
    if not plain(words.strip()):
        raise SoritesError(f"expected a shift in a few plain words, such as heavy snow; got {words[:80]!r}")
    return folder


def shift_words(folder: str) -> str:
    """Return the words of a shift's folder name."""
    return folder.replace("_", " ")
