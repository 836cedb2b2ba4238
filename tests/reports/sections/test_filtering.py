"""Figure 3 and table 2b of CNS-Bench on the page, against manual counts."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest

from sorites.analysis.filter.encoders import PairRecord
from sorites.analysis.filter.filtering import FilterRecord
from sorites.core import table
from sorites.reports.components.markup import Html
from sorites.reports.sections import generated as module
from sorites.reports.view import RunView, merge

VOTES = ("class_text", "shift_text", "joint_image", "own_image")
LIMITS = dict.fromkeys(VOTES, 0.5)


def facts(scale: float, i: int) -> dict[str, Any]:
    """What is known of image i at a scale: people judged the first eight, and 3 and 5 of them are
    lost at scales 1 and 2.

    The votes find the lost ones except image 0, whose texts alone are low, and also set aside image 7.
    """
    outside = i < (3 if scale == 1 else 5)
    passes = [i != 7 and not outside] * 4 if i else [False, False, True, True]
    return {"outside": outside if i < 8 else None, "right": not outside and i != 6, "passes": passes}


def rows() -> list[dict[str, Any]]:
    found = []
    for scale in (0.0, 1.0, 2.0):
        for i in range(10):
            known = facts(scale, i) if scale else {}
            row = {
                "run_id": "r",
                "source": "s",
                "sample_id": f"p{i}",
                "image_id": f"{scale}/{i}",
                "probe": False,
                "label": 0,
                "known": True,
                "family": "f",
                "shift": "snow" if scale else "clean",
                "severity": scale,
                "model": "m",
                "output": "label",
                "pred": 0,
                "correct": known.get("right", True),
            }
            if scale:
                degrees = [
                    {"measure": v, "value": float(p)} for v, p in zip(VOTES, known["passes"], strict=True)
                ]
                degrees += (
                    [{"measure": "outside", "value": float(known["outside"])}]
                    if known["outside"] is not None
                    else []
                )
                row |= {"valid": sum(known["passes"]) >= 3, "degrees": degrees}
            found.append(row)
    return found


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    figures: list[Any] = []

    def plot(figure: Any, about: str) -> Html:
        figures.append(figure)
        return Html("")

    monkeypatch.setattr(module, "plot", plot)
    return figures


def view(**more: Any) -> RunView:
    pair = PairRecord(encoder="a", version="1", second="b", second_version="1", softmax=False, texts={})
    record = FilterRecord(made_of=pair, thresholds=LIMITS, origin="calibrated", rule="paper")
    return RunView(table.rows(rows()).lazy(), "made", **{"filtered": record, **more})


def test_figure_3_has_a_curve_without_filter_with_it_and_by_people(drawn: list[Any]) -> None:
    """All three curves are over the annotated images, starting from the clean images at severity 0."""
    section = module.filtering(merge([view()]))
    assert section is not None
    lines = {trace["line"]["dash"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in drawn[0].data}

    def accuracy(scale: float, kept: Any) -> float:
        judged = [facts(scale, i) for i in range(8)]
        return float(pl.Series([one["right"] for one in judged if kept(one)]).mean())  # type: ignore[arg-type]

    for dash, kept in (
        ("dot", lambda one: True),
        ("solid", lambda one: sum(one["passes"]) >= 3),
        ("dash", lambda one: not one["outside"]),
    ):
        assert lines[dash] == pytest.approx({0.0: 1.0, 1.0: accuracy(1.0, kept), 2.0: accuracy(2.0, kept)})
    assert "annotated images" in section.lead
    assert "over the 16 annotated images" in section.lead


def test_table_2b_has_tpr_fpr_and_accuracy_of_each_vote_and_rule(drawn: list[Any]) -> None:
    section = module.filtering(merge([view()]))
    assert section is not None
    first = re.search(r"<table.*?</table>", section.body)
    assert first is not None
    cells = [re.findall(r">([^<>]+)</t[hd]>", line) for line in re.findall(r"<tr>.*?</tr>", first.group())]
    found = {line[0]: line[1:] for line in cells[1:]}
    judged = [facts(scale, i) for scale in (1.0, 2.0) for i in range(8)]

    def expected(aside: Any) -> list[str]:
        lost, sound = ([aside(one) for one in judged if one["outside"] is kind] for kind in (True, False))
        right = (sum(lost) + len(sound) - sum(sound)) / 16
        return [f"{100 * x:.1f}\u202f%" for x in (sum(lost) / len(lost), sum(sound) / len(sound), right)] + [
            "16"
        ]

    assert found["text of the class"] == expected(lambda one: not one["passes"][0])
    assert found["clean image, second encoder"] == expected(lambda one: not one["passes"][3])
    assert found["rule paper"] == expected(lambda one: sum(one["passes"]) < 3)
    assert found["rule code"] == expected(lambda one: sum(one["passes"]) < 2)
    assert found["rule paper"] != found["rule code"]
    assert "8 images out of class" in first.group()


def test_without_labels_there_are_two_curves_and_no_quality(drawn: list[Any]) -> None:
    bare = table.rows([{**row, "degrees": None} for row in rows()]).lazy()
    section = module.filtering(merge([RunView(bare, "made")]))
    assert section is not None
    assert {trace["line"]["dash"] for trace in drawn[0].data} == {"dot", "solid"}
    assert "TPR" not in section.body
