"""Camera settings of ImageNet-ES as params: ISO, shutter in s, aperture as f-number, light and mode.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, supplement tables 1 and 2.
ISO
varies fastest, then shutter, then aperture; a setting's number in the paper is its position in this order,
from 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.io.paths import is_file
from sorites.io.readers import json_file

Params = Mapping[str, Any]

# State of the lamp to the name of its folder in the dataset.
LIGHTS = {"on": "l1", "off": "l5"}

_AXES = {
    "val": ((200, 800, 3200, 12800), (0.4, 1 / 20, 1 / 160, 1 / 1250), (5.0, 8.0, 13.0, 20.0)),
    "test": ((250, 2000, 16000), (1 / 4, 1 / 60, 1 / 1000), (5.0, 9.0, 16.0)),
}
# Shots with automatic exposure per sample and light.
AUTO_SHOTS = 5


def manual(split: str, light: str) -> list[Params]:
    """Return the 64 ("val") or 27 ("test") manual settings in the paper's order."""
    isos, shutters, apertures = _AXES[split]
    return [
        {"iso": iso, "shutter": shutter, "aperture": aperture, "light": light, "mode": "manual"}
        for aperture, shutter, iso in itertools.product(apertures, shutters, isos)
    ]


def auto(light: str) -> list[Params]:
    """Return the settings of the five shots with automatic exposure."""
    return [{"light": light, "mode": "auto", "shot": shot} for shot in range(1, AUTO_SHOTS + 1)]


def grid(*splits: str, lights: Iterable[str] = LIGHTS) -> tuple[Params, ...]:
    """Return all settings of ``splits`` followed by the automatic shots, light by light: by default first
    with the lamp on, then off.
    """
    return tuple(
        params
        for light in lights
        for params in [*itertools.chain(*(manual(split, light) for split in splits)), *auto(light)]
    )


# File in a part of the dataset that lists its settings if they differ from the published ones.
GRID_FILE = "settings.json"
_GRID_EXAMPLE = (
    '{"manual": [{"iso": 250, "shutter": 0.25, "aperture": 5.0}, ...], "auto": 5, "lights": ["on", "off"]}'
)


@dataclass(frozen=True)
class Grid:
    """The settings under each light: manual settings in order, then automatic shots."""

    manual: tuple[Params, ...]
    """ISO, shutter in s and aperture of each manual setting."""
    shots: int = AUTO_SHOTS
    lights: tuple[str, ...] = tuple(LIGHTS)

    def under(self, light: str) -> list[tuple[Params, str]]:
        """Return every setting under a light with the folder of its images."""
        manual: list[tuple[Params, str]] = []
        for number, values in enumerate(self.manual, 1):
            params = {key: values[key] for key in ("iso", "shutter", "aperture")}
            manual.append(
                (
                    {**params, "light": light, "mode": "manual"},
                    f"param_control/{LIGHTS[light]}/param_{number}",
                )
            )
        shots = range(1, self.shots + 1)
        auto = [
            ({"light": light, "mode": "auto", "shot": n}, f"auto_exposure/{LIGHTS[light]}/param_{n}")
            for n in shots
        ]
        return [*manual, *auto]

    def places(self) -> Iterator[tuple[Params, str]]:
        """Yield every setting with the folder of its images."""
        for light in self.lights:
            yield from self.under(light)

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``settings.json``."""
        return {
            "manual": [dict(params) for params in self.manual],
            "auto": self.shots,
            "lights": list(self.lights),
        }


def published_grid(split: str) -> Grid:
    """Return the published grid of a split, "val" or "test"."""
    settings = (
        {key: params[key] for key in ("iso", "shutter", "aperture")} for params in manual(split, "on")
    )
    return Grid(tuple(settings))


def captured_grid(folder: Path, split: str) -> Grid:
    """Return the grid of the dataset part in ``folder``: from its ``settings.json`` if it has one, else the
    published grid of ``split``.
    """
    file = folder / GRID_FILE
    if not is_file(file):
        return published_grid(split)
    try:
        content = json_file(file, _GRID_EXAMPLE)
        rows: Sequence[Mapping[str, Any]] = content["manual"]
        settings = tuple({key: _positive(row[key]) for key in ("iso", "shutter", "aperture")} for row in rows)
        return Grid(
            tuple(map(_whole_iso, settings)),
            int(content["auto"]),
            tuple(light for light in LIGHTS if light in content["lights"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SoritesError(f"{file}: expected {_GRID_EXAMPLE}; {type(error).__name__}: {error}") from None


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"expected a number above 0, got {value!r}")
    return number


def _whole_iso(params: Params) -> Params:
    return {**params, "iso": round(params["iso"])}
