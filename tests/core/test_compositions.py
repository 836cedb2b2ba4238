"""Combinations of shifts: order, draws, and equality with single shifts, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from sorites.core import Box, ImageF32, Shift, shift, to_uint8
from sorites.core.compositions import camera_shift, grid_shift, in_order
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for

NAMES = ("jpeg", "gaussian_noise", "defocus_disk")


def draw(name: str) -> np.random.Generator:
    return rng_for(3, "sample", name)


@pytest.fixture(scope="module")
def photo() -> ImageF32:
    y, x = np.mgrid[:48, :64].astype(np.float32)
    return np.stack([np.sin(x / 5) / 2 + 0.5, np.cos(y / 7) / 2 + 0.5, (x + y) / 112], -1).astype(np.float32)


def grid(*names: str) -> Shift:
    parts = [shift(name) for name in names]
    return grid_shift(parts, [part.levels[:2] for part in parts])


def images(made: Iterator[tuple[ImageF32, Mapping[str, Any]]]) -> list[ImageF32]:
    return [image for image, _ in made]


def test_parts_are_applied_in_the_order_of_their_stages() -> None:
    assert [part.name for part in in_order([shift(name) for name in NAMES])] == [
        "defocus_disk",
        "gaussian_noise",
        "jpeg",
    ]
    same = [shift(name) for name in ("brightness", "contrast")]
    assert in_order(same) == tuple(same)


def test_a_grid_has_every_combination_once_and_not_the_clean_image() -> None:
    made = grid("jpeg", "defocus_disk")
    assert made.name == "jpeg x defocus_disk"
    found = {(setting["jpeg"], setting["defocus_disk"]) for setting in made.settings}
    expected = set(itertools.product((0.0, 75.0, 82.0), (0.0, 3.0, 4.0))) - {(0.0, 0.0)}
    assert found == expected
    assert len(made.settings) == len(expected)


@pytest.mark.parametrize("names", [("gaussian_noise", "defocus_disk"), NAMES])
def test_on_the_axes_images_equal_those_of_single_shifts(photo: ImageF32, names: tuple[str, ...]) -> None:
    made = grid(*names)
    axes = 0
    for setting, (image, _) in zip(made.settings, made.sweep_drawn(photo, made.settings, draw), strict=True):
        acting = [name for name, severity in setting.items() if severity]
        if len(acting) == 1:
            axes += 1
            alone = shift(acting[0])(photo, setting[acting[0]], draw(acting[0]))
            np.testing.assert_array_equal(image, alone)
    assert axes == 2 * len(names)


def test_parts_are_chained_without_rounding(photo: ImageF32) -> None:
    made = grid("gaussian_noise", "defocus_disk")
    setting = {"gaussian_noise": 0.08, "defocus_disk": 3.0}
    ((image, _),) = made.sweep_drawn(photo, [setting], draw)
    blurred = shift("defocus_disk")(photo, 3.0, draw("defocus_disk"))
    noisy = shift("gaussian_noise")(blurred, 0.08, draw("gaussian_noise"))
    np.testing.assert_array_equal(image, noisy)
    rounded = shift("gaussian_noise")(
        to_uint8(blurred).astype(np.float32) / np.float32(255), 0.08, draw("gaussian_noise")
    )
    assert (image != rounded).any()


def test_order_and_number_of_settings_do_not_matter(photo: ImageF32) -> None:
    made = grid(*NAMES)
    forward = images(made.sweep_drawn(photo, made.settings, draw))
    backward = images(made.sweep_drawn(photo, made.settings[::-1], draw))
    for one, other in zip(forward, backward[::-1], strict=True):
        np.testing.assert_array_equal(one, other)
    twice = images(made.sweep_drawn(photo, [made.settings[5], made.settings[5]], draw))
    np.testing.assert_array_equal(twice[0], forward[5])
    assert not np.shares_memory(twice[0], twice[1])


def test_neighbouring_settings_share_the_first_part(photo: ImageF32, monkeypatch: pytest.MonkeyPatch) -> None:
    made = grid("gaussian_noise", "defocus_disk")
    calls: list[int] = []
    blur = made.parts[0]  # type: ignore[attr-defined]
    original = blur._sweep

    def counted(image: ImageF32, severities: Any, rng: np.random.Generator) -> Any:
        calls.append(len(severities))
        return original(image, severities, rng)

    monkeypatch.setattr(blur, "_sweep", counted)
    assert len(images(made.sweep_drawn(photo, made.settings, draw))) == 8
    assert calls == [2]


def test_a_camera_turns_all_parts_with_one_severity(photo: ImageF32) -> None:
    parts = [shift(name) for name in NAMES]
    camera = camera_shift("phone", parts, [(20, 60), (0.02, 0.1), (1, 3)])
    assert camera.levels == (1, 2)
    assert camera.unit == "level"
    (one, told), (between, _), (none, _) = camera.sweep_drawn(photo, [1.0, 1.5, 0.0], draw)
    assert told == {"defocus_disk": 1.0, "gaussian_noise": 0.02, "jpeg": 20.0}
    np.testing.assert_array_equal(none, photo)
    expected = photo
    for name, severity in (("defocus_disk", 2.0), ("gaussian_noise", 0.06), ("jpeg", 40.0)):
        expected = shift(name)(expected, severity, draw(name))
    np.testing.assert_allclose(between, expected, atol=1e-6)
    assert (one != between).any()
    with pytest.raises(SoritesError, match="phone: expected a severity from 0 to 2"):
        list(camera.sweep_drawn(photo, [2.5], draw))


def test_boxes_pass_through_all_parts() -> None:
    made = grid("rotation", "crop")
    boxes = [Box((20, 10, 40, 30), 0)]
    setting = {"rotation": 10.0, "crop": 0.2}
    after = made.boxes_after(boxes, setting, draw, (48, 64))
    turned = shift("rotation").boxes_after(boxes, 10.0, draw, (48, 64))
    assert after == shift("crop").boxes_after(turned, 0.2, draw, (48, 64))
    assert made.boxes_after(boxes, {"rotation": 0.0, "crop": 0.0}, draw, (48, 64)) == tuple(boxes)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("jpeg", "jpeg"), "jpeg is listed twice"),
        (("jpeg", "camera"), "camera has no severity"),
        (("jpeg",), "expected 2 or 3 shifts"),
        (("jpeg", "contrast", "brightness", "scale"), "expected 2 or 3 shifts"),
    ],
)
def test_what_cannot_be_combined_is_refused(names: tuple[str, ...], said: str) -> None:
    parts = [shift(name) for name in names]
    with pytest.raises(SoritesError, match=said):
        grid_shift(parts, [part.levels for part in parts])
