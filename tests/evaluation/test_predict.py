from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites import core
from sorites.core import Box, Generated, Model, Outputs, Sample, Source, table
from sorites.core.errors import Notice, SoritesError
from sorites.suites.suite import parse

SUITE = parse({"name": "s", "labels": ["cat", "dog", "owl"]}, "test")


def source(**more: object) -> Source:
    greys = {f"g{v}": np.full((8, 8, 3), v, np.uint8) for v in (10, 120, 250)}
    return Source(
        "greys", [Sample(name, Generated(lambda p=p: p), **{"label": 0, **more}) for name, p in greys.items()]
    )  # type: ignore[arg-type, misc]


def model(logits: list[float], **more: object) -> Model:
    return Model("m", lambda images: Outputs(np.tile(np.array(logits, np.float32), (len(images), 1))), **more)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., pl.DataFrame]:
    def go(made: Model, held: Source | None = None, **more: object) -> pl.DataFrame:
        out = tmp_path / "run"
        return sorites.run(SUITE, source=held or source(), models=[made], out=out, **more).collect()  # type: ignore[arg-type]

    return go


def test_the_verdict_of_a_row(run: Callable[..., pl.DataFrame]) -> None:
    row = run(model([1, 3, 2])).row(0, named=True)
    assert (row["pred"], row["top5"], row["correct"], row["known"]) == (1, [1, 2, 0], False, True)
    assert row["conf"] == pytest.approx(np.exp(3) / np.exp([1, 2, 3]).sum())


def test_ties_go_to_the_first_label(run: Callable[..., pl.DataFrame]) -> None:
    assert run(model([2, 2, 2]))["pred"].unique().to_list() == [0]


def test_any_accepted_label_is_right(run: Callable[..., pl.DataFrame]) -> None:
    held = run(model([1, 3, 2]), source(accept=frozenset({0, 1})))
    assert held["correct"].all()
    assert held["accept"].to_list() == [[0, 1]] * 3


CLASSES = tuple("abcdef")
PAIRS = (frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5}))


def by_name(logits: dict[int, list[float]]) -> Model:
    def forward(images: list[np.ndarray]) -> Outputs:
        return Outputs(np.array([logits[int(image[0, 0, 0]) % 60] for image in images], np.float32))

    return Model("m", forward)


def test_the_confidence_of_a_category_is_the_sum_over_its_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = {i: rng.normal(0, 2, 6).astype(np.float32).tolist() for i in range(60)}
    samples = [
        Sample(f"s{i}", Generated(lambda i=i: np.full((8, 8, 3), i, np.uint8)), accept=PAIRS[i % 3])  # type: ignore[misc]
        for i in range(60)
    ]
    suite = parse({"name": "s", "labels": CLASSES, "scorers": ["msp"]}, "test")
    made = sorites.run(suite, source=Source("s", samples), models=[by_name(logits)], out=tmp_path / "a")
    table = made.collect()
    labels = table.filter(output="label").sort("sample_id")
    assert not labels["correct"].all()
    for row in labels.iter_rows(named=True):
        odds = np.exp(np.array(logits[int(row["sample_id"][1:])], np.float64))
        pair = row["pred"] // 2
        assert row["conf"] == pytest.approx(odds[2 * pair : 2 * pair + 2].sum() / odds.sum(), abs=1e-7)
        assert row["correct"] == (row["pred"] in row["accept"])
    # The area of msp ranks the same confidence, wherever the categories are judged.
    order = np.argsort(-labels["conf"].to_numpy(), kind="stable")
    wrong = ~labels["correct"].to_numpy()[order]
    expected = (np.cumsum(wrong) / np.arange(1, 61)).mean()
    assert sorites.aurc(table, by=["model", "scorer"])["value"].to_list() == pytest.approx([expected])
    # A limit changes no confidence.
    few = sorites.run(
        suite, source=Source("s", samples), models=[by_name(logits)], out=tmp_path / "b", limit=3
    ).collect()
    both = few.filter(output="label").join(labels, on="sample_id")
    assert both.height == 3
    assert both["conf"].equals(both["conf_right"], null_equal=True, check_names=False)


def test_a_class_that_is_also_right_alone_keeps_its_own_confidence(run: Callable[..., pl.DataFrame]) -> None:
    blank = np.zeros((8, 8, 3), np.uint8)
    samples = [
        Sample("a", Generated(lambda: blank), accept=frozenset({0, 1})),
        Sample("b", Generated(lambda: blank), label=1),
    ]
    held = run(model([1, 3, 2]), Source("two", samples))
    assert held["conf"].to_list() == pytest.approx([np.exp(3) / np.exp([1, 2, 3]).sum()] * 2)


def test_a_label_the_model_does_not_know_is_not_judged(run: Callable[..., pl.DataFrame]) -> None:
    held = run(model([1, 3], labels=("dog", "owl")))
    assert held["known"].to_list() == [False] * 3
    assert held["correct"].null_count() == 3
    assert held["pred"].to_list() == [2] * 3


def test_a_sample_without_label_is_predicted_and_not_judged(run: Callable[..., pl.DataFrame]) -> None:
    with pytest.warns(Notice, match="no image of greys has a label"):
        held = run(model([1, 3, 2]), source(label=None))
    assert held.select("correct", "known", "label").null_count().row(0) == (3, 3, 3)
    assert held["pred"].to_list() == [1] * 3


def test_ground_truth_boxes_stand_in_the_row(run: Callable[..., pl.DataFrame]) -> None:
    held = run(model([1, 3, 2]), source(ground_truth=(Box((0, 1, 2, 3), 2),)))
    told = {"label": 2, "conf": None, "area": None, "crowd": False, "known": None}
    assert held["ground_truth"][0].to_list() == [{"x0": 0, "y0": 1, "x1": 2, "y1": 3, **told}]


@pytest.fixture
def scorers(monkeypatch: pytest.MonkeyPatch) -> None:
    core.SCORERS.names()
    monkeypatch.setattr(core.SCORERS, "_objects", {})

    def picky(outputs: Outputs) -> np.ndarray:
        if outputs.logits is not None and outputs.logits[0, 0] > 2:
            raise ValueError("not this one")
        return np.zeros(1)

    def endless(outputs: Outputs) -> np.ndarray:
        return np.where(outputs.logits[:, 0] > 2, np.inf, 0)  # type: ignore[index]

    def vague(outputs: Outputs) -> np.ndarray:
        return np.where(outputs.logits[:, 0] > 2, np.nan, 0)  # type: ignore[index]

    def broken(outputs: Outputs) -> np.ndarray:
        raise ValueError("never fitted")

    for made in (picky, endless, vague, broken):
        core.add_scorer(made)


def by_light(images: list[np.ndarray]) -> Outputs:
    return Outputs(np.array([[p.mean() / 50, 1, 0] for p in images], np.float32))


LIGHT = Model("light", lambda images: by_light([p // 2 if p.mean() == 128 else p for p in images]))


@pytest.mark.usefixtures("scorers")
@pytest.mark.parametrize(
    ("scorer", "said"),
    [("picky", "scorer picky: ValueError: not this one"), ("vague", "scorer vague returned nan")],
)
def test_a_scorer_that_fails_on_one_image_is_a_row_with_its_error(
    run: Callable[..., pl.DataFrame], scorer: str, said: str
) -> None:
    held = run(LIGHT, scorers=[scorer])
    assert table.check(held) == []
    scored = held.filter(pl.col("output") == "ood").sort("sample_id")
    assert scored["error"].to_list() == [None, said, said]
    assert scored["score"].to_list() == [0, None, None]
    assert held.filter(pl.col("output") == "label")["error"].null_count() == 3


@pytest.mark.usefixtures("scorers")
def test_an_infinite_score_is_a_value(run: Callable[..., pl.DataFrame]) -> None:
    held = run(LIGHT, scorers=["endless"])
    assert table.check(held) == []
    scored = held.filter(pl.col("output") == "ood").sort("sample_id")
    assert scored["error"].null_count() == 3
    assert scored["score"].to_list() == [0, np.inf, np.inf]


@pytest.mark.usefixtures("scorers")
def test_a_scorer_broken_from_the_start_is_an_error_before_any_work(
    run: Callable[..., pl.DataFrame], tmp_path: Path
) -> None:
    with pytest.raises(SoritesError, match="broken cannot.*never fitted"):
        run(model([1, 3, 2]), scorers=["broken"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_are_counted_from_one(run: Callable[..., pl.DataFrame], workers: int) -> None:
    with pytest.raises(SoritesError, match=f"workers must be .* got {workers}"):
        run(model([1, 3, 2]), workers=workers)
