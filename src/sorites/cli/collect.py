"""``sorites collect``: download openly licensed images. The only verb that searches the web."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.apps.collecting.collect import Collected, CollectOptions
    from sorites.apps.collecting.plan import Query


def collect(
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS...", help='Search query: "ship on grass".')
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder for the images.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="focus|FILE", help="A TOML file of queries: objects with attributes."),
    ] = None,
    services: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="NAME,...",
            help="Services to search, in this order: openverse, commons, flickr.",
        ),
    ] = "openverse",
    licence: Annotated[
        str,
        typer.Option(
            "--licence", metavar="CODE,...", help="Accepted licences: by, by-sa, cc0, pdm, by-nc, pd ..."
        ),
    ] = "by,by-sa,cc0,pdm",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Keep at most N images per query.")
    ] = 200,
    contact: Annotated[
        str | None,
        typer.Option(
            "--contact",
            metavar="EMAIL",
            help="Contact address sent to the services; default: the variable SORITES_CONTACT.",
        ),
    ] = None,
    smallest: Annotated[
        int,
        typer.Option("--smallest", metavar="PX", min=1, help="Skip images whose shorter side is below this."),
    ] = 224,
    width: Annotated[
        int,
        typer.Option(
            "--width",
            metavar="PX",
            min=64,
            max=8000,
            help="Requested width, where a service offers scaled copies.",
        ),
    ] = 1024,
    near: Annotated[
        int,
        typer.Option(
            "--near",
            metavar="BITS",
            min=0,
            max=20,
            help="Treat images whose hashes differ by fewer bits as duplicates.",
        ),
    ] = 4,
    max_bytes: Annotated[
        int,
        typer.Option("--max-bytes", metavar="N", min=1, help="Skip images larger than this."),
    ] = 40_000_000,
    gap: Annotated[
        float,
        typer.Option(
            "--gap", metavar="SECONDS", min=0, max=600, help="Minimum time between two requests to a host."
        ),
    ] = 1.0,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base", metavar="NAME=URL", help="Use another address for a service. May be repeated."
        ),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Print the queries without searching.")] = False,
) -> None:
    """Download openly licensed images from image searches.

    Searches the web (no other verb does); writes images, their records
    (images.parquet) and credits (ATTRIBUTION.md). "sorites annotate" and
    folder:DIR read the folder. API keys come from the environment and are
    never stored.
    """
    from sorites.apps.collecting.collect import CollectOptions as Wanted
    from sorites.apps.collecting.services import licence_codes

    searches, addresses = _queries(queries or [], plan), _services(services, base or [])
    criteria = Wanted(
        licence_codes(licence), limit, smallest, near, max_bytes, width, _checked_gap(gap, addresses)
    )
    if dry:
        for query in searches:
            say(query.text)
        say(f"{len(searches)} queries; nothing was searched", err=True)
        return
    if out is None:
        raise SoritesError("missing --out DIR: the folder for the images")
    email = contact or os.environ.get("SORITES_CONTACT")
    if not email:
        raise SoritesError("the services require a contact address: add --contact you@example.org")
    _run(searches, out, addresses, email, criteria)


def _run(
    searches: list[Query], out: Path, addresses: dict[str, str], contact: str, criteria: CollectOptions
) -> None:
    from sorites.apps.collecting.collect import collect as gather
    from sorites.core.progress import text_bars as told_bars

    say(f"searching the web: {len(searches)} queries at {', '.join(addresses)}", err=True)
    with told_bars() as bar:
        advance = bar("images", len(searches) * criteria.limit, 0)
        collected = gather(
            searches,
            out,
            services=list(addresses),
            contact=contact,
            wanted=criteria,
            bases={name: url for name, url in addresses.items() if url},
            say=lambda query, key, outcome: advance(outcome == "kept", f"{query}: {outcome}"),
        )
    _print(collected, out)


def _queries(texts: list[str], plan: str | None) -> list[Query]:
    from sorites.apps.collecting.plan import queries_from_texts as typed
    from sorites.apps.collecting.plan import read_plan

    if bool(texts) == bool(plan):
        raise SoritesError('expected search queries ("ship on grass") or --plan focus|FILE, but not both')
    return read_plan(plan) if plan else typed(texts)


def _services(text: str, bases: list[str]) -> dict[str, str]:
    """Return the services by name with the address from --base, or an empty text for the default address."""
    from sorites.apps.collecting.services import service_class

    named = {name.strip(): "" for name in text.split(",") if name.strip()}
    for name in named:
        service_class(name)
    for entry in bases:
        name, equals, url = entry.partition("=")
        if not equals or name not in named or not url.startswith(("http://", "https://")):
            raise SoritesError(
                "--base expects NAME=URL for a service of --from, such as commons=http://localhost:8000, got"
                f" {entry!r}"
            )
        named[name] = url
    if not named:
        raise SoritesError("--from expects a comma-separated list of openverse, commons and flickr")
    return named


def _checked_gap(gap: float, addresses: dict[str, str]) -> float:
    """Return the gap between requests; refuse less than 0.5 s for services at their public address."""
    if gap < 0.5 and not all(addresses.values()):
        raise SoritesError(f"--gap must be at least 0.5 seconds for public services, got {gap:g}")
    return gap


def _print(collected: Collected, out: Path) -> None:
    import polars as pl

    from sorites.cli.printing import format_frame

    reasons = [(row.outcome.reason or "kept").partition(":")[0].partition(", ")[0] for row in collected.rows]
    outcomes = [
        "nearly the same as another" if reason.startswith("nearly the same") else reason for reason in reasons
    ]
    counts = (
        pl.DataFrame({"outcome": outcomes}, schema={"outcome": pl.String})
        .group_by("outcome")
        .agg(images=pl.len())
    )
    say(format_frame(counts.sort("images", "outcome", descending=[True, False]), "table"), nl=False)
    for line in collected.waiting[:5]:
        say(f"not downloaded: {line}", err=True)
    if collected.waiting:
        say(f"{len(collected.waiting)} images can be retried: run the same command", err=True)
    credits_ = out / "ATTRIBUTION.md"
    say(f"{collected.kept} images in {out}, {collected.requests} requests; credits in {credits_}")
    say(f"next: sorites annotate serve context --source folder:{out} --out labels.sqlite")
