"""``sorites.passport``: run a battery on one model and write its passport, as a page, as JSON, as a
badge and as Markdown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sorites.analysis.passport import battery as parts
from sorites.analysis.passport.battery import Open, Part, Request, load_battery
from sorites.analysis.passport.document import Passport, write_json
from sorites.core import named_spec
from sorites.evaluation.runner import BATCH
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
    batch: int = BATCH,
    workers: int | None = None,
    bar: Open | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Passport:
    """Run a battery (``short``, ``standard``, ``full`` or a TOML file) on a model and write its
    passport into ``out``.

    What is finished there already is not done again, and the result is the same as if it had not
    been stopped. ``source`` names your own images; ``limit`` makes every part smaller, for a try.
    """
    held = load_battery(battery)
    folder = Path(out) if out is not None else default_folder(model, battery)
    request = Request(model, held, folder, source, labels, limit, batch, workers)
    left_out = parts.measure(request, bar or _silent, say)
    return write(request, left_out)


def write(request: Request, left_out: dict[str, str]) -> Passport:
    """Write the passport of runs that are done."""
    folders = {name: folder for name, folder in parts.places(request).items() if name not in left_out}
    made = document(
        request.battery,
        folders,
        left_out,
        {part.name: _source(part, request) for part in request.battery.parts},
    )
    write_json(made, request.folder)
    write_badge(made, request.folder)
    write_card(made, request.folder)
    write_page(made, folders, request.folder / PAGE)
    return made


def _source(part: Part, request: Request) -> str:
    return "stamps in surroundings" if part.make else parts.recipe_of(part, request).source


def default_folder(model: str, battery: str) -> Path:
    """Return where a passport is written unless told otherwise."""
    return Path("passports") / f"{slug(named_spec(model)[0])}-{Path(battery).stem}"


def _silent(what: str, steps: int, done: int) -> Callable[[int, str], None]:
    return lambda n, words: None
