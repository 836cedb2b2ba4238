"""Say in plain words what is wrong with a table that was read: where, what was wanted, and what came."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from sorites.core.errors import UnknownName

# The most characters of a value that a message repeats.
LONGEST = 80
# The words for what was wanted, by pydantic's name of the mistake.
WANTED = {
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
# A place, what was wanted there (empty where the last part is a sentence of its own), and what
# came.
Said = tuple[str, str, str]


def mistakes(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """Return a line for each mistake in data of a model; kinds of value that are welcome in one
    place stand in one line.
    """
    found = [_said(one, root) for one in error.errors()]
    kept = [
        one for one in found if not (one[1] and any(other[0].startswith(f"{one[0]}.") for other in found))
    ]
    lines = []
    for (place, came), some in itertools.groupby(kept, key=lambda one: (one[0], one[2])):
        wanted = " or ".join(dict.fromkeys(one[1] for one in some if one[1]))
        text = f"wanted {wanted}, got {came}" if wanted else came
        lines.append(
            f"{place}: {text}" if place and (wanted or not text.startswith(("unknown key", place))) else text
        )
    return lines


def _said(error: Any, root: type[BaseModel]) -> Said:
    kind, given = error["type"], error.get("input")
    if kind == "extra_forbidden":
        parts, owner = _walked(error["loc"][:-1], root)
        key = str(error["loc"][-1])
        place = ".".join([*parts, key])
        return (
            place,
            "",
            f"unknown key {place!r}: {UnknownName('key', key, owner.model_fields if owner else ())}",
        )
    parts, owner = _walked(error["loc"], root)
    place = ".".join(parts)
    if kind == "missing":
        return place, "", f"{place} is missing"
    if kind in ("model_type", "model_attributes_type") and owner is not None:
        return place, f"a table with keys {', '.join(owner.model_fields)}", _came(given)
    if kind in WANTED:
        limits = {
            key: int(one) if isinstance(one, float) and one.is_integer() else one
            for key, one in error.get("ctx", {}).items()
        }
        return place, WANTED[kind].format(**limits), _came(given)
    plain = error["msg"].removeprefix("Value error, ")
    return (
        place,
        "",
        plain if isinstance(given, Mapping | BaseModel) or not place else f"{plain} (got {_came(given)})",
    )


def _came(given: Any) -> str:
    text = (
        "a table" if isinstance(given, Mapping) else repr(list(given) if isinstance(given, tuple) else given)
    )
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _walked(loc: Sequence[int | str], root: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """Return the names on the way to a place, without pydantic's names of the kinds that it tried,
    and the model there.
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
    """Return the first model that an annotation speaks of: ``Frame | None``, ``tuple[Dial, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for found in map(_model_in, get_args(annotation)) if found is not None), None)


def _holds_keys(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_holds_keys, get_args(annotation)))
