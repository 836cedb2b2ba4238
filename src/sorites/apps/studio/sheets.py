"""Contact sheets: for each reference image the original and all its photographs, as in Figure 2 of the
paper.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.apps.studio.cameras import format_value
from sorites.apps.studio.folder import ENDING, CaptureFolder
from sorites.core.camera_grid import Grid, Params
from sorites.core.errors import BadImage, SoritesError
from sorites.io.decode import decode
from sorites.io.files import write_bytes
from sorites.sources.papers.imagenet_es import PARTS

# Sizes in px: longer side of a photograph, gap, line of small text, margin.
TILE, GAP, LINE, MARGIN = 96, 6, 13, 14
PAPER, INK, SOFT, HOLE = (255, 255, 255), (30, 33, 38), (98, 104, 112), (225, 225, 225)
FOLDER = "sheets"
# Photographs per row if the grid is not a product of its axes.
DEFAULT_COLUMNS = 9


def images_of(folder: CaptureFolder) -> list[tuple[str, Path]]:
    """Return (class/stem, file) of each reference of a capture, sorted by name."""
    where = folder.root / folder.part / next(part.references for part in PARTS if part.split == folder.split)
    paths = sorted(path for path in where.glob("*/*") if path.is_file())
    if not paths:
        raise SoritesError(f"{where} contains no images")
    return [(f"{path.parent.name}/{path.stem}", path) for path in paths]


def sheet_path(folder: CaptureFolder, name: str) -> Path:
    """Return the path of an image's sheet."""
    return folder.root / FOLDER / f"{name}.jpg"


def write_sheets(folder: CaptureFolder, tick: Callable[[int], None] = lambda n: None) -> list[Path]:
    """Write the sheet of every image, skipping sheets that are newer than their photographs."""
    paths = []
    for name, reference in images_of(folder):
        path = sheet_path(folder, name)
        if not _newer(path, folder, name):
            write_bytes(_as_jpeg(compose(folder, name, reference)), path)
        paths.append(path)
        tick(1)
    return paths


def _newer(path: Path, folder: CaptureFolder, name: str) -> bool:
    shots = [folder.root / folder.part / place / f"{name}{ENDING}" for _, place in folder.grid.places()]
    times = [shot.stat().st_mtime for shot in shots if shot.exists()]
    return path.exists() and len(times) == len(shots) and path.stat().st_mtime > max(times)


@dataclass(frozen=True)
class Tile:
    """The place of a photograph on a sheet: setting, folder in the part, and upper left corner."""

    params: Params
    place: str
    left: int
    top: int

    def path(self, folder: CaptureFolder, name: str) -> str:
        """Return the path of the photograph of the image class/stem in the capture."""
        return f"{folder.part}/{self.place}/{name}{ENDING}"


@dataclass(frozen=True)
class Layout:
    """The size of a sheet, its tiles in the order of the grid, and the corner of each light's block."""

    size: tuple[int, int]
    tiles: tuple[Tile, ...]
    blocks: Mapping[str, tuple[int, int]]


def layout(grid: Grid) -> Layout:
    """Return where the photographs of a grid are on a sheet: a block per light, automatic shots in its first
    row, manual ones below.
    """
    columns = _columns(grid.manual)
    rows = -(-len(grid.manual) // columns) + bool(grid.shots)
    down, across = TILE + LINE + GAP, TILE + GAP
    block, left = LINE + 8 + down * rows, MARGIN + 2 * TILE + 3 * GAP
    high = max(block * len(grid.lights), 2 * TILE + 2 * LINE)
    size = (left + across * max(columns, grid.shots) + MARGIN, 2 * MARGIN + 26 + high)
    blocks = {light: (left, MARGIN + 26 + number * block) for number, light in enumerate(grid.lights)}
    tiles: list[Tile] = []
    for light, (x, y) in blocks.items():
        manual, first = 0, bool(grid.shots)
        for params, place in grid.under(light):
            if params["mode"] == "auto":
                column, row = params["shot"] - 1, 0
            else:
                column, row = manual % columns, manual // columns + first
                manual += 1
            tiles.append(Tile(params, place, x + column * across, y + LINE + 4 + row * down))
    return Layout(size, tuple(tiles), blocks)


def compose(folder: CaptureFolder, name: str, reference: Path) -> Pillow.Image:
    """Draw one sheet: the original at the left, then a block per light; missing photographs are grey."""
    placed = layout(folder.grid)
    page = Pillow.new("RGB", placed.size, PAPER)
    ink = ImageDraw.Draw(page)
    ink.text((MARGIN, MARGIN - 4), name, INK, ImageFont.load_default(16))
    _paste(page, reference, (MARGIN, MARGIN + 26), 2 * TILE)
    ink.text((MARGIN, MARGIN + 26 + 2 * TILE + 2), "reference", SOFT, ImageFont.load_default(11))
    for light, (left, top) in placed.blocks.items():
        ink.text((left, top - 2), f"lamp {light}", INK, ImageFont.load_default(13))
    for tile in placed.tiles:
        _paste(page, folder.root / tile.path(folder, name), (tile.left, tile.top), TILE)
        ink.text((tile.left, tile.top + TILE + 1), caption(tile.params), SOFT, ImageFont.load_default(10))
    return page


def _columns(manual: tuple[Params, ...]) -> int:
    """Return the photographs per row: all ISOs at all shutter times, if the grid is a product of its axes."""
    sets = [{float(params[key]) for params in manual} for key in ("iso", "shutter", "aperture")]
    product = len(sets[0]) * len(sets[1]) * len(sets[2])
    if manual and product == len(manual):
        return len(sets[0]) * len(sets[1])
    return min(DEFAULT_COLUMNS, max(1, len(manual)))


def caption(params: Params) -> str:
    """Return a short text for a setting."""
    if params["mode"] == "auto":
        return f"automatic {params['shot']}"
    shutter = format_value("shutter", params["shutter"]).removesuffix(" s")
    return f"{params['iso']} {shutter} f{params['aperture']:g}"


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
    # A border separates white photographs from the page.
    ink.rectangle((left - 1, top - 1, left + size[0], top + size[1]), outline=HOLE)


def _as_jpeg(page: Pillow.Image) -> bytes:
    file = io.BytesIO()
    page.save(file, "JPEG", quality=88)
    return file.getvalue()


def sample_of(folder: CaptureFolder) -> Mapping[str, str]:
    """Return the sample id of each image by class/stem, from the log."""
    ids: dict[str, str] = {}
    for path, shot in folder.done().items():
        ids["/".join(path.rpartition(ENDING)[0].split("/")[-2:])] = shot.sample
    return ids
