"""A column gives back what went into it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.core import FileRef, Generated
from sorites.core.packed import ComputedColumn, ConstantColumn, IntegerColumn, TextColumn, column
from sorites.sources.webdataset import Member


@dataclass(frozen=True)
class Checked:
    value: int

    def __post_init__(self) -> None:
        """Stand for anything that may not be made twice."""


ONE = object()


def draw(*args: object) -> NDArray[np.uint8]:
    """Stand for a function that makes an image."""
    return np.zeros((1, 1, 3), np.uint8)


def other(*args: object) -> NDArray[np.uint8]:
    """Stand for another one."""
    return draw(*args)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([ONE, ONE, ONE], ConstantColumn),
        (["a", "", "Zürich", "\udcff", "naïve 🌵"], TextColumn),
        ([3, -1, None, 1 << 40], IntegerColumn),
        ([0, 5, 2**31 - 1, -(2**31) + 1], IntegerColumn),
        ([1 << 80, 2, None], list),
        ([True, 1, 0], list),
        ([1.5, 2.5], list),
        ([Path("/a/b.png"), Path("c"), Path(os.fsdecode(b"/x/\xff.png"))], ComputedColumn),
        ([Member(Path("/t.tar"), f"{i}.jpg", 512 * i, 9) for i in range(5)], ComputedColumn),
        (
            [Member(Path("/t.tar"), "a.cls", 0, 1, b"7"), Member(Path("/t.tar"), "b.cls", 1, 1)],
            ComputedColumn,
        ),
        ([FileRef(f"/t/{i}.png") for i in range(3)], ComputedColumn),
        ([FileRef(Path("/t.tar"), 512 * i, 9 + i, f"t/{i}") for i in range(3)], ComputedColumn),
        ([FileRef(Path(f"/t/{i}.png"), within=Path("/t")) for i in range(3)], ComputedColumn),
        ([Checked(1), Checked(2)], list),
        ([frozenset({1}), frozenset({2, 3})], list),
    ],
)
def test_values_come_back_equal_in_type_and_value(values: list[Any], kind: type) -> None:
    held = column(values)
    assert type(held) is kind
    back = [held[i] for i in range(len(values))]
    assert back == values
    assert list(map(type, back)) == list(map(type, values))


def test_calls_of_one_function_are_kept_by_their_arguments() -> None:
    ids = [f"p{i}" for i in range(4)]
    values: list[Any] = [Generated(draw, (10 * i, id_), "v") for i, id_ in enumerate(ids)]
    held = column(values, [(ids, names := column(ids))])
    assert isinstance(held, ComputedColumn)
    assert held._parts[-1] is names
    assert [held[i] for i in range(4)] == values


@pytest.mark.parametrize(
    "calls",
    [
        [Generated(draw, (1,)), Generated(other, (1,))],
        [Generated(draw, (1, 2)), Generated(draw, (1,))],
        [Generated(draw, (1,), "v1"), Generated(draw, (1,), "v2")],
        [Generated(draw), Generated(draw)],
        [Generated(draw, (1,)), FileRef("a.png")],
        [lambda: 1, lambda: 2],
    ],
)
def test_calls_that_differ_otherwise_stay_as_they_are(calls: list[Any]) -> None:
    held = column(calls)
    assert [held[i] for i in range(2)] == calls


def test_arrays_are_kept_and_not_compared() -> None:
    arrays = [np.zeros(3), np.ones(3)]
    held = column([Generated(draw, (array,)) for array in arrays])
    assert [held[i].args[0] is array for i, array in enumerate(arrays)] == [True, True]
