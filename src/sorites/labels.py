"""A label space: class ids in order, and the names that people use for them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from sorites.errors import SoritesError, UnknownName
from sorites.reading.places import is_file
from sorites.reading.texts import lines, whole


def _plain(name: str) -> str:
    """Normalise a name: case, spaces, underscores and hyphens do not distinguish classes."""
    return re.sub(r"[\s_\-]+", " ", name).strip().lower()


@dataclass(frozen=True)
class Labels:
    """A label space. ``ids[i]`` identifies label ``i`` in files and tables, ``names[i]`` is its name for readers, and ``aliases``
    are further names."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    aliases: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        """All normalised ids, names and aliases with their labels; ids win over names, names over aliases."""
        found = dict(self.aliases)
        found |= {_plain(name): i for i, name in reversed(list(enumerate(self.names)))}
        return found | {_plain(id_): i for i, id_ in enumerate(self.ids)}

    def find(self, name: str) -> int:
        """Return the label called ``name``, which may be an id, a position (``"281"``), or any of its names."""
        plain = _plain(name)
        if plain in self._index:
            return self._index[plain]
        position = whole(name)
        if position is not None and position < len(self):
            return position
        twins = [known for known in self._index if known.startswith(f"{plain} (")]
        raise UnknownName("class", name, twins or self._index)


@dataclass(frozen=True)
class OpenLabels(Labels):
    """A label space for code that needs pictures but no model: an unknown class is added under the next number."""

    def find(self, name: str) -> int:
        """Return the label called ``name``; an unknown name gets the next free number."""
        plain = _plain(name)
        if plain in self.aliases:
            return self.aliases[plain]
        try:
            return super().find(name)
        except UnknownName:
            return self.aliases.setdefault(plain, len(self) + len(self.aliases))


def class_name(labels: Labels | None, label: int | None) -> str:
    """Return the name of a label for readers: its number where there are no names, and "nothing" for none."""
    if label is None:
        return "nothing"
    return labels.names[label] if labels is not None and 0 <= label < len(labels) else f"class {label}"


def open_labels(more: Iterable[str] = ()) -> OpenLabels:
    """Return a label space of ImageNet's thousand classes and ``more`` class names, which accepts any other class as well."""
    known = imagenet()
    extra = tuple(name for name in more if name not in known.ids)
    return OpenLabels((*known.ids, *extra), (*known.names, *extra))


def _unique_aliases(synonyms: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Return the label of each normalised synonym that belongs to only one class."""
    owners: dict[str, set[int]] = {}
    for i, name in synonyms:
        owners.setdefault(_plain(name), set()).add(i)
    return {name: next(iter(who)) for name, who in owners.items() if len(who) == 1}


@functools.cache
def imagenet() -> Labels:
    """Return the thousand classes of ILSVRC-2012 by WordNet id in the usual order, with WordNet's names."""
    rows = files("sorites").joinpath("imagenet.tsv").read_text(encoding="utf-8").splitlines()
    ids, lemmas = zip(*(row.split("\t") for row in rows), strict=True)
    synonyms = ((i, name) for i, all_names in enumerate(lemmas) for name in all_names.split(", "))
    names = [all_names.split(", ")[0] for all_names in lemmas]
    for i, id_ in enumerate(ids):
        if id_ in TWINS:
            names[i] = TWINS[id_]
    return Labels(ids, tuple(names), _unique_aliases(synonyms))


TWINS = {
    "n02113186": "Cardigan (dog)",
    "n02963159": "cardigan (garment)",
    "n02012849": "crane (bird)",
    "n03126707": "crane (machine)",
    "n03710637": "maillot (suit)",
    "n03710721": "maillot (tank suit)",
}
"""Names for the three pairs of classes to which WordNet gives the same first name, by id."""


def labels(spec: str | Iterable[str]) -> Labels:
    """Return a label space from ``"imagenet"``, a text file with one class per line, or the class names themselves."""
    if spec == "imagenet":
        return imagenet()
    if isinstance(spec, str):
        if not is_file(spec):
            raise SoritesError(f'labels: wanted "imagenet" or a text file with one class name per line, got {spec[:200]!r}')
        spec = lines(Path(spec), "labels as UTF-8 text with one class name per line")
    ids = tuple(line.strip() for line in spec if line.strip())
    if len(set(map(_plain, ids))) != len(ids) or not ids:
        raise SoritesError("labels: wanted one or more different class names, one per line")
    known = dict(zip(imagenet().ids, imagenet().names, strict=True))
    return Labels(ids, tuple(known.get(id_, id_) for id_ in ids))
