from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sorites.analysis.filter.rules import (
    PUBLISHED,
    VOTES,
    calibrate,
    facts,
    is_kept,
    quality,
    read_scores,
    similarities,
    stages,
)
from sorites.core import table as tables
from sorites.core.errors import SoritesError
from sorites.io.digests import write_sealed


def scores(*rows: tuple[float, float, float, float], **more: object) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(VOTES), orient="row").with_columns(
        **{k: pl.Series(v) for k, v in more.items()}
    )  # type: ignore[call-overload]


HIGH, LOW = 1e6, -1e6


@pytest.mark.parametrize("passing", range(5))
def test_paper_and_code_differ_where_two_of_four_pass(passing: int) -> None:
    frame = scores(tuple([HIGH] * passing + [LOW] * (4 - passing)))  # type: ignore[arg-type]
    assert is_kept(frame, rule="paper").to_list() == [passing >= 3]
    assert is_kept(frame, rule="code").to_list() == [passing >= 2]
    assert is_kept(frame, rule="text").to_list() == [passing >= 1]


def test_a_similarity_at_the_threshold_does_not_pass_and_a_missing_one_is_not_judged() -> None:
    at = tuple(PUBLISHED.values())
    assert is_kept(scores(at), rule="code").to_list() == [False]
    above = tuple(value + 1e-6 for value in at)
    assert is_kept(scores(above)).to_list() == [True]
    missing = scores(at).with_columns(own_image=pl.lit(None, pl.Float64))
    assert is_kept(missing).to_list() == [None]
    assert is_kept(missing, rule="text").to_list() == [False]


def made(n: int = 2000) -> pl.DataFrame:
    """Lost images are less alike in all four ways, each vote with noise of its own."""
    rng = np.random.default_rng(0)
    outside = rng.random(n) < 0.3
    held = {vote: rng.normal(1.5, 1, n) - 2.5 * outside for vote in VOTES}
    return pl.DataFrame({**held, "outside": outside, "image_id": [f"i{k}" for k in range(n)]})


def test_each_threshold_is_the_least_that_removes_nine_tenths_by_itself() -> None:
    frame = made()
    found = calibrate(frame)
    lost = frame.filter("outside")
    for vote, threshold in found.items():
        assert (lost[vote] <= threshold).mean() >= 0.9
        assert (lost[vote] < threshold).mean() < 0.9
    table = {row["filter"]: row for row in quality(frame, found).to_dicts()}
    assert all(table[vote]["tpr"] >= 0.9 for vote in VOTES)
    text, paper = table["text"], table["paper"]
    assert paper["fpr"] < text["fpr"], "two votes of four are fairer than the text alone"
    assert paper["accuracy"] > text["accuracy"]
    assert paper["n"] == 2000
    assert table["code"]["tpr"] < paper["tpr"]
    assert table["code"]["fpr"] < paper["fpr"]


def test_quality_by_hand() -> None:
    frame = scores(
        (HIGH,) * 4, (LOW,) * 4, (HIGH, HIGH, LOW, LOW), (LOW,) * 4, outside=[False, False, True, True]
    )
    table = {row["filter"]: row for row in quality(frame).to_dicts()}
    assert table["paper"] == {"filter": "paper", "tpr": 1.0, "fpr": 0.5, "accuracy": 0.75, "n": 4}
    assert table["code"] == {"filter": "code", "tpr": 0.5, "fpr": 0.5, "accuracy": 0.5, "n": 4}


@pytest.mark.parametrize("labels", [{}, {"outside": [False]}])
def test_thresholds_without_labelled_rows_are_refused(labels: dict[str, list[bool]]) -> None:
    with pytest.raises(SoritesError, match="mine.csv: thresholds need"):
        calibrate(scores((1.0, 1.0, 1.0, 1.0), **labels), name="mine.csv")


def test_bad_scores_are_named_with_their_row(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("image_id,class_text,shift_text,joint_image,own_image\na,1,1,1,1\nb,1,NaN,1,1\n")
    with pytest.raises(SoritesError, match="s.csv, row 2: shift_text is"):
        read_scores(path)
    path.write_text("image_id,class_text\na,1\n")
    with pytest.raises(SoritesError, match="column shift_text is missing"):
        read_scores(path)
    with pytest.raises(SoritesError, match="rule named 'papers'. Did you"):
        is_kept(scores((1.0, 1.0, 1.0, 1.0)), rule="papers")
    with pytest.raises(SoritesError, match="a CSV or parquet file"):
        read_scores(tmp_path / "none.parquet")


def test_valid_is_a_fact_of_the_table_and_a_trajectory_may_stay_only_whole(tmp_path: Path) -> None:
    frame = scores((HIGH,) * 4, (HIGH,) * 4, (HIGH,) * 4, (LOW,) * 4).with_columns(
        image_id=pl.Series(list("abcd")), sample_id=pl.Series(["p", "p", "q", "q"])
    )
    valid = is_kept(frame)
    assert facts(frame, valid)["valid"].to_list() == [True, True, True, False]
    whole = facts(frame, valid, trajectory="sample_id")
    assert whole["valid"].to_list() == [True, True, False, False]
    rows = [{"run_id": "r", "image_id": i, "model": "m", "output": "label", "correct": True} for i in "abcd"]
    tables.write_shard(tables.rows(rows), tmp_path, "x")
    write_sealed({"run_id": "r"}, tmp_path / "run.json")
    tables.write_facts(tmp_path, "out_of_class", whole)
    assert tables.read(tmp_path).collect()["valid"].to_list() == [True, True, False, False]


TABLE_8 = {
    0.0: (2966, 2966, 2966), 0.5: (2966, 2929, 2955), 1.0: (2966, 2813, 2906),
    1.5: (2966, 2479, 2740), 2.0: (2966, 2143, 2498), 2.5: (2966, 1729, 2110),
}  # fmt: skip


def test_stages_come_back_as_table_8() -> None:
    names = ("seed_sound", "easy", "in_class")
    rows = [
        {"severity": scale, **dict(zip(names, (i < c for c in counts), strict=True))}
        for scale, counts in TABLE_8.items()
        for i in range(4000)
    ]
    found = stages(pl.DataFrame(rows), names)
    assert found.columns == ["severity", "all", *names]
    assert found.rows() == [(scale, 4000, *counts) for scale, counts in TABLE_8.items()]
    with pytest.raises(SoritesError, match="column named 'eesy'. Did you"):
        stages(pl.DataFrame(rows[:1]), ["eesy"])


def test_similarities_of_images_texts_and_starts() -> None:
    """Encoders small enough to do by hand: the mean colour, and words that are colours."""
    red, blue = (np.full((4, 4, 3), colour, np.uint8) for colour in ((255, 0, 0), (0, 0, 255)))

    def colours(images: object) -> np.ndarray:
        return np.stack([p.reshape(-1, 3).mean(axis=0) / 255 for p in images])  # type: ignore[attr-defined]

    def words(texts: object) -> np.ndarray:
        known = {"red": (1.0, 0.0, 0.0), "blue": (0.0, 0.0, 1.0), "both": (1.0, 0.0, 1.0)}
        return np.array([known[t] for t in texts])  # type: ignore[attr-defined]

    found = similarities(
        [red, blue], [red, red], (["red", "red"], ["both", "both"]), (colours, words), colours
    )
    half = 100 / np.sqrt(2)
    assert found.rows() == [pytest.approx((100, half, 1, 1)), pytest.approx((0, half, 0, 0))]
    soft = similarities([blue], [red], (["red"], ["both"]), (colours, words), colours, softmax=True)
    a, b = (np.exp(v) / np.exp(v).sum() for v in (np.array([0.0, 0, 1]), np.array([1.0, 0, 0])))
    assert soft["own_image"][0] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    with pytest.raises(SoritesError, match="and two texts for each of 1"):
        similarities([red], [], (["red"], ["red"]), (colours, words), colours)
