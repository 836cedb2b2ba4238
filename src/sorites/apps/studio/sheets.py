"""One sheet per reference image: the original, and every photograph of it under each light, as in
the paper's Figure 2.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.apps.studio.cameras import spelled
from sorites.apps.studio.folder import ENDING, CaptureFolder
from sorites.core.camera_grid import Params
from sorites.core.errors import BadImage, SoritesError
from sorites.io.files import write_bytes
from sorites.sources.decode import decode
from sorites.sources.papers.imagenet_es import PARTS

# Sizes in px: the longer side of a photograph, the gap between two, a line of small text, the
# margin.
TILE, GAP, LINE, MARGIN = 96, 6, 13, 14
PAPER, INK, SOFT, HOLE = (255, 255, 255), (30, 33, 38), (98, 104, 112), (225, 225, 225)
FOLDER = "sheets"
# Photographs per row where the grid is no product of its axes.
ACROSS = 9


def images_of(folder: CaptureFolder) -> list[tuple[str, Path]]:
    """Return the references of a capture: class / stem, and the file, in the order of their names."""
    where = folder.root / folder.part / next(part.references for part in PARTS if part.split == folder.split)
    found = sorted(path for path in where.glob("*/*") if path.is_file())
    if not found:
        raise SoritesError(f"{where} holds no images")
    return [(f"{path.parent.name}/{path.stem}", path) for path in found]


def sheet_path(folder: CaptureFolder, name: str) -> Path:
    """Return the file of an image's sheet."""
    return folder.root / FOLDER / f"{name}.jpg"


def write_sheets(folder: CaptureFolder, tick: Callable[[int], None] = lambda n: None) -> list[Path]:
    """Compose the sheet of every image and write them; sheets newer than their photographs are
    left as they are.
    """
    made = []
    for name, reference in images_of(folder):
        path = sheet_path(folder, name)
        if not _newer(path, folder, name):
            write_bytes(_as_jpeg(compose(folder, name, reference)), path)
        made.append(path)
        tick(1)
    return made


def _newer(path: Path, folder: CaptureFolder, name: str) -> bool:
    shots = [folder.root / folder.part / place / f"{name}{ENDING}" for _, place in folder.grid.places()]
    times = [shot.stat().st_mtime for shot in shots if shot.exists()]
    return path.exists() and len(times) == len(shots) and path.stat().st_mtime > max(times)


def compose(folder: CaptureFolder, name: str, reference: Path) -> Pillow.Image:
    """Draw one sheet: the original at the left, then a block per light with automatic shots first.

    A grey hole is missing.
    """
    grid = folder.grid
    columns = _columns(grid.manual)
    rows = -(-len(grid.manual) // columns) + bool(grid.shots)
    down, across = TILE + LINE + GAP, TILE + GAP
    block, left = LINE + 8 + down * rows, MARGIN + 2 * TILE + 3 * GAP
    high = max(block * len(grid.lights), 2 * TILE + 2 * LINE)
    page = Pillow.new(
        "RGB", (left + across * max(columns, grid.shots) + MARGIN, 2 * MARGIN + 26 + high), PAPER
    )
    ink = ImageDraw.Draw(page)
    ink.text((MARGIN, MARGIN - 4), name, INK, ImageFont.load_default(16))
    _paste(page, reference, (MARGIN, MARGIN + 26), 2 * TILE)
    ink.text((MARGIN, MARGIN + 26 + 2 * TILE + 2), "reference", SOFT, ImageFont.load_default(11))
    for number, light in enumerate(grid.lights):
        top = MARGIN + 26 + number * block
        ink.text((left, top - 2), f"lamp {light}", INK, ImageFont.load_default(13))
        _block(page, folder, name, light, (left, top + LINE + 4), columns)
    return page


def _block(
    page: Pillow.Image, folder: CaptureFolder, name: str, light: str, at: tuple[int, int], columns: int
) -> None:
    """Draw the photographs under one light: automatic shots in the first row, manual ones below
    them in their order.
    """
    ink, font = ImageDraw.Draw(page), ImageFont.load_default(10)
    manual, first = 0, bool(folder.grid.shots)
    for params, place in folder.grid.under(light):
        if params["mode"] == "auto":
            column, row = params["shot"] - 1, 0
        else:
            column, row = manual % columns, manual // columns + first
            manual += 1
        x, y = at[0] + column * (TILE + GAP), at[1] + row * (TILE + LINE + GAP)
        _paste(page, folder.root / folder.part / place / f"{name}{ENDING}", (x, y), TILE)
        ink.text((x, y + TILE + 1), caption(params), SOFT, font)


def _columns(manual: tuple[Params, ...]) -> int:
    """Return how many photographs stand in a row: all ISOs at all shutter times, where the grid is
    a product of its axes.
    """
    sets = [{float(params[key]) for params in manual} for key in ("iso", "shutter", "aperture")]
    product = len(sets[0]) * len(sets[1]) * len(sets[2])
    return len(sets[0]) * len(sets[1]) if product == len(manual) else min(ACROSS, max(1, len(manual)))


def caption(params: Params) -> str:
    """Return a setting in few letters."""
    if params["mode"] == "auto":
        return f"automatic {params['shot']}"
    return (
        f"{params['iso']} {spelled('shutter', params['shutter']).removesuffix(' s')} f{params['aperture']:g}"
    )


def _paste(page: Pillow.Image, path: Path, at: tuple[int, int], side: int) -> None:
    ink = ImageDraw.Draw(page)
    try:
        tile = Pillow.fromarray(decode(path))
    except (BadImage, OSError):
        ink.rectangle((at[0], at[1], at[0] + side - 1, at[1] + side - 1), fill=HOLE)
        ink.text((at[0] + 6, at[1] + side // 2 - 6), "missing", INK, ImageFont.load_default(11))
        return
    scale = side / max(tile.size)
    size = (max(1, round(tile.width * scale)), max(1, round(tile.height * scale)))
    left, top = at[0] + (side - size[0]) // 2, at[1] + (side - size[1]) // 2
    page.paste(tile.resize(size, Pillow.Resampling.LANCZOS), (left, top))
    ink.rectangle(
        (left - 1, top - 1, left + size[0], top + size[1]), outline=HOLE
    )  # white photographs must not melt into the page


def _as_jpeg(page: Pillow.Image) -> bytes:
    file = io.BytesIO()
    page.save(file, "JPEG", quality=88)
    return file.getvalue()


def sample_of(folder: CaptureFolder) -> Mapping[str, str]:
    """Map class / stem of each image to the id of its sample, from the log."""
    found: dict[str, str] = {}
    for path, line in folder.done().items():
        found["/".join(path.rpartition(ENDING)[0].split("/")[-2:])] = str(line["sample"])
    return found
