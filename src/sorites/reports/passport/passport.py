"""Run a battery on one model and write its passport (``sorites.passport``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from sorites import core
from sorites.analysis.passport import battery as parts
from sorites.analysis.passport.battery import Open, Part, Request, battery_for, load_battery
from sorites.analysis.passport.document import FILES, NAME, AnyPassport, BoxPassport, write_json
from sorites.core import named_spec
from sorites.core.errors import inform
from sorites.core.progress import phase
from sorites.evaluation.options import DEFAULT_BATCH
from sorites.evaluation.storage.shards import slug
from sorites.io.decode import pixel_limit
from sorites.io.digests import digest_of_file, write_sealed
from sorites.reports.passport.box_numbers import box_document
from sorites.reports.passport.box_page import write_box_page
from sorites.reports.passport.card import CARD_NAME, write_badge, write_card
from sorites.reports.passport.card import NAME as BADGE
from sorites.reports.passport.numbers import document
from sorites.reports.passport.page import write_page
from sorites.reports.passport.record import RECORD_NAME, write_record

PAGE = "passport.html"


def passport(
    model: str,
    *,
    source: str | None = None,
    labels: str | None = None,
    battery: str = "short",
    out: str | Path | None = None,
    limit: int | None = None,
    batch: int = DEFAULT_BATCH,
    workers: int | None = None,
    max_pixels: int | None = None,
    bar: Open | None = None,
    say: Callable[[str], None] = inform,
) -> AnyPassport:
    """Run a battery on a classifier or detector and write its passport: a page, JSON, a badge and Markdown.

    Finished parts are not repeated, and interruptions do not change the result.

    Args:
        model: The model: lite0, timm:NAME, onnx:PATH, python:module:callable; or a detector: picodet,
            boxes:PATH.
        source: Source of the images: folder:PATH; default: stamps, for detectors composites.
        labels: A file of class names, one per line; default: the 1000 classes of ImageNet, for detectors the
            80 of COCO.
        battery: Battery of suites: short, standard, full (about 5 minutes, 30 minutes or hours on two cores),
            boxes (the default for detectors), or a TOML file.
        out: The folder to write; default: passports/MODEL-BATTERY.
        limit: Use only the first N samples of a fixed random order.
        batch: Batch size.
        workers: Number of tasks to run in parallel; default: one per core.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: Opens a progress bar.
        say: Receives notes about the progress.

    Returns:
        The passport as data.
    """
    load_battery(battery)
    load = functools.cache(core.model)
    loaded = battery_for(load(model), battery)
    folder = Path(out) if out is not None else default_folder(model, battery)
    request = Request(model, loaded, folder, source, labels, limit, batch, workers, load)
    with pixel_limit(max_pixels):
        left_out = parts.measure(request, bar or _silent, say)
        return write(request, left_out)


def write(request: Request, left_out: dict[str, str]) -> AnyPassport:
    """Write the passport of finished runs, and at last the list of its files."""
    (request.folder / FILES).unlink(missing_ok=True)
    folders = {name: folder for name, folder in parts.folders_of(request).items() if name not in left_out}
    sources = {part.name: _source(part, request) for part in request.battery.parts}
    compute = box_document if request.battery.detectors else document
    with phase("computing the numbers of the passport"):
        content = compute(request.battery.info(), folders, left_out, sources)
    write_json(content, request.folder)
    write_badge(content, request.folder)
    write_card(content, request.folder)
    write_record(content, request.folder)
    with phase("drawing the passport"):
        if isinstance(content, BoxPassport):
            write_box_page(content, folders, request.folder / PAGE)
        else:
            write_page(content, folders, request.folder / PAGE)
    files = {
        name: digest_of_file(request.folder / name) for name in (NAME, BADGE, CARD_NAME, RECORD_NAME, PAGE)
    }
    write_sealed({"files": files}, request.folder / FILES)
    return content


def _source(part: Part, request: Request) -> str:
    return "stamps in surroundings" if part.make else parts.recipe_of(part, request).source


def default_folder(model: str, battery: str) -> Path:
    """Return the default folder of a passport."""
    return Path("passports") / f"{slug(named_spec(model)[0])}-{Path(battery).stem}"


def _silent(what: str, steps: int, done: int) -> Callable[[int, str], None]:
    return lambda n, words: None
