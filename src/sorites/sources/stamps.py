"""The default images: photographs of cut-out objects from Debian's ``tuxpaint-stamps-default`` (GPL-2+).

The table ``stamps.tsv`` contains their labels. It was made by hand: only real photographs (no
drawings or renderings), without ambiguous objects; ``accept`` lists further acceptable classes. The
package is downloaded once, and the images in the table are stored in the user's cache.
"""

from __future__ import annotations

import functools
import shutil
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sorites.core import Attr, FileRef, Generated, ImageU8, Sample, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io import packages as debian
from sorites.io.decode import decode_rgba, on_ground
from sorites.io.files import cache

PACKAGE = "tuxpaint-stamps-default"
INSIDE = "usr/share/tuxpaint/stamps"
ORIGIN = f"photo cut-outs from Debian's {PACKAGE} (GPL, version 2 or later)"
NOTE = (
    f"Fetching photo cut-outs: Debian's {PACKAGE}, 161 MB, under the GPL, version 2 or later. It is not"
    " installed."
)


@dataclass(frozen=True)
class Stamp:
    """A row of the table; ``label`` and ``accept`` are WordNet ids, empty if ImageNet has no such class."""

    file: str
    label: str
    accept: tuple[str, ...]
    split: str
    sha256: str


@functools.cache
def table() -> tuple[Stamp, ...]:
    """Return the rows of ``stamps.tsv``."""
    lines = files("sorites.sources").joinpath("stamps.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple(
        Stamp(file, label, tuple(filter(None, accept.split(","))), *rest)
        for file, label, accept, *rest in rows
    )


def available() -> bool:
    """Return whether the stamps can be fetched (with apt-get) or are in the cache."""
    if shutil.which("apt-get") is not None:
        return True
    return not debian.missing({stamp.file: stamp.sha256 for stamp in table()}, cache("stamps"))


@add_source
def stamps(path: str | None, labels: Labels) -> list[Sample]:
    """Read photo cut-outs on grey, the default source; ``stamps:unknown`` are objects outside the
    ImageNet classes.
    """
    split = {None: "test", "unknown": "unknown"}.get(path)
    if split is None:
        raise SoritesError(f'expected "stamps" or "stamps:unknown", got "stamps:{path}"')
    label_of = {id_: i for i, id_ in enumerate(labels.ids)}
    chosen = [
        stamp for stamp in table() if stamp.split == split and (not stamp.label or stamp.label in label_of)
    ]
    if not chosen:
        raise SoritesError(
            "stamps are labelled by WordNet id (n02129165), but none of these ids is among the labels. Pass"
            f' {option("labels", "imagenet")}, or set labels = "imagenet" in the suite.'
        )
    root = cache("stamps")
    debian.fetch(PACKAGE, INSIDE, {stamp.file: stamp.sha256 for stamp in table()}, root, NOTE)
    return [_sample(stamp, root, label_of) for stamp in chosen]


def _sample(stamp: Stamp, root: Path, label_of: dict[str, int]) -> Sample:
    path = root / stamp.file
    return Sample(
        id=stamp.file,
        image=Generated(image, (FileRef(path),)),
        label=label_of.get(stamp.label),
        accept=frozenset(label_of[id_] for id_ in stamp.accept if id_ in label_of),
        split=stamp.split,
        alpha=functools.partial(alpha, FileRef(path)),
    )


def image(file: FileRef) -> ImageU8:
    """Return the cut-out on the neutral grey of ``decode``."""
    return on_ground(compose(decode_rgba(file.path)))


def alpha(file: FileRef) -> NDArray[np.uint8]:
    """Return the mask of the cut-out, aligned with ``image``."""
    return compose(decode_rgba(file.path))[..., 3]


def compose(rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Trim to the visible part and centre it in an empty square, 8/7 of its longer side.

    The usual centre crop of models, 7/8 of the shorter side, then contains exactly the whole object.
    """
    rows, columns = (np.flatnonzero(rgba[..., 3].any(axis)) for axis in (1, 0))
    cut = rgba[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = cut.shape[:2]
    side = -(-max(height, width) * 8 // 7)
    square = np.zeros((side, side, 4), np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = cut
    return square


# A small OOD test for ImageNet classifiers: cut-outs of its classes, and of objects outside them.


@add_source
def stamps_ood(path: str | None, labels: Labels) -> list[Sample]:
    """Read photo cut-outs inside and outside the ImageNet classes, each in the group id, near or far."""
    if path is not None:
        raise SoritesError(f'expected "stamps_ood", got "stamps_ood:{path}"')
    return [_grouped(sample) for part in (None, "unknown") for sample in stamps(part, labels)]


def _grouped(sample: Sample) -> Sample:
    return replace(sample, attrs=(*sample.attrs, Attr("group", group(sample.id, sample.split))))


def group(file: str, split: str) -> str:
    """Return the group of an image: id, near (shares a folder with a labelled stamp) or far."""
    if split != "unknown":
        return "id"
    return "near" if _folder(file) in {_folder(stamp.file) for stamp in table() if stamp.label} else "far"


def _folder(file: str) -> tuple[str, ...]:
    return PurePosixPath(file).parent.parts[:2]
