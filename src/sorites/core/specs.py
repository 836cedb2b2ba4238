"""Specs: plug-ins as text, such as ``onnx:a/b.onnx``, ``v2=onnx:a/b.onnx``, ``knn(k=10)`` and
``focus:PATH?below=0.1``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.io.paths import exists, is_dir, path_of


def split_spec(spec: str) -> tuple[str, str | None]:
    """Split a spec into its name and its argument (None if absent).

    Example:
        >>> split_spec("onnx:a/b.onnx"), split_spec("stamps")
        (('onnx', 'a/b.onnx'), ('stamps', None))
    """
    name, _, argument = spec.partition(":")
    return name, argument or None


def named_spec(text: str) -> tuple[str, str]:
    """Split ``NAME=SPEC`` into name and spec; an unnamed spec is its own name.

    Raises:
        SoritesError: The name or the spec is empty.

    Example:
        >>> named_spec("v2=onnx:a.onnx"), named_spec("lite0")
        (('v2', 'onnx:a.onnx'), ('lite0', 'lite0'))
    """
    name, equals, spec = text.partition("=")
    if not equals or ":" in name:
        return text, text
    if not name.strip() or not spec.strip():
        raise SoritesError(f"expected a model as SPEC or NAME=SPEC, such as v2=onnx:PATH, got {text!r}")
    return name.strip(), spec.strip()


def model_entry(entry: Any) -> str:
    """Return a model of a suite, a spec or a table with name and spec, as ``NAME=SPEC``.

    Raises:
        ValueError: It is neither.
    """
    if (
        isinstance(entry, Mapping)
        and entry.keys() == {"name", "spec"}
        and all(isinstance(part, str) for part in entry.values())
    ):
        if "=" in entry["name"] or ":" in entry["name"]:
            raise ValueError(f"the name of a model must not contain = or :, got {entry['name']!r}")
        entry = f"{entry['name']}={entry['spec']}"
    if not isinstance(entry, str):
        raise ValueError(
            f'a model is a spec or a table such as {{name = "v2", spec = "onnx:PATH"}}, got {entry!r}'
        )
    try:
        named_spec(entry)
    except SoritesError as error:
        raise ValueError(str(error)) from None
    return entry


# Specs of files by kind of plug-in and suffix; {} is the path.
_FILES: Mapping[str, Mapping[str, str]] = {
    "source": {
        ".csv": "csv:{}",
        ".json": "coco:{}",
        ".parquet": "parquet:{}",
        ".tar": "webdataset:{}",
        ".yaml": "yolo:{}",
    },
    "model": {
        ".onnx": "onnx:{}",
        ".tflite": "tflite:{}",
        ".xml": "openvino:{}",
        ".pth": "timm:NAME@{}",
        ".pt": "timm:NAME@{}",
        ".safetensors": "timm:NAME@{}",
    },
}
# Specs of folders by kind of plug-in and a pattern that one of their files matches, the first that does.
_FOLDERS: Mapping[str, Mapping[str, str]] = {
    "source": {
        "data.yaml": "yolo:{}",
        "dataset_dict.json": "hf:{}",
        "state.json": "hf:{}",
        "metadata.jsonl": "hf:{}",
        "metadata.parquet": "hf:{}",
        "*/metadata.jsonl": "hf:{}",
        "*/metadata.parquet": "hf:{}",
        "data/*.parquet": "hf:{}",  # a dataset of the hub
        "labels.npy": "variants:{}",
        "*/1/*/*": "variants:{}",  # corruption/severity/class/image
        "*/*/1/*/*": "variants:{}",  # and below a group of corruptions
        "*.tar": "webdataset:{}",
        "*.parquet": "parquet:{}",
        "*": "folder:{}",
    },
    "model": {"model.json": "trained:{}", "config.json": "hf:{}"},
}


def spec_of_path(kind: str, text: str) -> str | None:
    """Return the spec to type for a bare path; None if it is no path, or of no kind that is known.

    Args:
        kind: The kind of plug-in: ``source`` or ``model``.
        text: What was given as a spec.

    Example:
        >>> spec_of_path("model", "nets/m.onnx")
        'onnx:nets/m.onnx'
    """
    if kind not in _FILES:
        return None
    path = Path(text)
    if is_dir(path):
        found = (spec for pattern, spec in _FOLDERS[kind].items() if next(path.glob(pattern), None))
    else:
        found = (spec for suffix, spec in _FILES[kind].items() if path.suffix.lower() == suffix)
    spec = next(found, None)
    return None if spec is None else spec.format(text)


def is_like_a_path(kind: str, text: str) -> bool:
    """Return whether what was given as a spec looks like a path: it has a separator or a suffix.

    Example:
        >>> is_like_a_path("source", "animals/val"), is_like_a_path("source", "stampz")
        (True, False)
    """
    return kind in _FILES and ("/" in text or os.sep in text or bool(Path(text).suffix))


_TYPE_NAMES: Mapping[Any, str] = {
    str: "text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    NoneType: "nothing",
}


def check_values(owner: Callable[..., Any], values: Mapping[str, Any], called: str) -> None:
    """Raise a ``SoritesError`` for the first value that does not match the annotated type of its parameter.

    Only parameters annotated with text, numbers and booleans are checked; the plug-in validates everything
    else.

    Args:
        owner: The function or class whose parameters are set.
        values: Values by parameter name.
        called: Name of the plug-in for the message.
    """
    function = owner.func if isinstance(owner, functools.partial) else owner
    try:
        annotations = typing.get_type_hints(
            vars(function).get("__init__", function) if isinstance(function, type) else function
        )
    except (NameError, TypeError, AttributeError):  # an annotation that exists only for type checkers
        return
    for key, value in values.items():
        hint = annotations.get(key)
        kinds = typing.get_args(hint) if typing.get_origin(hint) in (UnionType, typing.Union) else (hint,)
        if all(kind in _TYPE_NAMES for kind in kinds) and not any(_fits(kind, value) for kind in kinds):
            expected = " or ".join(_TYPE_NAMES[kind] for kind in kinds if kind is not NoneType)
            raise SoritesError(f"{called}: expected {expected} as {key}, got {str(value)[:80]!r}")


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


def parse_call(spec: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Parse a call in text: ``"knn(k=10)"`` gives ``knn`` and ``{"k": 10}``, ``"knn"`` has no parameters."""
    name, bracket, _ = spec.partition("(")
    if not bracket:
        return spec, {}
    try:
        # The name of user code, python:module:name, is no Python name.
        call = ast.parse(f"f{spec.removeprefix(name)}" if ":" in name else spec, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        return name, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        example = f"{name[:50]}(k=10)"
        raise SoritesError(
            f"{kind} {spec[:200]!r}: expected a name, or a name with parameters such as {example}"
        ) from error


def unique_groups(metric: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a metric so that duplicate columns in ``by`` are dropped, ``attrs.KEY`` in it is the attribute
    KEY, and name clashes become a ``SoritesError``.
    """
    signature = inspect.signature(metric)
    table = next(iter(signature.parameters), "")

    @functools.wraps(metric)
    def wrapper(*args: Any, **options: Any) -> Any:
        from polars.exceptions import DuplicateError

        bound = signature.bind(*args, **options)
        by = bound.arguments.get("by")
        if by is not None:
            from sorites.core.table import with_attributes

            by = bound.arguments["by"] = [by] if isinstance(by, str) else list(dict.fromkeys(by))
            bound.arguments[table] = with_attributes(bound.arguments[table], by)
        try:
            return metric(*bound.args, **bound.kwargs)
        except DuplicateError as error:  # ``by`` names an output or intermediate column
            columns = ", ".join(by or ())
            raise SoritesError(
                f"{metric.__name__} cannot be grouped by {columns}: it computes one of these columns itself."
                " Leave it out."
            ) from error

    return wrapper


# Options of a source follow its path as in a URL: ``focus:PATH?uncommon=counts&below=0.1``.


# Paths with more separators than this are split at the first one without checking which paths exist.
MAX_SEPARATORS = 100


def split_path(text: str, mark: str) -> tuple[str, str]:
    """Split ``PATH<mark>words`` at the first mark, unless a longer path that contains the mark exists."""
    parts = text.split(mark)
    for count in range(len(parts), 1, -1) if len(parts) < MAX_SEPARATORS else ():
        if exists(path_of(mark.join(parts[:count]))):
            return mark.join(parts[:count]), mark.join(parts[count:])
    return parts[0], mark.join(parts[1:])


def split_options(
    source: str, text: str | None, allowed: Mapping[str, Collection[str]]
) -> tuple[str, dict[str, str]]:
    """Split ``PATH?key=value&key=value`` into the path and the options.

    Args:
        source: Name of the source, for messages.
        text: The argument of the source.
        allowed: Options with their allowed values; an empty collection allows any text.
    """
    path, query = split_path(text or "", "?")
    if not path:
        raise SoritesError(f"the {source} source needs a path, such as {option('source', f'{source}:PATH')}")
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise SoritesError(f"{source}: expected options as PATH?key=value&key=value, got {part!r}")
        if key not in allowed:
            raise UnknownName(f"{source} option", key, allowed, f"It has {', '.join(allowed)}.")
        if allowed[key] and value not in allowed[key]:
            raise SoritesError(f"{source}: {key} is one of {', '.join(allowed[key])}; got {value!r}")
        options[key] = value
    return path, options
