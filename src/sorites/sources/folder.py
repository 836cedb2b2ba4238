"""Read a folder of images: class folders, file names that contain WordNet ids, or unlabelled images."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from sorites.core import FileRef, Sample, add_source
from sorites.core.errors import Notice, SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.packed import packed
from sorites.io.decode import SUFFIXES
from sorites.io.paths import (
    entries,
    is_dir,
    is_file,
    is_folder,
    links_are_followed,
    path_of,
    resolve,
    subfolders,
)
from sorites.io.stores import StorePath
from sorites.sources import sidecar
from sorites.sources.written import collected_digests, is_collection

_WNID = re.compile(r"(?:^|_)(n\d{8})(?=_|$)")
_NUMBERED = re.compile(r"(\d+|n\d{8})[_\- ]")

# The maximum number of folders reached through links: links that point to one another multiply quickly.
MAX_LINKED_FOLDERS = 10_000


@add_source
def folder(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read images in class folders, or flat with WordNet ids in their names, or without labels.

    A class folder is named by class id (``n02123045``), index (``281``, ``281_tabby``) or class name;
    all images below it have that class. An image outside class folders is labelled by a WordNet id in
    its name (``n02123045_tabby.JPEG``), otherwise it has no label. A dataset made by ``sorites build``
    is read through its sidecar. Samples are ordered by id, which is the path relative to the folder.
    Hidden files and other file types are skipped. Links that leave the folder are followed only if the
    suite says so (``follow_links``); otherwise they are skipped and named in a notice.
    """
    root = _root(path)
    if is_file(root / sidecar.NAME):
        return sidecar.read(root, labels)
    if isinstance(root, StorePath):
        return _on_store(root, labels)
    outside: list[Path] = []
    paths = sorted(
        (str(file.relative_to(root)) for file in _images(root, resolve(root), outside)), key=as_utf8
    )
    links = "1 link" if len(outside) == 1 else f"{len(outside)} links"
    note = (
        f"{links} leading out of {root} not followed, first {min(outside)};"
        f" {option('follow_links')} follows them"
        if outside
        else ""
    )
    if not paths:
        raise SoritesError(f"no images ({' '.join(SUFFIXES)}) in {root}{'; ' + note if note else ''}")
    if note:
        warnings.warn(Notice(note, code="links_not_followed", links=len(outside)), stacklevel=2)
    digests = collected_digests(root) if is_collection(root) else {}
    return packed(_samples(paths, root, labels, digests))


def _samples(
    paths: Iterable[str], root: Path, labels: Labels, digests: Mapping[str, str]
) -> Iterator[Sample]:
    """Yield samples lazily: there may be millions of paths."""
    by_name: dict[str, int | None] = {}
    # Paths are texts, because creating millions of ``Path`` objects takes minutes.
    above = str(root / "x")[:-1]
    for name in paths:
        id_ = as_utf8(name if os.sep == "/" else name.replace(os.sep, "/"))
        image = FileRef(above + name, digest=digests.get(name, ""))
        yield Sample(id_, image, _label(id_, by_name, root, labels))


def _on_store(root: StorePath, labels: Labels) -> list[Sample]:
    """Read images on a store with a single listing; ids and labels are the same as for a local folder."""
    listed = [(_id(root, file), file) for file in root.files()]
    images = [(id_, file) for id_, file in listed if id_.lower().endswith(SUFFIXES) and not _hidden(id_)]
    if not images:
        raise SoritesError(f"no images ({' '.join(SUFFIXES)}) in {root}")
    by_name: dict[str, int | None] = {}
    return [Sample(id_, FileRef(file), _label(id_, by_name, root, labels)) for id_, file in sorted(images)]


def _hidden(id_: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(id_).parts)


def _root(path: str | None) -> Path:
    if path is None:
        raise SoritesError(f"the folder source needs a path. Pass {option('source', 'folder:PATH')}")
    root = path_of(path)
    if isinstance(root, StorePath):
        return root
    if not is_dir(root):
        problem = "is a file" if is_file(root) else "does not exist"
        raise SoritesError(f"expected a folder of images, but {root} {problem}")
    return root


def _images(top: Path, root: Path, outside: list[Path]) -> Iterator[Path]:
    """Yield all images below ``top``, following links that stay inside ``root`` and form no cycle.

    Links that leave ``root`` are appended to ``outside``, or followed too within ``following_links``.
    """
    linked, anywhere = 0, links_are_followed()
    pending: list[tuple[Path, str, tuple[str, ...]]] = [(top, str(root), ())]
    while pending:
        where, here, above = pending.pop()
        if here in above:
            continue
        for entry in entries(where):
            if entry.name.startswith("."):
                continue
            real = os.path.realpath(entry) if entry.is_symlink() else os.path.join(here, entry.name)
            if entry.is_symlink() and not (anywhere or Path(real).is_relative_to(root)):
                outside.append(Path(entry))
            elif is_folder(entry):
                linked += entry.is_symlink()
                if linked > MAX_LINKED_FOLDERS:
                    raise SoritesError(
                        f"{top}: more than {MAX_LINKED_FOLDERS:,} folders reached through links, the last"
                        f" {entry.path}"
                    )
                pending.append((Path(entry), real, (*above, here)))
            elif entry.name.lower().endswith(SUFFIXES):
                yield Path(entry)


def _id(root: Path, file: Path) -> str:
    """Return the path relative to ``root``, with bytes that are not UTF-8 escaped."""
    return as_utf8(file.relative_to(root).as_posix())


def _label(id_: str, by_name: dict[str, int | None], root: Path, labels: Labels) -> int | None:
    parts = PurePosixPath(id_).parts
    name = parts[0] if len(parts) > 1 else "".join(_WNID.findall(PurePosixPath(id_).stem)[:1])
    if name not in by_name:
        by_name[name] = _class(name, root, labels) if name else None
    return by_name[name]


def _class(name: str, root: Path, labels: Labels) -> int:
    """Return the label called ``name``: by the whole name, or by its leading index or WordNet id."""
    numbered = _NUMBERED.match(name)
    if numbered and labels.get(name) is None and _is_label(numbered[1], labels):
        return labels.find(numbered[1])
    try:
        return labels.find(name)
    except SoritesError as error:
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
        return f"Its class folders are one level deeper. Pass {option('source', f'folder:{where}')}"
    return (
        f"For custom classes, list them in a text file, one per line, and pass {option('labels', 'FILE')} (in"
        ' a suite labels = "FILE").'
    )
