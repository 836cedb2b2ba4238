"""The part of YAML that ``data.yaml`` files of detection datasets use, so that no library is needed for it.

Understood are keys without indentation, with a plain or quoted scalar, a list ([a, b] or lines with -), or a mapping ({0: a} or
indented lines) of scalars; comments; and flow lists over several lines. Anything else (anchors, tags, text blocks, deeper
nesting) makes the value of its key ``NotUnderstood``, with its line, and the other keys are still read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#:'"\-\[\]{},][^#:]*?)\s*:(?:\s+(.*))?$""")

_MARKS = tuple("[{&*!|>%@`")
"""The first characters of values that are not plain scalars."""


@dataclass(frozen=True)
class NotUnderstood:
    """A value that is not in the part of YAML that is read, and the number of its line."""

    line: int


def parse(text: str) -> dict[str, Any]:
    """Return the keys of a YAML mapping with their values: text, a list of text, a mapping of text, or ``NotUnderstood``."""
    lines = [(number, _bare(line)) for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line.strip() not in ("", "---", "...")]
    found: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        number, line = lines[at]
        end = at + 1
        while end < len(lines) and (lines[end][1][0] in " \t-]}"):
            end += 1
        match = _KEY.match(line)
        if match:
            value = _value((match[2] or "").strip(), [below for _, below in lines[at + 1 : end]])
            found[_scalar(match[1])] = NotUnderstood(number) if value is None else value
        at = end
    return found


def _bare(line: str) -> str:
    """Return a line without its comment."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (place == 0 or line[place - 1] in " \t[{,:"):
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place].rstrip()
    return line.rstrip()


def _value(first: str, below: Sequence[str]) -> Any:
    """Return the value that begins on its key's line and may go on below it, or None if it is not understood."""
    if first[:1] in ("[", "{"):
        whole = " ".join([first, *(line.strip() for line in below)])
        return _flow(whole)
    if first:
        return None if below or first[0] in _MARKS else _scalar(first)
    if not below:
        return ""
    if all(line.lstrip().startswith("- ") for line in below):
        items = [line.lstrip()[2:].strip() for line in below]
        return None if any(item[:1] in _MARKS or _KEY.match(item) for item in items) else [_scalar(item) for item in items]
    return _mapping(below)


def _mapping(below: Sequence[str]) -> dict[str, str] | None:
    indents = {len(line) - len(line.lstrip()) for line in below}
    pairs = [_KEY.match(line.strip()) for line in below]
    plain = all(pair and pair[2] and pair[2].strip()[:1] not in _MARKS for pair in pairs)
    if len(indents) != 1 or not plain:
        return None
    return {_scalar(pair[1]): _scalar(pair[2].strip()) for pair in pairs if pair}


def _flow(text: str) -> Any:
    parts = _split(text[1:-1]) if (text[0], text[-1]) in (("[", "]"), ("{", "}")) else None
    if parts is None:
        return None
    if text[0] == "[":
        return [_scalar(part) for part in parts]
    pairs = [_KEY.match(part) for part in parts]
    return {_scalar(pair[1]): _scalar((pair[2] or "").strip()) for pair in pairs if pair} if all(pairs) else None


def _split(text: str) -> list[str] | None:
    """Return the parts of a flow list between its commas, or None where brackets are nested or a quote does not end."""
    parts, part, quote = [], "", ""
    for letter in text:
        if not quote and letter == ",":
            parts.append(part.strip())
            part = ""
            continue
        if not quote and letter in "[]{}":
            return None
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (not part.strip() or part.rstrip().endswith(":")):
            quote = letter
        part += letter
    return None if quote else [found for found in (*parts, part.strip()) if found]


def _scalar(text: str) -> str:
    """Return a scalar as text, without its quotes."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1].replace("''", "'") if quoted and text[0] == "'" else text[1:-1] if quoted else text
