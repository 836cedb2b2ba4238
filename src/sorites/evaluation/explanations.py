"""Explanations in a run folder: which images flipped, and where each model looked.

``explanations/explanations.json`` lists the flips. Each side of a flip has three images: the model's input, a
Grad-CAM overlay, and guided Grad-CAM. The ``explain`` verb writes them, and the report reads them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image as Pillow
from pydantic import ValidationError

from sorites.core import ImageU8
from sorites.core.errors import Damaged, SoritesError
from sorites.core.messages import command
from sorites.io.files import read_json, write_bytes
from sorites.suites.suite import Strict

ROOM, LIST = "explanations", "explanations.json"
Kind = Literal["seen", "cam", "guided"]
KINDS: tuple[Kind, ...] = ("seen", "cam", "guided")
REMEDY = f"Delete it and type: {command('explain', 'RUN')}"


class Side(Strict):
    """One image and model, with the explained class (a label of the run) and the layer used."""

    file: str
    image_id: str
    shift: str
    severity: float | None
    params: str
    model: str
    version: str
    pred: int
    conf: float | None
    correct: bool
    target: int
    layer: str
    empty: bool = False
    """True if Grad-CAM is zero everywhere."""


class Change(Strict):
    """A flip: between two models, or for one model between a clean image and a shifted one."""

    between: Literal["models", "settings"]
    sample_id: str
    label: int | None
    sides: tuple[Side, Side]

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The compared pairs of image and model, whichever class is explained."""
        return tuple((side.image_id, side.model) for side in self.sides)


def image_file(folder: Path, file: str, kind: Kind) -> Path:
    """Return the path of an image of a side."""
    return folder / ROOM / f"{file}-{kind}.webp"


def write_image(image: ImageU8, path: Path) -> None:
    """Write an image of an explanation atomically."""
    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "WEBP", quality=90, method=4)
    write_bytes(buffer.getvalue(), path)


def read_image(path: Path) -> ImageU8:
    """Read an image of an explanation.

    Raises:
        Damaged: It cannot be read.
    """
    try:
        with Pillow.open(path, formats=["WEBP"]) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
        raise Damaged(path, error, REMEDY) from error


def read_list(path: Path) -> tuple[Change, ...]:
    """Read the list of flips.

    Raises:
        Damaged: It cannot be read.
    """
    try:
        content = read_json(path)
        if not isinstance(content, dict) or not isinstance(content.get("changes"), list):
            raise SoritesError("it has an unknown format")
        return tuple(Change.model_validate(change) for change in content["changes"])
    except (SoritesError, ValidationError) as error:
        raise Damaged(path, str(error).split("\n")[0], REMEDY) from error


@dataclass(frozen=True)
class Explanations:
    """The explanations of a run folder, for the report."""

    folder: Path
    changes: tuple[Change, ...]

    def image(self, side: Side, kind: Kind) -> ImageU8 | None:
        """Return an image of a side, or None if it is missing or damaged."""
        try:
            return read_image(image_file(self.folder, side.file, kind))
        except SoritesError:
            return None


def read_changes(folder: Path) -> tuple[Change, ...]:
    """Return the flips listed in a run folder."""
    path = folder / ROOM / LIST
    return read_list(path) if path.exists() else ()


def write_changes(folder: Path, changes: Sequence[Change]) -> None:
    """Write the list of flips and delete images that it does not need."""
    content = {"changes": [change.model_dump(mode="json") for change in changes]}
    write_bytes(json.dumps(content, indent=1).encode(), folder / ROOM / LIST)
    needed = {
        image_file(folder, side.file, kind).name
        for change in changes
        for side in change.sides
        for kind in KINDS
    }
    for path in (folder / ROOM).glob("*.webp"):
        if path.name not in needed:
            path.unlink(missing_ok=True)
