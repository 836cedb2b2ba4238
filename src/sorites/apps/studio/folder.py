"""The folder of a capture: ImageNet-ES's published layout, the log beside it, and what was already shot."""

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
from sorites.io.files import read_json, write_bytes
from sorites.io.paths import reason
from sorites.sources.papers.imagenet_es import PARTS

# The log of a capture: one JSON object a line, only ever appended to, each line on the disk before the
# next shot.


NAME = "shots.jsonl"


class Log:
    """An append-only file of events.

    A line that a killed process left unfinished is passed over, never joined to the next.
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
        """Append one event with the time, and wait until the disk has it."""
        line = {"event": event, "time": round(time.time(), 3), **facts}
        try:
            os.write(self._file, json.dumps(line, ensure_ascii=False).encode() + b"\n")
            os.fsync(self._file)
        except OSError as error:
            raise SoritesError(
                f"cannot write {self.path}: {reason(error)}. Make room, then type the same command"
            ) from error
        return line

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a log in their order; there are none if the file is missing.

    Broken lines are passed over.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    held = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(held, dict) and "event" in held:
                    yield held
    except FileNotFoundError:
        return
    except OSError as error:
        raise SoritesError(f"cannot read {path}: {reason(error)}") from error


# Keep the camera's own files as they are, keep them as smaller JPEGs, or drop them.


CHOICES = ("keep", "jpeg", "drop")
FOLDER = "originals"
QUALITY = 80


def checked_choice(choice: str) -> str:
    """Return the choice, or say which there are."""
    if choice not in CHOICES:
        raise SoritesError(f"--originals wants {', '.join(CHOICES)}; got {choice!r}")
    return choice


def kept_original(root: Path, path: str, photo: Photo, choice: str) -> str | None:
    """Keep the file of a camera beside the straightened photograph's path, and return where it
    lies, from the folder.
    """
    if choice == "drop":
        return None
    place = f"{FOLDER}/{path}"
    write_bytes(photo.data if choice == "keep" else _smaller(photo.data), root / place)
    return place


def _smaller(data: bytes) -> bytes:
    file = io.BytesIO()
    with Pillow.open(io.BytesIO(data), formats=("JPEG",)) as opened:
        opened.save(file, "JPEG", quality=QUALITY, exif=opened.getexif())
    return file.getvalue()


SETUP = "studio.json"
ENDING = ".JPEG"


@dataclass(frozen=True)
class Shot:
    """One expected photograph: a reference at a setting, and the path that it gets, relative to the
    capture's folder.
    """

    reference: Reference
    params: Params
    place: str

    @property
    def path(self) -> str:
        """The path of the straightened photograph."""
        return f"{self.place}/{self.reference.folder}/{self.reference.stem}{ENDING}"


@dataclass(frozen=True)
class CaptureFolder:
    """The folder that a capture writes. ``part`` is es-test or es-val."""

    root: Path
    split: str
    grid: Grid

    @property
    def part(self) -> str:
        """The folder of the split in the layout."""
        return next(part.folder for part in PARTS if part.split == self.split)

    @property
    def log(self) -> Path:
        """The log's file."""
        return self.root / NAME

    def prepare(self, held: list[Reference]) -> None:
        """Write the references and the grid; a folder that was begun with another grid is refused."""
        file = self.root / self.part / es_grid.GRID_FILE
        if file.exists() and read_json(file) != json.loads(json.dumps(self.grid.as_json())):
            raise SoritesError(
                f"{self.root} was begun with another grid ({file}); take the same --grid and --auto, or"
                " another --out DIR"
            )
        write_bytes(json.dumps(self.grid.as_json(), indent=1).encode(), file)
        where = next(part.references for part in PARTS if part.split == self.split)
        for reference in held:
            data, ending = reference.file
            path = self.root / self.part / where / reference.folder / f"{reference.stem}{ending}"
            if not path.exists():
                write_bytes(data, path)

    def shots(self, reference: Reference, light: str) -> Iterator[Shot]:
        """Yield the expected photographs of an image under a light, manual settings first."""
        for params, place in self.grid.under(light):
            yield Shot(reference, params, f"{self.part}/{place}")

    def done(self) -> dict[str, Mapping[str, Any]]:
        """Return the last log line of each photograph that is there with the size that the log gives."""
        found: dict[str, Mapping[str, Any]] = {}
        for line in read(self.log):
            if line["event"] == "shot" and isinstance(line.get("file"), str):
                found[line["file"]] = line
        return {path: line for path, line in found.items() if _size(self.root / path) == line.get("bytes")}

    def setup(self) -> dict[str, Any]:
        """Return what stays the same when the capture goes on, so that the screen's link does: its
        token and its port.
        """
        file = self.root / SETUP
        try:
            held = read_json(file)
            return {"token": str(held["token"]), "port": int(held["port"])}
        except (SoritesError, KeyError, TypeError, ValueError):
            return {"token": new_token(), "port": 0}

    def keep_setup(self, token: str, port: int) -> None:
        """Keep the token and the port of the screen in a file that nobody else can read."""
        file = self.root / SETUP
        write_bytes(json.dumps({"token": token, "port": port}).encode(), file)
        file.chmod(0o600)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def open_folder(root: Path) -> CaptureFolder:
    """Return the capture that a folder holds."""
    for part in PARTS:
        if part.captured and (root / part.folder / es_grid.GRID_FILE).is_file():
            return CaptureFolder(root, part.split, es_grid.captured(root / part.folder, part.split))
    raise SoritesError(
        f"{root} holds no capture. Make one: sorites studio capture --out {root} ..., or sorites studio demo"
    )


# Keep the reviewers' remarks on the sheets: an append-only file of flags, and the images that must be
# shot again.


REVIEWS_NAME = "review.jsonl"
# The issues that the paper's reviewers documented.
KINDS = {"crop": "crop error", "missed": "missed image", "label": "label mismatch"}


def verdicts(folder: CaptureFolder) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the last verdict of every reviewer on every image."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in read(folder.root / REVIEWS_NAME):
        if line["event"] == "verdict" and isinstance(line.get("sample"), str):
            found[str(line.get("reviewer", "")), line["sample"]] = line
    return found


def flagged(folder: CaptureFolder) -> frozenset[str]:
    """Return the images that anyone flagged and that were not shot again since."""
    last: dict[str, float] = {}
    for line in folder.done().values():
        sample, when = str(line["sample"]), float(line["time"])
        last[sample] = min(last.get(sample, when), when)
    flags = {sample: line for (_, sample), line in verdicts(folder).items() if line.get("flags")}
    return frozenset(sample for sample, line in flags.items() if last.get(sample, 0.0) < float(line["time"]))
