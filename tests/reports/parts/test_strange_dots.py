from __future__ import annotations

import dataclasses
import html
import re

import polars as pl

from sorites import metrics
from sorites.reports.sections.ood import kinds, strange_dots
from sorites.reports.view import RunView, merge


def titles(drawn: str) -> list[str]:
    return re.findall(r"<h3>(.*?)</h3>", drawn)


def test_two_cards_a_model(strange_run: RunView) -> None:
    drawn = strange_dots(merge([strange_run]))
    assert titles(drawn) == [
        f"lite{i} · {what}" for i in (0, 1) for what in ("all strange pictures", "kind by kind")
    ]


def test_the_best_mean_of_both_frameworks_stands_first(crowded_run: RunView) -> None:
    card = strange_dots(merge([crowded_run])).split("<article")[1]
    views = [metrics.auroc(crowded_run.table, framework=name) for name in ("semantic", "model-specific")]
    best = pl.concat([rows.select("model", "scorer", "value") for rows in views]).filter(model="lite0")
    order = best.group_by("scorer").agg(pl.col("value").mean()).sort("value", descending=True)["scorer"]
    assert re.findall(r"<b>(.*?)</b><div class=\"row\">", card) == [html.escape(name) for name in order]
    row = views[0].filter(model="lite0", scorer="msp").row(0, named=True)
    interval = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
    n = f"n = {row['familiar']} + {row['strange']}"
    assert f"msp, by label: {100 * row['value']:.1f}\u202f%, 95 %: {interval}\u202f%, {n}" in card


def test_each_view_has_a_mark_of_its_own(strange_run: RunView) -> None:
    both, kind = strange_dots(merge([strange_run])).split("<article")[1:3]
    assert re.findall(r'<i class="(m\d)"></i>([^(]*) \(', both) == [("m0", "by label"), ("m1", "by verdict")]
    assert re.findall(r'<i class="(m\d)"></i>([^(]*) \(', kind) == [
        ("m2", "near S-OOD"),
        ("m3", "far S-OOD"),
        ("m4", "C-OOD"),
    ]


def test_what_cannot_be_asked_or_compared_is_absent(strange_run: RunView, run: RunView) -> None:
    assert strange_dots(merge([run])) == ""
    alone = strange_run.table.filter(pl.col("scorer").is_null() | (pl.col("scorer") == "msp"))
    assert strange_dots(merge([dataclasses.replace(strange_run, table=alone)])) == ""
    known = merge([dataclasses.replace(strange_run, table=strange_run.table.filter(pl.col("known")))])
    assert kinds(known) == {}
    assert titles(strange_dots(known)) == ["lite0 · all strange pictures", "lite1 · all strange pictures"]
