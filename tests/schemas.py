"""Validate real documents against the published schemas, with a validator of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[1] / "docs" / "schema"


def problems(document: Any, schema: str) -> list[str]:
    """Return what a document (data, or a file) has that its published schema does not allow."""
    published = json.loads((FOLDER / f"{schema}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    data = json.loads(document.read_text(encoding="utf-8")) if isinstance(document, Path) else document
    return [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(published).iter_errors(data)
    ]
