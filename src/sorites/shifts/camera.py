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
from sorites.optics.camera import Body
from sorites.shifts._studio import ES_STUDIO, Scene, Studio, scene

T = TypeVar("T", Body, Studio)
GRIDS = {"val": ("val",), "test": ("test",), "both": ("val", "test")}


def options(
    *,
    grid: str = "both",
    body: str = EOS_RP.name,
    mosaic: bool = False,
    camera: Mapping[str, Any] | None = None,
    studio: Mapping[str, Any] | None = None,
) -> Shift:
    """The camera with other settings to visit (``grid``: val, test or both), another ``body``, a Bayer ``mosaic`` at twice the
    picture's size, or single numbers of the body (``camera``) and the room (``studio``) replaced."""
    for kind, name, known in (("camera grid", grid, GRIDS), ("camera body", body, BODIES)):
        if name not in known:
            raise UnknownName(kind, str(name), known, f"There are {', '.join(known)}.")
    made = _changed(BODIES[body], camera or {}, "camera")
    room = _changed(ES_STUDIO, studio or {}, "studio")
    make = _maker(room, made, bool(mosaic))
    settings = es_grid.grid(*GRIDS[grid])
    return replace(SHIFT, settings=settings, apply=_apply(make), told=_told(make), _sweep=_sweep(make))


def _changed(thing: T, by: Mapping[str, Any], option: str) -> T:
    known = [field.name for field in fields(thing)]
    for key in by:
        if key not in known:
            raise UnknownName(f"number of the {option}", key, known, f"There are {', '.join(known)}.")
    frozen: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in by.items()}
    return replace(thing, **frozen)


Make = Callable[[Image, np.random.Generator], Scene]


def _maker(room: Studio, body: Body, mosaic: bool) -> Make:
    return lambda image, rng: scene(image, rng, room, body, mosaic)


def _sweep(make: Make) -> Callable[[Image, Sequence[Any], np.random.Generator], Iterator[Image]]:
    def together(image: Image, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Image]:
        shown = make(image, rng)
        exposures = [shown.exposure(checked(params, shown.studio)) for params in stops]
        through = shown.through(sorted({exposure.aperture for exposure in exposures}))
        for params, exposure in zip(stops, exposures, strict=True):
            yield shown.shoot(params["light"], exposure, through[exposure.aperture], params.get("shot", 0))

    return together


def _apply(make: Make) -> Callable[[Image, Any, np.random.Generator], Image]:
    return lambda image, params, rng: next(_sweep(make)(image, [params], rng))


def _told(make: Make) -> Callable[[Image, Any, np.random.Generator], Mapping[str, Any]]:
    """What the camera chose, for the table."""

    def told(image: Image, params: Any, rng: np.random.Generator) -> Mapping[str, Any]:
        if params["mode"] != "auto":
            return {}
        chosen = make(image, rng).metered(params["light"], params["shot"])
        return {"iso": round(chosen.iso), "shutter": chosen.shutter, "aperture": chosen.aperture}

    return told


def checked(params: Mapping[str, Any], studio: Studio) -> Mapping[str, Any]:
    """Params that name a setting of this studio; anything else is refused in words."""
    by_itself = params.get("mode") == "auto"
    wanted = ("light", "mode", "shot") if by_itself else ("light", "mode", *("iso", "shutter", "aperture"))
    missing = [key for key in wanted if key not in params]
    if missing:
        raise SoritesError(f"camera: a setting names {', '.join(wanted)}; {dict(params)} lacks {', '.join(missing)}")
    for kind, key, known in (("light", "light", tuple(studio.white)), ("camera mode", "mode", ("manual", "auto"))):
        if params[key] not in known:
            raise UnknownName(kind, str(params[key]), known, f"There are {' and '.join(known)}.")
    if by_itself and params["shot"] not in range(1, es_grid.SHOTS + 1):
        raise SoritesError(f"camera: automatic shots are numbered 1 to {es_grid.SHOTS}, got {params['shot']!r}")
    return params


@add_shift(family="camera", unit="setting", settings=es_grid.grid("val", "test"), configure=options)
def camera(image: Image, params: Mapping[str, Any], rng: np.random.Generator) -> Image:
    """A photograph of the picture on a screen in a dark room: ISO, shutter, aperture, lamp on or off, or automatic exposure."""
    return _apply(_maker(ES_STUDIO, EOS_RP, False))(image, params, rng)


SHIFT = camera
SHIFT.told = _told(_maker(ES_STUDIO, EOS_RP, False))
SHIFT.sweeper(_sweep(_maker(ES_STUDIO, EOS_RP, False)))
