"""One picture along one dial, side by side: what the numbers look like."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites import core
from sorites.core import Picture, Shift, Stop
from sorites.errors import SoritesError
from sorites.rng import rng_for
from sorites.suite import Frame
from sorites.table import write_bytes

GAP, CAPTION, PAPER, INK = 8, 26, (255, 255, 255), (40, 40, 40)


GRID = 7
"""Settings shown of a shift that has no line."""


def strip(picture: Picture, shift: Shift, severities: Sequence[float] = (), seed: int = 0, side: int = 224) -> Pillow.Image:
    """The untouched picture, then one for each severity (default: the published levels), each with its caption."""
    base = Frame(resize=side)(picture)
    stops: list[Stop] = [0.0, *(severities or shift.levels or shift.settings[:: max(1, len(shift.settings) // GRID)])]
    moved = shift.sweep(core.to_image(base), stops, rng_for(seed, "strip", shift.name))
    return row([core.to_picture(image) for image in moved], [_caption(shift, s) for s in stops], f"{shift.name}  ({shift.unit})")


def _caption(shift: Shift, stop: Stop) -> str:
    if isinstance(stop, Mapping):
        return "  ".join(str(value) for value in stop.values())
    level = shift.setting(stop).level
    return "untouched" if stop == 0 else f"{stop:.3g}" + (f"  level {level}" if level else "")


def row(pictures: Sequence[Picture], captions: Sequence[str], title: str) -> Pillow.Image:
    """Pictures of one height in a row on white paper, captions below, a title above."""
    height = max(p.shape[0] for p in pictures)
    width = sum(p.shape[1] + GAP for p in pictures) + GAP
    sheet = Pillow.new("RGB", (width, height + 2 * (CAPTION + GAP)), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    draw.text((GAP, GAP), title, INK, ImageFont.load_default(16))
    left = GAP
    for picture, caption in zip(pictures, captions, strict=True):
        sheet.paste(Pillow.fromarray(np.ascontiguousarray(picture)), (left, CAPTION + GAP))
        draw.text((left, CAPTION + GAP + height + 4), caption, INK, font)
        left += picture.shape[1] + GAP
    return sheet


def save(sheet: Pillow.Image, path: Path) -> None:
    """Write a picture in the format its name asks for, whole or not at all."""
    kind = Pillow.registered_extensions().get(path.suffix.lower())
    if kind not in {"PNG", "JPEG", "WEBP"}:
        raise SoritesError(f"--out wants a name ending in .png, .jpg or .webp, got {path.name}")
    buffer = io.BytesIO()
    sheet.save(buffer, format=kind)
    write_bytes(buffer.getvalue(), path)
