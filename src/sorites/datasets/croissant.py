"""Croissant metadata of a folder of images with a table: JSON-LD that other tools read a dataset by.

Croissant 1.0 (https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html): the table is a file object
with its digest, the images are a file set, and the columns of the table are the fields of a record set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

import polars as pl

NAME = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
# Croissant types of the columns of a table; columns of other types, such as boxes, are not described.
_TYPES: Mapping[Any, str] = {
    pl.String: "sc:Text",
    pl.Float64: "sc:Float",
    pl.Float32: "sc:Float",
    pl.Int64: "sc:Integer",
    pl.Int32: "sc:Integer",
    pl.Int16: "sc:Integer",
    pl.Int8: "sc:Integer",
    pl.Boolean: "sc:Boolean",
}
_FORMATS = {".png": "image/png", ".jpg": "image/jpeg"}
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant_json(
    name: str, about: str, table: tuple[str, bytes], rows: pl.DataFrame, licence: str | None = None
) -> bytes:
    """Return the Croissant metadata of a folder.

    Args:
        name: The name of the dataset.
        about: A description in a sentence.
        table: The file name of the table beside the images, in Parquet, and its content.
        rows: The rows of the table, with the column ``path``.
        licence: The licence of the images, if it is known.
    """
    file, data = table
    paths = rows["path"].to_list()
    content = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": name,
        "description": about,
        **({"license": licence} if licence else {}),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "table",
                "name": "table",
                "contentUrl": file,
                "encodingFormat": "application/x-parquet",
                "sha256": hashlib.sha256(data).hexdigest(),
            },
            *_file_sets(paths),
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "rows",
                "name": "rows",
                "description": "One row per image.",
                "key": {"@id": "rows/path"},
                "field": [
                    _field(column, _TYPES[kind]) for column, kind in rows.schema.items() if kind in _TYPES
                ],
            }
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _file_sets(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return a file set per file format, with a pattern for every depth of folders."""
    patterns: dict[str, set[str]] = {}
    for path in paths:
        parts = PurePosixPath(path)
        pattern = "/".join(["*"] * (len(parts.parts) - 1) + [f"*{parts.suffix}"])
        patterns.setdefault(parts.suffix, set()).add(pattern)
    return [
        {
            "@type": "cr:FileSet",
            "@id": f"images{suffix.replace('.', '-')}",
            "name": f"images{suffix.replace('.', '-')}",
            "encodingFormat": _FORMATS.get(suffix, "application/octet-stream"),
            "includes": sorted(found)[0] if len(found) == 1 else sorted(found),
        }
        for suffix, found in sorted(patterns.items())
    ]


def _field(name: str, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"rows/{name}",
        "name": name,
        "dataType": kind,
        "source": {"fileObject": {"@id": "table"}, "extract": {"column": name}},
    }
