"""Write the JSON Schemas of the documents of Sorites to docs/schema: ``python -m tools.schemas``."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, TypeAdapter

from sorites.analysis.comparison import document as comparison
from sorites.analysis.comparison import gate
from sorites.analysis.comparison.document import ComparisonDocument
from sorites.analysis.passport import document as passport
from sorites.analysis.passport.document import BoxPassport, Passport
from sorites.deploy import record as guard
from sorites.deploy.record import SCHEMA, VERSION, GuardRecord
from sorites.evaluation.integrity import evidence

FOLDER = Path(__file__).parents[1] / "docs" / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Where the documents and their parts are defined.
MODULES = (comparison, gate, passport, guard, evidence)
# The last key of sealed files: the digest of the bytes before it.
DIGEST = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "Digest of the bytes before it."}


@functools.cache
def described(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return what the docstrings of a module say about the fields of its classes, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            _, _, listed = (ast.get_docstring(node) or "").partition("\nAttributes:\n")
            fields = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE))
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    fields[ast.unparse(field.target)] = str(ast.literal_eval(text.value))
            found[node.name] = {name: " ".join(text.split()) for name, text in fields.items()}
    return found


def documented(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Add the descriptions of keys to a schema, and to those of its parts."""
    fields = {key: value for module in MODULES for key, value in described(module).items()}
    for part_name, part in ((name, schema), *schema.get("$defs", {}).items()):
        said = fields.get(part_name, {})
        part["description"] = part.get("description", "").partition("\n\nAttributes:")[0]
        for key, value in part.get("properties", {}).items():
            text = said.get(key) or said.get(f"{key}_name")
            if text and "description" not in value:
                value["description"] = text
    return schema


def of_record(record: type[BaseModel], file: str, title: str, sealed: bool) -> dict[str, Any]:
    """Return the schema of a pydantic document."""
    schema = record.model_json_schema(by_alias=True, mode="serialization")
    if sealed:
        schema["properties"]["digest"] = DIGEST
        schema["required"] = [*schema["required"], "digest"]
    return {"$schema": DIALECT, "$id": file, **documented(schema, record.__name__), "title": title}


def of_guard() -> dict[str, Any]:
    """Return the schema of ``guard.json``, whose record is a plain dataclass."""
    schema = documented(TypeAdapter(GuardRecord).json_schema(mode="serialization"), GuardRecord.__name__)
    head = {
        "schema": {"const": SCHEMA, "description": "The kind of the document."},
        "schema_version": {"const": VERSION, "description": "The version of this schema."},
    }
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
