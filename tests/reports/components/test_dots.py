from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sorites.reports.components.charts import MAX_STEPS, Dot, Key, dot_chart, ordered, scale


@given(st.lists(st.floats(0, 1), min_size=1))
def test_a_scale_covers_its_values_in_a_few_steps(values: list[float]) -> None:
    on = scale(values)
    assert all(-1e-3 <= on.at(value) <= 100 + 1e-3 for value in values)
    assert 1 <= on.last - on.first <= MAX_STEPS
    assert (on.at(on.ticks()[0]), on.at(on.ticks()[-1])) == pytest.approx((0, 100))


def test_a_scale_is_as_narrow_as_round_steps_allow() -> None:
    assert scale([0.42, 0.97]).ticks() == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert scale([0.1, 0.97]).ticks() == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_the_best_mean_comes_first_and_ties_are_stable() -> None:
    made = {
        name: {str(i): Dot(value, None, None, "") for i, value in enumerate(values)}
        for name, values in NAMED.items()
    }
    assert ordered(made) == ["c", "a", "b"]
    assert ordered(made, highest=False) == ["a", "b", "c"]


NAMED = {"a": [0.4, 0.6], "b": [0.5], "c": [0.9, 0.7], "none": []}


def test_a_dot_is_at_its_value_within_its_interval() -> None:
    made = {"<knn>": {"near": Dot(0.75, 0.7, 0.9, "n = 3 + 4")}, "msp": {}}
    drawn = dot_chart(made, {"near": Key(2, "7 images")}, scale([0.5, 1]), {"random": 0.5}, "AUROC")
    assert "<knn>" not in drawn
    assert 'class="m2" style="margin-left:40.0%;width:40.0%"' in drawn
    assert '<i style="left:25%">' in drawn
    assert "&lt;knn&gt;, near: 75.0\u202f%, 95 %: 70.0 to 90.0\u202f%, n = 3 + 4" in drawn
    assert "near (7 images)" in drawn
    assert '<b>msp</b><div class="row"><u style="left:0.0%"></u><span></span></div>' in drawn


def test_a_dot_without_an_interval_is_drawn_alone() -> None:
    drawn = dot_chart(
        {"msp": {"near": Dot(0.75, None, None, "n = 1")}}, {"near": Key(0, "")}, scale([0.5, 1]), {}, "AUROC"
    )
    assert 'style="margin-left:50.0%;width:0.0%" title="msp, near: 75.0\u202f%, n = 1"' in drawn
