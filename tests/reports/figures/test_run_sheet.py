"""The sheet of one image (ImageNet-ES, Figure 10): layout, and readability without colour."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.analysis.sheet import Column, Sheet, Verdict
from sorites.reports.figures.run_sheet import BADGE, FRAME, PAPER, RIGHT, SIDE, WRONG, caption, draw

GREY = np.full((60, 60, 3), 128, np.uint8)


def column(i: int, **verdicts: bool) -> Column:
    seen = {model: Verdict(1, 0.5, right) for model, right in verdicts.items()}
    return Column(f"i{i}", "jpeg", float(i), {}, seen)


@pytest.fixture
def held() -> Sheet:
    columns = (column(1, a=True, b=True), column(2, a=True, b=False), column(3, a=False))
    return Sheet("r", "p1", 1, "jpeg", columns, ("a", "b"), 5)


def count(page: Pillow.Image, colour: tuple[int, int, int]) -> int:
    return int((np.asarray(page) == colour).all(axis=2).sum())


def names(label: int | None) -> str:
    return f"class {label}"


def test_a_frame_and_a_mark_per_verdict(held: Sheet) -> None:
    page = draw(held, {f"i{i}": GREY for i in (1, 2, 3)}, names)
    ring = (SIDE + 2 * FRAME) ** 2 - SIDE**2
    green, red = count(page, RIGHT), count(page, WRONG)
    assert 3 * ring < green < 3 * (ring + BADGE**2 + 600)
    assert 2 * 0.5 * ring < red < 2 * ring
    assert count(page, (128, 128, 128)) > 5 * 0.9 * SIDE**2


def test_right_and_wrong_differ_in_grey_too(held: Sheet) -> None:
    pages = []
    for right in (True, False):
        one = Sheet("r", "p", 1, "jpeg", (column(1, a=right),), ("a",), 1)
        pages.append(np.asarray(draw(one, {"i1": GREY}, names)))
    broken = [(page == PAPER).all(axis=2) for page in pages]
    assert (broken[0] != broken[1]).sum() > 200


def test_missing_images_are_grey_on_the_sheet(held: Sheet) -> None:
    assert draw(held, {}, names).size == draw(held, {"i1": GREY}, names).size


@pytest.mark.parametrize(
    ("shift", "severity", "params", "lines"),
    [
        ("clean", 0.0, {}, ["clean"]),
        ("jpeg", 75.0, {}, ["severity 75"]),
        ("camera", None, {"mode": "auto", "light": "on", "shot": 1, "iso": 400}, ["automatic", "lamp on"]),
        (
            "camera",
            None,
            {"iso": 250, "shutter": 1 / 60, "aperture": 5.0, "light": "off", "mode": "manual"},
            ["ISO 250", "1/60 s  f/5", "lamp off"],
        ),
        ("camera", None, {"iso": 200, "shutter": 0.4, "aperture": 13.0}, ["ISO 200", "0.4 s  f/13"]),
        ("lens", None, {"lens": "b", "field": 0.5}, ["lens b", "field 0.5"]),
    ],
)
def test_captions_show_the_setting(
    shift: str, severity: float | None, params: dict, lines: list[str]
) -> None:
    assert caption(Column("i", shift, severity, params, {})) == lines


def test_long_names_are_cut_to_fit(held: Sheet) -> None:
    page = draw(held, {}, lambda label: "a very long name of a class that nobody could ever read")
    short = draw(held, {}, names)
    assert page.height == short.height
