"""Production errors of a lens: its blurs as designed and with one element moved, one safetensors file per
kind of error.

Steps are severities of the shift, in um or arc minutes; the files call them ``stops``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import command, option
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.paths import entries, is_dir, is_file
from sorites.io.sealed_tensors import NO_DIGEST, require_tensors, seal_tensors
from sorites.io.tables import tensors
from sorites.lenses.store import Kind, ToleranceRecord, tolerance_arrays, tolerance_record
from sorites.lenses.trace import Glasses, read_lens

if TYPE_CHECKING:
    import polars as pl

    from sorites.optics.tracing.lens import Lens

SUFFIX = ".safetensors"
TRACE_AGAIN = "Delete it and repeat the command that traced it."
# Increment when a tap of the built-in tolerances or the way kernels are applied changes.
VERSION = 2


@dataclass(frozen=True, eq=False)
class Tolerance:
    """A traced production error.

    Attributes:
        kernels: step x place x colour x y x x. Step 0 is the lens as designed; place 0 is the axis, the
            others are the traced azimuths of one field.
        mtf50: step x place, in cycles per pixel.
        about: Its metadata.
    """

    kernels: NDArray[np.float32]
    mtf50: NDArray[np.float32]
    about: ToleranceRecord

    @functools.cached_property
    def steps(self) -> tuple[float, ...]:
        """The traced severities, starting with 0."""
        return tuple(self.about.stops)

    def taps(self, severity: float, azimuth: int | None) -> NDArray[np.float64]:
        """Return the kernel at a severity and an azimuth (None: the axis), interpolated linearly between
        steps.
        """
        (low, share), (place, mirrored) = self._between(severity), self._place(azimuth)
        pair = self.kernels[low : low + 2, place].astype(np.float64)
        mixed = (1 - share) * pair[0] + share * pair[1]
        return np.asarray(mixed[..., ::-1] if mirrored else mixed)

    def sharpness(self, severity: float, azimuth: int | None) -> float:
        """Return the MTF50 in cycles per pixel, interpolated linearly between steps."""
        return float(np.interp(severity, self.steps, self.mtf50[:, self._place(azimuth)[0]]))

    def _place(self, azimuth: int | None) -> tuple[int, bool]:
        """Return the number of the kernel at an azimuth and whether to mirror it.

        A lens with an element moved along y is symmetric about the yz plane.
        """
        if azimuth is None:
            return 0, False
        traced = self.about.azimuths
        mirrored = azimuth not in traced
        return 1 + traced.index((180 - azimuth) % 360 if mirrored else azimuth), mirrored

    def _between(self, severity: float) -> tuple[int, float]:
        """Return the step below a severity, and the share of the way to the next step."""
        if not 0 <= severity <= self.steps[-1] * (1 + 1e-9):
            limit = f"{self.about.lens} was traced up to {self.steps[-1]:g} {self.about.unit}"
            raise SoritesError(f"{self.about.kind}: {limit}, got {float(severity)!r}")
        low = min(int(np.searchsorted(self.steps, severity, side="right")) - 1, len(self.steps) - 2)
        return low, (severity - self.steps[low]) / (self.steps[low + 1] - self.steps[low])


def builtin() -> Path:
    """Return the folder of the tolerances that come with Sorites."""
    return Path(str(files("sorites.lenses").joinpath("traced", "tolerances")))


def all_azimuths(about: ToleranceRecord) -> tuple[int, ...]:
    """Return all azimuths of the field: the traced ones and their mirror images."""
    return tuple(sorted({turn % 360 for azimuth in about.azimuths for turn in (azimuth, 180 - azimuth)}))


def find(where: Path, kind: str) -> Path:
    """Return the file of a kind of error in a folder; ``where`` may also be the file itself."""
    if is_file(where):
        own_kind = about(where).kind
        if own_kind != kind:
            raise SoritesError(
                f"{where} contains {own_kind}, expected {kind}; use a folder with both kinds, or only"
                f" {option('shifts', [own_kind])}"
            )
        return where
    suffix = f".{kind}{SUFFIX}"
    paths = (
        [Path(entry.path) for entry in entries(where) if entry.name.endswith(suffix)] if is_dir(where) else []
    )
    if not paths:
        raise SoritesError(
            f"no {kind} in {where}. Trace it with: {command('lens tolerance', 'LENS', of=kind, out=where)}"
        )
    if len(paths) > 1:
        raise SoritesError(
            f"{where} contains {kind} of several lenses ({', '.join(path.name for path in paths)}); pass one"
            " of these files"
        )
    return paths[0]


def about(path: Path) -> ToleranceRecord:
    """Read the metadata of a file, without the kernels."""
    return _read(path, ())[1]


@functools.lru_cache(maxsize=32)
def load(path: Path) -> Tolerance:
    """Load a traced tolerance; every kernel sums to 1."""
    arrays, info = _read(path, ("kernels", "mtf50"))
    kernels = arrays["kernels"]
    expected = len(info.stops), 1 + len(info.azimuths), 3
    if kernels.shape[:3] != expected or arrays["mtf50"].shape != expected[:2]:
        raise SoritesError(
            f"cannot read the tolerance {path}: expected kernels of {expected}, got shape {kernels.shape}"
        )
    return Tolerance(kernels / kernels.sum((-2, -1), keepdims=True), arrays["mtf50"], info)


def _read(path: Path, names: Sequence[str]) -> tuple[dict[str, NDArray[np.float32]], ToleranceRecord]:
    """Read the named arrays and the metadata of a file."""
    require_tensors(path, TRACE_AGAIN)
    arrays, header = tensors(path, names)
    return tolerance_arrays(arrays, path), tolerance_record(header, path)


def version(path: Path) -> str:
    """Return a version string that changes with the file."""
    return f"{VERSION}" if path.parent == builtin() else digest(VERSION, path.read_bytes().hex()).hex()


def save(tolerance: Tolerance, folder: Path) -> Path:
    """Write ``LENS.KIND.safetensors`` with kernels in half precision; they are normalised again on
    loading.
    """
    from safetensors.numpy import save as packed

    path = folder / f"{tolerance.about.lens}.{tolerance.about.kind}{SUFFIX}"
    arrays: dict[str, NDArray[Any]] = {
        "kernels": np.ascontiguousarray(tolerance.kernels, np.float16),
        "mtf50": np.ascontiguousarray(tolerance.mtf50, np.float32),
    }
    data = packed(arrays, {"about": tolerance.about.text(), **NO_DIGEST})
    write_bytes(seal_tensors(data), path)
    return path


def load_or_trace(
    name: str,
    kind: str,
    steps: Sequence[float],
    field: float,
    folder: Path,
    bar: Bar | None = None,
    **more: Any,
) -> tuple[Tolerance, Path]:
    """Return the tolerance of a lens from the folder, tracing and saving it unless the same lens and settings
    are there.

    The arguments are those of ``trace``.

    Returns:
        The tolerance and the path of its file.
    """
    text = Path(name).read_bytes().hex() if is_file(name) else name
    cause = digest(text, kind, list(steps), field, sorted(more.items(), key=str), VERSION).hex()
    path = folder / f"{Path(name).stem if text != name else name}.{kind}{SUFFIX}"
    if is_file(path):
        with suppress(SoritesError):
            if about(path).cause == cause:
                return load(path), path
    tolerance = trace(name, kind, steps, field, bar=bar, **more)
    return tolerance, save(
        replace(tolerance, about=tolerance.about.model_copy(update={"cause": cause})), folder
    )


def trace(
    name: str,
    kind: str,
    steps: Sequence[float],
    field: float,
    element: int | None = None,
    refocus: bool = False,
    glasses: Glasses | None = None,
    bar: Bar | None = None,
) -> Tolerance:
    """Trace a lens with an element moved by each step.

    Args:
        name: A .zmx file, or the name of one of optiland's objectives.
        kind: ``decentre``, ``tilt`` or ``spacing``.
        steps: Rising sizes of the error, in um or arc minutes.
        field: Fraction of the half field of view.
        element: Number of the element, from 1; by default the one that blurs most at the last step.
        refocus: Refocus the lens at each step.
        glasses: Glasses that override the catalogues.
        bar: Progress display.
    """
    from sorites.optics.tracing.tolerance import (
        AZIMUTHS,
        UNITS,
        built_blurs,
        designed,
        elements,
        worst_element,
    )

    steps = [float(step) for step in steps]
    if kind not in UNITS:
        raise SoritesError(f"of: expected {', '.join(UNITS)}, got {kind!r}")
    _check_numbers(steps, field)
    tick = bar("tracing", 2 + len(steps)) if bar else lambda n: None
    lens = _lens(name, glasses)
    if element is not None and not 1 <= element <= len(elements(lens)):
        raise SoritesError(f"element: {lens.name} has {len(elements(lens))} glass elements, got {element}")
    nominal, pitch = designed(lens)
    moved_element = element or worst_element(nominal, kind, steps[-1], field, refocus)
    tick(1)
    blurs = built_blurs(nominal, pitch, moved_element, kind, steps, field, refocus, tick)
    info = ToleranceRecord(
        lens=nominal.name,
        element=moved_element,
        elements=len(elements(nominal)),
        chosen=element is None,
        kind=cast(Kind, kind),
        unit=UNITS[kind],
        stops=[0.0, *steps],
        field=field,
        azimuths=list(AZIMUTHS),
        refocus=refocus,
        pitch_um=pitch,
        window_um=blurs.window_um,
        focus_mm=list(blurs.focus_mm),
        kept=blurs.kept,
        mtf50=np.round(blurs.mtf50, 5).tolist(),
    )
    return Tolerance(blurs.kernels.astype(np.float32), blurs.mtf50.astype(np.float32), info)


def _check_numbers(steps: Sequence[float], field: float) -> None:
    rising = all(low < high for low, high in zip([0.0, *steps], steps, strict=False))
    if not steps or not rising or not np.isfinite(steps[-1]):
        got = ",".join(f"{step:g}" for step in steps)
        raise SoritesError(f"stops: expected rising numbers above 0 such as 1,5,10, got {got}")
    if not 0 < field <= 1:
        raise SoritesError(f"field: expected a fraction of the half field above 0, up to 1, got {field:g}")


def _lens(name: str, glasses: Glasses | None) -> Lens:
    from sorites.optics.tracing.assembly import OBJECTIVES

    if name not in OBJECTIVES and not is_file(name):
        raise UnknownName("lens", name, OBJECTIVES, "Pass a .zmx file or one of optiland's objectives.")
    return read_lens(name, glasses)


def table(tolerance: Tolerance) -> pl.DataFrame:
    """Return one row per step: MTF50 in cycles per pixel on the axis, at the field (mean over azimuths),
    and the worst azimuth.
    """
    import polars as pl

    azimuths = all_azimuths(tolerance.about)
    field = np.array(
        [[tolerance.sharpness(step, azimuth) for azimuth in azimuths] for step in tolerance.steps]
    )
    columns = {
        "mtf50_axis": tolerance.mtf50[:, 0].astype(float),
        "mtf50_field": field.mean(1),
        "mtf50_worst": field.min(1),
    }
    steps = {f"{tolerance.about.kind}_{tolerance.about.unit}": tolerance.steps}
    rounded = {key: np.round(value, 4) for key, value in columns.items()}
    return pl.DataFrame({**steps, **rounded, "worst_at": [azimuths[int(i)] for i in field.argmin(1)]})
