"""DeepAugment's pictures beside the originals: folders that the user made with the published scripts, one per network.

DeepAugment (Hendrycks et al., "The Many Faces of Robustness", ICCV 2021) sends pictures through a distorted image-to-image
network: CAE, a compressive autoencoder, and EDSR, for super-resolution. The scripts write class folder / name of the original,
and the training data are the originals followed by both folders.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from sorites.core import Picture
from sorites.errors import SoritesError, as_utf8
from sorites.reading.places import entries, is_dir, path_of, subfolders
from sorites.sources._decode import SUFFIXES, decode
from sorites.training.mixtures import Joined
from sorites.training.pictures import Pictures

FOLDERS = ("EDSR", "CAE")
"""The published folders, in the order in which they follow the originals."""


@dataclass(frozen=True)
class Distorted:
    """The pictures of one folder that belong to originals, each with the id of its original after the folder's name."""

    name: str
    files: Sequence[Path]
    originals: Sequence[str]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.files)

    def id(self, place: int) -> str:
        return f"{self.name}/{self.originals[place]}"

    def label(self, place: int) -> int:
        return self.labels[place]

    def picture(self, place: int, rng: np.random.Generator) -> Picture:
        return decode(self.files[place])


def deep_augmented(base: Pictures, root: str | Path, folders: Sequence[str] = FOLDERS) -> Joined:
    """Return the pictures followed by what the folders below ``root`` hold for them, matched by class folder and name.

    The suffix of a file may differ from the original's. Originals without a distorted picture are counted and reported in one
    warning per folder; a folder that has none of them is refused.
    """
    return Joined((base, *(_distorted(base, path_of(root) / folder) for folder in folders)))


def _distorted(base: Pictures, folder: Path) -> Distorted:
    if not is_dir(folder):
        raise SoritesError(
            f"wanted DeepAugment's pictures in {folder}, which is not there. Make them with its script "
            f"{folder.name}_distort_imagenet.py, in class folders, under the names of the originals."
        )
    known = _files(folder)
    found = [(place, known[_key(base.id(place))]) for place in range(len(base)) if _key(base.id(place)) in known]
    missing = len(base) - len(found)
    if not found:
        raise SoritesError(
            f"{folder} holds no picture of the {len(base)} originals. Wanted class folder / name, such as {base.id(0)}; "
            f"it has {min(known, default='no pictures in class folders')}."
        )
    if missing:
        lost = next(base.id(place) for place in range(len(base)) if _key(base.id(place)) not in known)
        warnings.warn(f"{folder.name}: {missing} of {len(base)} originals have no distorted picture, first {lost}", stacklevel=3)
    places = [place for place, _ in found]
    return Distorted(folder.name, [file for _, file in found], [base.id(p) for p in places], [base.label(p) for p in places])


def _key(id_: str) -> str:
    """Return the class folder and the name without its suffix: what an original and its distorted picture share."""
    path = PurePosixPath(id_)
    return f"{path.parent.name}/{path.stem}"


def _files(folder: Path) -> dict[str, Path]:
    files = (Path(entry.path) for inside in subfolders(folder) for entry in entries(inside))
    kept = (file for file in files if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."))
    return {_key(as_utf8(f"{file.parent.name}/{file.name}")): file for file in kept}
