"""Seventeen photographs of ImageNet classes from the PyPI package ``foolbox``, for machines without apt-get.

Suites whose images are the ``stamps`` use them if Debian's package cannot be fetched. The table
``foolbox.tsv`` contains the labels: those of the file names, without three photographs that do not clearly
show their class (a laced shoe as a loafer, coloured glass as a prayer rug, a bird too small to tell), and
with two acceptable second classes. The package is under the MIT licence; it names no authors of the
photographs, so they are not part of Sorites.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from importlib.resources import files

from sorites.core import FileRef, Sample, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io import packages
from sorites.io.files import cache
from sorites.sources import stamps

NAME = "foolbox"
PACKAGE = "foolbox==3.3.4"
PACKAGE_SHA256 = "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb"
INSIDE = "foolbox/data"
ORIGIN = f"17 photographs from the PyPI package {PACKAGE} (MIT; it names no authors of the photographs)"
NOTE = (
    f"Fetching 17 photographs of ImageNet classes: the wheel {PACKAGE}, 1.7 MB, MIT licence (it names no"
    " authors of the photographs). It is not installed."
)


@dataclass(frozen=True)
class Photograph:
    """A row of the table; ``label`` and ``accept`` are WordNet ids."""

    file: str
    label: str
    accept: tuple[str, ...]
    sha256: str


@functools.cache
def table() -> tuple[Photograph, ...]:
    """Return the rows of ``foolbox.tsv``."""
    lines = files("sorites.sources").joinpath("foolbox.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple(Photograph(file, label, tuple(accept.split(",")), sha) for file, label, accept, sha in rows)


@add_source
def foolbox(path: str | None, labels: Labels) -> list[Sample]:
    """Read 17 photographs of ImageNet classes from the PyPI package foolbox, which needs no apt-get."""
    if path is not None:
        raise SoritesError(f'expected "foolbox", got "foolbox:{path}"')
    label_of = {id_: i for i, id_ in enumerate(labels.ids)}
    chosen = [photograph for photograph in table() if photograph.label in label_of]
    if not chosen:
        raise SoritesError(
            "the photographs are labelled by WordNet id (n02110341), but none of these ids is among the"
            f' labels. Pass {option("labels", "imagenet")}, or set labels = "imagenet" in the suite.'
        )
    root = cache(NAME)
    wanted = {photograph.file: photograph.sha256 for photograph in table()}
    packages.fetch_from_wheel(sys.executable, PACKAGE, PACKAGE_SHA256, INSIDE, wanted, root, NOTE)
    return [
        Sample(
            id=photograph.file,
            image=FileRef(root / photograph.file),
            label=label_of[photograph.label],
            accept=frozenset(label_of[id_] for id_ in photograph.accept if id_ in label_of),
            split="test",
        )
        for photograph in chosen
    ]


def usual_or_foolbox(source: str) -> str:
    """Return ``foolbox`` in place of ``stamps`` if the stamps can neither be fetched nor are in the cache."""
    return NAME if source == "stamps" and not stamps.available() else source


def instead_note(suite: str) -> str:
    """Return what to tell a user whose suite uses these photographs in place of the stamps."""
    return (
        f"not the usual photographs of {suite}: this machine has no apt-get to fetch Debian's"
        f" {stamps.PACKAGE}, so {len(table())} photographs from the PyPI package {PACKAGE} are used"
        f" ({option('source', NAME)}). Their numbers are not comparable with those of the usual ones."
        f" {packages.OWN_IMAGES_HINT}"
    )
