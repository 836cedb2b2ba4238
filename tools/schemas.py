"""Write the JSON Schemas of the documents of Sorites to docs/schema: ``python -m tools.schemas``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from sorites.analysis.comparison.document import ComparisonDocument
from sorites.analysis.passport.document import BoxPassport, Passport
from sorites.deploy.record import SCHEMA, VERSION, GuardRecord

FOLDER = Path(__file__).parents[1] / "docs" / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The last key of sealed files: the digest of the bytes before it.
DIGEST = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "Digest of the bytes before it."}


def of_record(record: type[BaseModel], file: str, title: str, sealed: bool) -> dict[str, Any]:
    """Return the schema of a pydantic document."""
    schema = record.model_json_schema(by_alias=True, mode="serialization")
    if sealed:
        schema["properties"]["digest"] = DIGEST
        schema["required"] = [*schema["required"], "digest"]
    return {"$schema": DIALECT, "$id": file, **schema, "title": title}


def of_guard() -> dict[str, Any]:
    """Return the schema of ``guard.json``, whose record is a plain dataclass."""
    schema = TypeAdapter(GuardRecord).json_schema(mode="serialization")
    head = {"schema": {"const": SCHEMA}, "schema_version": {"const": VERSION}}
    schema["properties"] = {**head, **schema["properties"], "digest": DIGEST}
    schema["required"] = [*head, *schema["required"], "digest"]
    schema["additionalProperties"] = False
    return {"$schema": DIALECT, "$id": "guard.schema.json", **schema, "title": "guard.json"}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by file name."""
    made = {
        "passport.schema.json": (Passport, "passport.json of a classifier", True),
        "passport-boxes.schema.json": (BoxPassport, "passport.json of a detector", True),
        "compare.schema.json": (ComparisonDocument, "compare.json, and the data of the page", False),
    }
    listed = {file: of_record(record, file, title, sealed) for file, (record, title, sealed) in made.items()}
    return {**listed, "guard.schema.json": of_guard()}


def text(schema: dict[str, Any]) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all schemas."""
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
