"""Values that people give to functions of plug-ins: as a call in text, as columns to group by, as options of some type."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any

from sorites.errors import SoritesError

_WORDS: Mapping[Any, str] = {str: "text", float: "a number", int: "a whole number", bool: "true or false", NoneType: "nothing"}


def refuse_values(owner: Callable[..., Any], given: Mapping[str, Any], called: str) -> None:
    """Raise an error that names the first value of another type than ``owner`` states for its parameter.

    Only text, numbers and truth values are held against it: what else a parameter may take is for its owner to say.
    """
    plain = owner.func if isinstance(owner, functools.partial) else owner
    try:
        stated = typing.get_type_hints(vars(plain).get("__init__", plain) if isinstance(plain, type) else plain)
    except (NameError, TypeError, AttributeError):  # a type that only a type checker sees
        return
    for key, value in given.items():
        hint = stated.get(key)
        kinds = typing.get_args(hint) if typing.get_origin(hint) in (UnionType, typing.Union) else (hint,)
        if all(kind in _WORDS for kind in kinds) and not any(_fits(kind, value) for kind in kinds):
            wanted = " or ".join(_WORDS[kind] for kind in kinds if kind is not NoneType)
            raise SoritesError(f"{called}: wanted {wanted} as {key}, got {str(value)[:80]!r}")


def _fits(kind: Any, value: Any) -> bool:
    if kind is str:
        return isinstance(value, str | os.PathLike)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, kind)


def called_with(spec: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a call in text: ``"knn(k=10)"`` is ``knn`` with ``k`` 10, and ``"knn"`` has none."""
    name, bracket, _ = spec.partition("(")
    if not bracket:
        return spec, {}
    try:
        call = ast.parse(spec, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        return name, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        like = f"{name[:50]}(k=10)"
        raise SoritesError(f"{kind} {spec[:200]!r}: wanted a name, or a name with parameters such as {like}") from error


def grouped_once(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return the metric with each column of ``by`` taken once; one that it cannot be grouped by is an error in words."""
    signature = inspect.signature(ask)

    @functools.wraps(ask)
    def asked(*args: Any, **options: Any) -> Any:
        from polars.exceptions import DuplicateError

        given = signature.bind(*args, **options)
        by = given.arguments.get("by")
        if by is not None:
            by = given.arguments["by"] = [by] if isinstance(by, str) else list(dict.fromkeys(by))
        try:
            return ask(*given.args, **given.kwargs)
        except DuplicateError as error:  # a column of the answer, or one that the metric works with
            columns = ", ".join(by or ())
            raise SoritesError(
                f"{ask.__name__} cannot be grouped by {columns}: it makes one of these itself. Leave it out."
            ) from error

    return asked
