"""The verb that collects images from image searches: the only one that searches the web."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.apps.collecting.collect import Collected, Wanted
    from sorites.apps.collecting.plan import Query


def collect(
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS...", help='The words to search for: "ship on grass".')
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder that the images go to.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="focus|FILE", help="Queries of a TOML file: objects with attributes."),
    ] = None,
    services: Annotated[
        str,
        typer.Option(
            "--from", metavar="NAME,...", help="Searches to ask, in turn: openverse, commons, flickr."
        ),
    ] = "openverse",
    licence: Annotated[
        str,
        typer.Option(
            "--licence", metavar="CODE,...", help="Licences to take: by, by-sa, cc0, pdm, by-nc, pd ..."
        ),
    ] = "by,by-sa,cc0,pdm",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="The most images kept for each query.")
    ] = 200,
    contact: Annotated[
        str | None,
        typer.Option(
            "--contact",
            metavar="EMAIL",
            help="An address the services may write to; or the variable SORITES_CONTACT.",
        ),
    ] = None,
    smallest: Annotated[
        int,
        typer.Option("--smallest", metavar="PX", min=1, help="Leave out images whose shorter side is less."),
    ] = 224,
    width: Annotated[
        int,
        typer.Option(
            "--width",
            metavar="PX",
            min=64,
            max=8000,
            help="The width to ask for, where a service scales copies.",
        ),
    ] = 1024,
    near: Annotated[
        int,
        typer.Option(
            "--near", metavar="BITS", min=0, max=20, help="Images whose hashes differ by less are the same."
        ),
    ] = 4,
    max_bytes: Annotated[
        int,
        typer.Option(
            "--max-bytes", metavar="N", min=1, help="Stop reading an image of more bytes than this."
        ),
    ] = 40_000_000,
    gap: Annotated[
        float,
        typer.Option(
            "--gap", metavar="SECONDS", min=0, max=600, help="The least time between two requests to a host."
        ),
    ] = 1.0,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", metavar="NAME=URL", help="Ask a service at another address. May be repeated."),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Print the queries and ask nothing.")] = False,
) -> None:
    """Collect openly licensed images from image searches.

    Searches the web (no other verb does); writes images, their records
    (images.parquet) and credits (ATTRIBUTION.md), which annotate and
    folder:DIR read. Keys are taken from the environment and never kept.
    """
    from sorites.apps.collecting.collect import Wanted
    from sorites.apps.collecting.services import licence_codes

    asked, named = _queries(queries or [], plan), _services(services, base or [])
    wanted = Wanted(licence_codes(licence), limit, smallest, near, max_bytes, width, _polite(gap, named))
    if dry:
        for query in asked:
            say(query.text)
        say(f"{len(asked)} queries; nothing was asked", err=True)
        return
    if out is None:
        raise SoritesError("--out DIR is missing: the folder that the images go to")
    whom = contact or os.environ.get("SORITES_CONTACT")
    if not whom:
        raise SoritesError("the services want to know whom to write to. Type: --contact you@example.org")
    _run(asked, out, named, whom, wanted)


def _run(asked: list[Query], out: Path, named: dict[str, str], contact: str, wanted: Wanted) -> None:
    from sorites.apps.collecting.collect import collect as gather
    from sorites.core.progress import told_bars

    say(f"searching the web: {len(asked)} queries at {', '.join(named)}", err=True)
    with told_bars() as bar:
        advance = bar("images", len(asked) * wanted.limit, 0)
        found = gather(
            asked, out, services=list(named), contact=contact, wanted=wanted,
            bases={name: url for name, url in named.items() if url},
            say=lambda query, key, became: advance(became == "kept", f"{query}: {became}"),
        )  # fmt: skip
    _print(found, out)


def _queries(texts: list[str], plan: str | None) -> list[Query]:
    from sorites.apps.collecting.plan import read_plan, typed

    if bool(texts) == bool(plan):
        raise SoritesError(
            'wanted words to search for ("ship on grass") or --plan focus|FILE, one of the two'
        )
    return read_plan(plan) if plan else typed(texts)


def _services(text: str, bases: list[str]) -> dict[str, str]:
    """Return the services by name, each with the address a user named for it or an empty text."""
    from sorites.apps.collecting.services import service_class

    named = {name.strip(): "" for name in text.split(",") if name.strip()}
    for name in named:
        service_class(name)
    for entry in bases:
        name, equals, url = entry.partition("=")
        if not equals or name not in named or not url.startswith(("http://", "https://")):
            raise SoritesError(
                "--base wants NAME=URL of a service after --from, such as commons=http://localhost:8000, got"
                f" {entry!r}"
            )
        named[name] = url
    if not named:
        raise SoritesError(
            "--from wants openverse, commons, flickr, or some of them with commas between them"
        )
    return named


def _polite(gap: float, named: dict[str, str]) -> float:
    """Return the gap between requests; only a service at an address of the user's own may be asked
    faster than twice a second.
    """
    if gap < 0.5 and not all(named.values()):
        raise SoritesError(
            f"--gap wants at least 0.5 seconds between requests to a public service, got {gap:g}"
        )
    return gap


def _print(found: Collected, out: Path) -> None:
    import polars as pl

    from sorites.cli.printing import format_frame

    reasons = [(row.outcome.reason or "kept").partition(":")[0].partition(", ")[0] for row in found.rows]
    same = [
        "nearly the same as another" if reason.startswith("nearly the same") else reason for reason in reasons
    ]
    counts = (
        pl.DataFrame({"outcome": same}, schema={"outcome": pl.String})
        .group_by("outcome")
        .agg(images=pl.len())
    )
    say(format_frame(counts.sort("images", "outcome", descending=[True, False]), "table"), nl=False)
    for line in found.waiting[:5]:
        say(f"not fetched yet: {line}", err=True)
    if found.waiting:
        say(f"{len(found.waiting)} images can be tried again: type the same command", err=True)
    say(f"{found.kept} images in {out}, {found.requests} requests; credits in {out / 'ATTRIBUTION.md'}")
    say(f"next: sorites annotate serve context --source folder:{out} --out labels.sqlite")
