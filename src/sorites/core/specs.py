"""Specs: how plug-ins are named where a person types them, such as ``onnx:a/b.onnx`` and
``v2=onnx:a/b.onnx``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Collection, Mapping
from types import NoneType, UnionType
from typing import Any

from sorites.core.errors import SoritesError, UnknownName
from sorites.io.paths import exists, path_of


def split_spec(spec: str) -> tuple[str, str | None]:
    """``"onnx:a/b.onnx"`` is the name ``onnx`` and its argument ``a/b.onnx``."""
    name, _, argument = spec.partition(":")
    return name, argument or None


def named_spec(text: str) -> tuple[str, str]:
    """``"v2=onnx:a.onnx"`` is the name ``v2`` and the spec ``onnx:a.onnx``; a spec without a name
    is its own name.
    """
    name, equals, spec = text.partition("=")
    if not equals or ":" in name:
        return text, text
    if not name.strip() or not spec.strip():
        raise SoritesError(f"wanted a model as SPEC or NAME=SPEC, such as v2=onnx:PATH, got {text!r}")
    return name.strip(), spec.strip()


def model_entry(given: Any) -> str:
    """Return a model of a suite as one text: a spec as it is, a table with its name before it;
    raise ValueError for others.
    """
    if (
        isinstance(given, Mapping)
        and given.keys() == {"name", "spec"}
        and all(isinstance(part, str) for part in given.values())
    ):
        if "=" in given["name"] or ":" in given["name"]:
            raise ValueError(f"the name of a model holds no = and no :, got {given['name']!r}")
        given = f"{given['name']}={given['spec']}"
    if not isinstance(given, str):
        raise ValueError(
            f'a model is a spec or a table such as {{name = "v2", spec = "onnx:PATH"}}, got {given!r}'
        )
    try:
        named_spec(given)
    except SoritesError as error:
        raise ValueError(str(error)) from None
    return given


# Values that people give to functions of plug-ins: as a call in text, as columns to group by, as options
# of some type.


_WORDS: Mapping[Any, str] = {
    str: "text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    NoneType: "nothing",
}


def refuse_values(owner: Callable[..., Any], given: Mapping[str, Any], called: str) -> None:
    """Raise an error that names the first value of another type than ``owner`` states for its parameter.

    Only text, numbers and truth values are held against it: what else a parameter may take is for
    its owner to say.
    """
    plain = owner.func if isinstance(owner, functools.partial) else owner
    try:
        stated = typing.get_type_hints(
            vars(plain).get("__init__", plain) if isinstance(plain, type) else plain
        )
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
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and abs(value) < 1e300
            and math.isfinite(value)
        )
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, kind)


def called_with(spec: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a call in text: ``"knn(k=10)"`` is ``knn`` with ``k``
    10, and ``"knn"`` has none.
    """
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
        raise SoritesError(
            f"{kind} {spec[:200]!r}: wanted a name, or a name with parameters such as {like}"
        ) from error


def grouped_once(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return the metric with each column of ``by`` taken once; one that it cannot be grouped by is
    an error in words.
    """
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


# The options of a source, written after its path as in a web address:
# ``focus:PATH?uncommon=counts&below=0.1``.


# The most marks in a path that are looked at one by one.
MARKS = 100


def split_path(text: str, mark: str) -> tuple[str, str]:
    """Split ``PATH<mark>words`` at its first mark, unless a longer path that has the mark in its
    name exists.
    """
    parts = text.split(mark)
    for count in range(len(parts), 1, -1) if len(parts) < MARKS else ():
        if exists(path_of(mark.join(parts[:count]))):
            return mark.join(parts[:count]), mark.join(parts[count:])
    return parts[0], mark.join(parts[1:])


def split_options(
    source: str, text: str | None, allowed: Mapping[str, Collection[str]]
) -> tuple[str, dict[str, str]]:
    """Return the path and the options given; ``allowed`` maps each option to the words it takes,
    empty if it takes any text.
    """
    path, query = split_path(text or "", "?")
    if not path:
        raise SoritesError(f"the {source} source needs a path. Type: --source {source}:PATH")
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise SoritesError(f"{source}: wanted options as PATH?key=value&key=value, got {part!r}")
        if key not in allowed:
            raise UnknownName(f"{source} option", key, allowed, f"It has {', '.join(allowed)}.")
        if allowed[key] and value not in allowed[key]:
            raise SoritesError(f"{source}: {key} is one of {', '.join(allowed[key])}; got {value!r}")
        found[key] = value
    return path, found
