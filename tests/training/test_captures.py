"""Captures among originals: how often, which, and that nothing but the generator decides."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sorites.core import Generated, Sample, Setting, camera_grid, shift, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.training.captures import Captured, captured_files, originals, settings, simulated
from sorites.training.images import SampleImages


def flat(value: int) -> np.ndarray:
    return np.full((32, 32, 3), value, np.uint8)


def samples(count: int = 3) -> list[Sample]:
    """References of value 10 n, and captures of them at all validation settings, of value 10 n + 1
    + the setting's number % 9.
    """
    found = [Sample(f"n0/{n}.JPEG", Generated(lambda n=n: flat(10 * n)), n) for n in range(count)]  # type: ignore[misc]
    for number, params in enumerate(settings()):
        found += [
            Sample(
                f"n0/{n}.JPEG",
                Generated(lambda n=n, number=number: flat(10 * n + 1 + number % 9)),  # type: ignore[misc]
                n,
                shift="camera",
                setting=Setting(None, params),
            )
            for n in range(count)
        ]
    return found


def test_half_of_the_images_are_captures_drawn_evenly_from_the_kept_settings() -> None:
    read = samples()
    base = SampleImages(originals(read))
    images = Captured(base, captured_files(base, read, settings()[:4]))
    assert [len(images), images.id(2), images.label(2)] == [3, "n0/2.JPEG", 2]
    drawn = Counter(int(images.image(1, np.random.default_rng(i))[0, 0, 0]) for i in range(4000))
    assert set(drawn) == {10, 11, 12, 13, 14}
    assert abs(drawn[10] - 2000) < 150
    assert all(abs(drawn[value] - 500) < 90 for value in (11, 12, 13, 14))


def test_the_same_generator_gives_the_same_image() -> None:
    read = samples()
    base = SampleImages(originals(read))
    images = Captured(base, simulated(base, settings()))
    for seed in range(4):
        first, again = (images.image(1, np.random.default_rng(seed)) for _ in range(2))
        np.testing.assert_array_equal(first, again)


def test_a_simulated_capture_is_the_shift_at_the_drawn_setting(photo: np.ndarray) -> None:
    base = SampleImages([Sample("a", Generated(lambda: to_uint8(photo)), 0)])
    made = Captured(base, simulated(base, settings()), share=1.0).image(0, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    rng.random()
    drawn = settings()[int(rng.integers(128))]
    np.testing.assert_array_equal(made, to_uint8(shift("camera")(to_float(to_uint8(photo)), drawn, rng)))


def test_validation_and_test_settings_share_none() -> None:
    spelled = [{Setting(None, params).canonical for params in settings(split)} for split in ("val", "test")]
    assert [len(part) for part in spelled] == [128, 54]
    assert not spelled[0] & spelled[1]
    assert all(params["mode"] == "manual" for params in settings())


def test_a_image_that_was_not_captured_is_named() -> None:
    read = samples()
    base = SampleImages([*originals(read), Sample("n0/9.JPEG", Generated(lambda: flat(0)), 0)])
    with pytest.raises(SoritesError, match="n0/9.JPEG"):
        captured_files(base, read, settings())
    with pytest.raises(SoritesError, match="of the 54"):
        captured_files(SampleImages(originals(read)), read, settings("test"))


def test_no_kept_setting_and_a_share_that_is_none_are_refused() -> None:
    base = SampleImages(originals(samples()))
    with pytest.raises(SoritesError, match="captures.cut"):
        Captured(base, simulated(base, []))
    with pytest.raises(SoritesError, match="between 0 and 1, got 2"):
        Captured(base, simulated(base, settings()), share=2)


def test_settings_of_the_training_order_are_those_of_the_paper() -> None:
    assert settings()[:64] == camera_grid.manual("val", "on")
