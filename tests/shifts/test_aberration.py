import copy

import cv2
import numpy as np
import pytest

from sorites import core
from sorites.core import SHIFTS, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.shifts import aberration
from sorites.shifts import aberration as kernels

NAMES = list(kernels.PAIRS)


def rng(sample="a", name="coma"):
    return rng_for(0, sample, name)


@pytest.fixture(scope="module")
def photo():
    made = np.random.default_rng(1).random((64, 48, 3), dtype=np.float32)
    made[20:40, 10:30] *= 0.2
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_level_is_its_kernel_laid_over_black(name, photo):
    shift = aberration.configure(name)
    for level in (1, 3, 5):
        mode = shift.chosen_params(photo, level, rng())["zernike"]
        taps = kernels.default().taps(mode, level)
        theirs = [cv2.filter2D(photo[..., c], -1, taps[c], borderType=cv2.BORDER_CONSTANT) for c in range(3)]
        assert np.abs(shift(photo, level, rng()) - np.stack(theirs, -1)).max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_equals_single_calls_and_zero_is_untouched(name, photo):
    shift = SHIFTS._objects[name]
    severities = [0, 0.4, 1, 2.5, 5]
    for severity, image in zip(severities, shift.sweep(photo, severities, rng()), strict=True):
        alone = shift(photo, severity, rng())
        assert np.array_equal(image, alone)
        assert image.dtype == np.float32
        assert 0 <= image.min() <= image.max() <= 1
    assert np.array_equal(next(shift.sweep(photo, [0], rng())), photo)


def test_the_dial_starts_at_the_untouched_image_and_leaves_it_steadily(photo):
    shift = aberration.configure("trefoil")
    moved = [
        float(np.abs(image - photo).mean())
        for image in shift.sweep(photo, [1e-3, 0.1, 0.3, 0.7, 1, 3, 5], rng())
    ]
    assert moved[0] < 1e-2 * moved[-1] or np.array_equal(to_uint8(photo), to_uint8(shift(photo, 1e-3, rng())))
    assert moved == sorted(moved)


def test_the_draw_belongs_to_the_sample(photo):
    shift = aberration.configure("coma")
    drawn = [shift.chosen_params(photo, 3, rng(str(i)))["zernike"] for i in range(400)]
    assert set(drawn) == {7, 8}
    assert 150 < drawn.count(7) < 250
    assert len({shift.chosen_params(photo, s, rng("x"))["zernike"] for s in (1, 2.5, 5)}) == 1
    kept = rng()
    before = copy.deepcopy(kept.bit_generator.state)
    shift(photo, 3, kept)
    assert str(kept.bit_generator.state) == str(before)


def test_options(photo, tmp_path):
    np.save(tmp_path / "mine.npy", kernels.default().array[::-1])
    plain = aberration.configure("coma")(photo, 3, rng())
    for options in (
        {"padding": "reflect"},
        {"colours": "rg"},
        {"centre": False},
        {"kernels": str(tmp_path / "mine.npy")},
    ):
        shift = aberration.configure("coma", **options)
        assert not np.array_equal(shift(photo, 3, rng()), plain)
        again = shift.configure()
        assert np.array_equal(again(photo, 3, rng()), plain)
    assert (
        aberration.configure("coma", kernels=str(tmp_path / "mine.npy")).version
        != aberration.configure("coma").version
    )
    middle = slice(12, -12)
    mirrored = aberration.configure("coma", padding="reflect")(photo, 3, rng())
    assert np.abs(mirrored - plain)[middle, middle].max() < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": "wrap"}, "zeros or reflect"),
        ({"colours": "cmyk"}, "rgb or rg"),
        ({"kernels": "nowhere.pt"}, "no file"),
        ({"kernels": "nowhere.pt", "centre": False}, "used unchanged; remove"),
    ],
)
def test_bad_options_are_clear_errors(options, message):
    with pytest.raises(SoritesError, match=message):
        aberration.configure("coma", **options)


def test_severities_and_images_out_of_range(photo):
    shift = aberration.configure("coma")
    for severity in (-1, 5.1, float("nan")):
        with pytest.raises(SoritesError, match="severity from 0 to 5"):
            shift(photo, severity, rng())
    with pytest.raises(SoritesError, match="smaller than the kernel"):
        shift(photo[:20], 1, rng())
    assert aberration.configure("coma", padding="reflect")(photo[:20], 1, rng()).shape == (20, 48, 3)


@pytest.mark.parametrize(("name", "setting"), [("coma", 3.0), ("lens", {"lens": "TessarLens", "field": 0.7})])
def test_another_library_of_transforms_is_another_version_and_rounds_the_same(name, setting):
    pytest.importorskip("torch")
    image = np.random.default_rng(0).random((60, 70, 3), dtype=np.float32)
    usual, other = core.shift(name), core.shift(name, fft="torch")
    assert usual.version != other.version
    made = [shift(image, setting, rng_for(0, "a", name)) for shift in (usual, other)]
    assert np.abs(made[0] - made[1]).max() < 2e-6
    with pytest.raises(SoritesError):
        core.shift(name, fft="fftw")
