"""Run a battery on one model and write its passport (``sorites.passport``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sorites.analysis.passport import battery as parts
from sorites.analysis.passport.battery import Open, Part, Request, load_battery
from sorites.analysis.passport.document import Passport, write_json
from sorites.core import named_spec
from sorites.evaluation.runner import DEFAULT_BATCH
from sorites.evaluation.storage.shards import slug
from sorites.reports.passport.numbers import document
from sorites.reports.passport.page import write_page
from sorites.reports.passport.text import write_badge, write_card

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
    bar: Open | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Passport:
    """Run a battery on a model and write its passport: a page, JSON, a badge and Markdown.

    Finished parts are not repeated, and interruptions do not change the result.

    Args:
        model: The model.
        source: Your own images; by default those of the battery.
        labels: The classes of ``source``.
        battery: ``short``, ``standard``, ``full`` or a TOML file.
        out: The folder to write; by default under ``passports``.
        limit: Maximum number of samples of each part, for a quick trial.
        batch: Images per batch.
        workers: Number of workers.
        bar: Opens a progress bar.
        say: Receives notes about the progress.

    Returns:
        The passport as data.
    """
    loaded = load_battery(battery)
    folder = Path(out) if out is not None else default_folder(model, battery)
    request = Request(model, loaded, folder, source, labels, limit, batch, workers)
    left_out = parts.measure(request, bar or _silent, say)
    return write(request, left_out)


def write(request: Request, left_out: dict[str, str]) -> Passport:
    """Write the passport of finished runs."""
    folders = {name: folder for name, folder in parts.folders_of(request).items() if name not in left_out}
    content = document(
        request.battery,
        folders,
        left_out,
        {part.name: _source(part, request) for part in request.battery.parts},
    )
    write_json(content, request.folder)
    write_badge(content, request.folder)
    write_card(content, request.folder)
    write_page(content, folders, request.folder / PAGE)
    return content


def _source(part: Part, request: Request) -> str:
    return "stamps in surroundings" if part.make else parts.recipe_of(part, request).source


def default_folder(model: str, battery: str) -> Path:
    """Return the default folder of a passport."""
    return Path("passports") / f"{slug(named_spec(model)[0])}-{Path(battery).stem}"


def _silent(what: str, steps: int, done: int) -> Callable[[int, str], None]:
    return lambda n, words: None
