"""The published schemas are those of the records, and refuse what is no such document."""

from __future__ import annotations

from tests.schemas import FOLDER, problems
from tools.schemas import schemas, text


def test_the_published_schemas_are_current() -> None:
    """``python -m tools.schemas`` writes them again."""
    published = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert published == {name: text(schema) for name, schema in schemas().items()}


def test_every_key_of_a_document_is_described() -> None:
    for name, schema in schemas().items():
        silent = [key for key, value in schema["properties"].items() if not value.get("description")]
        assert silent == [], name
        parts = [schema, *schema["$defs"].values()]
        assert not [part for part in parts if "Attributes:" in part["description"]], name


def test_another_document_is_refused() -> None:
    for name in schemas():
        assert problems({"schema": "sorites-other"}, name.removesuffix(".schema.json"))
