"""Production errors of one lens: its blurs as designed and with one element moved step by step, one safetensors file a kind."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError, UnknownName
from sorites.files import write_bytes
from sorites.progress import Bar
from sorites.rng import digest

if TYPE_CHECKING:
    import polars as pl

    from sorites.optics.tracing.lens import Lens

SUFFIX = ".safetensors"
VERSION = 2
"""Changes whenever a tap of the built-in tolerances does, or how kernels are laid on a picture."""
TOLD = ("lens", "element", "kind", "unit", "stops", "field", "azimuths")
"""What every file says of itself; azimuths are the traced ones, in degrees from x, and the element moves toward 90."""


@dataclass(frozen=True, eq=False)
class Tolerance:
    """``kernels``: stop x place x colour x y x x, stop 0 being the lens as designed, place 0 the axis and the others the traced
    azimuths of one field. ``mtf50``: stop x place, cycles/pixel. ``about``: lens, element, kind, unit, stops, field and more."""

    kernels: NDArray[np.float32]
    mtf50: NDArray[np.float32]
    about: Mapping[str, Any]

    @functools.cached_property
    def stops(self) -> tuple[float, ...]:
        """0 and the traced ones."""
        return tuple(map(float, self.about["stops"]))

    def taps(self, severity: float, azimuth: int | None) -> NDArray[np.float64]:
        """The kernel at a severity and an azimuth, or on the axis (None): the two neighbouring stops' on a straight line."""
        (low, share), (place, mirrored) = self._between(severity), self._place(azimuth)
        held = self.kernels[low : low + 2, place].astype(np.float64)
        mixed = (1 - share) * held[0] + share * held[1]
        return np.asarray(mixed[..., ::-1] if mirrored else mixed)

    def sharpness(self, severity: float, azimuth: int | None) -> float:
        """MTF50 in cycles/pixel, on a straight line between stops."""
        return float(np.interp(severity, self.stops, self.mtf50[:, self._place(azimuth)[0]]))

    def _place(self, azimuth: int | None) -> tuple[int, bool]:
        """Which kernel stands there, and whether it is the mirror image: a lens moved along y is symmetric about the yz plane."""
        if azimuth is None:
            return 0, False
        traced = self.about["azimuths"]
        mirrored = azimuth not in traced
        return 1 + traced.index((180 - azimuth) % 360 if mirrored else azimuth), mirrored

    def _between(self, severity: float) -> tuple[int, float]:
        if not 0 <= severity <= self.stops[-1] * (1 + 1e-9):
            told = f"{self.about['lens']} was traced up to {self.stops[-1]:g} {self.about['unit']}"
            raise SoritesError(f"{self.about['kind']}: {told}, got {float(severity)!r}")
        low = min(int(np.searchsorted(self.stops, severity, side="right")) - 1, len(self.stops) - 2)
        return low, (severity - self.stops[low]) / (self.stops[low + 1] - self.stops[low])


def builtin() -> Path:
    """The folder of the tolerances that come with us."""
    return Path(str(files("sorites.lenses").joinpath("traced", "tolerances")))


def around(about: Mapping[str, Any]) -> tuple[int, ...]:
    """The azimuths of the field: the traced ones and their mirror images."""
    return tuple(sorted({turn % 360 for one in about["azimuths"] for turn in (one, 180 - one)}))


def find(where: Path, kind: str) -> Path:
    """The file of a kind in a folder, or the file itself."""
    if where.is_file():
        came = about(where)["kind"]
        if came != kind:
            raise SoritesError(f"{where} holds {came}, wanted {kind}: give a folder with both, or only --shift {came}")
        return where
    found = sorted(where.glob(f"*.{kind}{SUFFIX}"))
    if not found:
        raise SoritesError(f'no {kind} in {where}. Trace it with "sorites lens tolerance LENS --of {kind} --out {where}".')
    if len(found) > 1:
        raise SoritesError(f"{where} holds {kind} of several lenses ({', '.join(one.name for one in found)}): name the file")
    return found[0]


def about(path: Path) -> dict[str, Any]:
    """What is known of a traced tolerance, without its kernels."""
    return dict(_opened(path, ())[1])


@functools.lru_cache(maxsize=32)
def load(path: Path) -> Tolerance:
    """A traced tolerance; every kernel sums to 1."""
    arrays, told = _opened(path, ("kernels", "mtf50"))
    kernels = arrays["kernels"]
    wanted = len(told["stops"]), 1 + len(told["azimuths"]), 3
    if kernels.shape[:3] != wanted or arrays["mtf50"].shape != wanted[:2]:
        raise SoritesError(f"cannot read the tolerance {path}: wanted kernels of {wanted}, got shape {kernels.shape}")
    return Tolerance(kernels / kernels.sum((-2, -1), keepdims=True), arrays["mtf50"], told)


def _opened(path: Path, names: Sequence[str]) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            arrays = {name: np.asarray(file.get_tensor(name), np.float32) for name in names}
            told = json.loads((file.metadata() or {})["about"])
            missing = [name for name in TOLD if name not in told]
    except (SafetensorError, KeyError, OSError, ValueError) as error:
        raise SoritesError(f"cannot read the tolerance {path}: {error}") from error
    if missing:
        raise SoritesError(f"cannot read the tolerance {path}: it does not say its {missing[0]}")
    return arrays, told


def version(path: Path) -> str:
    """A word that changes with the file."""
    return f"{VERSION}" if path.parent == builtin() else digest(VERSION, path.read_bytes().hex()).hex()


def save(made: Tolerance, folder: Path) -> Path:
    """Write ``LENS.KIND.safetensors``, kernels in half precision (they are normalised again on reading)."""
    from safetensors.numpy import save as packed

    path = folder / f"{made.about['lens']}.{made.about['kind']}{SUFFIX}"
    arrays: dict[str, NDArray[Any]] = {
        "kernels": np.ascontiguousarray(made.kernels, np.float16),
        "mtf50": np.ascontiguousarray(made.mtf50, np.float32),
    }
    write_bytes(packed(arrays, {"about": json.dumps(made.about)}), path)
    return path


def traced(
    name: str, kind: str, stops: Sequence[float], field: float, folder: Path, bar: Bar | None = None, **more: Any
) -> tuple[Tolerance, Path]:
    """What ``trace`` gives, kept in the folder; what the folder has from the same lens and settings is not traced again."""
    text = Path(name).read_bytes().hex() if Path(name).is_file() else name
    cause = digest(text, kind, list(stops), field, sorted(more.items(), key=str), VERSION).hex()
    path = folder / f"{Path(name).stem if text != name else name}.{kind}{SUFFIX}"
    if path.is_file():
        with suppress(SoritesError):
            if about(path).get("cause") == cause:
                return load(path), path
    made = trace(name, kind, stops, field, bar=bar, **more)
    return made, save(replace(made, about={**made.about, "cause": cause}), folder)


def trace(
    name: str,
    kind: str,
    stops: Sequence[float],
    field: float,
    element: int | None = None,
    refocus: bool = False,
    glasses: Mapping[str, tuple[float, float]] | None = None,
    bar: Bar | None = None,
) -> Tolerance:
    """A lens (a .zmx, or the name of one of optiland's objectives) with an element moved by each stop; without an element, the
    one that hurts most at the last stop."""
    from sorites.optics.tracing.tolerance import AZIMUTHS, UNITS, built, designed, elements, worst

    steps = [float(stop) for stop in stops]
    if kind not in UNITS:
        raise SoritesError(f"of: wanted {', '.join(UNITS)}, got {kind!r}")
    if not steps or any(low >= high for low, high in zip([0.0, *steps], steps, strict=False)) or not np.isfinite(steps[-1]):
        raise SoritesError(f"stops: wanted rising numbers above 0 such as 1,5,10, got {','.join(f'{one:g}' for one in steps)}")
    if not 0 < field <= 1:
        raise SoritesError(f"field: wanted a part of the half field of view above 0, up to 1, got {field:g}")
    tick = bar("tracing", 2 + len(steps)) if bar else lambda n: None
    lens = _lens(name, glasses or {})
    if element is not None and not 1 <= element <= len(elements(lens)):
        raise SoritesError(f"element: {lens.name} has {len(elements(lens))} glass elements, got {element}")
    nominal, pitch = designed(lens)
    moves = element or worst(nominal, kind, steps[-1], field, refocus)
    tick(1)
    made = built(nominal, pitch, moves, kind, steps, field, refocus, tick)
    told = {
        "lens": nominal.name,
        "element": moves,
        "elements": len(elements(nominal)),
        "chosen": element is None,
        "kind": kind,
        "unit": UNITS[kind],
        "stops": [0.0, *steps],
        "field": field,
        "azimuths": list(AZIMUTHS),
        "refocus": refocus,
        "pitch_um": pitch,
        "window_um": made.window_um,
        "focus_mm": list(made.focus_mm),
        "kept": made.kept,
        "mtf50": np.round(made.mtf50, 5).tolist(),
    }
    return Tolerance(made.kernels.astype(np.float32), made.mtf50.astype(np.float32), told)


def _lens(name: str, glasses: Mapping[str, tuple[float, float]]) -> Lens:
    from sorites.optics.tracing.assembly import OBJECTIVES, build, objective
    from sorites.optics.tracing.prescription import Glass, read

    if name in OBJECTIVES:
        return objective(name)
    if not Path(name).is_file():
        raise UnknownName("lens", name, OBJECTIVES, "Give a .zmx file or one of optiland's objectives.")
    return build(read(Path(name)), {key: Glass("", *value) for key, value in glasses.items()})


def table(made: Tolerance) -> pl.DataFrame:
    """A row a stop: MTF50 in cycles/pixel on the axis, at the field (mean over azimuths) and at its worst azimuth."""
    import polars as pl

    azimuths = around(made.about)
    field = np.array([[made.sharpness(stop, azimuth) for azimuth in azimuths] for stop in made.stops])
    columns = {"mtf50_axis": made.mtf50[:, 0].astype(float), "mtf50_field": field.mean(1), "mtf50_worst": field.min(1)}
    stops = {f"{made.about['kind']}_{made.about['unit']}": made.stops}
    rounded = {key: np.round(value, 4) for key, value in columns.items()}
    return pl.DataFrame({**stops, **rounded, "worst_at": [azimuths[int(i)] for i in field.argmin(1)]})
