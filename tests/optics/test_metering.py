"""The program against the reflected-light equation N^2 / t = L S / K, and against what a camera can
be set to.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.camera import EOS_RP
from sorites.optics.develop import HANDHELD_S, METER_CONSTANT, program


@pytest.mark.parametrize("luminance", np.geomspace(0.02, 20_000, 25))
def test_exposes_as_the_meter_wants_within_a_third_of_a_stop(luminance: float) -> None:
    chosen = EOS_RP.check(program(luminance, EOS_RP))
    assert abs(math.log2(chosen.index * luminance / METER_CONSTANT)) <= 1 / 3


def test_dim_light_raises_iso_wide_open_and_then_slows_the_shutter() -> None:
    dim, dark = program(1, EOS_RP, widest=5.0), program(0.01, EOS_RP, widest=5.0)
    assert (dim.aperture, dim.shutter) == (5.0, HANDHELD_S)
    assert dim.iso > 1000
    assert dark.iso == pytest.approx(EOS_RP.iso[1], rel=0.15)
    assert dark.shutter > HANDHELD_S


def test_bright_light_closes_the_aperture_at_the_base_iso() -> None:
    bright = program(4000, EOS_RP)
    assert bright.iso == EOS_RP.iso[0]
    assert bright.aperture > 8
    assert bright.shutter < HANDHELD_S


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_no_light_is_no_reading(wrong: float) -> None:
    with pytest.raises(SoritesError, match="luminance above 0"):
        program(wrong, EOS_RP)
