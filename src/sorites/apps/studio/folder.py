"""The folder of a capture: the published ImageNet-ES layout, the log, the originals and the reviews."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image as Pillow

from sorites.apps.studio.cameras import Photo
from sorites.apps.studio.references import Reference
from sorites.apps.studio.serving import new_token
from sorites.core import camera_grid as es_grid
from sorites.core.camera_grid import Grid, Params
from sorites.core.errors import SoritesError
from sorites.core.messages import command, option
from sorites.io.files import read_json, write_bytes
from sorites.io.paths import reason
from sorites.sources.papers.imagenet_es import PARTS

NAME = "shots.jsonl"


class Log:
    """An append-only file of events, one JSON object per line.

    A line left unfinished by a killed process is skipped and never joined with the next.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise SoritesError(f"cannot write {path}: {reason(error)}") from error
        end = os.lseek(self._file, 0, os.SEEK_END)
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            os.write(self._file, b"\n")

    def add(self, event: str, **facts: Any) -> dict[str, Any]:
        """Append an event with the time and flush it to disk."""
        line = {"event": event, "time": round(time.time(), 3), **facts}
        try:
            os.write(self._file, json.dumps(line, ensure_ascii=False).encode() + b"\n")
            os.fsync(self._file)
        except OSError as error:
            raise SoritesError(
                f"cannot write {self.path}: {reason(error)}. Free disk space, then repeat the command"
            ) from error
        return line

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a log in order, skipping broken lines; a missing file has none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(event, dict) and "event" in event:
                    yield event
    except FileNotFoundError:
        return
    except OSError as error:
        raise SoritesError(f"cannot read {path}: {reason(error)}") from error


# Originals: keep the camera's files, recompress them, or drop them
CHOICES = ("keep", "jpeg", "drop")
FOLDER = "originals"
QUALITY = 80


def check_originals(choice: str) -> str:
    """Return the choice if it is valid."""
    if choice not in CHOICES:
        raise SoritesError(f"{option('originals', None)}: expected {', '.join(CHOICES)}, got {choice!r}")
    return choice


def store_original(root: Path, path: str, photo: Photo, choice: str) -> str | None:
    """Store the camera's file of a photograph and return its path relative to the root, or None if it is
    dropped.
    """
    if choice == "drop":
        return None
    original = f"{FOLDER}/{path}"
    write_bytes(photo.data if choice == "keep" else _recompress(photo.data), root / original)
    return original


def _recompress(data: bytes) -> bytes:
    file = io.BytesIO()
    with Pillow.open(io.BytesIO(data), formats=("JPEG",)) as opened:
        opened.save(file, "JPEG", quality=QUALITY, exif=opened.getexif())
    return file.getvalue()


SETUP = "studio.json"
ENDING = ".JPEG"


@dataclass(frozen=True)
class Shot:
    """One expected photograph: a reference at a setting, and its folder relative to the capture."""

    reference: Reference
    params: Params
    place: str

    @property
    def path(self) -> str:
        """The path of the rectified photograph."""
        return f"{self.place}/{self.reference.folder}/{self.reference.stem}{ENDING}"


@dataclass(frozen=True)
class CaptureFolder:
    """The folder of a capture."""

    root: Path
    split: str
    grid: Grid

    @property
    def part(self) -> str:
        """The folder of the split in the layout, es-test or es-val."""
        return next(part.folder for part in PARTS if part.split == self.split)

    @property
    def log(self) -> Path:
        """The path of the log."""
        return self.root / NAME

    def prepare(self, references: list[Reference]) -> None:
        """Write the references and the grid.

        Raises:
            SoritesError: The folder was started with another grid.
        """
        file = self.root / self.part / es_grid.GRID_FILE
        if file.exists() and read_json(file) != json.loads(json.dumps(self.grid.as_json())):
            raise SoritesError(
                f"{self.root} was started with another grid ({file}); use the same {option('grid', None)} and"
                f" {option('auto', None)}, or another {option('out', 'DIR')}"
            )
        write_bytes(json.dumps(self.grid.as_json(), indent=1).encode(), file)
        where = next(part.references for part in PARTS if part.split == self.split)
        for reference in references:
            data, ending = reference.file
            path = self.root / self.part / where / reference.folder / f"{reference.stem}{ending}"
            if not path.exists():
                write_bytes(data, path)

    def shots(self, reference: Reference, light: str) -> Iterator[Shot]:
        """Yield the expected photographs of an image under a light, manual settings first."""
        for params, place in self.grid.under(light):
            yield Shot(reference, params, f"{self.part}/{place}")

    def done(self) -> dict[str, Mapping[str, Any]]:
        """Return the last log entry of each photograph whose file has the logged size."""
        entries: dict[str, Mapping[str, Any]] = {}
        for line in read(self.log):
            if line["event"] == "shot" and isinstance(line.get("file"), str):
                entries[line["file"]] = line
        return {path: line for path, line in entries.items() if _size(self.root / path) == line.get("bytes")}

    def setup(self) -> dict[str, Any]:
        """Return the token and port of the screen, which stay the same when a capture is resumed."""
        file = self.root / SETUP
        try:
            stored = read_json(file)
            return {"token": str(stored["token"]), "port": int(stored["port"])}
        except (SoritesError, KeyError, TypeError, ValueError):
            return {"token": new_token(), "port": 0}

    def keep_setup(self, token: str, port: int) -> None:
        """Store the token and port of the screen in a file that only the owner can read."""
        file = self.root / SETUP
        write_bytes(json.dumps({"token": token, "port": port}).encode(), file)
        file.chmod(0o600)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def open_folder(root: Path) -> CaptureFolder:
    """Return the capture in a folder."""
    for part in PARTS:
        if part.captured and (root / part.folder / es_grid.GRID_FILE).is_file():
            return CaptureFolder(root, part.split, es_grid.captured_grid(root / part.folder, part.split))
    raise SoritesError(
        f"{root} contains no capture. Create one with {command('studio capture', out=root)} or"
        f" {command('studio demo')}"
    )


# Reviews
REVIEWS_NAME = "review.jsonl"
# Issues documented by the paper's reviewers.
KINDS = {"crop": "crop error", "missed": "missed image", "label": "label mismatch"}


def verdicts(folder: CaptureFolder) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the last verdict of every reviewer on every image."""
    last: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in read(folder.root / REVIEWS_NAME):
        if line["event"] == "verdict" and isinstance(line.get("sample"), str):
            last[str(line.get("reviewer", "")), line["sample"]] = line
    return last


def flagged(folder: CaptureFolder) -> frozenset[str]:
    """Return the images that a reviewer flagged and that were not shot again since."""
    last: dict[str, float] = {}
    for line in folder.done().values():
        sample, when = str(line["sample"]), float(line["time"])
        last[sample] = min(last.get(sample, when), when)
    flags = {sample: line for (_, sample), line in verdicts(folder).items() if line.get("flags")}
    return frozenset(sample for sample, line in flags.items() if last.get(sample, 0.0) < float(line["time"]))
