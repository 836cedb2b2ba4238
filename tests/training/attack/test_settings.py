"""What an attack is made with: sizes as they are typed, and what is refused."""

from __future__ import annotations

import pytest

from sorites.core.errors import SoritesError
from sorites.training.attack.run import epsilons, settings


def test_sizes_are_read_as_fractions_and_sorted() -> None:
    assert epsilons(".25, 4/255,.1,0.1") == (4 / 255, 0.1, 0.25)
    assert epsilons([0.5, 0.25]) == (0.25, 0.5)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "0", "1/0", "four", "", "1,,2", "1/2/3"])
def test_a_size_that_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(SoritesError, match="numbers above 0, such as 4/255"):
        epsilons(text)


def test_sizes_beyond_the_range_of_pixels_are_refused_for_linf_alone() -> None:
    with pytest.raises(SoritesError, match="8/255"):
        epsilons("8", "linf")
    assert epsilons("8", "l2") == (8.0,)


@pytest.mark.parametrize(
    ("norm", "losses", "steps", "restarts", "said"),
    [
        ("l1", "ce", 1, 1, "no norm named 'l1'"),
        ("l2", "cee", 1, 1, "no attack named 'cee'. Did you mean ce"),
        ("l2", "", 1, 1, "no attack named ''"),
        ("l2", (), 1, 1, "no attack named ''"),
        ("l2", "ce", 0, 1, "got 0"),
        ("l2", "ce", 1, -1, "restarts"),
    ],
)
def test_other_settings_are_refused(norm: str, losses: str, steps: int, restarts: int, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        settings(norm, "0.1", losses, steps, restarts)


def test_the_names_in_the_table() -> None:
    how = settings("linf", "2/255", "dlr,ce,dlr", 10, 2)
    assert how.shifts == {"apgd_dlr_linf": "dlr", "apgd_ce_linf": "ce"}
    assert how.shift("apgd_ce_linf", "net 1").version != how.shift("apgd_ce_linf", "net 2").version
