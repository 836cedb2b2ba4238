"""Conditions on rows of the table as they are typed: ``shift = coma and level >= 3``.

They become expressions; nothing is run.

A comparison is a column, one of ``= != < <= > >=``, and a value; ``in (a, b)`` and ``is null``,
``is not null`` are understood too, and ``and``, ``or``, ``not`` and parentheses join them. Values
with spaces or signs stand in quotes. ``params.iso`` is the entry iso of a setting's params, and
``attrs.weather`` the attribute weather of a sample. A row without a value there meets ``!=`` and no
other comparison, so that ``not level = 3`` keeps the clean images.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table

TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>'[^']*'|"[^"]*")|(?P<sign><=|>=|!=|<>|==|[=<>(),])|(?P<word>[^\s=<>!(),'"]+))"""
)
COMPARE: Mapping[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ORDERED = ("<", "<=", ">", ">=")
EXAMPLE = 'such as --where "shift = coma and level >= 3"'
# Columns of few values: a value that none of the rows has is an error that lists those they have.
LISTED = ("source", "split", "family", "shift", "model", "output", "scorer")
PARAMS, ATTRS = "params.", "attrs."


@dataclass(frozen=True)
class Token:
    """A word, a quoted text or a sign of a condition."""

    text: str
    kind: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def where(table: Table, text: str) -> pl.LazyFrame:
    """Return the rows of a table that meet a condition; one that cannot be read, or names what is
    not there, is an error.
    """
    lazy = table.lazy()
    reader = _Reader(text, lazy.collect_schema())
    condition = reader.read()
    for column, value in reader.named:
        held = (
            lazy.select(pl.col(column).drop_nulls().unique().sort())
            .collect(engine="streaming")[column]
            .to_list()
        )
        if value not in held:
            raise UnknownName(f"{column} here", value, held, f"There are {', '.join(held)}.")
    return lazy.filter(condition)


def tokens(text: str) -> Iterator[Token]:
    """Yield the parts of a condition."""
    place = 0
    while text[place:].strip():
        found = TOKEN.match(text, place)
        if found is None:
            raise SoritesError(
                f"--where: {text[place:].strip()!r} cannot be read; wanted a condition, {EXAMPLE}"
            )
        kind = str(found.lastgroup)
        part = found[kind]
        yield Token(part[1:-1] if kind == "quoted" else part, kind)
        place = found.end()


class _Reader:
    """Reads a condition from left to right: ``or`` binds least, then ``and``, then ``not``."""

    def __init__(self, text: str, schema: Mapping[str, Any]) -> None:
        self.text, self.schema = text, schema
        self.left = list(tokens(text))
        self.named: list[tuple[str, str]] = []
        """Columns of few values, with the values that were asked for."""

    def read(self) -> pl.Expr:
        condition = self._or()
        if self.left:
            raise self._wanted("and, or, or the end", self.left[0].text)
        return condition

    def _or(self) -> pl.Expr:
        found = self._and()
        while self._next("or"):
            found = found | self._and()
        return found

    def _and(self) -> pl.Expr:
        found = self._not()
        while self._next("and"):
            found = found & self._not()
        return found

    def _not(self) -> pl.Expr:
        if self._next("not"):
            return ~self._not()
        if self._next("(", kind="sign"):
            inside = self._or()
            self._must(")")
            return inside
        return self._comparison()

    def _comparison(self) -> pl.Expr:
        name = self._take("a column").text
        if self._next("is"):
            negated = self._next("not")
            self._must("null", kind="word")
            value = self._column(name, None)
            return value.is_not_null() if negated else value.is_null()
        if self._next("in"):
            return pl.any_horizontal(*(self._compared(name, "=", value) for value in self._several()))
        sign = self._take("one of = != < <= > >=")
        if sign.text not in COMPARE or sign.kind != "sign":
            raise self._wanted("one of = != < <= > >=, in, is", sign.text)
        return self._compared(name, sign.text, self._take("a value"))

    def _several(self) -> list[Token]:
        self._must("(")
        found = [self._take("a value")]
        while self._next(",", kind="sign"):
            found.append(self._take("a value"))
        self._must(")")
        return found

    def _compared(self, name: str, sign: str, value: Token) -> pl.Expr:
        read = self._value(name, sign, value)
        if name in LISTED and isinstance(read, str) and COMPARE[sign] is operator.eq:
            self.named.append((name, read))
        if name.startswith(ATTRS):
            pair = pl.element().struct
            has = (pair.field("key") == name.removeprefix(ATTRS)) & (pair.field("value") == str(read))
            found = pl.col("attrs").list.eval(has).list.any().fill_null(False)
            return found if COMPARE[sign] is operator.eq else ~found
        return COMPARE[sign](self._column(name, read), read).fill_null(COMPARE[sign] is operator.ne)

    def _column(self, name: str, value: Any) -> pl.Expr:
        """Return a column, or an entry of a setting's params as the kind of object that it is
        compared with.
        """
        if name.startswith(PARAMS):
            entry = pl.col("params").str.json_path_match(f"$['{name.removeprefix(PARAMS)}']")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return entry.cast(pl.Float64, strict=False) if is_number else entry
        return pl.col(name)

    def _value(self, name: str, sign: str, value: Token) -> Any:
        """Return a value as the column holds it; one of another kind is an error."""
        if name.startswith((PARAMS, ATTRS)):
            return _number(value) if name.startswith(PARAMS) else self._text(name, sign, value)
        if name not in self.schema or self.schema[name].is_nested():
            known = [column for column, kind in self.schema.items() if not kind.is_nested()]
            raise UnknownName(
                "column", name, known, f"The columns are {', '.join(known)}, params.NAME and attrs.NAME."
            )
        if self.schema[name].is_numeric():
            read = _number(value)
            if isinstance(read, str):
                raise SoritesError(f"--where: {name} holds numbers, got {value.text!r}")
            return read
        if self.schema[name] == pl.Boolean:
            if not value.is_word("true", "false") or sign in ORDERED:
                raise SoritesError(
                    f"--where: {name} is true or false: {name} = true, got {sign} {value.text}"
                )
            return value.text.lower() == "true"
        return self._text(name, sign, value)

    def _text(self, name: str, sign: str, value: Token) -> str:
        if sign in ORDERED:
            raise SoritesError(f"--where: {name} holds text, which is compared by = and !=, not by {sign}")
        return value.text

    def _next(self, text: str, kind: str = "word") -> bool:
        """Take the next part if it is this one."""
        if self.left and self.left[0].kind == kind and self.left[0].text.lower() == text:
            self.left.pop(0)
            return True
        return False

    def _must(self, text: str, kind: str = "sign") -> None:
        if not self._next(text, kind):
            raise self._wanted(text, self.left[0].text if self.left else "the end")

    def _take(self, what: str) -> Token:
        if not self.left or (self.left[0].kind == "sign" and not what.startswith("one of")):
            raise self._wanted(what, self.left[0].text if self.left else "the end")
        return self.left.pop(0)

    def _wanted(self, what: str, came: str) -> SoritesError:
        return SoritesError(f"--where {self.text!r}: wanted {what}, got {came!r}; {EXAMPLE}")


def _number(value: Token) -> float | int | str:
    """Return a word as a number where it is one; a quoted text never is."""
    if value.kind == "quoted":
        return value.text
    for kind in (int, float):
        try:
            return kind(value.text)
        except ValueError:
            continue
    return value.text
