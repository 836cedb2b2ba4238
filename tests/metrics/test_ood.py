"""OOD metrics on the table: which images are in which pool, and the resulting numbers."""

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from sorites.core.errors import SoritesError
from sorites.metrics import aupr_in, aupr_out, auroc, fpr95_id_pos, fpr95_ood_pos, ood


def scored(row: Any, sample: str, score: float | None, right: bool | None, **more: Any) -> Any:
    """A score row, clean unless ``more`` says otherwise; no verdict means that the model does not
    know the class.
    """
    given = {
        "output": "ood",
        "scorer": "msp",
        "score": score,
        "known": right is not None,
        "label": 1,
        "split": "test",
    }
    return row(sample, *more.pop("at", ("clean", 0.0)), right, **given | more)


@pytest.fixture(scope="module")
def seen(row: Any, frame: Any) -> pl.DataFrame:
    """Known samples clean and under two blurs, unknown ones near and far under the same, two
    scorers of opposite sign.
    """
    rng = np.random.default_rng(3)
    rows = []
    for i, (shift, severity), (scorer, sign) in itertools.product(
        range(60), (("clean", 0.0), ("blur", 1.0), ("blur", 2.0)), (("up", 1), ("down", -1))
    ):
        known = i < 40
        right = bool(rng.random() < 0.7) if known else None
        score = sign * round(float(rng.normal((not known) + severity / 2 + (right is False))), 1)
        group = [{"key": "group", "value": "near" if i < 50 else "far", "common": None}]
        more = {"attrs": [] if known else group, "scorer": scorer, "label": 1 if known else None}
        more |= {"known": True if known else None, "split": "test" if known else "unknown"}
        rows.append(scored(row, f"p{i}", score, right, at=(shift, severity), **more))
    return frame(rows)


def area(in_distribution: pl.DataFrame, ood: pl.DataFrame) -> Any:
    return pytest.approx(
        roc_auc_score(
            [0] * in_distribution.height + [1] * ood.height, pl.concat([in_distribution, ood])["score"]
        )
    )


def test_semantic_pools_follow_the_label_set(seen: pl.DataFrame) -> None:
    found = auroc(seen)
    known = pl.col("known").is_not_null()
    for model, scorer, value, n, low, high, in_distribution, unknown, missing in found.rows():
        mine = seen.filter(pl.col("model") == model, pl.col("scorer") == scorer)
        assert value == area(mine.filter(known), mine.filter(~known))
        assert (n, in_distribution, unknown, missing) == (180, 120, 60, 0)
        assert low < value < high


def test_the_same_or_the_clean_in_distribution_images(seen: pl.DataFrame) -> None:
    by = ("model", "scorer", "shift", "severity")
    known, clean = pl.col("known").is_not_null(), pl.col("shift") == "clean"
    for against in ("same", "clean"):
        for row in auroc(seen, by=by, against=against).to_dicts():
            mine = seen.filter(scorer=row["scorer"])
            here = mine.filter(shift=row["shift"], severity=row["severity"])
            in_distribution = here.filter(known) if against == "same" else mine.filter(known & clean)
            assert row["value"] == area(in_distribution, here.filter(~known))
            assert row["id"] == 40
            assert row["ood"] == 20


def test_near_and_far_share_the_in_distribution_pool(seen: pl.DataFrame) -> None:
    found = auroc(seen, by=("model", "scorer", "group"))
    assert found.select("scorer", "group", "id", "ood").rows() == [
        (scorer, group, 120, 30) for scorer, group in itertools.product(("down", "up"), ("far", "near"))
    ]


def test_model_specific_is_right_against_wrong(seen: pl.DataFrame) -> None:
    for row in auroc(
        seen, by=("model", "scorer", "shift", "severity"), framework="model-specific"
    ).to_dicts():
        here = seen.filter(scorer=row["scorer"], shift=row["shift"], severity=row["severity"])
        assert row["value"] == area(here.filter("correct"), here.filter(~pl.col("correct")))
        assert row["n"] == 40


def test_combined_gives_the_columns_of_table_3(seen: pl.DataFrame) -> None:
    found = auroc(seen, by=("model", "scorer", "kind", "group"), framework="combined").filter(scorer="up")
    mine, clean = seen.filter(scorer="up"), pl.col("shift") == "clean"
    in_distribution = mine.filter(clean & pl.col("correct"))
    wanted = {
        ("C-OOD", None): mine.filter(~clean & ~pl.col("correct")),
        ("S-OOD", "far"): mine.filter(pl.col("sample_id").is_in([f"p{i}" for i in range(50, 60)])),
        ("S-OOD", "near"): mine.filter(pl.col("sample_id").is_in([f"p{i}" for i in range(40, 50)])),
    }
    got = {(row["kind"], row["group"]): row["value"] for row in found.to_dicts()}
    assert got == {key: area(in_distribution, ood) for key, ood in wanted.items()}


def test_one_call_gives_the_main_numbers(seen: pl.DataFrame) -> None:
    whole = ood(seen, framework="model-specific")
    assert whole["metric"].unique().sort().to_list() == [
        "aupr_in",
        "aupr_out",
        "auroc",
        "fpr95_id_pos",
        "fpr95_ood_pos",
    ]
    for ask in (auroc, aupr_in, aupr_out, fpr95_id_pos, fpr95_ood_pos):
        one = ask(seen, framework="model-specific")
        assert whole.filter(metric=ask.__name__).drop("metric").equals(one)


def test_missing_scores_are_counted_and_left_out(row: Any, frame: Any) -> None:
    good = [scored(row, "a", 0.0, True), scored(row, "b", 1.0, None)]
    bad = [
        scored(row, "c", None, None),
        scored(row, "d", math.nan, True),
        scored(row, "f", None, None, error="truncated"),
        scored(row, "g", 9.0, None, valid=False),
        scored(row, "h", 9.0, None, probe=True),
    ]
    found = auroc(frame(good + bad))
    assert found.select("value", "n", "id", "ood", "missing").rows() == [(1.0, 2, 1, 1, 3)]


def test_an_empty_pool_is_null_with_its_n(row: Any, frame: Any) -> None:
    right = frame([scored(row, "a", 0.0, True), scored(row, "b", 1.0, True)])
    for framework in ("semantic", "model-specific"):
        found = ood(right, framework=framework)
        assert found.select("value", "low", "high").null_count().row(0) == (5, 5, 5)
        assert found.select("n", "id", "ood").unique().rows() == [(2, 2, 0)]


def test_constant_scores_are_blind(row: Any, frame: Any) -> None:
    same = frame([scored(row, f"{i}", 2.5, True if i < 6 else None) for i in range(10)])
    values = dict(ood(same).select("metric", "value").rows())
    assert values == pytest.approx(
        {"auroc": 0.5, "aupr_in": 0.6, "aupr_out": 0.4, "fpr95_id_pos": 1.0, "fpr95_ood_pos": 1.0}
    )


def test_model_and_scorer_are_never_pooled(seen: pl.DataFrame) -> None:
    assert auroc(seen, by=()).columns[:2] == ["model", "scorer"]
    assert auroc(seen, by="shift").columns[:3] == ["shift", "model", "scorer"]


def test_unknown_framework_and_against_raise(seen: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="Did you mean semantic"):
        auroc(seen, framework="semantc")
    with pytest.raises(SoritesError, match="'dirty'"):
        auroc(seen, against="dirty")


def test_drift_holds_shifted_images_against_clean_ones_of_known_classes(seen: pl.DataFrame) -> None:
    by = ("model", "scorer", "shift", "severity")
    known = seen.filter(pl.col("known").is_not_null())
    found = auroc(seen, by=by, framework="drift")
    assert set(found["severity"]) == {1.0, 2.0}
    for row in found.to_dicts():
        mine = known.filter(scorer=row["scorer"])
        assert row["value"] == area(
            mine.filter(shift="clean"), mine.filter(shift=row["shift"], severity=row["severity"])
        )
        assert (row["id"], row["ood"]) == (40, 40)
    up = found.filter(scorer="up").sort("severity")["value"]
    assert 0.5 < up[0] < up[1]


def test_scores_two_billionths_apart_are_ordered(row: Any, frame: Any) -> None:
    table = frame([scored(row, "a", 1.0, True), scored(row, "b", 1.0 + 2e-9, None)])
    assert auroc(table)["value"].to_list() == [1.0]


def test_infinite_scores_are_the_most_ood(row: Any, frame: Any) -> None:
    scores = {"a": 0.0, "b": -math.inf, "c": 5.0}
    known = [scored(row, name, score, True) for name, score in scores.items()]
    unknown = [scored(row, name, math.inf, None) for name in ("d", "e")]
    found = ood(frame(known + unknown))
    values = dict(found.select("metric", "value").rows())
    assert values["auroc"] == 1
    assert values["aupr_out"] == 1
    assert values["fpr95_ood_pos"] == 0
    assert found["missing"].to_list() == [0] * found.height


def test_tied_infinite_scores_share_their_precision(row: Any, frame: Any) -> None:
    known = [scored(row, name, score, True) for name, score in (("a", 0.0), ("b", math.inf))]
    unknown = [scored(row, name, math.inf, None) for name in ("c", "d")]
    found = aupr_out(frame(known + unknown))
    assert found["value"].to_list() == [pytest.approx(average_precision_score([0, 0, 1, 1], [0, 9, 9, 9]))]
