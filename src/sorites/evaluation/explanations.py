"""The explanations that a run folder keeps: which images flipped, and where each model looked.

``explanations/explanations.json`` lists the changes; each side of a change has three images
beside it: what the model saw, Grad-CAM laid over it, and guided Grad-CAM. Whoever makes
explanations writes them here, and the report reads them.
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
from sorites.io.files import read_json, write_bytes
from sorites.suites.suite import Strict

ROOM, LIST = "explanations", "explanations.json"
Kind = Literal["seen", "cam", "guided"]
KINDS: tuple[Kind, ...] = ("seen", "cam", "guided")
AGAIN = "Delete it and type the command again: sorites explain RUN"


class Side(Strict):
    """One image as one model judged it, with the class that is explained (a label of the run) and
    the layer looked at.
    """

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
    """True where nothing in the layer speaks for the class: Grad-CAM is zero everywhere."""


class Change(Strict):
    """An image that flipped: between two models, or for one model between its clean image
    and a shifted one.
    """

    between: Literal["models", "settings"]
    sample_id: str
    label: int | None
    sides: tuple[Side, Side]

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Return what is compared: an image and a model for each side, whichever explanation is
        drawn of them.
        """
        return tuple((side.image_id, side.model) for side in self.sides)


def image_file(folder: Path, file: str, kind: Kind) -> Path:
    """Return where an image of a side lies."""
    return folder / ROOM / f"{file}-{kind}.webp"


def write_image(image: ImageU8, path: Path) -> None:
    """Write an image of an explanation whole or not at all."""
    held = io.BytesIO()
    Pillow.fromarray(image).save(held, "WEBP", quality=90, method=4)
    write_bytes(held.getvalue(), path)


def read_image(path: Path) -> ImageU8:
    """Read an image of an explanation; one that is damaged is an error that names it."""
    try:
        with Pillow.open(path, formats=["WEBP"]) as held:
            return np.asarray(held.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
        raise Damaged(path, error, AGAIN) from error


def read_list(path: Path) -> tuple[Change, ...]:
    """Read the list of changes; one that is damaged is an error that names it."""
    try:
        held = read_json(path)
        if not isinstance(held, dict) or not isinstance(held.get("changes"), list):
            raise SoritesError("it is not what Sorites writes")
        return tuple(Change.model_validate(change) for change in held["changes"])
    except (SoritesError, ValidationError) as error:
        raise Damaged(path, str(error).split("\n")[0], AGAIN) from error


@dataclass(frozen=True)
class Explanations:
    """The explanations of a run folder as the report reads them."""

    folder: Path
    changes: tuple[Change, ...]

    def image(self, side: Side, kind: Kind) -> ImageU8 | None:
        """Return an image of a side, or None where it is not there or damaged."""
        try:
            return read_image(image_file(self.folder, side.file, kind))
        except SoritesError:
            return None


def read_changes(folder: Path) -> tuple[Change, ...]:
    """Return the changes that a run folder keeps; none where nothing was explained."""
    path = folder / ROOM / LIST
    return read_list(path) if path.exists() else ()


def write_changes(folder: Path, changes: Sequence[Change]) -> None:
    """Write the list of changes, and delete the images that no side of it needs."""
    held = {"changes": [change.model_dump(mode="json") for change in changes]}
    write_bytes(json.dumps(held, indent=1).encode(), folder / ROOM / LIST)
    needed = {
        image_file(folder, side.file, kind).name
        for change in changes
        for side in change.sides
        for kind in KINDS
    }
    for path in (folder / ROOM).glob("*.webp"):
        if path.name not in needed:
            path.unlink(missing_ok=True)
