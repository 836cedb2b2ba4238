"""Under one version, a document keeps the keys, types and required keys that it had when the version was frozen.

``tests/contracts/schemas`` has the frozen schema of each version: ``passport.v4.json``. A change that takes a key away or
gives it another type needs a new version of the document; ``python tests/contracts/test_frozen_schemas.py`` then freezes
that version and leaves the others as they are.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.schemas import schemas, text

FROZEN = Path(__file__).with_name("schemas")
NAMES = ("compare", "guard", "passport", "passport-boxes")
Schema = dict[str, Any]


def frozen_file(name: str, schema: Schema) -> Path:
    """Return the file of the version that a schema says it has."""
    return FROZEN / f"{name}.v{schema['properties']['schema_version']['const']}.json"


def now(name: str) -> Schema:
    return schemas()[f"{name}.schema.json"]


def lost(then: Schema, today: Schema) -> list[str]:
    """Return what readers of the frozen schema would miss in documents of today."""
    return list(_lost(then, today, then, today, "$", frozenset()))


def _lost(
    then: Schema, today: Schema, then_root: Schema, today_root: Schema, path: str, seen: frozenset[str]
) -> Iterator[str]:
    if "$ref" in then:
        if then["$ref"] in seen:
            return
        seen |= {then["$ref"]}
    then, today = _resolved(then, then_root), _resolved(today, today_root)
    if _kinds(today) - _kinds(then):
        yield f"{path}: {sorted(_kinds(today))}, was {sorted(_kinds(then))}"
    for key in sorted(set(then.get("required", ())) - set(today.get("required", ()))):
        yield f"{path}.{key}: no longer required"
    for key, part in then.get("properties", {}).items():
        if key not in today.get("properties", {}):
            yield f"{path}.{key}: gone"
        else:
            yield from _lost(part, today["properties"][key], then_root, today_root, f"{path}.{key}", seen)
    for word in ("items", "additionalProperties"):
        if isinstance(then.get(word), dict) and isinstance(today.get(word), dict):
            yield from _lost(then[word], today[word], then_root, today_root, f"{path}[]", seen)


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Return a part of a schema without references; a value or null is the value."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    parts = [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]
    return _resolved(parts[0], root) if len(parts) == 1 else schema


def _kinds(schema: Schema) -> set[str]:
    """Return the types that a value may have, and the constant or the values that it is one of."""
    if "anyOf" in schema:
        return {kind for part in schema["anyOf"] for kind in _kinds(part)}
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    return {f"{schema.get('type')} {value}" for value in values} or {str(schema.get("type"))}


@pytest.mark.parametrize("name", NAMES)
def test_a_version_keeps_what_it_promised(name: str) -> None:
    schema = now(name)
    frozen = json.loads(frozen_file(name, schema).read_text(encoding="utf-8"))
    assert lost(frozen, schema) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_change_that_breaks_readers_is_found_and_a_new_key_is_not(name: str) -> None:
    frozen = now(name)
    more = copy.deepcopy(frozen)
    more["properties"]["another"] = {"type": "string"}
    assert lost(frozen, more) == []
    fewer = copy.deepcopy(frozen)
    del fewer["properties"]["schema_version"]
    assert any("schema_version: gone" in line for line in lost(frozen, fewer))
    other = copy.deepcopy(frozen)
    key = next(key for key, part in frozen["properties"].items() if part.get("type") == "string")
    other["properties"][key] = {"type": "integer"}
    assert len(lost(frozen, other)) == 1
    optional = copy.deepcopy(frozen)
    gone = optional["required"].pop()
    assert lost(frozen, optional) == [f"$.{gone}: no longer required"]


def main() -> None:
    """Freeze the versions that have no file yet."""
    FROZEN.mkdir(exist_ok=True)
    for name in NAMES:
        path = frozen_file(name, now(name))
        if not path.exists():
            path.write_text(text(now(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
