"""Draw boxes on an image: an outline in the colour of its class between two dark lines, and the
class on a filled tag.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites import core
from sorites.core import Box, ImageU8, OwnDial, Sample, SettingValue, Shift, Source
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import OpenLabels, labels
from sorites.core.rng import rng_for
from sorites.evaluation import plan as plans
from sorites.evaluation.images import turned
from sorites.evaluation.samples import named
from sorites.io.files import write_bytes
from sorites.sources.decode import decode
from sorites.suites.suite import Dial, Frame, parse

# Light colours, so that one dark ink can be read on all of them.
COLOURS = (
    (255, 220, 0),
    (0, 200, 255),
    (255, 110, 180),
    (120, 255, 120),
    (255, 150, 40),
    (200, 170, 255),
    (255, 255, 255),
)
INK = (20, 20, 20)
Font = ImageFont.ImageFont | ImageFont.FreeTypeFont
# The length in px of the dashes by which a crowd is drawn.
DASH = 6


def with_boxes(image: ImageU8, boxes: Sequence[Box], names: Sequence[str]) -> ImageU8:
    """Return a copy of the image with the boxes drawn on it, large ones first; without boxes, the
    image itself.
    """
    if not boxes:
        return image
    page = Pillow.fromarray(np.array(image))
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(12)
    for box in sorted(boxes, key=lambda box: -(box.xyxy[2] - box.xyxy[0]) * (box.xyxy[3] - box.xyxy[1])):
        colour = COLOURS[box.label % len(COLOURS)]
        _outline(draw, box, colour)
        said = names[box.label] if 0 <= box.label < len(names) else str(box.label)
        said += "" if box.conf is None else f" {box.conf:.2f}"
        _tag(draw, box, f"{said} (crowd)" if box.crowd else said, colour, font, page.size)
    return np.asarray(page)


def _outline(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, int, int]) -> None:
    x0, y0, x1, y1 = (round(edge) for edge in box.xyxy)
    right, below = max(x0, x1 - 1), max(y0, y1 - 1)
    for grow, ink in ((-1, INK), (2, INK), (0, colour), (1, colour)):
        corners = (x0 - grow, y0 - grow, right + grow, below + grow)
        if corners[0] <= corners[2] and corners[1] <= corners[3]:
            draw.rectangle(corners, outline=ink)
    if box.crowd:
        for x in range(x0, right, 2 * DASH):
            draw.line((x, y0, min(x + DASH, right), y0), fill=INK, width=2)
            draw.line((x, below, min(x + DASH, right), below), fill=INK, width=2)


def _tag(
    draw: ImageDraw.ImageDraw, box: Box, text: str, colour: tuple[int, int, int], font: Font, size: tuple[int, int]
) -> None:  # fmt: skip
    """Draw the tag above the box, or inside it where there is no room above; it stays inside the image."""
    wide, high = round(font.getbbox(text)[2]) + 6, 15
    left = max(0, min(round(box.xyxy[0]) - 2, size[0] - wide))
    top = round(box.xyxy[1]) - high - 1
    top = top if top >= 0 else min(max(round(box.xyxy[1]) + 2, 0), size[1] - high)
    draw.rectangle((left, top, left + wide - 1, top + high - 1), fill=colour, outline=INK)
    draw.text((left + 3, top), text, INK, font)


# Draw one image at several settings of one shift, side by side, to show what the numbers look like.


# Sizes in px: the gap between images, the height of a one-line caption with its margins, the
# height of each further line.
GAP, CAPTION, LINE = 8, 26, 17
PAPER, STRIP_INK, EDGE = (255, 255, 255), (40, 40, 40), (225, 225, 225)
# The most images per row, the most rows of a grid of two params, and the most settings shown of
# any other grid.
ACROSS, DOWN, MOST = 7, 3, 13
# The shorter side in px of images that are drawn with boxes.
BOXED = 416
GOLDEN = (5**0.5 - 1) / 2
# A unit that can follow a number (um, px, cm/h), as opposed to a formula or a name of several
# words.
SIGN = re.compile(r"[a-z]{1,6}(/[a-z])?")
T = TypeVar("T")


def strip(
    image_u8: ImageU8,
    shift: Shift,
    severities: Sequence[float] = (),
    seed: int = 0,
    side: int = 224,
    ground_truth: Sequence[Box] | None = None,
    names: Sequence[str] = (),
    settings: Sequence[Mapping[str, Any]] = (),
) -> Pillow.Image:
    """Draw the untouched image, then one per severity (default: the published levels), each with
    its caption.

    Of a grid some settings are shown, evenly spread; a grid of two params has one row per value of
    the first. ``settings`` chooses those that agree with one of these in all that it says:
    ``[{"iso": 250}]``. With a ``truth`` its boxes are drawn on every image with the ``names`` of
    their labels, and the shift acts before the image is made small, as it does when detectors are
    evaluated.
    """
    if ground_truth and shift.moves_objects:
        raise SoritesError(
            f"{shift.name} moves objects, and ground-truth boxes cannot follow it; leave out --source"
        )
    if severities and shift.settings:
        raise SoritesError(f"{shift.name} is a grid of settings: it has no severities")
    rows = _on_grid(shift, settings) if shift.settings or settings else [[0.0, *(severities or shift.levels)]]
    frame = Frame(resize=side)
    base = frame(image_u8) if ground_truth is None else image_u8
    moved = shift.sweep(
        core.to_float(base), [setting for row in rows for setting in row], rng_for(seed, "strip", shift.name)
    )
    written = captions(shift, rows)
    shown = sum(isinstance(setting, Mapping) for row in rows for setting in row)
    small = (core.to_uint8(image) if ground_truth is None else frame(core.to_uint8(image)) for image in moved)
    boxes = frame.moved(ground_truth or (), *image_u8.shape[:2])
    shots = [[(with_boxes(next(small), boxes, names), caption) for caption in row] for row in written]
    return sheet(shots, _title(shift, shown))


def _on_grid(shift: Shift, settings: Sequence[Mapping[str, Any]]) -> list[list[SettingValue]]:
    """Return the settings of a grid to show, in rows: those asked for, or a spread of all."""
    values = Dial(name=shift.name, settings=tuple(map(dict, settings))).setting_values(shift)
    return chosen([setting for setting in values if isinstance(setting, Mapping)])


def source_strip(
    source: str,
    name: str,
    classes: str,
    shift: str,
    severities: Sequence[float],
    seed: int,
    options: Mapping[str, Any],
) -> tuple[Pillow.Image, bool]:
    """Draw the strip of an image of a source along a dial of its own, or else with its ground-truth boxes
    along a shift; say which.

    With boxes it is larger than a plain one, so that their names can be read.
    """
    sample, names = _sample(source, name, classes, shift)
    own = sample.dial(shift)
    if own is not None:
        return own_strip(sample, own, severities), True
    if sample.dials and shift not in core.SHIFTS.names():
        held = [dial.name for dial in sample.dials]
        raise UnknownName(
            "shift",
            shift,
            [*held, *core.SHIFTS.names()],
            f"The image has dials of its own: {', '.join(held)}.",
        )
    moves, image = core.shift(shift, **options), sample.load()
    if sample.ground_truth is None:
        own_ones = (
            f", or name a dial of its own: {', '.join(dial.name for dial in sample.dials)}"
            if sample.dials
            else ""
        )
        said = "leave out --source and give the image's file"
        raise SoritesError(f"the source {source} has no boxes for {sample.id}; {said}{own_ones}")
    return strip(image, moves, severities, seed, BOXED, sample.ground_truth, names), False


def _sample(source: str, name: str, classes: str, shift: str) -> tuple[Sample, Sequence[str]]:
    """Return an image of a source and the names of its labels; one along whose own dial it is
    drawn may be of any class.
    """
    space = labels(classes)
    try:
        return named(core.source(source, space), name), space.names
    except SoritesError:
        found = named(core.source(source, OpenLabels(space.ids, space.names, dict(space.aliases))), name)
        if found.dial(shift) is None:
            raise
        return found, ()


def own_strip(
    sample: Sample, dial: OwnDial, severities: Sequence[float] = (), side: int = 224
) -> Pillow.Image:
    """Draw the clean image of a sample, then one per severity of a dial of its own (default: its
    levels).
    """
    asked = {
        "name": "strip",
        "frame": {"resize": side},
        "shifts": [{"name": dial.name, "severities": tuple(severities)}],
    }
    plan = plans.make(parse(asked, "strip"), Source("strip", [sample]))
    settings: list[SettingValue] = [0.0, *plan.settings[dial.name]]
    shots = list(turned(plan, sample, dial.name, settings))
    failed = next((shot.error for shot in shots if shot.image is None), None)
    if failed:
        raise SoritesError(failed)
    written = captions(plan.shifts[dial.name], [settings])[0]
    title = f"{dial.name}  ({dial.unit})" if dial.unit else dial.name
    return sheet(
        [[(shot.image, text) for shot, text in zip(shots, written, strict=True) if shot.image is not None]],
        title,
    )


def chosen(settings: Sequence[Mapping[str, Any]]) -> list[list[SettingValue]]:
    """Choose the settings to show, in rows.

    A full grid of two params has one row per value of the first, with the untouched image and the
    second param along it; any other grid has a spread of its settings.
    """
    keys = differing(settings)
    if len(keys) == 2:
        first, second = ({repr(setting.get(key)): None for setting in settings} for key in keys)
        found = {(repr(setting.get(keys[0])), repr(setting.get(keys[1]))): setting for setting in settings}
        if len(found) == len(first) * len(second):
            along = spread(list(second), ACROSS - 1)
            return [[0.0, *(found[one, other] for other in along)] for one in spread(list(first), DOWN)]
    flat: list[SettingValue] = [0.0, *(spread if len(keys) < 2 else scattered)(settings, MOST)]
    return [flat[start : start + ACROSS] for start in range(0, len(flat), ACROSS)]


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the params that are not the same in all settings."""
    keys = list(dict.fromkeys(key for setting in settings for key in setting))
    return [key for key in keys if len({repr(setting.get(key)) for setting in settings}) > 1]


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of the items, evenly from the first to the last."""
    count = min(len(items), most)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def scattered(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of the items: one from each of equal parts, at changing positions,
    and the last. A param that repeats at a steady pace is therefore not always caught at the same
    value.
    """
    if len(items) <= most:
        return list(items)
    return [*(items[int((i + i * GOLDEN % 1) * len(items) / most)] for i in range(most - 1)), items[-1]]


def captions(shift: Shift, rows: Sequence[Sequence[SettingValue]]) -> list[list[str]]:
    """Return a caption per setting, with the params that differ; two spaces mark the places where a
    line may end.
    """
    keys = differing([setting for row in rows for setting in row if isinstance(setting, Mapping)])

    def caption(setting: SettingValue) -> str:
        if isinstance(setting, Mapping):
            return "  ".join(
                _param(key, setting[key], len(keys)) for key in keys or setting if key in setting
            )
        return "untouched" if setting == 0 else _severity(setting, shift.unit)

    return [[caption(setting) for setting in row] for row in rows]


def _param(key: str, value: Any, keys: int) -> str:
    """Return a param as text; a long word, or the only param, needs no name beside it."""
    if keys <= 1 or (isinstance(value, str) and len(value) > 6):
        return f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"


def _severity(severity: float, unit: str) -> str:
    """Return a severity as text, with its unit if that can follow a number."""
    if unit in ("level", "levels"):
        return f"level {severity:.3g}"
    return f"{severity:.3g} {unit}" if SIGN.fullmatch(unit) else f"{severity:.3g}"


def _title(shift: Shift, shown: int) -> str:
    """Return the title: the shift with its unit, or with how many of its settings are shown."""
    some = "" if shown == len(shift.settings) else f"{shown} of "
    return (
        f"{shift.name}  ({some}{len(shift.settings)} settings)"
        if shift.settings
        else f"{shift.name}  ({shift.unit})"
    )


def sheet(rows: Sequence[Sequence[tuple[ImageU8, str]]], title: str) -> Pillow.Image:
    """Draw rows of images on white, with a caption below each image and a title at the top."""
    font = ImageFont.load_default(14)
    wrapped = [[_lines(caption, image.shape[1], font) for image, caption in row] for row in rows]
    heights = [max(image.shape[0] for image, _ in row) for row in rows]
    below = [CAPTION + GAP + LINE * (max(map(len, lines)) - 1) for lines in wrapped]
    width = max(sum(image.shape[1] + GAP for image, _ in row) for row in rows) + GAP
    page = Pillow.new("RGB", (width, CAPTION + GAP + sum(heights) + sum(below)), PAPER)
    draw, top = ImageDraw.Draw(page), CAPTION + GAP
    draw.text((GAP, GAP), title, STRIP_INK, ImageFont.load_default(16))
    for row, lines, height, more in zip(rows, wrapped, heights, below, strict=True):
        left = GAP
        for (image, _), text in zip(row, lines, strict=True):
            draw.rectangle((left - 1, top - 1, left + image.shape[1], top + image.shape[0]), outline=EDGE)
            page.paste(Pillow.fromarray(np.ascontiguousarray(image)), (left, top))
            draw.multiline_text((left, top + height + 4), "\n".join(text), STRIP_INK, font, spacing=3)
            left += image.shape[1] + GAP
        top += height + more
    return page


def _lines(caption: str, width: int, font: Any) -> list[str]:
    """Break a caption into lines of at most ``width`` px, between its parts."""
    lines: list[str] = []
    for part in caption.split("  "):
        if lines and font.getlength(f"{lines[-1]}  {part}") <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return lines


def save(sheet: Pillow.Image, path: Path) -> None:
    """Write an image in the format that its file name asks for, completely or not at all."""
    kind = Pillow.registered_extensions().get(path.suffix.lower())
    if kind not in {"PNG", "JPEG", "WEBP"}:
        raise SoritesError(f"--out wants a name ending in .png, .jpg or .webp, got {path.name}")
    buffer = io.BytesIO()
    sheet.save(buffer, format=kind)
    write_bytes(buffer.getvalue(), path)


# ``sorites.show``: an image along a dial, or at settings of a grid, from Python.


def show(
    shift: str,
    image: str | Path | ImageU8 | Pillow.Image,
    severities: Sequence[float] = (),
    *,
    settings: Sequence[Mapping[str, Any]] = (),
    seed: int = 0,
    out: str | Path | None = None,
    **options: Any,
) -> Pillow.Image:
    """Return a strip of an image along a shift, as a Pillow image, which a notebook draws.

    ``image`` is a file, an 8-bit array of (height, width, 3) or a Pillow image. ``severities``
    are places on the dial, in the shift's unit; the default is its published levels. Of a grid,
    ``settings`` chooses those that agree with one of these: ``show("camera", "dog.jpg",
    settings=[{"iso": 250}])``. ``seed`` draws another direction or noise, ``out`` saves the strip,
    and ``options`` are the shift's own.
    """
    made = strip(_image(image), core.shift(shift, **options), severities, seed, settings=settings)
    if out is not None:
        save(made, Path(out))
    return made


def _image(given: Any) -> ImageU8:
    if isinstance(given, str | Path):
        return decode(Path(given))
    array = np.asarray(given.convert("RGB") if isinstance(given, Pillow.Image) else given)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise SoritesError(
            f"show: wanted a file, a Pillow image or an 8-bit array of (height, width, 3), got {array.dtype}"
            f" {array.shape}"
        )
    return array
