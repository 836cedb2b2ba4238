"""Plans: objects × prepositions × attributes with synonyms, the built-in one, and files that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.apps.collecting.plan import Query, built_in, queries, queries_from_texts, read_plan
from sorites.core.errors import SoritesError


def test_focus() -> None:
    """The plan of FOCUS has its ten objects with the eleven phrases of appendix A, and its twelve
    further queries.
    """
    assert built_in() == ["focus"]
    plan = read_plan("focus")
    assert len(plan) == 10 * 11 + 12
    assert Query("ship on grass", "ship", "grass") in plan
    assert Query("frog in a desert", "frog", "sand") in plan
    assert plan[-1] == Query("plane in a hangar", "plane", "indoors")
    assert len({query.object for query in plan}) == 10


def test_product() -> None:
    """Every synonym meets every phrase; prepositions stand before words."""
    plan = {
        "objects": {"ship": ["ship", "boat"]},
        "attributes": {"snow": {"prepositions": ["on", "in"], "words": ["snow", "ice"]}, "night": "at night"},
        "queries": [{"text": "ship  at   night", "object": "ship"}, {"text": "a  dock"}],
    }
    found = [query.text for query in queries(plan, "p")]
    assert found == [
        "ship on snow",
        "ship on ice",
        "ship in snow",
        "ship in ice",
        "boat on snow",
        "boat on ice",
        "boat in snow",
        "boat in ice",
        "ship at night",
        "boat at night",
        "a dock",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "objects = 5",
        "[objects]\nship = 5\n[attributes]\nx='y'",
        "[objects]\nship = []\n[attributes]\nx='y'",
        "queries = 5",
        "[objekts]\nship = 'x'",
        "[[queries]]\nwords = 'x'",
        "[[queries]]\ntext = ''",
        '[[queries]]\ntext = "a\\u0000b"',
        "[objects]\nship='ship'\n[attributes]\nx = { words = ['a'] }",
        "[[queries]]\ntext = '" + "x" * 300 + "'",
        "[",
        "queries=[5]",
    ],
)
def test_wrong(tmp_path: Path, text: str) -> None:
    """A wrong file is one error that names it."""
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(SoritesError, match=r"p\.toml"):
        read_plan(str(tmp_path / "p.toml"))


def test_names() -> None:
    """A plan that is not there suggests what is; words typed twice are searched once."""
    with pytest.raises(SoritesError, match="Did you mean focus"):
        read_plan("focs")
    assert queries_from_texts(["a  b", "a b", "c"]) == [Query("a b"), Query("c")]
