"""Filters of images: conditions on columns, as the page sends them, and the same filter as Python code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites.core.errors import SoritesError

Value = str | float | int | bool | None

OPERATORS: Mapping[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "is": lambda column, value: column.is_null() if value is None else column == value,
    "in": lambda column, values: column.is_in(values),
    "at least": lambda column, value: column >= value,
    "at most": lambda column, value: column <= value,
    "contains": lambda column, text: column.cast(pl.String).str.contains(text, literal=True),
}
_CODE: Mapping[str, str] = {
    "is": "pl.col({column}) == {value}",
    "in": "pl.col({column}).is_in({value})",
    "at least": "pl.col({column}) >= {value}",
    "at most": "pl.col({column}) <= {value}",
    "contains": "pl.col({column}).cast(pl.String).str.contains({value}, literal=True)",
}
MAX_CONDITIONS, MAX_VALUES, MAX_TEXT = 40, 2000, 500


@dataclass(frozen=True)
class Condition:
    """A column, an operator and what it is compared with."""

    column: str
    operator: str
    value: Value | tuple[Value, ...]

    def expression(self, schema: pl.Schema) -> pl.Expr:
        """Return the condition as an expression.

        Raises:
            SoritesError: The table has no such column, or the value does not fit it.
        """
        kind = schema.get(self.column)
        if kind is None:
            raise SoritesError(f"there is no column {self.column!r}; there are {', '.join(schema)}")
        column = pl.col(self.column)
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        for value in values:
            _check_kind(self.column, kind, self.operator, value)
        return OPERATORS[self.operator](column, list(values) if self.operator == "in" else self.value)

    def code(self) -> str:
        """Return the condition as Python code."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        if self.operator == "is" and value is None:
            return f"pl.col({self.column!r}).is_null()"
        return _CODE[self.operator].format(column=repr(self.column), value=repr(value))


def _check_kind(column: str, kind: pl.DataType, operator: str, value: Value) -> None:
    if value is None and operator == "is":
        return
    expected: tuple[type, ...] = (str,)
    if operator != "contains":
        expected = (bool,) if kind == pl.Boolean else (int, float) if kind.is_numeric() else (str,)
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise SoritesError(f"{column} {operator}: expected {names}, got {value!r}")


@dataclass(frozen=True)
class Query:
    """The conditions that an image must meet, and the order of the images."""

    conditions: tuple[Condition, ...] = ()
    sort: str | None = None
    descending: bool = False

    def apply(self, images: pl.DataFrame) -> pl.Series:
        """Return the indices of the images that match, in order."""
        expressions = [condition.expression(images.schema) for condition in self.conditions]
        if self.sort is not None and self.sort not in images.columns:
            raise SoritesError(f"there is no column {self.sort!r} to sort by")
        lazy = images.lazy().with_row_index("row")
        if expressions:
            lazy = lazy.filter(pl.all_horizontal(*expressions))
        if self.sort is not None:
            lazy = lazy.sort(self.sort, descending=self.descending, nulls_last=True, maintain_order=True)
        elif self.descending:
            lazy = lazy.reverse()
        return lazy.select("row").collect()["row"]

    def code(self, run: str) -> str:
        """Return Python code that selects the same images."""
        lines = ["import polars as pl", "import sorites", "", f"images = sorites.images({run!r})"]
        if self.conditions:
            conditions = "".join(f"    {condition.code()},\n" for condition in self.conditions)
            lines.append(f"images = images.filter(\n{conditions})")
        if self.sort is not None:
            lines.append(
                f"images = images.sort({self.sort!r}, descending={self.descending}, nulls_last=True,"
                " maintain_order=True)"
            )
        elif self.descending:
            lines.append("images = images.reverse()")
        return "\n".join(lines)


def parse_query(text: str) -> Query:
    """Parse a query of the page: JSON with ``where`` (lists of column, operator and value), ``sort`` and
    ``descending``.

    Raises:
        SoritesError: It is not a valid query.
    """
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise SoritesError(f"the query is not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("where", []), list):
        raise SoritesError('expected a query such as {"where": [["shift", "is", "jpeg"]]}')
    sort = data.get("sort")
    if sort is not None and not isinstance(sort, str):
        raise SoritesError("the query's sort must be the name of a column")
    where: Sequence[Any] = data.get("where", [])
    if len(where) > MAX_CONDITIONS:
        raise SoritesError(f"expected at most {MAX_CONDITIONS} conditions, got {len(where)}")
    return Query(tuple(map(_condition, where)), sort, data.get("descending") is True)


def _condition(entry: Any) -> Condition:
    if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
        raise SoritesError("expected a condition such as [column, operator, value]")
    column, operator, value = entry
    if operator not in OPERATORS:
        raise SoritesError(f"the operator must be one of {', '.join(OPERATORS)}, got {operator!r}")
    if operator == "in":
        if not isinstance(value, list) or len(value) > MAX_VALUES:
            raise SoritesError(f"{column} in: expected a list of at most {MAX_VALUES} values")
        return Condition(column, operator, tuple(map(_plain, value)))
    return Condition(column, operator, _plain(value))


def _plain(value: Any) -> Value:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise SoritesError(f"expected a text of at most {MAX_TEXT} characters")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise SoritesError(f"expected a text, a number, true, false or null, got {type(value).__name__}")
