"""Accuracy with and without a filter, and the share of images that a scorer flags as OOD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.proportion import proportion_confint

from sorites.core.errors import SoritesError
from sorites.metrics import filtered_accuracy, ood_share


def test_a_filter_that_removes_lost_images_lies_on_the_labelled_curve(
    row: Any, frame: Any, tmp_path: Path
) -> None:
    """Ten images at each scale, 0, 2 and 4 of them out of class and always wrong; the filter
    finds all, the text half.
    """
    rows, told = [], []
    for scale, lost in ((0.0, 0), (1.0, 2), (2.0, 4)):
        for i in range(10):
            outside = i < lost
            image = f"{scale}/{i}"
            shift = "snow" if scale else "clean"
            rows.append(
                row(
                    f"p{i}",
                    shift,
                    scale,
                    not outside and i != 9,
                    image_id=image,
                    valid=not outside if scale else None,
                )
            )
            told.append({"image_id": image, "labelled": not outside, "text": not (outside and i % 2)})
    file = tmp_path / "v.csv"
    pl.DataFrame(told).write_csv(file)
    found = filtered_accuracy(frame(rows), verdicts=str(file)).filter(pl.col("shift") == "snow")
    curves = {v: dict(zip(g["severity"], g["value"], strict=True)) for (v,), g in found.group_by("version")}
    assert curves["filtered"] == curves["labelled"] == pytest.approx({0.0: 0.9, 1.0: 7 / 8, 2.0: 5 / 6})
    assert curves["all"] == pytest.approx({0.0: 0.9, 1.0: 0.7, 2.0: 0.5})
    assert curves["text"] == pytest.approx({0.0: 0.9, 1.0: 7 / 9, 2.0: 5 / 8})


def test_invalid_verdicts_raise(row: Any, frame: Any, tmp_path: Path) -> None:
    table = frame([row("a", "snow", 1.0, True)])
    with pytest.raises(SoritesError, match="got image_id, x"):
        filtered_accuracy(table, verdicts=pl.DataFrame({"image_id": ["a"], "x": [1]}))
    with pytest.raises(SoritesError, match="cannot read"):
        filtered_accuracy(table, verdicts=tmp_path / "none.csv")


def test_ood_share_is_at_the_threshold_that_nineteen_of_twenty_in_distribution_pass(
    row: Any, frame: Any
) -> None:
    def place(word: str, common: bool) -> list[dict[str, Any]]:
        return [{"key": "class", "value": "cat"}, {"key": "location", "value": word, "common": common}]

    who: dict[str, Any] = {"output": "ood", "scorer": "gram"}
    known: dict[str, Any] = {**who, "source": "imagenet", "split": "val"}
    rows = [row(f"v{i}", "clean", 0.0, True, score=i / 100, **known) for i in range(101)]
    rows += [
        row(f"g{i}", "clean", 0.0, True, score=s, attrs=place("grass", True), **who)
        for i, s in enumerate((0.1, 0.9, 0.96, 0.5))
    ]
    rows += [
        row(f"s{i}", "clean", 0.0, False, score=s, attrs=place("snow", False), **who)
        for i, s in enumerate((0.951, 2.0))
    ]
    found = ood_share(frame(rows), source="imagenet")
    assert found.equals(ood_share(frame(rows), split="val"))
    assert found.select("attribute", "class", "value", "n", "common").rows() == [
        ("grass", "cat", 0.25, 4, True),
        ("snow", "cat", 1.0, 2, False),
    ]
    assert np.quantile(np.arange(101) / 100, 0.95) == pytest.approx(0.95)
    # Five of 101 images are above the threshold; 2.1 to 11.1 % of images may be: it is from 0.89 to 0.99.
    own, above = [proportion_confint(*of, method="wilson") for of in ((1, 4), (5, 101))]
    assert (int(101 * above[0]), int(101 * above[1])) == (2, 11)
    grass, least, most = found.row(0, named=True), 0 / 4, 2 / 4
    assert grass["low"] == max(0.25 - np.hypot(0.25 - own[0], 0.25 - least), 0)
    assert grass["high"] == pytest.approx(0.25 + np.hypot(own[1] - 0.25, most - 0.25))
    few = ood_share(frame(rows[60:]), source="imagenet")
    assert few["low"].to_list() == few["high"].to_list() == [None, None]
    with pytest.raises(SoritesError, match="'vall'. Did you mean val"):
        ood_share(frame(rows), split="vall")
    with pytest.raises(SoritesError, match="add scorer to by"):
        ood_share(frame(rows), by=("model",), split="val")
    with pytest.raises(SoritesError, match="'imagnet'. Did you mean imagenet"):
        ood_share(frame(rows), source="imagnet")
    with pytest.raises(SoritesError, match="^Name the in-distribution images"):
        ood_share(frame(rows))


def test_judged_images_do_not_set_their_own_threshold(row: Any, frame: Any) -> None:
    """FOCUS has a split of the same name as the validation set, which once joined the two."""
    snow = [{"key": "location", "value": "snow", "common": False}]
    who: dict[str, Any] = {"output": "ood", "scorer": "gram", "split": "val"}
    rows = [row(f"v{i}", "clean", 0.0, True, score=i / 100, source="imagenet", **who) for i in range(101)]
    rows += [
        row(f"f{i}", "clean", 0.0, True, score=i / 50, source="focus", attrs=snow, **who) for i in range(101)
    ]
    with pytest.raises(SoritesError, match="101 of 202"):
        ood_share(frame(rows), split="val")
    with pytest.raises(SoritesError, match="101 of 101"):
        ood_share(frame(rows), source="focus")
    found = ood_share(frame(rows), source="imagenet", split="val")
    assert found["value"].to_list() == [sum(i / 50 > 0.95 for i in range(101)) / 101]
