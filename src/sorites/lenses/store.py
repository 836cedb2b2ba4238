"""The set of lenses: traced once, one safetensors file a lens, ranked by quality, and a subset spread evenly over it."""

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
from sorites.optics.tracing.positions import PERCENT
from sorites.rng import digest

if TYPE_CHECKING:
    import polars as pl


SUFFIX = ".safetensors"
ERRORS = (".decentre", ".tilt", ".spacing")
"""Ends of names that are no lenses but production errors of one (``sorites lens tolerance``)."""
ARRAYS = ("kernels", "mtf", "zernike", "zernike12")
ABOUT = ("efl_mm", "f_number", "fov_deg", "pitch_um", "pixels", "mtf50", "quality", "lens", "layout")
VERSION = 3
"""Changes whenever a tap of the built-in lenses does, or how kernels are laid on a picture."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A traced lens: its arrays (``kernels``, ``mtf``, ``zernike``, ``zernike12``) and what is known of it as ``about``."""

    name: str
    arrays: Mapping[str, NDArray[np.float32]]
    about: Mapping[str, Any]

    @property
    def quality(self) -> float:
        return float(self.about["quality"])


def builtin() -> Path:
    """The folder of the lenses that come with us: optiland's photographic objectives, traced."""
    return Path(str(files("sorites.lenses").joinpath("traced", "objectives")))


def held(folder: Path) -> list[str]:
    """The lenses in a folder, by name; production errors of a lens may lie beside it."""
    found = (path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
    return sorted(name for name in found if not name.endswith(ERRORS))


def names(folder: Path) -> list[str]:
    """The lenses in a folder, by name; none is an error that says how to get some."""
    found = held(folder)
    if not found:
        raise SoritesError(f'no lenses in {folder}. Make some with "sorites lens import FILE.zmx --out {folder}".')
    return found


def load(folder: Path, name: str) -> Entry:
    """One lens of a folder."""
    from safetensors import SafetensorError, safe_open

    path = folder / f"{name}{SUFFIX}"
    if not path.is_file():
        if name in (refused := reasons(folder)):
            raise SoritesError(f"the lens {name} was refused: {refused[name]}")
        given = "" if folder == builtin() else f" --lenses {folder}"
        raise UnknownName("lens", name, names(folder), f'See "sorites lens list{given}".')
    try:
        with safe_open(str(path), framework="numpy") as file:
            arrays = {key: np.asarray(file.get_tensor(key), np.float32) for key in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})["about"])
    except (SafetensorError, KeyError, OSError, ValueError) as error:
        raise SoritesError(f"cannot read the lens {path}: {error}") from error
    missing = [key for key in ARRAYS if key not in arrays] + [key for key in ABOUT if key not in about]
    if missing:
        raise SoritesError(f"{path} is no traced lens: it has no {missing[0]}")
    kernels = arrays["kernels"]
    arrays["kernels"] = kernels / kernels.sum((-2, -1), keepdims=True, dtype=np.float64).astype(np.float32)
    return Entry(name, arrays, about)


def version(folder: Path) -> str:
    """A word that changes with any of the folder's lenses."""
    if folder == builtin():
        return f"{VERSION}"
    return digest(VERSION, *(f"{name} {(folder / (name + SUFFIX)).read_bytes().hex()}" for name in names(folder))).hex()


def save(entry: Entry, folder: Path, small: bool = False) -> Path:
    """Write an entry; ``small`` keeps its kernels in half precision (they are normalised again on reading)."""
    from safetensors.numpy import save as packed

    kind = np.float16 if small else np.float32
    arrays = {key: np.ascontiguousarray(value, kind) for key, value in entry.arrays.items()}
    path = folder / f"{entry.name}{SUFFIX}"
    write_bytes(packed(arrays, {"about": json.dumps(entry.about)}), path)
    return path


def ranked(folder: Path) -> pl.DataFrame:
    """The lenses of a folder by falling quality, and behind them those that were refused, with the reason."""
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
    """The prescriptions that were refused, with why."""
    import polars as pl

    sheet = folder / "refused.csv"
    if not sheet.is_file():
        return {}
    table = pl.read_csv(sheet, infer_schema=False)
    return dict(zip(table["lens"], table["reason"], strict=True))


def selected(qualities: Mapping[str, float], n: int) -> list[str]:
    """``n`` lenses nearest to places spread evenly from the least quality to the greatest, each lens once, by rising quality."""
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
    """Where a lens stands among defocus with spherical aberration, astigmatism and coma (a unit vector), and the vector's length
    in waves, at one of the five fields: the colours' mean, and of each pair of coefficients the larger."""
    mean = np.abs(zernike[field].mean(0))
    pairs = np.array([max(mean[i - 1], mean[j - 1]) for i, j in ((4, 9), (5, 6), (7, 8))])
    size = float(np.linalg.norm(pairs))
    return (pairs / size if size else pairs).tolist(), size
