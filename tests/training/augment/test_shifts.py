"""Any shift as an augmentation: the house's own pixels, at settings that are drawn uniformly."""

import numpy as np
import pytest
import torch
from scipy import stats

from sorites.core import SHIFTS, shift
from sorites.core.errors import SoritesError, UnknownName
from sorites.training import CameraAugment, LensAugment, ShiftAugment


@pytest.fixture(scope="module")
def images():
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["fog", "camera", "gaussian_noise"])
def test_a_image_is_what_the_shift_makes_at_the_drawn_stop(name, images):
    moves = ShiftAugment(name)
    moves.seed("a")
    moves.uniform(6)
    settings, seeds = moves.whole(6, below=len(moves.settings)), moves.whole(6, below=2**62)
    moves.seed("a")
    made = moves(images).permute(0, 2, 3, 1).numpy()
    for place, image in enumerate(images.permute(0, 2, 3, 1).contiguous().numpy()):
        rng = np.random.Generator(np.random.SFC64(int(seeds[place])))
        assert np.array_equal(made[place], shift(name)(image, moves.settings[settings[place]], rng))


def test_stops_are_uniform_over_the_levels_and_moved_by_probability():
    moves = ShiftAugment("brightness", probability=0.4)
    moves.seed(0)
    grey = torch.full((3000, 3, 1, 1), 0.2)
    made = moves(grey)[:, 0, 0, 0]
    found = [int((made - 0.2 - level).abs().lt(1e-3).sum()) for level in (0, *moves.settings)]
    assert sum(found) == 3000
    assert stats.chisquare(found, [3000 * 0.6, *[3000 * 0.08] * 5]).pvalue > 1e-3


def test_own_stops_and_options():
    moves = ShiftAugment("coma", settings=[0.5], options={"padding": "reflect", "scaled": 4})
    assert moves.settings == (0.5,)
    assert moves.shift.options == {"padding": "reflect", "scaled": 4}


def test_the_camera_trains_on_the_validation_settings(images):
    camera = CameraAugment(32)
    assert camera.settings == shift("camera", grid="val").settings
    assert {(s["iso"], s["aperture"]) for s in camera.settings if s["mode"] == "manual"} & {
        (250, 5.0)
    } == set()
    assert CameraAugment(32, grid="test", probability=0.0)(images).equal(images)


def test_lenses_are_drawn_with_their_fields(images):
    lens = LensAugment(32)
    assert lens.settings == SHIFTS.get("lens").settings
    assert not lens(images).equal(images)
    with pytest.raises(SoritesError):
        LensAugment(lenses="there is no such folder")


def test_what_cannot_be_is_refused():
    with pytest.raises(UnknownName, match="Did you mean fog"):
        ShiftAugment("fogg")
    with pytest.raises(SoritesError, match="one setting of the shift fog"):
        ShiftAugment("fog", settings=[])
    with pytest.raises(SoritesError, match="from 0 to 1, got 2"):
        ShiftAugment("fog", probability=2)
    with pytest.raises(SoritesError, match="images in 0..1"):
        ShiftAugment("fog")(torch.full((1, 3, 8, 8), float("nan")))
