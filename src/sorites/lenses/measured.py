"""Lenses from measurements instead of prescriptions: stacks of PSFs, and photographs of a slanted edge.

A measured lens has kernels, MTF and quality as a traced one; what only a prescription knows (focal length,
layout, wavefront) is missing.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import InvalidOption, MissingExtra, Notice, SoritesError, tell
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.io.decode import decode
from sorites.lenses.store import MAX_KERNEL_PX, Entry, LensRecord, save
from sorites.optics.develop import linear_from_srgb
from sorites.optics.edge import edge_mtf, round_kernel
from sorites.optics.mtf import FREQUENCIES
from sorites.optics.tracing.around import rotated
from sorites.optics.tracing.blur import (
    AZIMUTHS,
    CYCLES_MM,
    FIELDS,
    POSITIONS,
    centre_kernel,
    mtf50,
    radial_mtf,
)

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]
Kind = Literal["psf", "edge"]
# Negative values up to this part of the peak are taken for noise and cut off.
NOISE = 0.02
# Side of the kernel made from the MTF of an edge, in px.
EDGE_SIDE = 25
# A PSF whose border is brighter than this part of its peak has a background, or is cut off.
BORDER = 0.01
# Range of the sampling in um; below are lengths in mm.
PITCH_UM = (0.05, 1000.0)
MAX_BYTES = 2**30
# The array that counts in a file with several.
ARRAY = "psf"
SHAPES = "(y, x), (3, y, x), (5, 3, y, x) or (13, 3, y, x)"


def import_measured(path: Path, kind: Kind, pitch_um: float | None, folder: Path) -> Entry:
    """Write a lens from a measurement into a folder of lenses.

    Args:
        path: For ``psf`` a .npy, .mat or .pt file of PSFs: one for all colours (y, x) or one per colour
            (3, y, x), the same over the whole field; at the five fields along x (5, 3, y, x); or at all
            thirteen places of a lens file (13, 3, y, x). For ``edge`` a photograph of one slanted edge.
        kind: ``psf`` or ``edge``.
        pitch_um: Distance between the samples of a PSF, or between the pixels of the photograph.
        folder: The folder of lenses; the lens is named like the file.

    Raises:
        SoritesError: The file cannot be read or contains something else.
    """
    if pitch_um is None:
        raise InvalidOption(
            "pitch_um", f"a measured PSF needs its sampling in um: add {option('pitch_um', '3.5')}"
        )
    if not PITCH_UM[0] <= pitch_um <= PITCH_UM[1]:
        raise InvalidOption(
            "pitch_um",
            f"{option('pitch_um', None)}: expected the sampling in um, from {PITCH_UM[0]:g} to"
            f" {PITCH_UM[1]:g}, got {pitch_um:g}",
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SoritesError(f"{path} has more than {MAX_BYTES:,} bytes")
    except OSError as error:
        raise SoritesError(f"cannot read {path}: {error.strerror}") from error
    stack = read_stack(path) if kind == "psf" else edge_kernels(path)
    try:
        entry = as_entry(path.stem, stack, pitch_um, kind)
    except SoritesError as error:
        raise SoritesError(f"{path}: {error}") from error
    if kind == "psf":
        _tell_background(path, stack)
    folder.mkdir(parents=True, exist_ok=True)
    save(entry, folder)
    return entry


def import_all(paths: Sequence[Path], kind: str, pitch_um: float | None, folder: Path) -> pl.DataFrame:
    """Write a lens per measurement into a folder; see ``import_measured``.

    Returns:
        One row per file: name of the lens, whether it was accepted, pixel pitch, quality, and the reason if
        it was not.

    Raises:
        SoritesError: No file is accepted, two files would have the same name, or an option is wrong.
    """
    import polars as pl

    if kind not in get_args(Kind):
        raise InvalidOption("kind", f"{option('as', None)}: expected prescription, psf or edge, got {kind!r}")
    names = [path.stem for path in paths]
    for path in paths:
        if names.count(path.stem) > 1:
            raise SoritesError(f"two files would become the lens {path.stem!r}; rename one of them")
    rows, errors = list[tuple[object, ...]](), list[SoritesError]()
    for path in paths:
        try:
            entry = import_measured(path, cast(Kind, kind), pitch_um, folder)
        except InvalidOption:
            raise
        except SoritesError as error:
            errors.append(error)
            rows.append((path.stem, False, None, None, str(error)))
        else:
            rows.append((entry.name, True, entry.about.pitch_um, entry.quality, ""))
    if len(errors) == len(rows) and errors:
        raise errors[0]
    schema = {"lens": pl.String, "accepted": pl.Boolean, "pitch_um": pl.Float64, "quality": pl.Float64}
    return pl.DataFrame(rows, {**schema, "reason": pl.String}, orient="row")


def _tell_background(path: Path, stack: Array) -> None:
    """Notify if the border of a PSF is not dark."""
    sides = stack[..., [0, -1], :], stack[..., [0, -1]]
    rims = np.concatenate([side.reshape(*stack.shape[:-2], -1) for side in sides], axis=-1)
    share = float((rims.mean(-1) / stack.max((-2, -1))).max())
    if share > BORDER:
        tell(
            Notice(
                f"{path}: the border of the PSF has {100 * share:.0f} % of its peak, which counts as blur."
                " Subtract the background, or measure a larger area",
                code="background",
                path=str(path),
                share=share,
            )
        )


def read_stack(path: Path) -> Array:
    """Return the PSFs of a .npy, .mat or .pt file as they are; nothing in the file is executed."""
    readers = {".npy": _numpy, ".mat": _matlab, ".pt": _torch, ".pth": _torch}
    if path.suffix.lower() not in readers:
        raise SoritesError(f"{path}: expected a .npy, .mat or .pt file of PSFs")
    try:
        array = readers[path.suffix.lower()](path)
    except (MissingExtra, SoritesError):
        raise
    except Exception as error:  # whatever a reader raises for a damaged file
        raise SoritesError(f"{path} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise SoritesError(f"{path}: expected an array of real numbers, got {found}")
    return np.asarray(array, np.float64)


def _numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise SoritesError(
            f"{path} holds no plain array: {error}. Save numbers: np.save(FILE, np.asarray(psf, float))"
        ) from error


def _matlab(path: Path) -> Any:
    from scipy.io import loadmat

    with path.open("rb") as file:
        if b"MATLAB 7.3" in file.read(128):
            raise SoritesError(f'{path} is a .mat file of version 7.3; save it with save(..., "-v7")')
    numbers = {
        name: value
        for name, value in loadmat(path).items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and min(value.shape) > 1
    }
    return _only(numbers, path)


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("reading PSFs saved by torch", "torch") from None
    try:
        stored = torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:  # its message tells how to run the file's code
        raise SoritesError(
            f"{path} holds Python objects, which are not loaded because they can run code. Save a tensor:"
            " torch.save(torch.as_tensor(psf), FILE)"
        ) from error
    if isinstance(stored, dict):
        stored = _only({name: value for name, value in stored.items() if hasattr(value, "numpy")}, path)
    return stored.detach().float().numpy() if isinstance(stored, torch.Tensor) else stored


def _only(arrays: dict[str, Any], path: Path) -> Any:
    """Return the only array of a file, or the one that is named ``psf``."""
    named = [array for name, array in arrays.items() if name.lower() == ARRAY]
    if len(arrays) != 1 and len(named) != 1:
        names = ", ".join(sorted(arrays)) or "none"
        raise SoritesError(
            f"{path}: expected one array of PSFs, or one named {ARRAY}, found {len(arrays)} ({names})."
            " Structs, cells and nested dictionaries are not searched"
        )
    return named[0] if len(named) == 1 else next(iter(arrays.values()))


def edge_kernels(path: Path) -> Array:
    """Return a round kernel per colour (3, y, x) from a photograph of a slanted edge, taken as sRGB."""
    display = decode(path).astype(np.float32) / np.float32(255)
    light = linear_from_srgb(display).astype(np.float64)
    return np.stack([round_kernel(edge_mtf(light[..., colour]), EDGE_SIDE) for colour in range(3)])


def as_entry(name: str, stack: Array, pitch_um: float, kind: Kind) -> Entry:
    """Return a lens from measured PSFs of one of the accepted shapes."""
    kernels = _places(stack)
    side = max(kernels.shape[-2:]) // 2 * 2 + 1
    if side > MAX_KERNEL_PX:
        raise SoritesError(f"{name}: expected PSFs of at most {MAX_KERNEL_PX} px, got {side}")
    taps = np.array([[centred(plane, side) for plane in colours] for colours in kernels])
    sharp = [
        float(
            np.mean([mtf50(kernel) for kernel, (at, _) in zip(taps, POSITIONS, strict=True) if at == field])
        )
        for field in FIELDS
    ]
    first = [next(i for i, (at, _) in enumerate(POSITIONS) if at == field) for field in FIELDS]
    curves = np.array([[_in_mm(radial_mtf(plane), pitch_um) for plane in taps[i]] for i in first])
    about = LensRecord(
        pitch_um=pitch_um,
        mtf50=sharp,
        quality=float(np.mean(sharp)),
        lens=digest(taps.astype(np.float32).tobytes().hex()).hex(),
        measured=kind,
    )
    arrays = {"kernels": taps, "mtf": curves}
    return Entry(name, {key: value.astype(np.float32) for key, value in arrays.items()}, about)


def _in_mm(curve: Array, pitch_um: float) -> Array:
    """Return an MTF in cycles per pixel at the frequencies of lens files, in cycles per mm; 0 beyond Nyquist,
    where nothing was measured.
    """
    return np.asarray(np.interp(CYCLES_MM * pitch_um / 1000, FREQUENCIES, curve, right=0.0))


def _places(stack: Array) -> Array:
    """Return PSFs at the thirteen places of a lens (place, colour, y, x)."""
    leading, count = stack.shape[:-2], len(POSITIONS)
    if stack.ndim < 2:
        raise SoritesError(f"expected PSFs of shape {SHAPES}, got {stack.shape}")
    if leading in ((), (3,)):
        return np.broadcast_to(stack, (count, 3, *stack.shape[-2:]))
    if leading == (count, 3):
        return stack
    if leading != (len(FIELDS), 3):
        raise SoritesError(f"expected PSFs of shape {SHAPES}, got {stack.shape}{_order(stack.shape)}")
    square = np.array([[_square(plane) for plane in colours] for colours in stack])
    made = []
    for at, (field, azimuth) in enumerate(POSITIONS):
        own = square[FIELDS.index(field)]
        made.append(own if not at else _turned(own, azimuth))
    return np.array(made)


def _order(shape: tuple[int, ...]) -> str:
    """Return what to type if an array has its colours, or fields, last or has no colours."""
    places = (len(FIELDS), len(POSITIONS))
    if len(shape) == 3 and shape[2] == 3:
        return ". Colours come first: np.moveaxis(psf, 2, 0), or permute(psf, [3 1 2]) in MATLAB"
    if len(shape) == 4 and shape[2] == 3 and shape[3] in places:
        return (
            ". Fields and colours come first: psf.transpose(3, 2, 0, 1), or permute(psf, [4 3 1 2]) in MATLAB"
        )
    if len(shape) == 3 and shape[0] in places:
        return ". For the same PSF in all colours: np.repeat(psf[:, None], 3, 1)"
    return ""


def _turned(kernel: Array, azimuth: int) -> Array:
    """Return the kernel of another azimuth from that along x: exact at 90 degrees, rotated pixels at 45."""
    if azimuth == AZIMUTHS[0]:
        return kernel
    if azimuth == AZIMUTHS[-1]:
        return np.swapaxes(kernel, -1, -2)
    return np.asarray(rotated(kernel, 0 - azimuth), np.float64)


def _square(plane: Array) -> Array:
    """Return a plane in the middle of the smallest square of odd side that contains it."""
    side = max(plane.shape) // 2 * 2 + 1
    room = [(side - length) for length in plane.shape]
    return np.pad(plane, [(part // 2, part - part // 2) for part in room])


def centred(plane: Array, side: int) -> Array:
    """Return a PSF as a kernel: non-negative, of sum 1, with its centre of mass in the middle."""
    if not np.isfinite(plane).all() or plane.max(initial=0) <= 0:
        raise SoritesError("expected PSFs of finite numbers with positive light")
    if plane.min() < -NOISE * plane.max():
        raise SoritesError(
            f"expected PSFs without negative light, got {plane.min():.3g} beside a peak of {plane.max():.3g}."
            " Subtract the background first."
        )
    return centre_kernel(_square(np.maximum(plane, 0)), 1.0, side)
