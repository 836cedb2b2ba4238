"""Small valid inputs of every reader of sources, as files by their paths, and what spoils one of
these files.
"""

from __future__ import annotations

import io
import json
import random
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image
from tests.fuzz import hostile

from sorites.core import table
from sorites.sources import sidecar

Files = dict[str, bytes]
Spoil = Callable[[bytes, int], bytes]


def png(grey: int = 90) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 5), (grey, grey, grey)).save(buffer, "PNG")
    return buffer.getvalue()


def parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def tar(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


ROW = {
    "file_name": "/1.png",
    "category": "cat",
    "time": "night",
    "weather": "none",
    "locations": "grass, snow",
}
ANNOTATION = {
    "image": "snow/022_eagle/seed_0001_scale_0000.png",
    "seed": 1,
    "scale": 0,
    "shift": "snow",
    "class": 22,
}
SIDECAR: dict[str, Any] = {
    "path": "contrast/a.png", "sample_id": "a", "image_id": "i", "label": "n02123045", "accept": ["n02123045"], "framed": True,
    "split": "test", "attrs": [{"key": "k", "value": "v", "common": True}], "family": "light", "shift": "contrast",
    "severity": 0.5,
    "level": 1, "params": '{"a": 1}', "seed": 0,
}  # fmt: skip
BOX = {"x0": 0.0, "y0": 0.0, "x1": 5.0, "y1": 4.0, "label": 1, "conf": None}


def worlds() -> dict[str, tuple[str, Files]]:
    """Return by name a source, whose path is the folder or the file that follows the colon, and the
    files of the folder.
    """
    cns = {f"snow/022_eagle/seed_0001_scale_{scale:04d}.png": png(scale // 10) for scale in (0, 1000)}
    built = {"contrast/a.png": png(), "sorites.parquet": parquet(sidecar.frame([SIDECAR]))}
    ground_truth = pl.DataFrame(
        {"image_id": ["i"], "ground_truth": [[BOX]]},
        {"image_id": pl.String, "ground_truth": pl.List(table.BOX)},
    )
    lists = {
        "imagenet1k/test_imagenet.txt": b"./val/a.png\n",
        "imagenet21k/val/cov_0_sem_7.txt": b"n02123045/b.png\n",
    }
    pairs = (("a.png", png()), ("a.json", b'{"label": 3}'), ("b.png", png()), ("b.cls", b"7"))
    return {
        "built": ("folder:.", built),
        "context": ("context:.", {**built, "ground_truth.parquet": parquet(ground_truth)}),
        "webdataset": ("webdataset:a.tar", {"a.tar": tar(*pairs)}),
        "cns_bench": ("cns_bench:.", cns),
        "annotations": ("cns_bench:.", {**cns, "annotations_cns.json": json.dumps({"images": [ANNOTATION]}).encode()}),
        "focus csv": ("focus:a.csv", {"1.png": png(), "a.csv": pl.DataFrame([ROW]).write_csv().encode()}),
        "focus parquet": ("focus:a.parquet", {"1.png": png(), "a.parquet": parquet(pl.DataFrame([ROW]))}),
        "focus table": ("focus:a.csv?uncommon=u.tsv", {"1.png": png(), "a.csv": pl.DataFrame([ROW]).write_csv().encode(),
                        "u.tsv": b"category\ttime\tlocation\ncat\tnight\tsnow, sand\n"}),
        "is_ood": ("is_ood:.", {"imagenet1k/val/a.png": png(), "imagenet21k/n02123045/b.png": png(),
                   "imagenet1k/LOC_val_solution.csv": b"ImageId,PredictionString\na,n02123045 1 2 3 4\n",
                   **{f"imglist/{name}": data for name, data in lists.items()}}),
        "coco": ("coco:a.json", {"a.png": png(), "a.json": json.dumps(COCO).encode()}),
        "yolo": ("yolo:.", {"images/a.png": png(), "labels/a.txt": b"0 0.5 0.5 0.25 0.5\n1 0.1 0.1 0.2 0.1 0.3 0.4\n",
                 "data.yaml": b"path: .\nval: images\nnames:\n  0: tench\n  1: tabby\n"}),
        "nuimages": ("nuimages:.", {"samples/CAM_FRONT/1.png": png(),
                     **{f"v1.0-val/{name}.json": json.dumps(rows).encode() for name, rows in NUIMAGES.items()}}),
    }  # fmt: skip


COCO = {
    "images": [{"id": 1, "file_name": "a.png", "width": 24, "height": 24}],
    "annotations": [
        {"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 2, 9, 8], "area": 60.5, "iscrowd": 0},
        {"id": 8, "image_id": 1, "category_id": 3, "bbox": [0, 0, 20, 20], "area": 400, "iscrowd": 1},
    ],
    "categories": [{"id": 1, "name": "tench"}, {"id": 3, "name": "tabby"}],
}
FRAME = {
    "sample_token": "s1",
    "filename": "samples/CAM_FRONT/1.png",
    "width": 24,
    "height": 24,
    "is_key_frame": True,
}
NUIMAGES = {
    "sample": [{"token": "s1", "timestamp": 1, "log_token": "l", "key_camera_token": "d1"}],
    "sample_data": [{"token": "d1", "fileformat": "png", "timestamp": 1, **FRAME}],
    "category": [{"token": "c1", "name": "vehicle.car", "description": ""}],
    "object_ann": [
        {
            "token": "o1",
            "sample_data_token": "d1",
            "category_token": "c1",
            "attribute_tokens": [],
            "bbox": [1, 2, 9, 9],
        }
    ],
}
"""The tables of nuImages, a row each."""


def database(statements: list[str]) -> bytes:
    """Return the bytes of a SQLite file made by statements; those that fail are passed over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        held = sqlite3.connect(path)
        for statement in statements:
            try:
                held.execute(statement)
            except (sqlite3.Error, ValueError):
                continue
        held.commit()
        held.close()
        return path.read_bytes()


INSERT = (
    "INSERT INTO annotations(file_name, category, time, weather, locations) VALUES ('/1.png', 'cat', 'night',"
    " 'none', 'grass')"
)
MAKE = "CREATE TABLE annotations(file_name TEXT, category TEXT, time TEXT, weather TEXT, locations TEXT)"
FOREVER = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS file_name, i AS category"
    " FROM n"
)
STATEMENTS = (
    f"CREATE VIEW annotations AS {FOREVER}", "CREATE VIEW annotations AS SELECT * FROM annotations",
    "CREATE TABLE annotations(x)", MAKE, MAKE,
    MAKE.replace("category TEXT", "category BLOB"), MAKE.replace("weather TEXT", "weather TEXT AS (hex(zeroblob(9000000)))"),
    INSERT, INSERT,
    MAKE.replace("time TEXT", "time TEXT COLLATE nowhere"), "CREATE VIRTUAL TABLE annotations USING fts5(file_name, category)",
    INSERT.replace("'cat'", "x'00ff'"), INSERT.replace("'cat'", "7"), INSERT.replace("'cat'", "NULL"),
    INSERT.replace("'none'", "1e999"),
    INSERT.replace("'/1.png'", "CAST(x'ff80' AS TEXT)"), "CREATE INDEX i ON annotations(abs(file_name))",
    "PRAGMA user_version = -1",
)  # fmt: skip


def spoil(name: str, data: bytes, seed: int) -> bytes:
    """Return a file of a world, spoilt as its kind can be: bytes of any, words of texts, values of
    JSON, columns of tables.
    """
    rng = random.Random(seed)
    ending = Path(name).suffix
    if ending == ".json" and rng.random() < 0.7:
        return hostile.written(hostile.replaced(json.loads(data), seed))
    if ending in (".csv", ".tsv", ".txt", ".json", ".yaml") and rng.random() < 0.8:
        return hostile.reworded(data.decode(), seed).encode("utf-8", "replace")
    if ending == ".parquet" and rng.random() < 0.7:
        try:
            return parquet(retyped(pl.read_parquet(io.BytesIO(data)), rng))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # a type that parquet does not have
            return hostile.spoilt(data, seed)
    if ending == ".tar" and rng.random() < 0.6:
        return with_header(data, rng)
    return hostile.spoilt(data, seed)


def retyped(frame: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    """Return a table with columns of other types and values, dropped, renamed, repeated or emptied."""
    for _ in range(rng.choice((1, 1, 2))):
        name, kind = (
            rng.choice(frame.columns or ["x"]),
            rng.choice(("value", "value", "value", "drop", "name", "rows", "null", "cast")),
        )
        if name not in frame.columns:
            return frame
        if kind == "drop":
            frame = frame.drop(name)
        elif kind == "name":
            frame = frame.rename({name: rng.choice(("x", "", "image_id ", "Path", "image"))})
        elif kind == "rows":
            frame = rng.choice((frame.clear(), pl.concat([frame, frame])))
        elif kind == "null":
            frame = frame.with_columns(pl.lit(None, frame.schema[name]).alias(name))
        elif kind == "cast":
            frame = (
                frame.with_columns(
                    pl.col(name).cast(rng.choice((pl.Binary, pl.Int8, pl.Float32, pl.Null)), strict=False)
                )
                if _flat(frame, name)
                else frame
            )
        else:
            try:
                frame = frame.with_columns(
                    pl.Series(name, [rng.choice(hostile.VALUES)] * frame.height, strict=False)
                )
            except Exception:  # a value that Polars has no type for
                continue
    return frame


def _flat(frame: pl.DataFrame, name: str) -> bool:
    return not frame.schema[name].is_nested()


def with_header(data: bytes, rng: random.Random) -> bytes:
    """Return a tar with one field of a header changed, and the checksum made right again."""
    changed = bytearray(data)
    starts = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    start = rng.choice(starts or [0])
    field, size = rng.choice(
        (
            (0, 100),
            (100, 8),
            (124, 12),
            (124, 12),
            (124, 12),
            (136, 12),
            (156, 1),
            (156, 1),
            (157, 100),
            (257, 8),
            (345, 155),
        )
    )
    size_field = rng.choice(
        (
            b"\xff" * 12,
            b"\x80" + b"\0" * 11,
            b"\xff" * 10 + b"\xfc\0",
            b"77777777777\0",
            b"-1",
            b"00000001000\0",
        )
    )
    new = (
        size_field
        if field == 124
        else (
            bytes([rng.choice(b"0123456789LKSxgXVDMN\0")])
            if field == 156
            else rng.randbytes(rng.choice((1, size)))
        )
    )
    changed[start + field : start + field + size] = new[:size].ljust(size, b"\0")
    changed[start + 148 : start + 156] = b" " * 8
    changed[start + 148 : start + 156] = b"%06o\0 " % (sum(changed[start : start + 512]) & 0o777777)
    return bytes(changed)
