"""Read a folder of images: class folders, or names that carry a WordNet id, or no labels at all."""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from sorites.core import Sample, add_source
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.packed import packed
from sorites.io.paths import entries, is_dir, is_file, is_folder, path_of, resolved, subfolders
from sorites.io.stores import StorePath
from sorites.sources import sidecar
from sorites.sources.decode import SUFFIXES, decode

_WNID = re.compile(r"(?:^|_)(n\d{8})(?=_|$)")
_NUMBERED = re.compile(r"(\d+|n\d{8})[_\- ]")

# The most folders that are reached through links: a few that name one another would lead on for
# ever.
LINKS = 10_000


@add_source
def folder(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read images in class folders, or flat with WordNet ids in their names, or without labels.

    A class folder is named by class id (``n02123045``), position (``281``, ``281_tabby``) or class
    name; what lies deeper in it belongs to it. A loose image is labelled by a WordNet id in its
    name (``n02123045_tabby.JPEG``) and otherwise not at all. A dataset made by ``sorites build`` is
    read by its sidecar. Samples come in the order of their ids, which are their paths in the
    folder. Hidden files, other kinds of files and links to elsewhere are passed over.
    """
    root = _root(path)
    if is_file(root / sidecar.NAME):
        return sidecar.read(root, labels)
    if isinstance(root, StorePath):
        return _on_store(root, labels)
    outside: list[Path] = []
    found = sorted(
        (str(file.relative_to(root)) for file in _images(root, resolved(root), outside)), key=as_utf8
    )
    links = (
        "1 link that leads out of {} was"
        if len(outside) == 1
        else f"{len(outside)} links that lead out of {{}} were"
    )
    note = f"{links.format(root)} not followed, first {min(outside)}" if outside else ""
    if not found:
        raise SoritesError(
            f"there are no images ({' '.join(SUFFIXES)}) in {root}{'; ' + note if note else ''}"
        )
    if note:
        warnings.warn(note, stacklevel=2)
    return packed(_samples(found, root, labels))


def _samples(found: Iterable[str], root: Path, labels: Labels) -> Iterator[Sample]:
    """Yield the images by their paths in the folder; names alone are held meanwhile, since there
    may be millions.
    """
    by_name: dict[str, int | None] = {}
    for name in found:
        file = root / name
        id_ = _id(root, file)
        yield Sample(id_, functools.partial(decode, file), _label(id_, by_name, root, labels))


def _on_store(root: StorePath, labels: Labels) -> list[Sample]:
    """Read the images below a place on a store, by one listing; ids and labels are those of the
    same folder on a disk.
    """
    listed = [(_id(root, file), file) for file in root.files()]
    found = [(id_, file) for id_, file in listed if id_.lower().endswith(SUFFIXES) and not _hidden(id_)]
    if not found:
        raise SoritesError(f"there are no images ({' '.join(SUFFIXES)}) in {root}")
    by_name: dict[str, int | None] = {}
    return [
        Sample(id_, functools.partial(decode, file), _label(id_, by_name, root, labels))
        for id_, file in sorted(found)
    ]


def _hidden(id_: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(id_).parts)


def _root(path: str | None) -> Path:
    if path is None:
        raise SoritesError("the folder source needs a path. Type: --source folder:PATH")
    root = path_of(path)
    if isinstance(root, StorePath):
        return root
    if not is_dir(root):
        raise SoritesError(
            f"wanted a folder of images, got {root}, which"
            f" {'is a file' if is_file(root) else 'does not exist'}"
        )
    return root


def _images(top: Path, root: Path, outside: list[Path]) -> Iterator[Path]:
    """Yield every image below, through links that stay inside ``root`` and lead to none of the
    folders above them.

    Links that lead out of ``root`` are added to ``outside``.
    """
    linked = 0
    left: list[tuple[Path, str, tuple[str, ...]]] = [(top, str(root), ())]
    while left:
        where, here, above = left.pop()
        if here in above:
            continue
        for entry in entries(where):
            if entry.name.startswith("."):
                continue
            real = os.path.realpath(entry) if entry.is_symlink() else os.path.join(here, entry.name)
            if entry.is_symlink() and not Path(real).is_relative_to(root):
                outside.append(Path(entry))
            elif is_folder(entry):
                linked += entry.is_symlink()
                if linked > LINKS:
                    raise SoritesError(
                        f"{top}: more than {LINKS:,} folders are reached through links, the last {entry.path}"
                    )
                left.append((Path(entry), real, (*above, here)))
            elif entry.name.lower().endswith(SUFFIXES):
                yield Path(entry)


def _id(root: Path, file: Path) -> str:
    """Return the id of a file; names that are not UTF-8 keep their bytes as escapes, so that any
    table can hold them.
    """
    return as_utf8(file.relative_to(root).as_posix())


def _label(id_: str, by_name: dict[str, int | None], root: Path, labels: Labels) -> int | None:
    parts = PurePosixPath(id_).parts
    name = parts[0] if len(parts) > 1 else "".join(_WNID.findall(PurePosixPath(id_).stem)[:1])
    if name not in by_name:
        by_name[name] = _class(name, root, labels) if name else None
    return by_name[name]


def _class(name: str, root: Path, labels: Labels) -> int:
    """Return the label called ``name``: by the whole name, or by the number or WordNet id it starts with."""
    try:
        return labels.find(name)
    except SoritesError as error:
        numbered = _NUMBERED.match(name)
        if numbered and _is_label(numbered[1], labels):
            return labels.find(numbered[1])
        raise SoritesError(f"{root / name}: {error} {_advice(root / name, labels)}") from None


def _is_label(name: str, labels: Labels) -> bool:
    try:
        return labels.find(name) >= 0
    except SoritesError:
        return False


def _advice(where: Path, labels: Labels) -> str:
    deeper = (
        not isinstance(where, StorePath)
        and is_dir(where)
        and any(_is_label(folder.name, labels) for folder in subfolders(where))
    )
    if deeper:
        return f"Its class folders lie one deeper. Type: --source folder:{where}"
    return (
        "Are these your own classes? Write them to a text file, one per line, and give it with --labels FILE "
        '(in a suite labels = "FILE").'
    )
