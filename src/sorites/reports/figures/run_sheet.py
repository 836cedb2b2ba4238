"""Draw one image of a run at several settings: settings across, models down, framed by the verdict.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figure 10. A correct image
has a green frame and a tick, a misclassified one a dashed red frame and a cross, so the sheet is readable
without colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.analysis.sheet import MAX_SETTINGS, Column, Sheet, Verdict, images_of, sheet, with_models
from sorites.core import CLEAN, ImageU8
from sorites.core.errors import SoritesError
from sorites.core.labels import class_name
from sorites.core.table import read
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import class_names, plan_of
from sorites.evaluation.storage.record import read_record

# Sizes in px: the longer side of an image, the gap between two, the width of a frame, a line of text, and
# the mark in a corner.
SIDE, GAP, FRAME, LINE, BADGE = 132, 12, 5, 16, 22
PAPER, INK, SOFT, NONE = (255, 255, 255), (35, 38, 43), (105, 110, 118), (214, 214, 214)
RIGHT, WRONG = (22, 128, 72), (200, 38, 30)
# Returns the name of a class.
Names = Callable[[int | None], str]


def run_sheet(
    run: Path,
    sample: str | None = None,
    shift: str | None = None,
    light: str = "on",
    most: int = MAX_SETTINGS,
) -> Pillow.Image:
    """Draw the sheet of a run folder; its images are recomputed, and unavailable ones are grey.

    Raises:
        SoritesError: No image can be recomputed, or there is no such sample or shift.
    """
    record = read_record(run)
    content = with_models(sheet(read(run), sample, shift, light, most), list(record.models))
    names = class_names(record)
    plan = plan_of(run)
    images = images_of(plan, content.sample_id, {column.image_id for column in content.columns})
    if not images:
        raise SoritesError(
            f"None of the images of {content.sample_id} can be recomputed: {_cause(plan, content.sample_id)}"
        )
    return draw(content, images, lambda label: class_name(names, label))


def _cause(plan: Plan, sample_id: str) -> str:
    try:
        next(sample for group in plan.groups.values() for sample in group.called(sample_id)).load()
    except Exception as error:  # a user's source may raise anything
        return f"{error}"
    return "its shifts fail"


def draw(content: Sheet, images: Mapping[str, ImageU8], name: Names) -> Pillow.Image:
    """Draw a sheet from its verdicts and its images (by image id)."""
    font, bold = ImageFont.load_default(13), ImageFont.load_default(17)
    tiles = {image: _tile(image_u8) for image, image_u8 in images.items()}
    high = max((tile.height for tile in tiles.values()), default=SIDE)
    heads = [caption(column) for column in content.columns]
    margin = (
        GAP
        + max(
            (int(font.getlength(part)) for model in content.models for part in _wrapped(model, font)),
            default=0,
        )
        + GAP
    )
    top = 2 * GAP + 2 * LINE + LINE * max(len(head) for head in heads) + GAP
    across, down = SIDE + 2 * FRAME + GAP, high + 2 * FRAME + LINE + GAP
    title, about = _title(content, name)
    width = (
        max(margin + len(content.columns) * across, int(bold.getlength(title)), int(font.getlength(about)))
        + GAP
    )
    page = Pillow.new("RGB", (width, top + len(content.models) * down + GAP), PAPER)
    ink = ImageDraw.Draw(page)
    ink.text((GAP, GAP - 2), title, INK, bold)
    ink.text((GAP, GAP + LINE + 6), about, SOFT, font)
    for i, (column, head) in enumerate(zip(content.columns, heads, strict=True)):
        left = margin + i * across
        for j, line in enumerate(reversed(head)):
            ink.text((left, top - 6 - LINE * (j + 1)), line, SOFT if j < len(head) - 1 else INK, font)
        for j, model in enumerate(content.models):
            _cell(
                page,
                (left, top + j * down),
                tiles.get(column.image_id),
                column.verdicts.get(model),
                name,
                high,
            )
    for j, model in enumerate(content.models):
        parts = _wrapped(model, font)
        ink.multiline_text(
            (GAP, top + j * down + (high - LINE * len(parts)) // 2), "\n".join(parts), INK, font, spacing=3
        )
    return page


def _title(content: Sheet, name: Names) -> tuple[str, str]:
    shown = sum(column.shift != CLEAN for column in content.columns)
    settings = f"{shown} of {content.of}" if shown < content.of else f"{content.of}"
    return (
        f"{name(content.label)}: {content.shift}",
        f"{content.sample_id}  ·  {settings} settings  ·  tick: correct, cross: misclassified, with the"
        " prediction",
    )


def caption(column: Column) -> list[str]:
    """Return the setting of an image in one to three short lines."""
    params = column.params
    if column.shift == CLEAN:
        return ["clean"]
    if column.severity is not None:
        return [f"severity {column.severity:.4g}"]
    if params.get("mode") == "auto":
        return ["automatic", f"lamp {params['light']}"]
    if {"iso", "shutter", "aperture"} <= params.keys():
        lamp = [f"lamp {params['light']}"] if "light" in params else []
        return [f"ISO {params['iso']:g}", f"{_seconds(params['shutter'])}  f/{params['aperture']:g}", *lamp]
    return [
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in list(params.items())[:3]
    ]


def _seconds(time: float) -> str:
    """Format a shutter time as cameras do."""
    return f"1/{round(1 / time)} s" if time <= 0.25 else f"{time:g} s"


def _tile(image: ImageU8) -> Pillow.Image:
    tile = Pillow.fromarray(np.ascontiguousarray(image))
    scale = SIDE / max(tile.size)
    return tile.resize(
        (max(1, round(tile.width * scale)), max(1, round(tile.height * scale))), Pillow.Resampling.LANCZOS
    )


def _cell(
    page: Pillow.Image,
    at: tuple[int, int],
    tile: Pillow.Image | None,
    verdict: Verdict | None,
    name: Names,
    high: int,
) -> None:
    """Draw one image in its frame, with its mark and the prediction below."""
    ink, (left, top) = ImageDraw.Draw(page), at
    image = tile or Pillow.new("RGB", (SIDE, high), NONE)
    right, bottom = left + image.width + 2 * FRAME - 1, top + image.height + 2 * FRAME - 1
    page.paste(image, (left + FRAME, top + FRAME))
    colour = NONE if verdict is None else RIGHT if verdict.right else WRONG
    ink.rectangle((left, top, right, bottom), outline=colour, width=FRAME)
    if verdict is None:
        ink.text((left, top + high + 2 * FRAME + 1), "not evaluated", SOFT, ImageFont.load_default(12))
        return
    if not verdict.right:
        _break(ink, (left, top, right, bottom))
    _mark(ink, (right - BADGE + 1, top), verdict.right)
    confidence = "" if verdict.conf is None else f" {100 * verdict.conf:.0f} %"
    font = ImageFont.load_default(12)
    ink.text((left, top + high + 2 * FRAME + 1), _cut(name(verdict.pred), confidence, font), colour, font)


def _break(ink: ImageDraw.ImageDraw, box: tuple[int, int, int, int]) -> None:
    """Cut gaps into a frame, so that it is distinct without colour."""
    left, top, right, bottom = box
    for x in range(left + 10, right - 8, 14):
        for y in (top, bottom - FRAME + 1):
            ink.rectangle((x, y, x + 4, y + FRAME - 1), fill=PAPER)
    for y in range(top + 10, bottom - 8, 14):
        for x in (left, right - FRAME + 1):
            ink.rectangle((x, y, x + FRAME - 1, y + 4), fill=PAPER)


def _mark(ink: ImageDraw.ImageDraw, at: tuple[int, int], right: bool) -> None:
    """Draw a tick or a cross on a square in the colour of the verdict."""
    x, y = at
    ink.rectangle((x, y, x + BADGE - 1, y + BADGE - 1), fill=RIGHT if right else WRONG)
    strokes: list[Any] = [[(5, 11), (9, 16), (17, 6)]] if right else [[(6, 6), (16, 16)], [(6, 16), (16, 6)]]
    for stroke in strokes:
        ink.line([(x + dx, y + dy) for dx, dy in stroke], fill=PAPER, width=3, joint="curve")


def _cut(text: str, end: str, font: Any) -> str:
    """Truncate a text so that it fits below an image together with its end."""
    room = SIDE + 2 * FRAME
    if font.getlength(text + end) <= room:
        return text + end
    while text and font.getlength(f"{text.rstrip()}…{end}") > room:
        text = text[:-1]
    return f"{text.rstrip()}…{end}"


def _wrapped(text: str, font: Any, room: int = 150) -> list[str]:
    """Wrap a long name to the room beside the images."""
    lines = [""]
    for letter in text:
        if font.getlength(lines[-1] + letter) > room:
            lines.append("")
        lines[-1] += letter
    return lines
