"""``sorites.show``: a picture along a dial, or at settings of a grid, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from sorites import core
from sorites.core import Picture
from sorites.drawings.strip import save, strip
from sorites.errors import SoritesError
from sorites.sources._decode import decode


def show(
    shift: str,
    picture: str | Path | Picture | Pillow.Image,
    severities: Sequence[float] = (),
    *,
    settings: Sequence[Mapping[str, Any]] = (),
    seed: int = 0,
    out: str | Path | None = None,
    **options: Any,
) -> Pillow.Image:
    """Return a strip of a picture along a shift, as a Pillow image, which a notebook draws.

    ``picture`` is a file, an 8-bit array of (height, width, 3) or a Pillow image. ``severities`` are places on the dial, in the
    shift's unit; the default is its published levels. Of a grid, ``settings`` chooses those that agree with one of these:
    ``show("camera", "dog.jpg", settings=[{"iso": 250}])``. ``seed`` draws another direction or noise, ``out`` saves the strip,
    and ``options`` are the shift's own.
    """
    made = strip(_picture(picture), core.shift(shift, **options), severities, seed, settings=settings)
    if out is not None:
        save(made, Path(out))
    return made


def _picture(given: Any) -> Picture:
    if isinstance(given, str | Path):
        return decode(Path(given))
    array = np.asarray(given.convert("RGB") if isinstance(given, Pillow.Image) else given)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise SoritesError(
            f"show: wanted a file, a Pillow image or an 8-bit array of (height, width, 3), got {array.dtype} {array.shape}"
        )
    return array
