"""The lens bench: a place of a lens's field, its point spread function and MTF, and an image as it is seen.

Every number is one of the library: kernels of ``LensSet``, curves of ``optics.mtf``, and images and answers
of ``evaluation.live``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sorites import core
from sorites.apps.workbench.turning import described, impulse, shown_point
from sorites.core import ImageF32, SettingValue, Shift
from sorites.core.errors import SoritesError
from sorites.evaluation.live import Dial
from sorites.lenses import store, tolerances
from sorites.optics.mtf import FREQUENCIES, crossing, mtf
from sorites.optics.tracing.blur import FIELDS
from sorites.shifts.lens import MOVES

LENS = "lens"
# Every which frequency of a curve is sent.
EVERY = 8
# Frequency is along the radius of the field, or across it.
DIRECTIONS = {"radial": 0.0, "tangential": 90.0}


@dataclass(frozen=True)
class Lenses:
    """The lenses of a folder (None: the built-in ones), and the production errors that come with Sorites."""

    folder: Path | None = None

    def shift(self) -> Shift:
        """Return the shift of these lenses."""
        return core.shift(LENS) if self.folder is None else core.shift(LENS, lenses=str(self.folder))

    def listed(self) -> dict[str, Any]:
        """Return the lenses by falling quality with their MTF50 by field, and the production errors."""
        folder = self.folder or store.builtin()
        entries = [store.load(folder, name) for name in store.names(folder)]
        entries.sort(key=lambda entry: (-entry.quality, entry.name))
        wanted = {"efl_mm", "f_number", "fov_deg", "mtf50", "quality"}
        lenses = [{"name": entry.name, **entry.about.model_dump(include=wanted)} for entry in entries]
        return {"lenses": lenses, "fields": FIELDS, "errors": [_error(kind) for kind in MOVES]}


def _error(kind: str) -> dict[str, Any]:
    about = tolerances.about(tolerances.find(tolerances.builtin(), kind))
    unit = {"unit": about.unit, "top": about.stops[-1], "field": about.field}
    return {"name": kind, "lens": about.lens, "about": MOVES[kind], **unit}


def at_place(lenses: Lenses, of: Dial, lens: str, field: float, azimuth: float) -> dict[str, Any]:
    """Return what a lens does at a place of its field: see ``_seen``.

    Raises:
        SoritesError: There is no such lens, or the field is beyond the traced ones.
    """
    return _seen(of, lenses.shift(), {"lens": lens, "field": field, "azimuth": azimuth})


def with_error(of: Dial, kind: str, size: float) -> dict[str, Any]:
    """Return what a lens with a production error does, at the azimuth that the sample draws: see ``_seen``.

    Raises:
        SoritesError: There is no such error, or it is larger than those traced.
    """
    if kind not in MOVES:
        raise SoritesError(f"expected a production error of {', '.join(MOVES)}, got {kind!r}")
    shift = of.shift(kind)
    if not 0 <= size <= shift.top:
        raise SoritesError(f"{kind}: expected 0 to {shift.top:g} {shift.unit}, got {size:g}")
    return _seen(of, shift, size)


def _seen(of: Dial, shift: Shift, setting: SettingValue) -> dict[str, Any]:
    """Return the image as it is seen and the answers; the place; the point spread function and its MTF."""
    made = of.at(shift, setting)
    if made.shot.error is not None:
        raise SoritesError(made.shot.error)
    place: Mapping[str, Any] = {
        **made.shot.chosen_params,
        **(setting if isinstance(setting, Mapping) else {}),
    }
    about = {**described(of, made), "place": dict(place)}
    point = impulse(of, [(shift, setting)])
    return {**about, "point": shown_point(point), "mtf": curves(point, place.get("azimuth") or 0)}


def curves(point: ImageF32, azimuth: float) -> dict[str, Any]:
    """Return the MTF of the image of a point, by colour, along the radius of the field and across it.

    MTF50 is in cycles per pixel, None above Nyquist.
    """
    found: dict[str, Any] = {"frequencies": FREQUENCIES[::EVERY].tolist()}
    planes = np.moveaxis(point.astype(np.float64), -1, 0)
    for name, turn in DIRECTIONS.items():
        of_colours = [mtf(plane, azimuth + turn) for plane in planes]
        halves = [crossing(curve, 0.5) for curve in of_colours]
        found[name] = [np.round(curve[::EVERY], 4).tolist() for curve in of_colours]
        found[f"{name}_mtf50"] = [None if np.isnan(half) else round(half, 4) for half in halves]
    return found
