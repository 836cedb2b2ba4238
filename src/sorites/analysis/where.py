"""Parse row conditions such as ``shift = coma and level >= 3`` into polars expressions.

Conditions are parsed, never evaluated as code. A comparison is a column, one of ``= != < <= > >=``, and a
value; ``in (a, b)``, ``is null`` and ``is not null`` are supported as well. Comparisons combine with
``and``, ``or``, ``not`` and parentheses. Values with spaces or signs need quotes. ``params.iso`` reads the
entry ``iso`` of a setting's params, ``attrs.weather`` the attribute ``weather`` of a sample. A null matches
``!=`` and no other comparison, so ``not level = 3`` keeps the clean images.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.table import ATTRS_PREFIX as ATTRS
from sorites.core.table import Table

TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>'[^']*'|"[^"]*")|(?P<sign><=|>=|!=|<>|==|[=<>(),])|(?P<word>[^\s=<>!(),'"]+))"""
)
OPERATORS: Mapping[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ORDERED = ("<", "<=", ">", ">=")
EXAMPLE = 'for example "shift = coma and level >= 3"'
# Columns with few distinct values. Comparing one with a value that no row has is an error.
ENUMERATED_COLUMNS = ("source", "split", "family", "shift", "model", "output", "scorer")
PARAMS = "params."


@dataclass(frozen=True)
class Token:
    """A word, quoted text or sign of a condition."""

    text: str
    kind: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def where(table: Table, text: str) -> pl.LazyFrame:
    """Return the rows of a table that match a condition.

    Args:
        table: The table to filter.
        text: The condition; the module docstring describes its syntax.

    Returns:
        The matching rows, not yet collected.

    Raises:
        SoritesError: The condition cannot be parsed, or names an unknown column or value.
    """
    lazy = table.lazy()
    parser = _Parser(text, lazy.collect_schema())
    condition = parser.read()
    for column, value in parser.listed_values:
        present = (
            lazy.select(pl.col(column).drop_nulls().unique().sort())
            .collect(engine="streaming")[column]
            .to_list()
        )
        if value not in present:
            raise UnknownName(f"{column} here", value, present, f"There are {', '.join(present)}.")
    return lazy.filter(condition)


def tokens(text: str) -> Iterator[Token]:
    """Split a condition into tokens."""
    position = 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            raise SoritesError(
                f"{option('where', None)}: cannot parse {text[position:].strip()!r}; expected a condition,"
                f" {EXAMPLE}"
            )
        kind = str(match.lastgroup)
        matched = match[kind]
        yield Token(matched[1:-1] if kind == "quoted" else matched, kind)
        position = match.end()


class _Parser:
    """Recursive-descent parser; ``or`` binds weakest, then ``and``, then ``not``."""

    def __init__(self, text: str, schema: Mapping[str, Any]) -> None:
        self.text, self.schema = text, schema
        self.remaining = list(tokens(text))
        self.listed_values: list[tuple[str, str]] = []
        """Values compared with enumerated columns, to be checked against the table."""

    def read(self) -> pl.Expr:
        condition = self._or()
        if self.remaining:
            raise self._expected("and, or, or the end", self.remaining[0].text)
        return condition

    def _or(self) -> pl.Expr:
        condition = self._and()
        while self._next("or"):
            condition = condition | self._and()
        return condition

    def _and(self) -> pl.Expr:
        condition = self._not()
        while self._next("and"):
            condition = condition & self._not()
        return condition

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
            return pl.any_horizontal(
                *(self._comparison_with(name, "=", value) for value in self._value_list())
            )
        sign = self._take("one of = != < <= > >=")
        if sign.text not in OPERATORS or sign.kind != "sign":
            raise self._expected("one of = != < <= > >=, in, is", sign.text)
        return self._comparison_with(name, sign.text, self._take("a value"))

    def _value_list(self) -> list[Token]:
        self._must("(")
        values = [self._take("a value")]
        while self._next(",", kind="sign"):
            values.append(self._take("a value"))
        self._must(")")
        return values

    def _comparison_with(self, name: str, sign: str, value: Token) -> pl.Expr:
        operand = self._value(name, sign, value)
        if name in ENUMERATED_COLUMNS and isinstance(operand, str) and OPERATORS[sign] is operator.eq:
            self.listed_values.append((name, operand))
        if name.startswith(ATTRS):
            pair = pl.element().struct
            is_pair = (pair.field("key") == name.removeprefix(ATTRS)) & (pair.field("value") == str(operand))
            has_pair = pl.col("attrs").list.eval(is_pair).list.any().fill_null(False)
            return has_pair if OPERATORS[sign] is operator.eq else ~has_pair
        return OPERATORS[sign](self._column(name, operand), operand).fill_null(OPERATORS[sign] is operator.ne)

    def _column(self, name: str, value: Any) -> pl.Expr:
        """Return a column, or an entry of params cast to the type of ``value``."""
        if name.startswith(PARAMS):
            entry = pl.col("params").str.json_path_match(f"$['{name.removeprefix(PARAMS)}']")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return entry.cast(pl.Float64, strict=False) if is_number else entry
        return pl.col(name)

    def _value(self, name: str, sign: str, value: Token) -> Any:
        """Convert a token to the type of the column."""
        if name.startswith((PARAMS, ATTRS)):
            return _number(value) if name.startswith(PARAMS) else self._text(name, sign, value)
        if name not in self.schema or self.schema[name].is_nested():
            columns = [column for column, kind in self.schema.items() if not kind.is_nested()]
            raise UnknownName(
                "column", name, columns, f"The columns are {', '.join(columns)}, params.NAME and attrs.NAME."
            )
        if self.schema[name].is_numeric():
            number = _number(value)
            if isinstance(number, str):
                raise SoritesError(f"{option('where', None)}: column {name} is numeric, got {value.text!r}.")
            return number
        if self.schema[name] == pl.Boolean:
            if not value.is_word("true", "false") or sign in ORDERED:
                raise SoritesError(
                    f"{option('where', None)}: column {name} is boolean; use {name} = true or {name} = false,"
                    f" got {sign} {value.text}."
                )
            return value.text.lower() == "true"
        return self._text(name, sign, value)

    def _text(self, name: str, sign: str, value: Token) -> str:
        if sign in ORDERED:
            raise SoritesError(
                f"{option('where', None)}: column {name} is text, so only = and != apply, got {sign}."
            )
        return value.text

    def _next(self, text: str, kind: str = "word") -> bool:
        """Consume the next token if it matches."""
        if self.remaining and self.remaining[0].kind == kind and self.remaining[0].text.lower() == text:
            self.remaining.pop(0)
            return True
        return False

    def _must(self, text: str, kind: str = "sign") -> None:
        if not self._next(text, kind):
            raise self._expected(text, self.remaining[0].text if self.remaining else "the end")

    def _take(self, what: str) -> Token:
        if not self.remaining or (self.remaining[0].kind == "sign" and not what.startswith("one of")):
            raise self._expected(what, self.remaining[0].text if self.remaining else "the end")
        return self.remaining.pop(0)

    def _expected(self, what: str, actual: str) -> SoritesError:
        return SoritesError(
            f"{option('where', None)}: expected {what} in {self.text!r}, got {actual!r}; {EXAMPLE}"
        )


def _number(value: Token) -> float | int | str:
    """Return an unquoted token as a number if it is one, else its text."""
    if value.kind == "quoted":
        return value.text
    for kind in (int, float):
        try:
            return kind(value.text)
        except ValueError:
            continue
    return value.text
