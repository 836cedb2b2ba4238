"""The published grids, against the paper's numbering."""

from __future__ import annotations

import pytest

from sorites.core import camera_grid


@pytest.mark.parametrize(
    ("split", "number", "wanted"),
    [
        ("test", 1, (250, 1 / 4, 5.0)),
        ("test", 14, (2000, 1 / 60, 9.0)),
        ("test", 27, (16000, 1 / 1000, 16.0)),
        ("val", 1, (200, 0.4, 5.0)),
        ("val", 22, (800, 1 / 20, 8.0)),
        ("val", 64, (12800, 1 / 1250, 20.0)),
    ],
)
def test_numbers_stand_for_the_published_settings(
    split: str, number: int, wanted: tuple[float, float, float]
) -> None:
    params = camera_grid.manual(split, "on")[number - 1]
    assert (params["iso"], params["shutter"], params["aperture"]) == wanted


def test_every_setting_is_there_once() -> None:
    whole = camera_grid.grid("val", "test")
    assert len(whole) == 2 * (64 + 27 + 5)
    assert len({str(sorted(params.items())) for params in whole}) == len(whole)


@pytest.mark.parametrize(
    ("split", "isos", "shutters", "apertures"),
    [
        ("val", (200, 800, 3200, 12800), (0.4, 1 / 20, 1 / 160, 1 / 1250), (5.0, 8.0, 13.0, 20.0)),
        ("test", (250, 2000, 16000), (1 / 4, 1 / 60, 1 / 1000), (5.0, 9.0, 16.0)),
    ],
)
def test_tables_1_and_2_every_setting_by_its_printed_number(
    split: str, isos: tuple[int, ...], shutters: tuple[float, ...], apertures: tuple[float, ...]
) -> None:
    """As printed, ISO changes with every number, the shutter with every 4th (3rd), the aperture
    with every 16th (9th).
    """
    step = len(isos)
    held = camera_grid.manual(split, "off")
    assert len(held) == step**3
    for number, params in enumerate(held):
        wanted = (isos[number % step], shutters[number // step % step], apertures[number // step**2])
        assert (params["iso"], params["shutter"], params["aperture"]) == wanted
