"""Fog, smog, dust and sandstorm on a continuous dial: scattering over a guessed depth, each with its colour.

The severity is the optical depth of the air towards the average pixel, 0 to 2.5: at 1 a third of its light arrives, at 2.5 a
twelfth. Each sample has its banks of fog, and they only thicken along the dial. The names of CNS-Bench's captured shifts
(``heavy_fog`` ...) are left to those.
"""

from __future__ import annotations

import numpy as np

from sorites.core import Image
from sorites.scenes.light import to_shown
from sorites.shifts._air import STOPS, TOP, AirScene, air_scene, veil
from sorites.shifts._dial import add_dial


def _calm(image: Image, rng: np.random.Generator) -> AirScene:
    return air_scene(image, rng)


def _windy(image: Image, rng: np.random.Generator) -> AirScene:
    return air_scene(image, rng, banks=0.6, drift=3)


@add_dial(_calm, family="weather", unit="optical depth", levels=STOPS, limit=TOP)
def haze(image: Image, severity: float, scene: AirScene) -> Image:
    """Put fog in front of the scene: white air, thicker with distance, that leaves colours alone."""
    return to_shown(veil(scene, severity, (0.92, 0.94, 0.96)))


@add_dial(_calm, family="weather", unit="optical depth", levels=STOPS, limit=TOP)
def smog(image: Image, severity: float, scene: AirScene) -> Image:
    """Put smog in front of the scene: grey-brown air that takes the blue out of the light."""
    return to_shown(veil(scene, severity, (0.55, 0.49, 0.38), (0.95, 1.0, 1.15)))


@add_dial(_calm, family="weather", unit="optical depth", levels=STOPS, limit=TOP)
def dust(image: Image, severity: float, scene: AirScene) -> Image:
    """Put dust into the air: tan, and warmer the thicker it is."""
    return to_shown(veil(scene, severity, (0.74, 0.55, 0.32), (0.9, 1.0, 1.25)))


@add_dial(_windy, family="weather", unit="optical depth", levels=STOPS, limit=TOP)
def sandstorm(image: Image, severity: float, scene: AirScene) -> Image:
    """Put a sandstorm in front of the scene: orange air in banks drawn out by the wind."""
    return to_shown(veil(scene, severity, (0.82, 0.46, 0.15), (0.85, 1.05, 1.4)))
