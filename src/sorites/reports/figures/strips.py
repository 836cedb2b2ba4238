"""Draw strips: one image at several settings of a shift, optionally with its ground-truth boxes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites import core
from sorites.analysis.options import ShowOptions
from sorites.analysis.sheet import spread
from sorites.core import Box, ImageU8, OwnDial, Sample, SettingValue, Shift, Source
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import OpenLabels, labels
from sorites.core.messages import option
from sorites.core.rng import rng_for
from sorites.evaluation import plan as plans
from sorites.evaluation.images import shifted_shots
from sorites.evaluation.samples import find_sample
from sorites.io.decode import decode
from sorites.io.files import write_bytes
from sorites.reports.components.severities import reading_of_shift
from sorites.suites.suite import Dial, Frame, parse

# Light colours, so that dark text is readable on all of them.
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
# Length in px of the dashes that mark a crowd.
DASH = 6


def with_boxes(image: ImageU8, boxes: Sequence[Box], names: Sequence[str]) -> ImageU8:
    """Return a copy of the image with boxes, large ones first; without boxes, the image itself."""
    if not boxes:
        return image
    page = Pillow.fromarray(np.array(image))
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(12)
    for box in sorted(boxes, key=lambda box: -(box.xyxy[2] - box.xyxy[0]) * (box.xyxy[3] - box.xyxy[1])):
        colour = COLOURS[box.label % len(COLOURS)]
        _outline(draw, box, colour)
        text = names[box.label] if 0 <= box.label < len(names) else str(box.label)
        text += "" if box.conf is None else f" {box.conf:.2f}"
        _tag(draw, box, f"{text} (crowd)" if box.crowd else text, colour, font, page.size)
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
    draw: ImageDraw.ImageDraw,
    box: Box,
    text: str,
    colour: tuple[int, int, int],
    font: Font,
    size: tuple[int, int],
) -> None:
    """Draw the tag above the box, or inside it without room above; it stays inside the image."""
    wide, high = round(font.getbbox(text)[2]) + 6, 15
    left = max(0, min(round(box.xyxy[0]) - 2, size[0] - wide))
    top = round(box.xyxy[1]) - high - 1
    top = top if top >= 0 else min(max(round(box.xyxy[1]) + 2, 0), size[1] - high)
    draw.rectangle((left, top, left + wide - 1, top + high - 1), fill=colour, outline=INK)
    draw.text((left + 3, top), text, INK, font)


# --- Strips

# Sizes in px: the gap between images, the height of a one-line caption with its margins, the height of
# each further line.
GAP, CAPTION, LINE = 8, 26, 17
PAPER, STRIP_INK, EDGE = (255, 255, 255), (40, 40, 40), (225, 225, 225)
# Maximum number of images per row, of rows of a two-parameter grid, and of settings of any other grid.
ACROSS, DOWN, MAX_SETTINGS = 7, 3, 13
# Shorter side in px of images with boxes.
BOXED_SIDE = 416
GOLDEN = (5**0.5 - 1) / 2
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
    """Draw the clean image, then one image per setting, each with its caption.

    Args:
        image_u8: The clean image.
        shift: The shift.
        severities: The severities to draw; by default the published levels.
        seed: Seed of the random draw.
        side: Shorter side of each image in px.
        ground_truth: Boxes to draw on every image; they move with the objects, and those that are hidden or
            outside are not drawn. With boxes, the shift is applied before the image is made smaller, as in
            the evaluation of detectors.
        names: Class names of the boxes.
        settings: Of a grid, draw the settings that match one of these, such as ``[{"iso": 250}]``; by default
            an even selection. A grid of two params has one row per value of the first.

    Raises:
        SoritesError: The shift does not fit the boxes or the severities.
    """
    if severities and shift.settings:
        raise SoritesError(f"{shift.name} is a grid of settings and has no severities.")
    rows = _on_grid(shift, settings) if shift.settings or settings else [[0.0, *(severities or shift.levels)]]
    values = [setting for row in rows for setting in row]
    images = _boxed(image_u8, shift, values, seed, side, ground_truth, names)
    shots = [[(next(images), caption) for caption in row] for row in captions(shift, rows)]
    return sheet(shots, _title(shift, sum(isinstance(setting, Mapping) for setting in values)))


def _boxed(
    image_u8: ImageU8,
    shift: Shift,
    values: Sequence[SettingValue],
    seed: int,
    side: int,
    ground_truth: Sequence[Box] | None,
    names: Sequence[str],
) -> Iterator[ImageU8]:
    """Yield the image at each setting, resized, with its boxes."""
    frame, rng = Frame(resize=side), rng_for(seed, "strip", shift.name)
    if ground_truth is None:
        yield from map(core.to_uint8, shift.sweep(core.to_float(frame(image_u8)), values, rng))
        return
    height, width = image_u8.shape[:2]

    def draw(name: str) -> np.random.Generator:
        return rng_for(seed, "strip", name)

    for value, image in zip(values, shift.sweep(core.to_float(image_u8), values, rng), strict=True):
        moved = shift.boxes_after(ground_truth, value, draw, (height, width))
        visible = [after for box, after in zip(ground_truth, moved, strict=True) if after.crowd == box.crowd]
        yield with_boxes(frame(core.to_uint8(image)), frame.moved(visible, height, width), names)


def _on_grid(shift: Shift, settings: Sequence[Mapping[str, Any]]) -> list[list[SettingValue]]:
    """Return the settings of a grid to show, in rows: the selected ones, or a spread of all."""
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
    """Draw the strip of an image of a source.

    Returns:
        The strip, and whether it is along a dial of the sample itself; otherwise it is along a shift, with
        ground-truth boxes, and larger so that their names are readable.

    Raises:
        SoritesError: The sample has neither such a dial nor boxes, or there is no such shift.
    """
    sample, names = _sample(source, name, classes, shift)
    own = sample.dial(shift)
    if own is not None:
        return own_strip(sample, own, severities), True
    if sample.dials and shift not in core.SHIFTS:
        own_dials = [dial.name for dial in sample.dials]
        raise UnknownName(
            "shift",
            shift,
            [*own_dials, *core.SHIFTS.names()],
            f"The image has its own dials: {', '.join(own_dials)}.",
        )
    shift_object, image = core.shift(shift, **options), sample.load()
    if sample.ground_truth is None:
        names_of_dials = ", ".join(dial.name for dial in sample.dials)
        own_dial = f", or use one of its own dials: {names_of_dials}" if sample.dials else ""
        raise SoritesError(
            f"The source {source} has no boxes for {sample.id}; omit {option('source', None)} and pass the"
            " image"
            f" file{own_dial}."
        )
    return strip(image, shift_object, severities, seed, BOXED_SIDE, sample.ground_truth, names), False


def _sample(source: str, name: str, classes: str, shift: str) -> tuple[Sample, Sequence[str]]:
    """Return a sample and its class names; a sample drawn along its own dial may be of any class."""
    space = labels(classes)
    try:
        return find_sample(core.source(source, space), name), space.names
    except SoritesError:
        sample = find_sample(
            core.source(source, OpenLabels(space.ids, space.names, dict(space.aliases))), name
        )
        if sample.dial(shift) is None:
            raise
        return sample, ()


def own_strip(
    sample: Sample, dial: OwnDial, severities: Sequence[float] = (), side: int = 224
) -> Pillow.Image:
    """Draw the clean image of a sample, then one per severity of its own dial (default: its levels)."""
    suite = {
        "name": "strip",
        "frame": {"resize": side},
        "shifts": [{"name": dial.name, "severities": tuple(severities)}],
    }
    plan = plans.make(parse(suite, "strip"), Source("strip", [sample]))
    settings: list[SettingValue] = [0.0, *plan.settings[dial.name]]
    shots = list(shifted_shots(plan, sample, dial.name, settings))
    failed = next((shot.error for shot in shots if shot.image is None), None)
    if failed:
        raise SoritesError(failed)
    written = captions(plan.shifts[dial.name], [settings])[0]
    title = dial.name
    return sheet(
        [[(shot.image, text) for shot, text in zip(shots, written, strict=True) if shot.image is not None]],
        title,
    )


def chosen(settings: Sequence[Mapping[str, Any]]) -> list[list[SettingValue]]:
    """Choose the settings to show, in rows.

    A full grid of two params has one row per value of the first, with the clean image and the second param
    along it; any other grid has a spread of its settings.
    """
    keys = differing(settings)
    if len(keys) == 2:
        first, second = ({repr(setting.get(key)): None for setting in settings} for key in keys)
        by_params = {
            (repr(setting.get(keys[0])), repr(setting.get(keys[1]))): setting for setting in settings
        }
        if len(by_params) == len(first) * len(second):
            along = spread(list(second), ACROSS - 1)
            return [[0.0, *(by_params[row, column] for column in along)] for row in spread(list(first), DOWN)]
    flat: list[SettingValue] = [0.0, *(spread if len(keys) < 2 else scattered)(settings, MAX_SETTINGS)]
    return [flat[start : start + ACROSS] for start in range(0, len(flat), ACROSS)]


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the params whose values differ between settings."""
    keys = list(dict.fromkeys(key for setting in settings for key in setting))
    return [key for key in keys if len({repr(setting.get(key)) for setting in settings}) > 1]


def scattered(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` items: one from each of equal parts at varying positions, and the last.

    The golden ratio varies the positions, so that a periodic param is not always hit at the same value.
    """
    if len(items) <= most:
        return list(items)
    return [*(items[int((i + i * GOLDEN % 1) * len(items) / most)] for i in range(most - 1)), items[-1]]


def captions(shift: Shift, rows: Sequence[Sequence[SettingValue]]) -> list[list[str]]:
    """Return a caption per setting with the params that differ; two spaces mark possible line breaks."""
    keys = differing([setting for row in rows for setting in row if isinstance(setting, Mapping)])
    words = reading_of_shift(shift)

    def caption(setting: SettingValue) -> str:
        if isinstance(setting, Mapping):
            return "  ".join(
                _param(key, setting[key], len(keys)) for key in keys or setting if key in setting
            )
        return "clean" if setting == 0 else words.text(setting)

    return [[caption(setting) for setting in row] for row in rows]


def _param(key: str, value: Any, keys: int) -> str:
    """Format a param; a long word, or the only param, is shown without its name."""
    if keys <= 1 or (isinstance(value, str) and len(value) > 6):
        return f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"


def _title(shift: Shift, shown: int) -> str:
    """Return the title: the shift, with the number of settings shown if they have no order."""
    if not shift.settings:
        return shift.name
    part = "" if shown == len(shift.settings) else f"{shown} of "
    return f"{shift.name}  ({part}{len(shift.settings)} settings)"


def sheet(rows: Sequence[Sequence[tuple[ImageU8, str]]], title: str) -> Pillow.Image:
    """Draw rows of images on white, with a caption below each and a title at the top."""
    font = ImageFont.load_default(14)
    wrapped = [[_lines(caption, image.shape[1], font) for image, caption in row] for row in rows]
    heights = [max(image.shape[0] for image, _ in row) for row in rows]
    below = [CAPTION + GAP + LINE * (max(map(len, lines)) - 1) for lines in wrapped]
    width = max(sum(image.shape[1] + GAP for image, _ in row) for row in rows) + GAP
    page = Pillow.new("RGB", (width, CAPTION + GAP + sum(heights) + sum(below)), PAPER)
    draw, top = ImageDraw.Draw(page), CAPTION + GAP
    draw.text((GAP, GAP), title, STRIP_INK, ImageFont.load_default(16))
    for row, lines, height, caption_height in zip(rows, wrapped, heights, below, strict=True):
        left = GAP
        for (image, _), text in zip(row, lines, strict=True):
            draw.rectangle((left - 1, top - 1, left + image.shape[1], top + image.shape[0]), outline=EDGE)
            page.paste(Pillow.fromarray(np.ascontiguousarray(image)), (left, top))
            draw.multiline_text((left, top + height + 4), "\n".join(text), STRIP_INK, font, spacing=3)
            left += image.shape[1] + GAP
        top += height + caption_height
    return page


def _lines(caption: str, width: int, font: Any) -> list[str]:
    """Break a caption into lines of at most ``width`` px, at double spaces."""
    lines: list[str] = []
    for part in caption.split("  "):
        if lines and font.getlength(f"{lines[-1]}  {part}") <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return lines


def save(sheet: Pillow.Image, path: Path) -> None:
    """Write an image atomically, in the format of its file extension.

    Raises:
        SoritesError: The extension is not .png, .jpg or .webp.
    """
    kind = Pillow.registered_extensions().get(path.suffix.lower())
    if kind not in {"PNG", "JPEG", "WEBP"}:
        raise SoritesError(
            f"{option('out', None)}: expected a name ending in .png, .jpg or .webp, got {path.name}."
        )
    buffer = io.BytesIO()
    sheet.save(buffer, format=kind)
    write_bytes(buffer.getvalue(), path)


def show(
    shift: str,
    image: str | Path | ImageU8 | Pillow.Image,
    severities: Sequence[float] = (),
    *,
    settings: Sequence[Mapping[str, Any]] = (),
    source: str | None = None,
    labels: str = "coco",
    seed: int = 0,
    out: str | Path | None = None,
    max_pixels: int | None = None,
    **options: Any,
) -> Pillow.Image:
    """Return a strip of an image along a shift, as a Pillow image, which a notebook displays.

    Args:
        shift: A shift.
        image: An image file, or with a source the name of an image of it. Also an 8-bit array of (height,
            width, 3), or a Pillow image.
        severities: Draw these severities instead of the published levels.
        settings: Draw the settings of a grid with these parameters: iso=250. Mappings: ``[{"iso": 250}]``.
        options: Options of the shift.
        source: Take the image from this source, with its ground-truth boxes (coco:FILE, yolo:DIR) or its own
            shifts.
        labels: Classes of the boxes: a file with one name per line, or coco.
        seed: Random seed.
        out: The image to write.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
    """
    given = ShowOptions(
        shift=shift,
        image=image,
        severities=severities,
        settings=settings,
        options=options,
        source=source,
        labels=labels,
        seed=seed,
        out=out,
        max_pixels=max_pixels,
    )
    return draw(given)[0]


def draw(options: ShowOptions) -> tuple[Pillow.Image, bool]:
    """Draw a strip, like ``show``; also return whether the shift is a dial of the sample itself."""
    own, of_shift = False, options.options or {}
    with options.reading():
        if options.source is None:
            shift = core.shift(options.shift, **of_shift)
            image = _image(options.image)
            sheet = strip(image, shift, options.severities, options.seed, settings=options.settings)
        else:
            name = options.image.as_posix() if isinstance(options.image, Path) else str(options.image)
            how = (options.labels, options.shift, options.severities, options.seed, of_shift)
            sheet, own = source_strip(options.source, name, *how)
    if options.out is not None:
        save(sheet, Path(options.out))
    return sheet, own


def _image(image: Any) -> ImageU8:
    if isinstance(image, str | Path):
        return decode(Path(image))
    array = np.asarray(image.convert("RGB") if isinstance(image, Pillow.Image) else image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise SoritesError(
            "show: expected a file, a Pillow image or an 8-bit array of (height, width, 3), got"
            f" {array.dtype} {array.shape}."
        )
    return array
