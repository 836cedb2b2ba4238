from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from sorites import core
from sorites.core import ImageF32
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.lenses import tolerances

KINDS = ("decentre", "tilt", "spacing")
every_kind = pytest.mark.parametrize("kind", KINDS)


def own(kind: str) -> tolerances.Tolerance:
    return tolerances.load(tolerances.find(tolerances.builtin(), kind))


@every_kind
def test_an_image_is_convolved_with_the_mixed_kernel_of_its_azimuth(photo: ImageF32, kind: str) -> None:
    """Against SciPy, channel by channel, mirrored at the border."""
    shift, held, draw = core.shift(kind), own(kind), rng_for(0, "a", kind)
    severity = (held.steps[2] + held.steps[3]) / 2
    azimuth = shift.chosen_params(photo, severity, rng_for(0, "a", kind))["azimuth"]
    taps = (held.taps(held.steps[2], azimuth) + held.taps(held.steps[3], azimuth)) / 2
    wanted = np.stack([ndimage.convolve(photo[..., c], taps[c], mode="mirror") for c in range(3)], axis=-1)
    np.testing.assert_allclose(shift(photo, severity, draw), wanted, atol=2e-5)


@every_kind
def test_the_least_error_is_the_lens_as_designed(photo: ImageF32, kind: str) -> None:
    """A tenth of the first stop is closer to the lens as designed than to the untouched image."""
    shift, held = core.shift(kind), own(kind)
    made = shift(photo, held.steps[1] / 10, rng_for(0, "a", kind))
    taps = held.taps(0.0, shift.chosen_params(photo, 1.0, rng_for(0, "a", kind))["azimuth"])
    as_designed = np.stack(
        [ndimage.convolve(photo[..., c], taps[c], mode="mirror") for c in range(3)], axis=-1
    )
    assert np.abs(made - as_designed).mean() < 0.1 * np.abs(made - photo).mean()


def test_levels_and_unit_are_those_of_the_file() -> None:
    for kind in KINDS:
        assert core.shift(kind).levels == own(kind).steps[1:]
        assert core.shift(kind).unit == own(kind).about.unit
        assert "as designed" in core.shift(kind).about


def test_the_azimuth_is_the_samples_and_none_on_the_axis(photo: ImageF32) -> None:
    shift, axis = core.shift("decentre"), core.shift("decentre", field=0)
    found = {shift.chosen_params(photo, 5.0, rng_for(0, f"s{i}", "decentre"))["azimuth"] for i in range(80)}
    assert found == set(range(0, 360, 45))
    assert axis.chosen_params(photo, 5.0, rng_for(0, "a", "decentre"))["azimuth"] is None


def test_the_chosen_params_say_how_sharp_the_lens_is(photo: ImageF32) -> None:
    shift, held = core.shift("decentre", field=0), own("decentre")
    chosen = shift.chosen_params(photo, held.steps[3], rng_for(0, "a", "decentre"))
    assert chosen["mtf50"] == pytest.approx(held.mtf50[3, 0], abs=1e-5)
    assert (chosen["lens"], chosen["element"]) == (held.about.lens, held.about.element)


def test_beyond_the_last_stop_is_refused_by_name(photo: ImageF32) -> None:
    with pytest.raises(SoritesError, match="arcmin, got 9999.0"):
        core.shift("tilt")(photo, 9999.0, rng_for(0, "a", "tilt"))


def test_a_file_or_folder_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.decentre.safetensors"
    shutil.copy(tolerances.find(tolerances.builtin(), "decentre"), mine)
    for given in (mine, tmp_path):
        shift = core.shift("decentre", tolerances=str(given))
        assert shift.levels == core.shift("decentre").levels
        assert shift.version != core.shift("decentre").version
    with pytest.raises(SoritesError, match="no tilt in"):
        core.shift("tilt", tolerances=str(tmp_path))


def test_what_is_no_option_is_reported() -> None:
    with pytest.raises(SoritesError, match="0 and 0.7, got 0.3"):
        core.shift("spacing", field=0.3)
    with pytest.raises(SoritesError, match="zeros or reflect, got 'wrap'"):
        core.shift("spacing", padding="wrap")
