"""What is said rather than computed: lists, help, checks and the suites' own text."""

from __future__ import annotations

from collections.abc import Iterator

from tools.net.hashes import Entry, of_plain
from tools.net.home import Task, typed

KINDS = ("shifts", "models", "sources", "metrics", "scorers", "measures", "encoders", "suites", "recipes")
CHECKED = ("demo", "optics_bench", "lens_corruptions", "tolerances", "camera", "stamps_ood", "is_ood_demo")
"""Suites whose images can be had without the user."""


def tasks() -> list[Task]:
    return [Task(("words/said",), said)]


def said() -> Iterator[Entry]:
    for kind in KINDS:
        yield f"words/said/list {kind}", of_plain(typed("list", kind))
    for suite in CHECKED:
        yield f"words/said/check {suite}", of_plain(typed("check", suite))
    yield "words/said/help", of_plain(typed("--help"))
