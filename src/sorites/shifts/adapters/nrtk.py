"""Use a perturber factory of NRTK as a shift: ``nrtk:FILE.json``.

The file is the configuration of a perturber factory as ``smqtk_core.configuration.to_config_dict`` writes it,
alone or under the key ``PerturbFactory`` of a configuration for NRTK's own tools. The varied parameter,
theta, is the unit, and its values are the levels. Perturbers with a parameter ``seed`` are seeded per sample,
equally for all severities. That a higher level changes the image more is checked on a trial image
(``nrtk:FILE.json?check=no`` skips it). NRTK does not say whether objects move, so that images with boxes are
refused.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core import SHIFTS, ImageF32, Shift, to_float, to_uint8
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.rng import digest
from sorites.core.specs import split_options
from sorites.io.paths import FileState, file_states, is_file, path_of
from sorites.io.readers import json_file
from sorites.shifts.adapters.dials import check_order, seed_of, values_of

FORM = "nrtk"
KEYS = ("PerturbFactory", "PerturberFactory", "PerturbImageFactory")


def nrtk(spec: str) -> Shift:
    """Return the perturber factory of a file as a shift (nrtk:FILE.json)."""
    place, given = split_options(FORM, spec.removeprefix(f"{FORM}:"), {"check": ("yes", "no")})
    file = path_of(place)
    if not is_file(file):
        raise SoritesError(
            f"shift {spec}: expected the configuration of a perturber factory, but there is no file"
        )
    return _shift(spec, file, file_states([file]), given.get("check") != "no")


SHIFTS.add_form(FORM, nrtk)


@functools.lru_cache(maxsize=64)
def _shift(spec: str, file: Path, state: tuple[FileState, ...], check: bool) -> Shift:
    config = _config(file)
    factory = _factory(spec, config)
    described = factory.get_config()
    theta, fixed = described["theta_key"], described["perturber_kwargs"]
    values = values_of([_plain(value) for value in factory.thetas], f"shift {spec}")
    perturber = type(factory[0])
    seeded = "seed" in inspect.signature(perturber).parameters and "seed" not in fixed and theta != "seed"

    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        seed = {"seed": seed_of(rng)} if seeded else {}
        moved, _ = perturber(**{**fixed, **seed, theta: values.at(severity)})(image=to_uint8(image))
        return to_float(np.asarray(moved, np.uint8))

    built = Shift(
        spec,
        apply,
        FORM,
        theta if values.direct else "level",
        values.levels,
        version=digest(config, importlib.metadata.version("nrtk"), size=8).hex(),
        about=f"{perturber.__name__} of NRTK with {theta} = {', '.join(f'{v:g}' for v in values.values)}",
        moves_objects=True,
    )
    if check:
        check_order(built)
    return built


def _plain(value: Any) -> int | float:
    plain: int | float = value.item() if isinstance(value, np.generic) else value
    return plain


def _config(file: Path) -> Mapping[str, Any]:
    content = json_file(file, "the configuration of a perturber factory")
    inner = next((content[key] for key in KEYS if isinstance(content, dict) and key in content), content)
    if not isinstance(inner, dict) or not isinstance(inner.get("type"), str):
        raise SoritesError(f'{file}: expected {{"type": FACTORY, FACTORY: {{...}}}}, perhaps under {KEYS[0]}')
    return inner


def _factory(spec: str, config: Mapping[str, Any]) -> Any:
    try:
        interfaces = importlib.import_module("nrtk.interfaces")
        configuration = importlib.import_module("smqtk_core.configuration")
    except ImportError as error:
        raise MissingExtra("shift nrtk", "peers", "nrtk") from error
    try:
        return configuration.from_config_dict(dict(config), interfaces.PerturbFactory.get_impls())
    except Exception as error:  # NRTK and its perturbers raise many kinds of errors
        raise SoritesError(f"shift {spec}: NRTK cannot create the factory: {error}") from error
