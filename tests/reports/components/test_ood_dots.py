from __future__ import annotations

import dataclasses
import html
import re

import polars as pl

from sorites import metrics
from sorites.reports.sections.ood.detection import kinds, ood_dots
from sorites.reports.view import RunView, merge


def titles(drawn: str) -> list[str]:
    return re.findall(r"<h3>(.*?)</h3>", drawn)


def test_two_cards_a_model(ood_run: RunView) -> None:
    drawn = ood_dots(merge([ood_run]))
    assert titles(drawn) == [
        f"lite{i} · {what}" for i in (0, 1) for what in ("all OOD images", "kind by kind")
    ]


def test_the_best_mean_of_both_frameworks_comes_first(crowded_run: RunView) -> None:
    card = ood_dots(merge([crowded_run])).split("<article")[1]
    views = [metrics.auroc(crowded_run.table, framework=name) for name in ("semantic", "model-specific")]
    best = pl.concat([rows.select("model", "scorer", "value") for rows in views]).filter(model="lite0")
    order = best.group_by("scorer").agg(pl.col("value").mean()).sort("value", descending=True)["scorer"]
    assert re.findall(r"<b>(.*?)</b><div class=\"row\">", card) == [html.escape(name) for name in order]
    row = views[0].filter(model="lite0", scorer="msp").row(0, named=True)
    interval = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
    n = f"n = {row['id']} + {row['ood']}"
    assert f"msp, by label: {100 * row['value']:.1f}\u202f%, 95 %: {interval}\u202f%, {n}" in card


def test_each_framework_has_its_own_mark(ood_run: RunView) -> None:
    both, kind = ood_dots(merge([ood_run])).split("<article")[1:3]
    assert re.findall(r'<i class="(m\d)"></i>([^(]*) \(', both) == [
        ("m0", "by label"),
        ("m1", "by correctness"),
    ]
    assert re.findall(r'<i class="(m\d)"></i>([^(]*) \(', kind) == [
        ("m2", "near S-OOD"),
        ("m3", "far S-OOD"),
        ("m4", "C-OOD"),
    ]


def test_incomparable_inputs_leave_the_section_out(ood_run: RunView, run: RunView) -> None:
    assert ood_dots(merge([run])) == ""
    alone = ood_run.table.filter(pl.col("scorer").is_null() | (pl.col("scorer") == "msp"))
    assert ood_dots(merge([dataclasses.replace(ood_run, table=alone)])) == ""
    known = merge([dataclasses.replace(ood_run, table=ood_run.table.filter(pl.col("known")))])
    assert kinds(known) == {}
    assert titles(ood_dots(known)) == ["lite0 · all OOD images", "lite1 · all OOD images"]
