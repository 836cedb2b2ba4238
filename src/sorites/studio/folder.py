"""The folder of a capture: ImageNet-ES's published layout, the log beside it, and what was already shot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites import es_grid
from sorites.errors import SoritesError
from sorites.es_grid import Grid, Params
from sorites.files import read_json, write_bytes
from sorites.sources.imagenet_es import PARTS
from sorites.studio import log as logs
from sorites.studio.references import Reference
from sorites.studio.serving import new_token

SETUP = "studio.json"
ENDING = ".JPEG"


@dataclass(frozen=True)
class Shot:
    """One wanted photograph: a reference at a setting, and the path that it gets, relative to the capture's folder."""

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
        return self.root / logs.NAME

    def prepare(self, held: list[Reference]) -> None:
        """Write the references and the grid; a folder that was begun with another grid is refused."""
        file = self.root / self.part / es_grid.GRID_FILE
        if file.exists() and read_json(file) != json.loads(json.dumps(self.grid.as_json())):
            raise SoritesError(
                f"{self.root} was begun with another grid ({file}); take the same --grid and --auto, or another --out DIR"
            )
        write_bytes(json.dumps(self.grid.as_json(), indent=1).encode(), file)
        where = next(part.references for part in PARTS if part.split == self.split)
        for reference in held:
            data, ending = reference.file
            path = self.root / self.part / where / reference.folder / f"{reference.stem}{ending}"
            if not path.exists():
                write_bytes(data, path)

    def shots(self, reference: Reference, light: str) -> Iterator[Shot]:
        """Yield the wanted photographs of a picture under a light, manual settings first."""
        for params, place in self.grid.under(light):
            yield Shot(reference, params, f"{self.part}/{place}")

    def done(self) -> dict[str, Mapping[str, Any]]:
        """Return the last log line of each photograph that is there with the size that the log gives."""
        found: dict[str, Mapping[str, Any]] = {}
        for line in logs.read(self.log):
            if line["event"] == "shot" and isinstance(line.get("file"), str):
                found[line["file"]] = line
        return {path: line for path, line in found.items() if _size(self.root / path) == line.get("bytes")}

    def setup(self) -> dict[str, Any]:
        """Return what stays the same when the capture goes on, so that the screen's link does: its token and its port."""
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
    raise SoritesError(f"{root} holds no capture. Make one: sorites studio capture --out {root} ..., or sorites studio demo")
