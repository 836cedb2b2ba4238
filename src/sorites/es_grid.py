"""The camera settings at which ImageNet-ES was captured, as params: ISO, shutter in s, aperture as f-number, light, and mode.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, supplement tables 1 and 2. ISO runs fastest,
then shutter, then aperture; a setting's number in the paper is its position in this order, counted from 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

Params = Mapping[str, Any]

LIGHTS = {"on": "l1", "off": "l5"}
"""The state of the lamp, and the folder of the dataset that has its pictures."""

_AXES = {
    "val": ((200, 800, 3200, 12800), (0.4, 1 / 20, 1 / 160, 1 / 1250), (5.0, 8.0, 13.0, 20.0)),
    "test": ((250, 2000, 16000), (1 / 4, 1 / 60, 1 / 1000), (5.0, 9.0, 16.0)),
}
SHOTS = 5
"""The number of shots with automatic exposure per sample and light."""


def manual(split: str, light: str) -> list[Params]:
    """Return the 64 ("val") or 27 ("test") manual settings in the paper's order."""
    isos, shutters, apertures = _AXES[split]
    return [
        {"iso": iso, "shutter": shutter, "aperture": aperture, "light": light, "mode": "manual"}
        for aperture, shutter, iso in itertools.product(apertures, shutters, isos)
    ]


def auto(light: str) -> list[Params]:
    """Return the settings of the five shots with automatic exposure."""
    return [{"light": light, "mode": "auto", "shot": shot} for shot in range(1, SHOTS + 1)]


def grid(*splits: str) -> tuple[Params, ...]:
    """Return all settings of the named splits followed by the automatic shots, first with the lamp on and then with it off."""
    return tuple(
        params for light in LIGHTS for params in [*itertools.chain(*(manual(split, light) for split in splits)), *auto(light)]
    )
