"""Weather on a continuous dial: closed forms, the look of drops and flakes, what models and eyes
make of it, and speed.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import spearmanr

from sorites import core
from sorites.core import ImageF32, to_float, to_uint8
from sorites.core.rng import rng_for
from sorites.measures.images import haze_depth
from sorites.measures.lpips import lpips
from sorites.scenes.fields import to_linear, to_srgb
from sorites.shifts.weather import AirScene, _cover, _flake, air_scene, density, depth, speed, veil
from sorites.suites.suite import Frame

DIALS = ("haze", "smog", "dust", "sandstorm", "rain", "snowfall")
ELEVEN = [0.25 * i for i in range(11)]


def turned(name: str, image: ImageF32, severities: list[float], sample: str = "a") -> list[ImageF32]:
    return list(core.shift(name).sweep(image, severities, rng_for(0, sample, name)))


def test_light_and_back_is_the_same_image() -> None:
    values = np.tile(np.arange(256, dtype=np.uint8)[:, None, None], (1, 1, 3))
    image = to_float(values)
    wanted = np.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055) ** 2.4)
    np.testing.assert_allclose(to_linear(image), wanted, atol=1e-6)
    np.testing.assert_array_equal(to_uint8(to_srgb(to_linear(image))), values)


def test_even_air_follows_koschmieders_law(photo: ImageF32) -> None:
    still = AirScene(to_linear(photo), 0.8, np.ones(photo.shape[:2], np.float32))
    for severity in (0.3, 1.0, 2.5):
        through = math.exp(-severity)
        np.testing.assert_allclose(
            veil(still, severity, (1, 1, 1)), still.light * through + 0.8 * (1 - through), atol=1e-6
        )


def test_the_dial_of_haze_is_the_optical_depth_it_leaves() -> None:
    texture = to_float(np.random.default_rng(2).integers(0, 256, (96, 128, 3), np.uint8))
    for severity, made in zip((0.5, 1.0, 2.0), turned("haze", texture, [0.5, 1.0, 2.0]), strict=True):
        assert haze_depth(to_uint8(texture), to_uint8(made)) == pytest.approx(severity, rel=0.1)


def test_depth_is_1_on_average_far_above_and_near_in_the_middle(photo: ImageF32) -> None:
    guess = depth(96, 128)
    assert guess.mean() == pytest.approx(1, abs=1e-6)
    assert guess[0].mean() > guess[-1].mean()
    assert guess[48, 64] < guess[48, 0]
    assert air_scene(photo, rng_for(0, "a", "haze")).depth.mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("name", "redder"), [("haze", False), ("smog", True), ("dust", True), ("sandstorm", True)]
)
def test_the_air_has_its_colour(name: str, redder: bool, photo: ImageF32) -> None:
    red, _, blue = turned(name, photo, [2.5])[0].mean(axis=(0, 1))
    assert bool(red > blue + 0.05) is redder


def test_drops_fall_and_are_many_as_measured() -> None:
    """Terminal speeds of Gunn & Kinzer 1949 at 1, 2 and 4 mm; Marshall & Palmer's drops above 1 mm
    by quadrature.
    """
    assert [speed(d) for d in (1, 2, 4)] == pytest.approx([4.03, 6.49, 8.83], rel=0.05)

    def drops(rate: float) -> float:
        return float(quad(lambda d: 8000 * math.exp(-4.1 * rate**-0.21 * d), 1, 20)[0])

    assert density(2.0) == pytest.approx(drops(40) / drops(20), rel=1e-6)
    assert density(0) == 0


def test_a_flake_is_laid_where_it_is_and_cut_at_the_border() -> None:
    flake = _flake(1.0, 0.0, 0.0)
    laid = _cover(np.array([[0.5, 0.25], [0.0, 0.0]], np.float32), flake, (20, 40))
    reach = len(flake) // 2
    np.testing.assert_allclose(laid[10 - reach : 11 + reach, 10 - reach : 11 + reach], flake, atol=1e-6)
    np.testing.assert_allclose(laid[: reach + 1, : reach + 1], flake[reach:, reach:], atol=1e-6)
    assert _cover(np.zeros((0, 2), np.float32), flake, (20, 40)).max() == 0


def test_streaks_are_the_same_rain_further_on(photo: ImageF32) -> None:
    """What is covered at one severity stays covered at the next: the draw does not change, more joins it."""
    light, heavy = turned("rain", np.zeros_like(photo) + np.float32(0.05), [0.5, 2.5])
    wet = light.mean(axis=2) > light.mean() + 0.1
    assert wet.any()
    assert (heavy.mean(axis=2)[wet] > 0.9 * light.mean(axis=2)[wet]).all()


@pytest.mark.parametrize("name", DIALS)
def test_degree_of_haze_rises_along_the_dial(name: str, photo: ImageF32) -> None:
    degrees = [haze_depth(to_uint8(photo), to_uint8(made)) for made in turned(name, photo, ELEVEN)]
    assert degrees[0] == 0
    assert spearmanr(ELEVEN, degrees).statistic >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALS)
def test_images_move_and_a_model_fails_more_at_every_step(name: str) -> None:
    model, frame = core.model("lite0"), Frame(resize=256, crop=224)
    right, moved = np.zeros(11), np.zeros(11)
    for i, sample in enumerate(core.source("stamps").samples[::2]):
        image = frame(sample.load())
        made = [to_uint8(one) for one in turned(name, to_float(image), ELEVEN, sample.id)]
        logits = model(made, True).logits
        assert logits is not None
        right += [int(label) in sample.right for label in logits.argmax(axis=1)]
        moved += [lpips(image, one) for one in made] if i % 20 == 0 else 0
    assert spearmanr(ELEVEN, moved).statistic >= 0.95, moved
    assert spearmanr(ELEVEN, -right).statistic >= 0.95, right


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALS)
def test_a_hundred_images_a_second_on_one_core(name: str) -> None:
    image = np.random.default_rng(0).random((224, 224, 3), dtype=np.float32)
    seconds = []
    for i in range(5):
        start = time.process_time()
        turned(name, image, [0.5, 1.0, 1.5, 2.0, 2.5], str(i))
        seconds.append(time.process_time() - start)
    assert 5 / min(seconds) >= 100
