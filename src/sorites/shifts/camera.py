"""The published camera grid as a shift: 64 + 27 manual settings and five automatic shots, lamp on and off.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024. ``docs/camera.md`` says what was fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from sorites import es_grid
from sorites.core import Image, Shift, add_shift
from sorites.errors import SoritesError, UnknownName
from sorites.optics.bodies import BODIES, EOS_RP
from sorites.optics.camera import Body, Exposure
from sorites.shifts._studio import ES_STUDIO, Studio, put_on_screen

T = TypeVar("T", Body, Studio)
GRIDS = {"val": ("val",), "test": ("test",), "both": ("val", "test")}
"""The published splits whose manual settings each value of the option ``grid`` visits."""


def options(
    *,
    grid: str = "both",
    body: str = EOS_RP.name,
    mosaic: bool = False,
    camera: Mapping[str, Any] | None = None,
    studio: Mapping[str, Any] | None = None,
) -> Shift:
    """Return the camera shift with some of its options changed.

    ``grid`` names the settings to visit (val, test or both), ``body`` another camera body; ``mosaic`` adds a Bayer mosaic at
    twice the picture's size; ``camera`` and ``studio`` replace single numbers of the body and of the room.
    """
    for kind, name, choices in (("camera grid", grid, GRIDS), ("camera body", body, BODIES)):
        if name not in choices:
            raise UnknownName(kind, str(name), choices, f"There are {', '.join(choices)}.")
    changed_body = _changed(BODIES[body], camera or {}, "camera")
    changed_studio = _changed(ES_STUDIO, studio or {}, "studio")
    together = _sweep(changed_studio, changed_body, bool(mosaic))
    settings = es_grid.grid(*GRIDS[grid])
    return replace(SHIFT, settings=settings, apply=_apply(together), _sweep=together)


def _changed(thing: T, numbers: Mapping[str, Any], option: str) -> T:
    names = [field.name for field in fields(thing)]
    for key in numbers:
        if key not in names:
            raise UnknownName(f"number of the {option}", key, names, f"There are {', '.join(names)}.")
    frozen: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in numbers.items()}
    return replace(thing, **frozen)


Photograph = tuple[Image, Mapping[str, Any]]
"""A picture, and what an automatic exposure chose for it; nothing was chosen at a manual setting."""
Together = Callable[[Image, Sequence[Any], np.random.Generator], Iterator[Photograph]]


def _sweep(studio: Studio, body: Body, mosaic: bool) -> Together:
    def together(image: Image, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Photograph]:
        scene = put_on_screen(image, rng, studio, body, mosaic)
        exposures = [scene.exposure(checked(params, studio)) for params in stops]
        blurred = scene.blurred(sorted({exposure.aperture for exposure in exposures}))
        for params, exposure in zip(stops, exposures, strict=True):
            picture = scene.shoot(params["light"], exposure, blurred[exposure.aperture], params.get("shot", 0))
            yield picture, _chosen(exposure) if params["mode"] == "auto" else {}

    return together


def _chosen(exposure: Exposure) -> dict[str, Any]:
    return {"iso": round(exposure.iso), "shutter": exposure.shutter, "aperture": exposure.aperture}


def _apply(together: Together) -> Callable[[Image, Any, np.random.Generator], Photograph]:
    return lambda image, params, rng: next(together(image, [params], rng))


def checked(params: Mapping[str, Any], studio: Studio) -> Mapping[str, Any]:
    """Return the params if they name a setting of this studio; raise an error that names what is wrong if they do not."""
    automatic = params.get("mode") == "auto"
    wanted = ("light", "mode", "shot") if automatic else ("light", "mode", *("iso", "shutter", "aperture"))
    missing = [key for key in wanted if key not in params]
    if missing:
        raise SoritesError(f"camera: a setting names {', '.join(wanted)}; {dict(params)} lacks {', '.join(missing)}")
    for kind, key, choices in (("light", "light", tuple(studio.white)), ("camera mode", "mode", ("manual", "auto"))):
        if params[key] not in choices:
            raise UnknownName(kind, str(params[key]), choices, f"There are {' and '.join(choices)}.")
    if automatic and params["shot"] not in range(1, es_grid.SHOTS + 1):
        raise SoritesError(f"camera: automatic shots are numbered 1 to {es_grid.SHOTS}, got {params['shot']!r}")
    return params


@add_shift(family="camera", unit="setting", settings=es_grid.grid("val", "test"), configure=options)
def camera(image: Image, params: Mapping[str, Any], rng: np.random.Generator) -> Photograph:
    """Photograph the picture on a screen in a dark room: ISO, shutter and aperture or automatic exposure, lamp on or off."""
    return next(_default_sweep(image, [params], rng))


_default_sweep = _sweep(ES_STUDIO, EOS_RP, False)
SHIFT = camera
SHIFT.sweeper(_default_sweep)
