from __future__ import annotations

from sorites.reports.components.markup import Html, picked


def test_a_single_part_needs_no_buttons() -> None:
    assert picked("x", "Scorer", {"msp": Html("<p>a</p>")}) == "<div><p>a</p></div>"
    two = picked("x", "Scorer", {"msp": Html("<p>a</p>"), "<b>": Html("<p>b</p>")})
    assert two.count('type="radio"') == 2
    assert "<b>" not in two
