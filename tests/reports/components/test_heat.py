from __future__ import annotations

import pytest

from sorites.reports.components.charts import NONE, heat, same, shaded, thin


@pytest.mark.parametrize(
    ("good", "drawn"),
    [(0.0, "up 0%"), (0.5, "up 32%"), (1.0, "up 65%"), (-1.0, "down 65%"), (-3, "down 65%")],
)
def test_the_further_from_the_middle_the_stronger(good: float, drawn: str) -> None:
    side, strength = drawn.split(" ")
    assert shaded("9", good, "said", 3) == (
        f'<td class="{side}" style="--s:{strength}" title="said">9<small>3</small></td>'
    )


def test_too_few_are_hatched_with_their_number() -> None:
    assert thin(4) == '<td class="thin" title="4 images are too few">–<small>4</small></td>'


def test_a_table_names_its_rows_and_columns() -> None:
    made = heat("level", [1, 2], [("<msp>", [NONE, thin(3)])], "AUROC", named=True)
    assert '<table class="heat named"><caption>AUROC</caption>' in made
    assert '<th scope="col">2</th>' in made
    assert '<th scope="row">&lt;msp&gt;</th><td class="none"></td><td class="thin"' in made


def test_equal_counts_are_shown_once() -> None:
    assert same([5, 5]) == "5"
    assert same([1200, 7, 9]) == "7 to 1\u202f200"
