from __future__ import annotations

import polars as pl

from sorites.reports.sections.comparison import _apart


def test_models_that_share_a_rank_are_drawn_in_the_order_of_their_accuracy() -> None:
    rows = pl.DataFrame(
        {
            "model": ["a", "b", "c", "d"],
            "severity": [1.0] * 4,
            "value": [1, 1, 1, 4],
            "accuracy": [0.6, 0.8, 0.7, 0.1],
        }
    )
    drawn = _apart(rows, ("a", "b", "c", "d")).sort("at")
    assert drawn["model"].to_list() == ["b", "c", "a", "d"], (
        "the more accurate one stands above, which is nearer to rank 1"
    )
    assert drawn["at"].to_list()[1] == 1
    tied = _apart(rows.with_columns(accuracy=pl.lit(0.5)), ("c", "b", "a", "d")).sort("at")
    assert tied["model"].to_list() == ["c", "b", "a", "d"], (
        "equally accurate ones stand in the order of the suite"
    )
