"""The set of traced lenses: one safetensors file per lens, ranked by quality, with subsets spread evenly over the quality."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError, UnknownName
from sorites.files import write_bytes
from sorites.lenses.facts import lens_arrays, lens_facts
from sorites.optics.tracing.positions import PERCENT
from sorites.reading.places import entries, is_dir, is_file
from sorites.reading.tensors import tensors
from sorites.rng import digest

if TYPE_CHECKING:
    import polars as pl


SUFFIX = ".safetensors"
ERRORS = (".decentre", ".tilt", ".spacing")
"""Endings of names that are not lenses but production errors of a lens (``sorites lens tolerance``)."""
ARRAYS = ("kernels", "mtf", "zernike", "zernike12")
ABOUT = ("efl_mm", "f_number", "fov_deg", "pitch_um", "pixels", "mtf50", "quality", "lens", "layout")
VERSION = 3
"""Changes whenever a tap of the built-in lenses changes, or the way kernels are applied to a picture."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A traced lens: its arrays (``kernels``, ``mtf``, ``zernike``, ``zernike12``) and facts about it (``about``)."""

    name: str
    arrays: Mapping[str, NDArray[np.float32]]
    about: Mapping[str, Any]

    @property
    def quality(self) -> float:
        """The mean over the fields of the kernels' MTF50, in cycles per pixel."""
        return float(self.about["quality"])


def builtin() -> Path:
    """Return the folder of the lenses that come with Sorites: optiland's photographic objectives, traced."""
    return Path(str(files("sorites.lenses").joinpath("traced", "objectives")))


def existing_names(folder: Path) -> list[str]:
    """Return the names of the lenses in a folder, which may be none; production errors of a lens do not count as lenses."""
    if not is_dir(folder):
        return []
    found = (entry.name.removesuffix(SUFFIX) for entry in entries(folder) if entry.name.endswith(SUFFIX))
    return sorted(name for name in found if not name.endswith(ERRORS))


def names(folder: Path) -> list[str]:
    """Return the names of the lenses in a folder; an empty folder raises an error that says how to get some."""
    found = existing_names(folder)
    if not found:
        raise SoritesError(f'no lenses in {folder}. Make some with "sorites lens import FILE.zmx --out {folder}".')
    return found


def load(folder: Path, name: str) -> Entry:
    """Load one lens of a folder; every kernel sums to 1."""
    path = folder / f"{name}{SUFFIX}"
    if not is_file(path):
        if name in (refused := reasons(folder)):
            raise SoritesError(f"the lens {name} was refused: {refused[name]}")
        given = "" if folder == builtin() else f" --lenses {folder}"
        raise UnknownName("lens", name, names(folder), f'See "sorites lens list{given}".')
    held, header = tensors(path)
    arrays, about = lens_arrays(held, path), lens_facts(header, path)
    kernels = arrays["kernels"]
    arrays["kernels"] = kernels / kernels.sum((-2, -1), keepdims=True, dtype=np.float64).astype(np.float32)
    return Entry(name, arrays, about)


def version(folder: Path) -> str:
    """Return a version string that changes with any of the folder's lenses."""
    if folder == builtin():
        return f"{VERSION}"
    return digest(VERSION, *(f"{name} {(folder / (name + SUFFIX)).read_bytes().hex()}" for name in names(folder))).hex()


def save(entry: Entry, folder: Path, small: bool = False) -> Path:
    """Write an entry and return its path; ``small`` stores arrays in half precision (kernels are normalised again on loading)."""
    from safetensors.numpy import save as packed

    kind = np.float16 if small else np.float32
    arrays = {key: np.ascontiguousarray(value, kind) for key, value in entry.arrays.items()}
    path = folder / f"{entry.name}{SUFFIX}"
    write_bytes(packed(arrays, {"about": json.dumps(entry.about)}), path)
    return path


def ranked(folder: Path) -> pl.DataFrame:
    """Return a table of the lenses of a folder by falling quality, followed by the refused prescriptions with their reasons."""
    import polars as pl

    rows = []
    for name in names(folder):
        about = load(folder, name).about
        plain = {key: float(about[key]) for key in ("efl_mm", "f_number", "fov_deg", "pitch_um")}
        fields = {f"mtf50_{percent:02d}": float(v) for percent, v in zip(PERCENT, about["mtf50"], strict=True)}
        rows.append({"name": name, **plain, "pixels": int(about["pixels"]), **fields, "quality": float(about["quality"])})
    table = pl.DataFrame(rows).sort("quality", "name", descending=[True, False])
    refused = reasons(folder)
    if not refused:
        return table
    return pl.concat([table, pl.DataFrame({"name": list(refused), "refused": list(refused.values())})], how="diagonal")


def reasons(folder: Path) -> dict[str, str]:
    """Return the reason of each refused prescription of a folder, by name."""
    from sorites.reading.frames import csv

    sheet = folder / "refused.csv"
    if not is_file(sheet):
        return {}
    table = csv(sheet)
    if lost := [name for name in ("lens", "reason") if name not in table.columns]:
        raise SoritesError(
            f"{sheet}: wanted the columns lens and reason; {lost[0]} missing. Delete the file to go on without it."
        )
    return {lens: reason or "" for lens, reason in table.select("lens", "reason").rows() if lens}


def selected(qualities: Mapping[str, float], n: int) -> list[str]:
    """Select the ``n`` lenses nearest to values spread evenly from the lowest quality to the highest, each lens at most once, and
    return them by rising quality."""
    if not 1 <= n <= len(qualities):
        raise SoritesError(f"select: wanted 1 to {len(qualities)} lenses, got {n}")
    left = dict(sorted(qualities.items(), key=lambda item: (item[1], item[0])))
    low, high = min(left.values()), max(left.values())
    chosen: list[str] = []
    for place in np.linspace(low, high, n) if n > 1 else [(low + high) / 2]:
        nearest = min(left, key=lambda name: (abs(left[name] - place), name))
        chosen.append(nearest)
        del left[nearest]
    return sorted(chosen, key=lambda name: (qualities[name], name))


def coefficient_space(zernike: NDArray[np.float32], field: int = 2) -> tuple[Sequence[float], float]:
    """Return the balance of a lens between defocus with spherical aberration, astigmatism and coma (a unit vector), and the
    vector's length in waves, at one of the five fields. Colours are averaged, and the larger coefficient of each pair counts."""
    mean = np.abs(zernike[field].mean(0))
    pairs = np.array([max(mean[i - 1], mean[j - 1]) for i, j in ((4, 9), (5, 6), (7, 8))])
    size = float(np.linalg.norm(pairs))
    return (pairs / size if size else pairs).tolist(), size
