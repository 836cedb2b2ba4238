"""The solution space of a camera against plain counts (ImageNet-ES, Figure 13), with its intervals
from formulas written here.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites import metrics
from sorites.core import camera_grid, table

MODELS = ("a", "b", "c")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Three models, twelve samples at 27 settings and one automatic shot under two lights; errors,
    a probe and filtered rows.
    """
    rng = np.random.default_rng(4)
    found = []
    for model, (s, params) in itertools.product(
        MODELS, itertools.product(range(12), camera_grid.grid("test"))
    ):
        if params["mode"] == "auto" and params["shot"] > 1:
            continue
        ease = rng_of(s)
        found.append(
            {
                "run_id": "r",
                "source": "es",
                "sample_id": f"s{s:02d}",
                "image_id": f"{s} {sorted(params.items())}",
                "probe": False,
                "shift": "camera",
                "params": json.dumps(params),
                "model": model,
                "output": "label",
                "label": s % 3,
                "known": True,
                "correct": bool(rng.random() < ease),
            }
        )
    for i in rng.choice(len(found), 9, replace=False):
        found[i] |= {"correct": None, "error": "cannot decode"}
    for i in rng.choice(len(found), 9, replace=False):
        found[i] |= {"valid": False}
    return found


def rng_of(sample: int) -> float:
    return (0.0, 0.2, 0.5, 0.9, 1.0)[sample % 5]


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [row for row in rows if row["correct"] is not None and row.get("valid") is not False]
    return [
        {**row, **json.loads(row["params"])} for row in kept if json.loads(row["params"])["mode"] == "manual"
    ]


def wilson(p: float, n: float) -> tuple[float, float]:
    z = 1.959963984540054
    middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return max(0, (middle - half) / (1 + z * z / n)), min(1, (middle + half) / (1 + z * z / n))


def test_figure_13b_counts_the_right_settings_of_each_sample(rows: list[dict[str, Any]]) -> None:
    per_sample: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for row in judged(rows):
        per_sample[row["model"], row["light"], row["sample_id"]].append(row["correct"])
    counts = Counter((model, light, len(seen), sum(seen)) for (model, light, _), seen in per_sample.items())
    of = Counter((model, light, len(seen)) for (model, light, _), seen in per_sample.items())
    found = metrics.solution_space(table.rows(rows))
    assert found.height == len(counts)
    for row in found.to_dicts():
        n = of[row["model"], row["light"], row["settings"]]
        share = counts[row["model"], row["light"], row["settings"], row["right"]] / n
        assert (row["value"], row["n"]) == (share, n)
        assert (row["low"], row["high"]) == pytest.approx(wilson(share, n))
    assert found.filter(pl.col("right") == 0).height


def test_without_light_a_sample_is_counted_over_both(rows: list[dict[str, Any]]) -> None:
    found = metrics.solution_space(table.rows(rows), by=("model",))
    assert found["settings"].max() == 54
    whole = found.group_by("model", "settings").agg(pl.col("value").sum(), pl.col("n").first())
    assert whole["value"].to_list() == pytest.approx([1.0] * whole.height)
    assert whole.group_by("model").agg(pl.col("n").sum())["n"].to_list() == [12] * 3


def test_a_model_that_counts_twice_makes_no_interval_narrower(rows: list[dict[str, Any]]) -> None:
    own = [row for row in rows if row["model"] == "a"]
    again = [{**row, "model": "b"} for row in own]
    once, twice = (metrics.solution_space(table.rows(some), by=("light",)) for some in (own, own + again))
    assert twice["n"].to_list() == [2 * n for n in once["n"]]
    assert (twice["high"] - twice["low"]).to_list() == pytest.approx(
        (once["high"] - once["low"]).to_list(), rel=0.05
    )


def test_figure_13a_counts_pairs_right_for_both_one_or_none(rows: list[dict[str, Any]]) -> None:
    verdicts = {(row["model"], row["image_id"]): row for row in judged(rows)}
    found = {
        (row["model"], row["other"], row["outcome"]): row
        for row in metrics.solution_overlap(table.rows(rows)).to_dicts()
    }
    assert {key[:2] for key in found} == {("a", "b"), ("a", "c"), ("b", "c")}
    names = {
        (True, True): "both",
        (True, False): "model only",
        (False, True): "other only",
        (False, False): "none",
    }
    for one, other in itertools.combinations(MODELS, 2):
        samples: dict[str, Counter[str]] = defaultdict(Counter)
        for (model, image), row in verdicts.items():
            if model == one and (other, image) in verdicts:
                samples[row["sample_id"]][names[row["correct"], verdicts[other, image]["correct"]]] += 1
        pairs = [sum(counted.values()) for counted in samples.values()]
        for outcome in names.values():
            row, hits = found[one, other, outcome], [counted[outcome] for counted in samples.values()]
            share = sum(hits) / sum(pairs)
            assert (row["value"], row["n"], row["pairs"]) == (pytest.approx(share), 12, sum(pairs))
            left = [(h - share * m) / np.mean(pairs) for h, m in zip(hits, pairs, strict=True)]
            size, varies = sum(pairs) / 12, share * (1 - share)
            effect = (
                min(max(sum(pairs) * np.mean(np.square(left)) / (11 * varies), 1), size) if varies else size
            )
            seen = sum(pairs) * min(share, 1 - share) / effect
            drawn = (seen * effect + size) / (seen + 1)
            assert (row["low"], row["high"]) == pytest.approx(wilson(share, sum(pairs) / drawn))


def test_disagreement_is_the_share_of_pairs_of_models_that_differ(rows: list[dict[str, Any]]) -> None:
    images: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        if row["correct"] is not None and row.get("valid") is not False:
            images[row["sample_id"], row["image_id"]].append(row["correct"])
    shares: dict[str, list[float]] = defaultdict(list)
    for (sample, _), seen in images.items():
        if len(seen) > 1:
            shares[sample].append(float(np.mean([a != b for a, b in itertools.combinations(seen, 2)])))
    found = metrics.disagreement(table.rows(rows))
    assert dict(found.select("sample_id", "value").iter_rows()) == pytest.approx(
        {s: np.mean(v) for s, v in shares.items()}
    )
    assert found["n"].to_list() == [len(shares[sample]) for sample in found["sample_id"]]
    pooled = metrics.disagreement(table.rows(rows), by=())
    assert pooled["value"].item() == pytest.approx(np.mean([np.mean(values) for values in shares.values()]))
    assert pooled["n"].item() == 12


def test_one_model_has_no_pairs(rows: list[dict[str, Any]]) -> None:
    alone = table.rows([row for row in rows if row["model"] == "a"])
    assert metrics.solution_overlap(alone).height == 0
    assert metrics.disagreement(alone).height == 0
    assert metrics.solution_space(alone).height > 0
