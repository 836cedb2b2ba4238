"""The check of generated images, on numbers that can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites.apps.generation import check
from sorites.apps.generation.check import aligned, cut, nearest, rises
from sorites.core.errors import SoritesError

ROWS = pl.DataFrame(
    {
        "path": [f"{i}.png" for i in range(8)],
        "shift": ["heavy_snow"] * 8,
        "class_name": ["disc"] * 4 + ["cross"] * 4,
        "seed": [1] * 8,
        "severity": [0.0, 1.0, 2.0, 3.0] * 2,
    }
)


def test_steps_that_raise_the_alignment_are_counted() -> None:
    found = rises(ROWS.with_columns(alignment=pl.Series([0.0, 1, 2, 3, 5, 4, 6, 5])))
    assert found.row(0, named=True) == {
        "shift": "heavy_snow",
        "rises": 0.75,
        "n": 4,
        "rises_from_0_too": 4 / 6,
        "steps": 6,
    }


def test_alignment_is_the_cosine_to_the_words_of_the_shift() -> None:
    asked: list[str] = []

    def texts(sentences: object) -> np.ndarray:
        asked.extend(sentences)  # type: ignore[call-overload]
        return np.array([[1.0, 0.0]])

    seen = np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 1, 8)])
    found = aligned(ROWS, seen, texts)  # type: ignore[arg-type]
    assert asked == ["a photo in heavy snow"]
    np.testing.assert_allclose(found["alignment"], 100 * np.cos(np.linspace(0, 1, 8)), rtol=1e-6)


def test_the_filter_cuts_what_left_its_class() -> None:
    """Images that turned away from words and clean image go; thresholds are cosines that half
    of them pass.
    """
    seen = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]] * 2)
    thresholds = {"class_text": 50.0, "shift_text": 50.0, "joint_image": 0.5, "own_image": 0.5}
    found = cut(ROWS, seen, seen, lambda texts: np.tile([1.0, 0.0], (len(texts), 1)), thresholds)
    assert found.to_dicts() == [
        {"shift": "heavy_snow", "severity": 1.0, "before": 2, "after": 2},
        {"shift": "heavy_snow", "severity": 2.0, "before": 2, "after": 0},
        {"shift": "heavy_snow", "severity": 3.0, "before": 2, "after": 0},
    ]
    with pytest.raises(SoritesError, match="there are none"):
        cut(ROWS.filter(pl.col("severity") > 0), seen[:6], seen[:6], lambda texts: seen, thresholds)


def test_the_nearest_real_images_come_first() -> None:
    known = np.array([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
    found = nearest(ROWS[:1], np.array([[1.0, 0.0]]), ["a", "b", "c"], known, 2)
    assert found["nearest"].to_list() == [["b", "c"]]
    np.testing.assert_allclose(found["similarity"].to_list()[0], [1.0, 0.6])


def test_neighbours_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generated, known = (
        np.random.default_rng(0).normal(size=(8, 4)),
        np.random.default_rng(1).normal(size=(9, 4)),
    )
    names = [f"{i}" for i in range(9)]
    whole = nearest(ROWS, generated, names, known)
    monkeypatch.setattr(check, "ROWS_PER_SEARCH", 3)
    assert nearest(ROWS, generated, names, known).equals(whole)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "papr"}, "Did you mean paper"),
        ({"thresholds": "calibrated"}, "must be published or a file"),
        ({"thresholds": "nowhere.toml"}, "nowhere.toml"),
        ({"real": Path("nowhere")}, "no images found in nowhere"),
    ],
)
def test_mistakes_are_found_before_images_are_encoded(
    options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encoded(*_: object) -> None:
        raise AssertionError("images were encoded")

    ROWS.write_parquet(tmp_path / check.MANIFEST)
    monkeypatch.setattr(check, "features", encoded)
    monkeypatch.setattr(check.core, "encoder", encoded)
    with pytest.raises(SoritesError, match=said):
        check.check_images(tmp_path, "toy", **options)
