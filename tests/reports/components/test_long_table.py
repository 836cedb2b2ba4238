from __future__ import annotations

from sorites.reports.components.lenses import SHOWN_ROWS, csv_link, long_table


def test_a_short_table_is_whole_and_a_long_one_can_be_searched() -> None:
    short, long = (
        long_table(["name", "n"], [[f"c{i}", str(i)] for i in range(n)], "", what="classes")
        for n in (SHOWN_ROWS, SHOWN_ROWS + 1)
    )
    assert "findable" not in short
    assert 'data-what="41 classes"' in long
    assert long.count("<tr>") == SHOWN_ROWS + 2


def test_rows_beyond_the_maximum_are_only_in_the_csv() -> None:
    made = long_table(["name"], [[f"c{i}"] for i in range(50)], "", most=45)
    assert "c44" in made
    assert "c45" not in made
    assert "the CSV file has all" in made


def test_the_file_quotes_what_needs_it() -> None:
    link = csv_link("one", ["a"], [['x,"y"']])
    assert 'download="one.csv"' in link
    assert "%22x%2C%22%22y%22%22%22" in link
    assert csv_link("none", ["a"], []) == ""
