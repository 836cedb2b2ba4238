"""Typed records: read sealed JSON files as pydantic models, and report validation errors in plain words.

A report says where, what was expected, and what was found.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from sorites.core.errors import Damaged, UnknownName
from sorites.io.digests import read_sealed

R = TypeVar("R", bound=BaseModel)


class Record(BaseModel):
    """Content of a JSON file: immutable, strict about types, and unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def as_json(self) -> dict[str, Any]:
        """Return the content as plain data, without the fields that were not set."""
        # Not mode="json", which replaces characters of keys that are not UTF-8, as in names of files.
        data: dict[str, Any] = json.loads(json.dumps(self.model_dump(by_alias=True, exclude_unset=True)))
        return data

    def having(self, **changes: object) -> Self:
        """Return a copy with some fields replaced; the values are not validated."""
        return self.model_copy(update=changes)


# Maximum number of characters of a value that a message quotes.
MAX_QUOTED_LENGTH = 80
# What was expected, by pydantic's error type.
EXPECTED = {
    "dict_type": "a table",
    "mapping_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number that is not as large",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_too_short": "a text of at least {min_length} characters",
    "string_pattern_mismatch": "a text of the form {pattern}",
}
# A location, what was expected there (empty if the last part is a complete sentence), and what was found.
Problem = tuple[str, str, str]


def read_typed(path: Path, kind: type[R], remedy: str, context: object = None) -> R:
    """Read a sealed JSON file as a model; ``context`` is passed to its validators.

    Raises:
        Damaged: It cannot be read, does not match its digest, or a field is missing, unknown or of another
            type.
    """
    try:
        return kind.model_validate(read_sealed(path, remedy), context=context)
    except ValidationError as error:
        raise Damaged(path, problems(error, kind)[0], remedy) from error


def problems(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """Return a line for each validation error; alternatives of a union at one location share a line."""
    problems = [_problem(problem, root) for problem in error.errors()]
    deepest = [
        problem
        for problem in problems
        if not (problem[1] and any(other[0].startswith(f"{problem[0]}.") for other in problems))
    ]
    lines = []
    for (location, actual), group in itertools.groupby(deepest, key=lambda problem: (problem[0], problem[2])):
        expected = " or ".join(dict.fromkeys(problem[1] for problem in group if problem[1]))
        message = f"expected {expected}, got {actual}" if expected else actual
        lines.append(
            f"{location}: {message}"
            if location and (expected or not message.startswith(("unknown key", location)))
            else message
        )
    return lines


def _problem(error: Any, root: type[BaseModel]) -> Problem:
    kind, value = error["type"], error.get("input")
    if kind == "extra_forbidden":
        parts, owner = _walk(error["loc"][:-1], root)
        key = str(error["loc"][-1])
        location = ".".join([*parts, key])
        return (
            location,
            "",
            f"unknown key {location!r}: {UnknownName('key', key, owner.model_fields if owner else ())}",
        )
    parts, owner = _walk(error["loc"], root)
    location = ".".join(parts)
    if kind == "missing":
        return location, "", f"{location} is missing"
    if kind in ("model_type", "model_attributes_type") and owner is not None:
        return location, f"a table with keys {', '.join(owner.model_fields)}", _quote(value)
    if kind in EXPECTED:
        limits = {
            key: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
            for key, limit in error.get("ctx", {}).items()
        }
        return location, EXPECTED[kind].format(**limits), _quote(value)
    message = error["msg"].removeprefix("Value error, ")
    return (
        location,
        "",
        message
        if isinstance(value, Mapping | BaseModel) or not location
        else f"{message} (got {_quote(value)})",
    )


def _quote(value: Any) -> str:
    text = (
        "a table" if isinstance(value, Mapping) else repr(list(value) if isinstance(value, tuple) else value)
    )
    return text if len(text) <= MAX_QUOTED_LENGTH else f"{text[: MAX_QUOTED_LENGTH - 3]}..."


def _walk(loc: Sequence[int | str], root: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """Return the keys that lead to a location, without pydantic's names of union members, and the model
    there.
    """
    parts: list[str] = []
    owner: type[BaseModel] | None = root
    by_key = False
    for part in loc:
        field = None if owner is None or by_key else owner.model_fields.get(str(part))
        if field is not None:
            owner, by_key = _model_in(field.annotation), _holds_keys(field.annotation)
            parts.append(str(part))
        elif isinstance(part, int) or by_key:
            by_key = False
            parts.append(str(part))
    return parts, owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model in an annotation such as ``Frame | None`` or ``tuple[Dial, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for model in map(_model_in, get_args(annotation)) if model is not None), None)


def _holds_keys(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_holds_keys, get_args(annotation)))
