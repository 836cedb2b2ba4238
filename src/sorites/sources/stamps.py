"""The default images: photographs cut out along their outlines, from Debian's
``tuxpaint-stamps-default`` (GPL-2+).

The table ``stamps.tsv`` says what each of them shows. We made it: real photographs only (no
drawings, no renderings), labelled by eye, without those that a fair judge could argue about.
``accept`` are the classes that such a judge would take. The package is fetched once; only the
images that the table names are kept, in the user's cache.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sorites.core import Attr, ImageU8, Sample, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.io import packages as debian
from sorites.io.files import cache
from sorites.sources.decode import decode_rgba, on_ground

PACKAGE = "tuxpaint-stamps-default"
INSIDE = "usr/share/tuxpaint/stamps"
NOTE = (
    f"Fetching photo cut-outs: Debian's {PACKAGE}, 161 MB, under the GPL, version 2 or later. It is not"
    " installed."
)


@dataclass(frozen=True)
class Stamp:
    """One row of the table; ``label`` and ``accept`` are WordNet ids, both are empty if ImageNet
    has no class for it.
    """

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


@add_source
def stamps(path: str | None, labels: Labels) -> list[Sample]:
    """Read photo cut-outs on grey, the default source; ``stamps:unknown`` are those that show none
    of ImageNet's classes.
    """
    split = {None: "test", "unknown": "unknown"}.get(path)
    if split is None:
        raise SoritesError(f'wanted "stamps" or "stamps:unknown", got "stamps:{path}"')
    place = {id_: i for i, id_ in enumerate(labels.ids)}
    chosen = [
        stamp for stamp in table() if stamp.split == split and (not stamp.label or stamp.label in place)
    ]
    if not chosen:
        raise SoritesError(
            "stamps are labelled by WordNet id (n02129165), and none of these is in the labels. "
            'Type: --labels imagenet (in a suite labels = "imagenet")'
        )
    root = cache("stamps")
    debian.fetch(PACKAGE, INSIDE, {stamp.file: stamp.sha256 for stamp in table()}, root, NOTE)
    return [_sample(stamp, root, place) for stamp in chosen]


def _sample(stamp: Stamp, root: Path, place: dict[str, int]) -> Sample:
    path = root / stamp.file
    return Sample(
        id=stamp.file,
        load=functools.partial(image, path),
        label=place.get(stamp.label),
        accept=frozenset(place[id_] for id_ in stamp.accept if id_ in place),
        split=stamp.split,
        alpha=functools.partial(alpha, path),
    )


def image(path: Path) -> ImageU8:
    """Return the cut-out on the neutral ground of ``decode``."""
    return on_ground(compose(decode_rgba(path)))


def alpha(path: Path) -> NDArray[np.uint8]:
    """Return the mask of the cut-out; its pixels match those of ``image``."""
    return compose(decode_rgba(path))[..., 3]


def compose(rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Trim to what is visible and set it in the middle of an empty square, 8/7 of its longer side.

    The centre crop that models are used to, 7/8 of the shorter side, then holds the whole object and no more.
    """
    rows, columns = (np.flatnonzero(rgba[..., 3].any(axis)) for axis in (1, 0))
    cut = rgba[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = cut.shape[:2]
    side = -(-max(height, width) * 8 // 7)
    square = np.zeros((side, side, 4), np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = cut
    return square


# A second, small test of OOD score for ImageNet classifiers: cut-outs that show one of its classes, and
# others that show none.


@add_source
def stamps_ood(path: str | None, labels: Labels) -> list[Sample]:
    """Read photo cut-outs of ImageNet's classes and of none of them, each in the group in-distribution,
    near or far.
    """
    if path is not None:
        raise SoritesError(f'wanted "stamps_ood", got "stamps_ood:{path}"')
    return [_grouped(sample) for part in (None, "unknown") for sample in stamps(part, labels)]


def _grouped(sample: Sample) -> Sample:
    return replace(sample, attrs=(*sample.attrs, Attr("group", group(sample.id, sample.split))))


def group(file: str, split: str) -> str:
    """Return the group of an image: in-distribution, near or far."""
    if split != "unknown":
        return "id"
    return "near" if _folder(file) in {_folder(stamp.file) for stamp in table() if stamp.label} else "far"


def _folder(file: str) -> tuple[str, ...]:
    return PurePosixPath(file).parent.parts[:2]
