"""What is said rather than computed: lists, help, checks and the suites' own text."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

from tests.net.hashes import Entry, of_plain
from tests.net.home import Task, embedded_suites, typed

KINDS = ("shifts", "models", "sources", "metrics", "scorers", "referees", "suites")
CHECKED = ("demo", "optics_bench", "lens_corruptions", "tolerances", "camera", "stamps_ood", "is_ood_demo")
"""Suites whose pictures can be had without the user."""


def tasks() -> list[Task]:
    return [Task(("words/said", "suites"), said)]


def said() -> Iterator[Entry]:
    for kind in KINDS:
        yield f"words/said/list {kind}", of_plain(typed("list", kind))
    for suite in CHECKED:
        yield f"words/said/check {suite}", of_plain(typed("check", suite))
    for path in embedded_suites():
        held = tomllib.loads(path.read_text(encoding="utf-8"))
        yield f"suites/{path.stem}", of_plain({key: value for key, value in held.items() if key != "about"})
    yield "words/said/help", of_plain(typed("--help"))
