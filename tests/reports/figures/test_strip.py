from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.evaluation import fading

from sorites import core
from sorites.core import ImageF32, Shift
from sorites.core.errors import SoritesError
from sorites.reports.figures.strips import (
    CAPTION,
    GAP,
    LINE,
    MAX_SETTINGS,
    PAPER,
    captions,
    chosen,
    save,
    sheet,
    source_strip,
    strip,
)
from sorites.suites.suite import Frame

IMAGE = np.random.default_rng(0).integers(0, 200, (60, 90, 3), np.uint8)


def images(sheet: Pillow.ImageF32, n: int, width: int, height: int) -> list[np.ndarray]:
    pixels = np.asarray(sheet)
    lefts = [GAP + i * (width + GAP) for i in range(n)]
    return [pixels[CAPTION + GAP : CAPTION + GAP + height, left : left + width] for left in lefts]


def test_a_strip_shows_the_untouched_image_and_every_level() -> None:
    contrast = core.shift("contrast")
    sheet = strip(IMAGE, contrast, side=40)
    assert sheet.size == (6 * (60 + GAP) + GAP, 40 + 2 * (CAPTION + GAP))
    shown = images(sheet, 6, 60, 40)
    np.testing.assert_array_equal(shown[0], Frame(resize=40)(IMAGE))
    spreads = [image.std() for image in shown]
    assert spreads == sorted(spreads, reverse=True)


def test_severities_may_be_given_and_the_draw_follows_the_seed() -> None:
    noise = core.shift("gaussian_noise")
    one, again, other = (strip(IMAGE, noise, [noise.levels[1]], seed=seed, side=32) for seed in (1, 1, 2))
    assert one.width == 2 * (48 + GAP) + GAP
    assert one.tobytes() == again.tobytes()
    assert one.tobytes() != other.tobytes()


def test_captions_and_title_are_written() -> None:
    sheet = np.asarray(strip(IMAGE, core.shift("jpeg"), side=64))
    below = sheet[-CAPTION + 2 :]
    for i in range(6):
        part = below[:, GAP + i * (96 + GAP) : GAP + i * (96 + GAP) + 96]
        assert (part < 128).any(), f"no caption under image {i}"
    assert (sheet[:CAPTION] < 128).any()
    assert tuple(sheet[CAPTION + GAP, 0]) == PAPER


def test_a_grid_shows_some_of_its_settings() -> None:
    def expose(image: ImageF32, params: Mapping[str, float], rng: np.random.Generator) -> ImageF32:
        return image * np.float32(params["times"])

    grid = Shift(
        "expose", expose, "camera", "settings", settings=tuple({"times": n / 30} for n in range(1, 31))
    )
    assert strip(IMAGE, grid, side=20).width <= 9 * (30 + GAP) + GAP


def test_images_of_different_heights_share_a_row() -> None:
    page = sheet([[(IMAGE, "a"), (IMAGE[:20], "b")]], "title")
    assert page.size == (2 * (90 + GAP) + GAP, 60 + 2 * (CAPTION + GAP))


def test_a_caption_too_long_for_its_image_takes_more_lines() -> None:
    page = sheet([[(IMAGE, "TelescopeObjective  field 0.7")], [(IMAGE, "a  b")]], "title")
    assert page.height == 2 * 60 + 3 * (CAPTION + GAP) + LINE


def test_a_grid_of_two_params_is_a_row_for_each_of_some_values_of_the_first() -> None:
    lens = core.shift("lens")
    names = list(dict.fromkeys(setting["lens"] for setting in lens.settings))
    rows = chosen(lens.settings)
    assert [row[0] for row in rows] == [0.0] * 3
    some = [(value["lens"], value["field"]) for row in rows for value in row if isinstance(value, Mapping)]
    assert some == [(names[i], field) for i in (0, 7, 14) for field in (0.0, 0.3, 0.5, 0.7, 0.9)]
    said = captions(lens, rows)
    assert said[0][:3] == ["clean", f"{names[0]}  field 0", f"{names[0]}  field 0.3"]
    assert len({caption for row in said for caption in row}) == 16


def test_a_grid_of_many_params_is_met_at_changing_values_of_each() -> None:
    camera = core.shift("camera")
    rows = chosen(camera.settings)
    settings = [setting for row in rows for setting in row if isinstance(setting, Mapping)]
    assert len(settings) == MAX_SETTINGS
    assert max(map(len, rows)) == 7
    for key, least in (("iso", 4), ("shutter", 4), ("aperture", 4), ("light", 2), ("mode", 2)):
        assert len({setting[key] for setting in settings if key in setting}) >= least
    places = [camera.settings.index(setting) for setting in settings]
    assert [place * MAX_SETTINGS // len(camera.settings) for place in places] == list(range(MAX_SETTINGS))


def test_a_small_grid_is_shown_whole() -> None:
    style = core.shift("style")
    rows = chosen(style.settings)
    assert [setting for row in rows for setting in row] == [0.0, *style.settings]
    assert captions(style, rows)[0][:3] == ["clean", "gray", "sepia"]


@pytest.mark.parametrize(
    ("name", "severity", "said"),
    [
        ("decentre", 1.0, "1 µm of decentre"),
        ("coma", 1.5, "level 1.5 of 5"),
        ("fog", 2.0, "level 2 of 5"),
        ("contrast", 0.6, "40 % of the contrast"),
    ],
)
def test_severities_are_shown_with_their_unit(name: str, severity: float, said: str) -> None:
    assert captions(core.shift(name), [[0.0, severity]]) == [["clean", said]]


def test_a_grid_has_no_severities() -> None:
    with pytest.raises(SoritesError, match="style is a grid of settings"):
        strip(IMAGE, core.shift("style"), [1.0])


@pytest.mark.parametrize(("name", "kind"), [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.webp", "WEBP")])
def test_the_name_says_the_format(tmp_path: Path, name: str, kind: str) -> None:
    save(Pillow.fromarray(IMAGE), tmp_path / name)
    with Pillow.open(tmp_path / name) as image:
        assert image.format == kind


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gif"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SoritesError, match=f"got {name}"):
        save(Pillow.fromarray(IMAGE), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fading_source")
def test_a_dial_of_the_image_s_own_is_turned_in_the_place_of_a_shift() -> None:
    drawn, own = source_strip("fading:4", "shape_01", "coco", "fade", [0.5, 2.6], 0, {})
    assert own
    shown = images(drawn, 3, 268, 224)
    for image, severity in zip(shown, (0.0, 0.5, 2.6), strict=True):
        np.testing.assert_array_equal(image, Frame(resize=224)(core.to_uint8(fading.drawn(1, severity))))


@pytest.mark.usefixtures("fading_source")
def test_what_cannot_be_drawn_of_a_source_is_named() -> None:
    with pytest.raises(
        SoritesError,
        match=r"Did you mean fade",
    ):
        source_strip("fading:4", "shape_00", fading.CLASSES, "fad", (), 0, {})  # type: ignore[arg-type]
    with pytest.raises(SoritesError, match="shape_00; .* fade, drift"):
        source_strip("fading:4", "shape_00", fading.CLASSES, "jpeg", (), 0, {})  # type: ignore[arg-type]
    with pytest.raises(SoritesError, match=r"fade: a severity must be above 0 \(in light\), got -1"):
        source_strip("fading:4", "shape_00", "coco", "fade", [-1.0], 0, {})
    with pytest.raises(SoritesError, match="no class named 'square'"):
        source_strip("fading:4", "shape_00", "coco", "jpeg", [], 0, {})
