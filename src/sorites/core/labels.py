"""Label spaces: class ids in order, with display names and aliases."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from sorites.core.errors import SoritesError, UnknownName
from sorites.io.paths import is_file
from sorites.io.readers import json_file, lines, parse_integer


def _plain(name: str) -> str:
    """Normalise a name: case, spaces, underscores and hyphens do not distinguish classes."""
    return re.sub(r"[\s_\-]+", " ", name).strip().lower()


_WNID = re.compile(r"\bn\d{8}\b")


def _letters(name: str) -> str:
    """Return a name without spaces and signs."""
    return re.sub(r"[\W_]+", "", name.lower())


def _forms(letters: str) -> set[str]:
    """Return a name, and as singular and plural."""
    forms = {letters, f"{letters}s", f"{letters}es"}
    if len(letters) > 3:
        forms |= {letters.removesuffix("s"), letters.removesuffix("es")}
        forms.add(re.sub("ies$", "y", letters))
    return forms


@dataclass(frozen=True)
class Labels:
    """A label space.

    Attributes:
        ids: ``ids[i]`` identifies label ``i`` in files and tables.
        names: ``names[i]`` is its display name.
        aliases: Further normalised names.
        loose: The names that were only similar to that of their class, with its label, as they are found.
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    aliases: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    loose: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        """Map normalised ids, names and aliases to labels; ids win over names, names over aliases."""
        index = dict(self.aliases)
        index |= {_plain(name): i for i, name in reversed(list(enumerate(self.names)))}
        return index | {_plain(id_): i for i, id_ in enumerate(self.ids)}

    def find(self, name: str) -> int:
        """Return the label called ``name``.

        Args:
            name: An id, a name, an alias, or a position such as ``"281"``; case, spaces, underscores and
                hyphens do not matter. Otherwise a name that is similar to those of one class (``similar``).

        Returns:
            The label as an integer.

        Raises:
            UnknownName: No label is called that, or several have similar names.

        Example:
            >>> imagenet().find("Tabby-Cat") == imagenet().find("n02123045") == imagenet().find("281")
            True
        """
        label = self._exact(name)
        if label is not None:
            return label
        similar = self.similar(name)
        if len(similar) == 1:
            return self.loose.setdefault(name, similar[0])
        if similar:
            fitting = " and ".join(self.names[each] for each in similar)
            raise UnknownName("class", name, (), f"It is similar to {fitting}; use one of these names.")
        plain = _plain(name)
        twins = [candidate for candidate in self._index if candidate.startswith(f"{plain} (")]
        raise UnknownName("class", name, twins or self._index)

    def _exact(self, name: str) -> int | None:
        plain = _plain(name)
        if plain in self._index:
            return self._index[plain]
        position = parse_integer(name)
        return position if position is not None and position < len(self) else None

    @functools.cached_property
    def _by_letters(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for name, label in self._index.items():
            for part in (name, *name.split(",")):
                found.setdefault(_letters(part), set()).add(label)
        return found

    def similar(self, name: str) -> tuple[int, ...]:
        """Return the labels with similar names: written together, in the plural, one of several names
        separated by commas, or a WordNet id among other words.

        Example:
            >>> labels(["traffic light", "cat"]).similar("TrafficLights, signals")
            (0,)
        """
        ids = (self._index.get(id_) for id_ in _WNID.findall(_plain(name)))
        named = {label for label in ids if label is not None}
        if not named:
            parts = filter(None, map(_letters, name.split(",")))
            forms = (form for part in parts for form in _forms(part))
            named = {label for form in forms for label in self._by_letters.get(form, ())}
        return tuple(sorted(named))

    def get(self, *names: str) -> int | None:
        """Return the label of the first of ``names`` that exists, or None."""
        return next((self._index[plain] for name in names if (plain := _plain(name)) in self._index), None)


@dataclass(frozen=True)
class OpenLabels(Labels):
    """A label space for code that needs images but no model: unknown classes get the next free number."""

    def find(self, name: str) -> int:
        """Return the label called ``name``; add it with the next free number if it is unknown."""
        plain = _plain(name)
        if plain in self.aliases:
            return self.aliases[plain]
        label = self._exact(name)
        return self.aliases.setdefault(plain, len(self) + len(self.aliases)) if label is None else label


def matched_text(pairs: Iterable[tuple[str, str]], most: int = 5) -> str:
    """Return names and the classes that they were taken for, the first few written out.

    Example:
        >>> matched_text([("Cats", "cat")])
        "'Cats' as cat"
    """
    texts = [f"{name!r} as {label}" for name, label in pairs]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def class_name(labels: Labels | None, label: int | None) -> str:
    """Return the display name of a label: "class N" if there is no name, "nothing" for None.

    Example:
        >>> class_name(labels(["cat", "dog"]), 1), class_name(None, 7), class_name(None, None)
        ('dog', 'class 7', 'nothing')
    """
    if label is None:
        return "nothing"
    return labels.names[label] if labels is not None and 0 <= label < len(labels) else f"class {label}"


def open_labels(more: Iterable[str] = ()) -> OpenLabels:
    """Return a label space of ImageNet's 1000 classes and ``more``, which accepts any other class as well."""
    base = imagenet()
    extra = tuple(name for name in more if name not in base.ids)
    return OpenLabels((*base.ids, *extra), (*base.names, *extra))


def _unique_aliases(synonyms: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Map each normalised synonym that belongs to exactly one class to its label."""
    owners: dict[str, set[int]] = {}
    for i, name in synonyms:
        owners.setdefault(_plain(name), set()).add(i)
    return {name: next(iter(labels)) for name, labels in owners.items() if len(labels) == 1}


@functools.cache
def imagenet() -> Labels:
    """Return the 1000 classes of ILSVRC-2012: WordNet ids in the usual order, with WordNet's names."""
    rows = files("sorites.core").joinpath("imagenet.tsv").read_text(encoding="utf-8").splitlines()
    ids, lemmas = zip(*(row.split("\t") for row in rows), strict=True)
    synonyms = ((i, name) for i, all_names in enumerate(lemmas) for name in all_names.split(", "))
    names = [all_names.split(", ")[0] for all_names in lemmas]
    for i, id_ in enumerate(ids):
        if id_ in AMBIGUOUS_NAMES:
            names[i] = AMBIGUOUS_NAMES[id_]
    return Labels(ids, tuple(names), _unique_aliases(synonyms))


@functools.cache
def coco() -> Labels:
    """Return the 80 classes of COCO in the order in which detectors number them from 0; VOC's names are
    aliases.
    """
    names = [line.split("\t")[1].split(", ") for line in _coco_lines()]
    aliases = _unique_aliases((i, name) for i, all_names in enumerate(names) for name in all_names[1:])
    ids = tuple(all_names[0] for all_names in names)
    return Labels(ids, ids, aliases)


@functools.cache
def coco_category_ids() -> tuple[int, ...]:
    """Return the category ids of COCO's files (1 to 90 with gaps) in the order of ``coco``."""
    return tuple(int(line.split("\t")[0]) for line in _coco_lines())


@functools.cache
def _class_lists() -> dict[str, tuple[str, ...]]:
    """Return the WordNet ids of published subsets of ImageNet by name, in the order of ImageNet.

    Their sources are the evaluation scripts of ImageNet-A and ImageNet-R (Hendrycks et al. 2021), the list of
    Tian et al. 2020 (CMC) for ImageNet-100, and OpenOOD v1.5, whose ImageNet-200 has the classes of
    ImageNet-R.
    """
    rows = files("sorites.core").joinpath("class_lists.tsv").read_text(encoding="utf-8").splitlines()
    return {name: tuple(ids.split()) for name, ids in (row.split("\t") for row in rows)}


def imagenet_subset(name: str) -> Labels:
    """Return the classes of a published subset of ImageNet; a model's other classes are then masked.

    Args:
        name: ``"imagenet-100"``, ``"imagenet-200"``, ``"imagenet-a"`` or ``"imagenet-r"``.

    Example:
        >>> len(imagenet_subset("imagenet-a")), imagenet_subset("imagenet-r").find("tabby") >= 0
        (200, True)
    """
    whole, ids = imagenet(), _class_lists()[name]
    place = {whole.ids.index(id_): i for i, id_ in enumerate(ids)}
    aliases = {alias: place[i] for alias, i in whole.aliases.items() if i in place}
    return Labels(ids, tuple(whole.names[i] for i in place), aliases)


def _coco_lines() -> list[str]:
    return files("sorites.core").joinpath("coco.tsv").read_text(encoding="utf-8").splitlines()


# Names of the built-in label spaces.
SUBSETS = ("imagenet-100", "imagenet-200", "imagenet-a", "imagenet-r")
BUILT_IN = ("imagenet", "coco", *SUBSETS)

# Names by id for the three pairs of classes whose first WordNet name is the same.
AMBIGUOUS_NAMES = {
    "n02113186": "Cardigan (dog)",
    "n02963159": "cardigan (garment)",
    "n02012849": "crane (bird)",
    "n03126707": "crane (machine)",
    "n03710637": "maillot (suit)",
    "n03710721": "maillot (tank suit)",
}


def labels(spec: str | Iterable[str]) -> Labels:
    """Return a label space.

    Args:
        spec: ``"imagenet"``, ``"coco"``, a published subset of ImageNet (``"imagenet-a"``, ``"imagenet-r"``,
            ``"imagenet-100"``, ``"imagenet-200"``), the path of a text file with one class per line or of a
            JSON file of groups (``class_groups``), or the class names.

    Returns:
        The label space; label ``i`` is the ``i``-th class.

    Raises:
        SoritesError: The file does not exist, or the names are not distinct.

    Example:
        >>> labels(["cat", "dog"]).find("dog")
        1
    """
    if isinstance(spec, str):
        if spec in BUILT_IN:
            return _built_in(spec)
        if is_file(spec) and spec.lower().endswith(".json"):
            return _group_labels(class_groups(spec))
        if not is_file(spec):
            expected = f"expected {', '.join(BUILT_IN)} or a text file with one class name per line"
            raise SoritesError(f"labels: {expected}; there is no file {spec[:200]!r}")
        spec = lines(Path(spec), "labels as UTF-8 text with one class name per line")
    ids = tuple(line.strip() for line in spec if line.strip())
    if len(set(map(_plain, ids))) != len(ids) or not ids:
        raise SoritesError("labels: expected one or more distinct class names, one per line")
    imagenet_names = dict(zip(imagenet().ids, imagenet().names, strict=True))
    return Labels(ids, tuple(imagenet_names.get(id_, id_) for id_ in ids))


def _built_in(name: str) -> Labels:
    if name in SUBSETS:
        return imagenet_subset(name)
    return imagenet() if name == "imagenet" else coco()


WHAT_GROUPS = 'groups of classes as a JSON object of names and lists of classes: {"dog": ["n02085782"]}'


def class_groups(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Return the groups of classes (super-classes) of a JSON file, each with the ids or names of its classes.

    Args:
        path: A JSON file: ``{"dog": ["n02085782", "n02085936"], "cat": ["n02123045"]}``.

    Raises:
        SoritesError: The file is something else, or a class is in two groups.
    """
    content = json_file(Path(path), WHAT_GROUPS)
    groups: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for name, members in content.items() if isinstance(content, dict) else ():
        if not isinstance(members, list) or not members or not all(isinstance(one, str) for one in members):
            raise SoritesError(f"{path}: expected {WHAT_GROUPS}; {name} is {str(members)[:80]}")
        for one in members:
            if owner.setdefault(_plain(one), name) != name:
                raise SoritesError(f"{path}: {one} is in {owner[_plain(one)]} and in {name}; keep one")
        groups[name] = tuple(dict.fromkeys(members))
    if len({_plain(name) for name in groups}) != len(groups) or len(groups) < 2:
        raise SoritesError(f"{path}: expected {WHAT_GROUPS}, two or more with distinct names")
    return groups


def _group_labels(groups: dict[str, tuple[str, ...]]) -> Labels:
    """Return groups as labels; the classes of a group are aliases of it, as WordNet ids of folders are."""
    aliases = {_plain(one): i for i, members in enumerate(groups.values()) for one in members}
    return Labels(tuple(groups), tuple(groups), aliases)
