from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.core import ImageF32
from sorites.core.errors import Notice, SoritesError
from sorites.core.rng import rng_for
from sorites.lenses import store as lenses
from sorites.optics.tracing.field import field_blur


def test_every_lens_is_its_own_field_blur(photo: ImageF32) -> None:
    shift = core.shift("lens_whole")
    stops = shift.settings[:4]
    for params, made in zip(stops, shift.sweep(photo, stops, rng_for(0, "a", "lens_whole")), strict=True):
        kernels = lenses.load(lenses.builtin(), params["lens"]).around()
        np.testing.assert_allclose(made, field_blur(photo, kernels), atol=1e-6)


def test_a_small_corner_is_the_middle_of_the_lens(photo: ImageF32) -> None:
    """At a corner of nearly nothing the whole image stands on the axis: the shift ``lens`` there."""
    params = {"lens": "CookeTriplet"}
    made = core.shift("lens_whole", corner=1e-6)(photo, params, rng_for(0, "a", "lens_whole"))
    np.testing.assert_allclose(
        made, core.shift("lens")(photo, {**params, "field": 0.0}, rng_for(0, "a", "lens")), atol=1e-5
    )


def test_the_chosen_params_say_the_quality(photo: ImageF32) -> None:
    shift = core.shift("lens_whole")
    chosen = shift.chosen_params(photo, {"lens": "TessarLens"}, rng_for(0, "a", "lens_whole"))
    assert chosen == {"quality": pytest.approx(lenses.load(lenses.builtin(), "TessarLens").quality, abs=1e-5)}


def test_a_folder_of_lenses_is_its_own_set(tmp_path: Path) -> None:
    shutil.copy(lenses.builtin() / "HeliarLens.safetensors", tmp_path / "mine.safetensors")
    shift = core.shift("lens_whole", lenses=str(tmp_path))
    assert [dict(one) for one in shift.settings] == [{"lens": "mine"}]
    assert shift.version != core.shift("lens_whole").version


def test_a_lens_without_kernels_between_the_azimuths_is_named(tmp_path: Path) -> None:
    lens = lenses.load(lenses.builtin(), "HeliarLens")
    stated = {key: value for key, value in lens.arrays.items() if key != "between"}
    lenses.save(lenses.Entry("old", stated, lens.about), tmp_path)
    with pytest.warns(Notice) as caught:
        core.shift("lens_whole", lenses=str(tmp_path))
    assert [(w.message.code, w.message.fields) for w in caught if isinstance(w.message, Notice)] == [
        ("rotated_kernels", {"lenses": ("old",)})
    ]


def test_what_is_no_setting_or_corner_is_reported(photo: ImageF32) -> None:
    with pytest.raises(SoritesError, match="15 lenses, got 'Nobody'"):
        core.shift("lens_whole")(photo, {"lens": "Nobody"}, rng_for(0, "a", "lens_whole"))
    with pytest.raises(SoritesError, match="corner above 0"):
        core.shift("lens_whole", corner=0)
