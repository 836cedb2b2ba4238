"""Hostile values, and ways to spoil what is valid: bytes of a file, words of a text, values of a
JSON document.
"""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

from hypothesis import strategies as st

DEEP = 3000
"""How deep nested values are: deeper than a parser that calls itself can follow."""

WORDS = (
    "", " ", "0", "-0", "-1", "1", "2.5", "1e999", "-1e999", "1e-400", "NaN", "nan", "inf", "-inf", "null", "true", "False",
    "None",
    "18446744073709551616", "-9223372036854775809", "2147483648", "2000000000", "9" * 400, "9" * 5000, "0x10", "1_000", "٣",
    "½", "é", "ß" * 300, "\ufeff",
    "a" * 300, "x" * 5000, "\x00", "a\x00b", "\x1b[31m", "\n", "\r", "\t", ",", ";", '"', "'", "\\", "%s", "%n", "{}", "{0}",
    "{", "[", "]",
    "[" * DEEP, "{" * DEEP, '{"a":' * DEEP, "(" * DEEP, "-" * DEEP, "[]", "[1]", "[null]", "{1..2}", "*", "?", "[1].png",
    "**/*", "..", ".", "/",
    "../../etc/passwd", "/etc/passwd", "~nobody_at_all", "~", "C:\\x", "\\\\host\\x", "/dev/null", "/dev/full", "/dev/zero",
    "/proc/self/mem",
    "http://localhost:9/x", "s3://x/y", "clean", "imagenet", "knn(k=", "knn(k=10)", "knn(k=-1)", "knn(k=1e9)", "knn(x=1)",
    "f(**{})", "f(*[])",
    "a:b:c", "a=b", "?a=b", "a&b", "\ud800", "1979-13-99", "1979-05-27T07:32:00", "'; DROP TABLE annotations; --",
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, float("inf"), float("-inf"),
    float("nan"), "",
    "x", "clean", "1", "nan", "../x", "/etc/passwd", "\x00", "\ud800", "a" * 300, [], [None], [1, "a"], [[]], [[0.0, 1.0]], {},
    {"a": 1},
    {"": None}, {"name": 1}, [{"name": []}], ["x"] * 40, list(range(40)), -7, 3, "0", "é",
)  # fmt: skip

NUMBERS = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"-1",
    b"99999999",
)

words = st.sampled_from(WORDS)
seeds = st.integers(0, 2**48 - 1)
"""What a way of spoiling follows from; drawing each step by itself would take longer than the case."""


def spoilt(data: bytes, seed: int) -> bytes:
    """Return the bytes with one to four places changed, cut, dropped, repeated, filled or zeroed."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + 1 + int(rng.random() ** 4 * len(data)))
        more = rng.choice(NUMBERS) if rng.random() < 0.5 else rng.randbytes(rng.choice((1, 1, 2, 4)))
        kind = rng.choice(("set", "set", "set", "cut", "drop", "twice", "put", "zero"))
        if kind == "set":
            data = data[:at] + more + data[at + len(more) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[end:]
        elif kind == "twice":
            data = data[:end] + data[at:end] + data[end:]
        elif kind == "put":
            data = data[:at] + more + data[at:]
        else:
            data = data[:at] + b"\0" * (end - at) + data[end:]
    return data[: 1 << 22]


_TOKENS = re.compile(r"[A-Za-z_]+|-?\d+(?:\.\d+)?|\s+|.", re.DOTALL)


def reworded(text: str, seed: int) -> str:
    """Return the text with one to three words, numbers or marks replaced by hostile ones, or a line
    dropped or repeated.
    """
    rng, tokens = random.Random(seed), _TOKENS.findall(text) or [""]
    for _ in range(rng.choice((1, 1, 2, 3))):
        tokens[rng.randrange(len(tokens))] = rng.choice(WORDS)
    if rng.random() < 0.2:
        lines = "".join(tokens).splitlines(keepends=True) or [""]
        at = rng.randrange(len(lines))
        lines[at : at + 1] = rng.choice(([], [lines[at], lines[at]]))
        return "".join(lines)
    return "".join(tokens)


def replaced(document: Any, seed: int) -> Any:
    """Return a JSON document with one to three of its values replaced, left out, moved to another
    key or nested more deeply.
    """
    rng, document = random.Random(seed), copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 3))):
        slots, new = _slots(document), copy.deepcopy(rng.choice(VALUES))
        if not slots:
            return new
        (holder, key), how = rng.choice(slots), rng.choice(("set", "set", "set", "drop", "key", "deep"))
        if how == "drop":
            del holder[key]
        elif how == "key" and isinstance(holder, dict):
            holder[str(new)[:50]] = holder.pop(key)
        elif how == "deep":
            holder[key] = [[[[[[holder[key]]]]]]]
        else:
            holder[key] = new
    return document


def _slots(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        here = left.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        found += [(here, key) for key in keys]
        left += [here[key] for key in keys if isinstance(here[key], dict | list)]
    return found


def written(document: Any) -> bytes:
    """Return a document as JSON; lone surrogates stay escaped."""
    return json.dumps(document).encode()
