"""Explanations in a run folder: which images flipped, and where each model looked.

``explanations/explanations.json`` lists the flips. Each side of a flip has images: what the model saw, a
map over it, and for Grad-CAM the guided one. The ``explain`` verb writes them, and the report reads them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image as Pillow
from pydantic import ValidationError

from sorites.core import ImageU8
from sorites.core.errors import Damaged
from sorites.core.messages import command
from sorites.io import digests
from sorites.suites.suite import Strict

ROOM, LIST, WEBP = "explanations", "explanations.json", ".webp"
Kind = Literal["seen", "cam", "guided"]
KINDS: tuple[Kind, ...] = ("seen", "cam", "guided")
Method = Literal["gradcam", "rise", "occlusion"]
REMEDY = f"Delete it and type: {command('explain', 'RUN')}"


def kinds_of(method: Method) -> tuple[Kind, ...]:
    """Return the images that a method makes."""
    return KINDS if method == "gradcam" else KINDS[:2]


class Side(Strict):
    """One image and model, with the explained class (a label of the run) and how it was explained.

    ``pred`` and ``target`` of a detector are the class of the explained object, ``correct`` is whether it was
    found, and ``box`` is its ground-truth box in px of an image of ``size``.
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
    layer: str = ""
    """The layer of Grad-CAM."""
    empty: bool = False
    """True if Grad-CAM is zero everywhere, or no region of a masking map stands out of its noise."""
    method: Method = "gradcam"
    masks: int | None = None
    """The number of images that were evaluated for a masking map."""
    score: float | None = None
    """The explained score of the whole image."""
    deleted: float | None = None
    """The score without the tenth of the pixels that the map marks most."""
    deletion: float | None = None
    """Area under the score as the marked pixels are hidden; lower is better."""
    insertion: float | None = None
    """Area under the score as the marked pixels are shown; higher is better."""
    box: tuple[float, float, float, float] | None = None
    size: tuple[int, int] | None = None
    answer: str = ""
    """A hash of the detector's boxes."""


class Change(Strict):
    """A flip: between two models, or for one model between a clean image and a shifted one."""

    between: Literal["models", "settings"]
    sample_id: str
    label: int | None
    sides: tuple[Side, Side]

    @property
    def key(self) -> tuple[tuple[str, str, str], ...]:
        """The compared pairs of image, model and object, whichever class is explained."""
        return tuple((side.image_id, side.model, str(side.box or "")) for side in self.sides)


def stem_of_image(file: str, kind: Kind) -> str:
    """Return the name of an image of a side, without digest and suffix."""
    return f"{file}-{kind}"


def image_files(folder: Path) -> dict[str, Path]:
    """Return the images of the explanations of a run by name, without digest and suffix."""
    return digests.shards_in(folder / ROOM, WEBP)


def image_file(folder: Path, file: str, kind: Kind) -> Path | None:
    """Return the path of an image of a side, or None if it does not exist."""
    return image_files(folder).get(stem_of_image(file, kind))


def write_image(image: ImageU8, folder: Path, file: str, kind: Kind) -> None:
    """Write an image of an explanation atomically."""
    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "WEBP", quality=90, method=4)
    digests.write_shard(folder / ROOM, stem_of_image(file, kind), WEBP, buffer.getvalue())


def read_image(path: Path) -> ImageU8:
    """Read an image of an explanation.

    Raises:
        Damaged: It does not match its digest.
    """
    data = digests.read_shard(path, REMEDY)
    try:
        with Pillow.open(io.BytesIO(data), formats=["WEBP"]) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
        raise Damaged(path, error, REMEDY) from error


def read_list(path: Path) -> tuple[Change, ...]:
    """Read the list of flips.

    Raises:
        Damaged: It cannot be read.
    """
    content = digests.read_sealed(path, REMEDY)
    try:
        return tuple(Change.model_validate(change) for change in content["changes"])
    except (KeyError, ValidationError) as error:
        raise Damaged(path, str(error).split("\n")[0], REMEDY) from error


@dataclass(frozen=True)
class Explanations:
    """The explanations of a run folder, for the report."""

    folder: Path
    changes: tuple[Change, ...]

    def image(self, side: Side, kind: Kind) -> ImageU8 | None:
        """Return an image of a side, or None if it is missing.

        Raises:
            Damaged: It does not match its digest.
        """
        path = image_file(self.folder, side.file, kind)
        return None if path is None else read_image(path)


def read_changes(folder: Path) -> tuple[Change, ...]:
    """Return the flips listed in a run folder."""
    path = folder / ROOM / LIST
    return read_list(path) if path.exists() else ()


def write_changes(folder: Path, changes: Sequence[Change]) -> None:
    """Write the list of flips and delete images that it does not need."""
    content = {"changes": [change.model_dump(mode="json") for change in changes]}
    digests.write_sealed(content, folder / ROOM / LIST)
    sides = [side for change in changes for side in change.sides]
    needed = {stem_of_image(side.file, kind) for side in sides for kind in KINDS}
    for stem, path in image_files(folder).items():
        if stem not in needed:
            path.unlink(missing_ok=True)
