import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.mtf import sharpness
from sorites.optics.psf import centroid
from sorites.shifts import aberration as kernels
from sorites.shifts.aberration import SHAPE, WAVES, Modelled, Stack, checked, default, load

PUBLISHED = {
    4: (0.1134, 0.0811, 0.0522, 0.0415, 0.0317),
    5: (0.1036, 0.0790, 0.0583, 0.0417, 0.0346),
    6: (0.1005, 0.0778, 0.0553, 0.0411, 0.0329),
    7: (0.0934, 0.0659, 0.0443, 0.0379, 0.0345),
    8: (0.0934, 0.0659, 0.0443, 0.0379, 0.0345),
    9: (0.1068, 0.0735, 0.0489, 0.0384, 0.0313),
    10: (0.1090, 0.0754, 0.0502, 0.0404, 0.0357),
    11: (0.1102, 0.0760, 0.0501, 0.0403, 0.0363),
}
"""Radial MTF50 in cycles per pixel of the published stack, mean over its colours."""


@pytest.mark.parametrize("mode", WAVES)
def test_the_default_kernels_are_as_sharp_as_the_published(mode):
    for level, published in enumerate(PUBLISHED[mode], 1):
        assert sharpness(default().taps(mode, level)).mtf50 == pytest.approx(published, rel=0.06)


def test_every_default_kernel_is_light_centred_on_its_array():
    planes = default().array.reshape(-1, 25, 25).astype(float)
    assert planes.shape == (120, 25, 25)
    assert np.abs(planes.sum((1, 2)) - 1).max() < 1e-6
    assert max(np.abs(centroid(plane)).max() for plane in planes) < 0.01


@pytest.mark.parametrize(("mode", "level"), [(4, 1), (7, 5), (11, 3)])
def test_the_shipped_levels_are_what_the_model_makes(mode, level):
    """If this fails, pixels changed: make a new file and count VERSION up."""
    assert np.abs(default().taps(mode, level) - Modelled().taps(mode, level)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("mode", WAVES)
def test_the_dial_is_continuous_and_sharpness_falls_all_along_it(mode):
    severities = np.array([0.02, 0.1, 0.2, 0.3, 0.5, 0.75, 0.999, 1, 1.001, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5])
    made = [default().taps(mode, s) for s in severities]
    read = [sharpness(taps) for taps in made]
    assert (np.diff([r.area for r in read]) < 0).all()
    halves = np.array([r.mtf50 for r in read if np.isfinite(r.mtf50)])
    assert (np.diff(halves) < 0).all()
    assert read[0].area > 0.98
    assert np.abs(made[6] - made[7]).sum() / 3 < 0.02
    assert np.abs(made[8] - made[7]).sum() / 3 < 0.02


def test_a_stack_goes_straight_from_level_to_level():
    held = Stack(default().array)
    assert np.allclose(held.taps(7, 2.25), 0.75 * held.taps(7, 2) + 0.25 * held.taps(7, 3))
    assert np.allclose(held.taps(7, 0.5), 0.5 * kernels.point((3, 25, 25)) + 0.5 * held.taps(7, 1))
    assert held.version != default().version


def test_red_and_blue_are_one_in_the_rg_variant():
    taps = Modelled(kernels.RG).taps(5, 3)
    assert np.array_equal(taps[0], taps[2])
    assert not np.allclose(taps[0], taps[1])


def test_a_stack_saved_by_torch_is_read_whatever_its_strides(tmp_path):
    torch = pytest.importorskip("torch")
    turned = torch.from_numpy(default().array.copy()).transpose(3, 4)
    torch.save(turned, tmp_path / "turned.pt")
    assert np.array_equal(load(tmp_path / "turned.pt").array, default().array.swapaxes(3, 4))


def spoil(place, value):
    made = default().array.copy()
    made[place] = value
    return made


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (np.zeros((8, 5, 25, 25), np.float32), "shape"),
        (np.ones(SHAPE, np.int64), "real numbers"),
        ({"a": 1}, "got dict"),
        (spoil((0, 0, 0, 0, 0), -0.01), "negative"),
        (spoil((0, 0, 0, 0, 0), np.nan), "not finite"),
        (spoil((3, 1, 2, 12, 12), 0.9), "1 within"),
    ],
)
def test_what_is_not_a_stack_is_a_clear_error(held, message):
    with pytest.raises(SoritesError, match=message):
        checked(held, "this file")


def test_a_file_that_is_something_else(tmp_path):
    for name in ("a.pt", "a.npy"):
        (tmp_path / name).write_bytes(b"not a tensor")
        with pytest.raises(SoritesError, match="cannot read"):
            load(tmp_path / name)
    with pytest.raises(SoritesError, match="no file"):
        load(tmp_path / "absent.pt")


@pytest.mark.parametrize(("mode", "level"), [(4, 1), (7, 3)])
def test_the_shipped_small_kernels_are_what_the_model_makes(mode, level):
    """If this fails, pixels changed: make a new file and count VERSION up."""
    made = Modelled(kernels.shrunk(kernels.RGB, kernels.SMALL))
    assert np.abs(kernels.small().taps(mode, level) - made.taps(mode, level)).max() < 1e-5


@pytest.mark.parametrize("mode", [4, 5, 7, 10])
def test_a_scaled_kernel_is_the_published_one_shrunk(mode):
    """Its pixels are blocks of 4 x 4 px of a kernel that is centred on a block, up to what the
    smaller share of a pixel sees.
    """
    fine = kernels.replace(kernels.RGB, size=52, aperture=1.0).kernel({mode: WAVES[mode][1]})
    coarse = kernels.replace(kernels.shrunk(kernels.RGB, 4), aperture=1.0).kernel({mode: WAVES[mode][1]})
    assert np.abs(fine.reshape(3, 13, 4, 13, 4).sum((2, 4)) - coarse).sum() / 3 < 0.02


@pytest.mark.parametrize(("times", "side"), [(1, 25), (2, 25), (3, 17), (4, 13), (7, 9), (25, 3)])
def test_the_frame_of_a_scaled_kernel_is_twice_as_wide_as_it_has_to_be(times, side):
    assert kernels.shrunk(kernels.RGB, times).size == side
