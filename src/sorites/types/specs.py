"""Specs: how plug-ins are named where a person types them, such as ``onnx:a/b.onnx`` and ``v2=onnx:a/b.onnx``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sorites.errors import SoritesError


def split_spec(spec: str) -> tuple[str, str | None]:
    """``"onnx:a/b.onnx"`` is the name ``onnx`` and its argument ``a/b.onnx``."""
    name, _, argument = spec.partition(":")
    return name, argument or None


def named_spec(text: str) -> tuple[str, str]:
    """``"v2=onnx:a.onnx"`` is the name ``v2`` and the spec ``onnx:a.onnx``; a spec without a name is its own name."""
    name, equals, spec = text.partition("=")
    if not equals or ":" in name:
        return text, text
    if not name.strip() or not spec.strip():
        raise SoritesError(f"wanted a model as SPEC or NAME=SPEC, such as v2=onnx:PATH, got {text!r}")
    return name.strip(), spec.strip()


def model_entry(given: Any) -> str:
    """Return a model of a suite as one text: a spec as it is, a table with its name before it; raise ValueError for others."""
    if isinstance(given, Mapping) and given.keys() == {"name", "spec"} and all(isinstance(part, str) for part in given.values()):
        if "=" in given["name"] or ":" in given["name"]:
            raise ValueError(f"the name of a model holds no = and no :, got {given['name']!r}")
        given = f"{given['name']}={given['spec']}"
    if not isinstance(given, str):
        raise ValueError(f'a model is a spec or a table such as {{name = "v2", spec = "onnx:PATH"}}, got {given!r}')
    try:
        named_spec(given)
    except SoritesError as error:
        raise ValueError(str(error)) from None
    return given
