"""``sorites collect``: download openly licensed images. The only verb that searches the web."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sorites.apps.collecting.options import CollectOptions
from sorites.cli.derived import derived
from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.apps.collecting.collect import Collected
    from sorites.apps.collecting.plan import Query
    from sorites.apps.collecting.records import Outcome


@derived(CollectOptions)
def collect(options: CollectOptions) -> None:
    """Download openly licensed images from image searches.

    Searches the web (no other verb does); writes images, their records
    (images.parquet) and credits (ATTRIBUTION.md). "sorites annotate" and
    folder:DIR read the folder. API keys come from the environment and are
    never stored.
    """
    from sorites.apps.collecting.services import licence_codes

    queries, addresses = _queries(options), _services(options)
    licence_codes(options.licence)
    if options.gap < 0.5 and not all(addresses.values()):
        raise SoritesError(f"--gap must be at least 0.5 seconds for public services, got {options.gap:g}")
    if options.dry_run:
        for query in queries:
            say(query.text)
        say(f"{len(queries)} queries; nothing was searched", err=True)
        return
    if options.out is None:
        raise SoritesError("missing --out DIR: the folder for the images")
    contact = options.contact or os.environ.get("SORITES_CONTACT")
    if not contact:
        raise SoritesError("the services require a contact address: add --contact you@example.org")
    _run(queries, options.out, addresses, contact, options)


def _run(
    queries: list[Query], out: Path, addresses: dict[str, str], contact: str, options: CollectOptions
) -> None:
    from sorites.apps.collecting.collect import collect as collect_images
    from sorites.core.progress import text_bars

    say(f"searching the web: {len(queries)} queries at {', '.join(addresses)}", err=True)
    with text_bars() as bar:
        advance = bar("images", len(queries) * options.limit, 0)
        collected = collect_images(
            queries,
            out,
            services=list(addresses),
            contact=contact,
            options=options,
            bases={name: url for name, url in addresses.items() if url},
            say=lambda query, key, outcome: advance(outcome == "kept", f"{query}: {outcome}"),
        )
    _print(collected, out)


def _queries(options: CollectOptions) -> list[Query]:
    from sorites.apps.collecting.plan import queries_from_texts, read_plan

    if bool(options.queries) == bool(options.plan):
        raise SoritesError('expected search queries ("ship on grass") or --plan focus|FILE, but not both')
    return read_plan(options.plan) if options.plan else queries_from_texts(list(options.queries))


def _services(options: CollectOptions) -> dict[str, str]:
    """Return the services by name with the address from --base, or an empty text for the default address."""
    from sorites.apps.collecting.services import service_class

    named = {name.strip(): "" for name in options.services.split(",") if name.strip()}
    for name in named:
        service_class(name)
    for entry in options.bases:
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


def _short(outcome: Outcome) -> str:
    """Return the outcome of an image in few words: the reason up to its first colon or comma."""
    if outcome.file is not None:
        return "kept"
    reason = (outcome.reason or "").strip(" :,")
    return reason.partition(":")[0].partition(", ")[0] or "no reason given"


def _print(collected: Collected, out: Path) -> None:
    import polars as pl

    from sorites.cli.printing import print_frame

    reasons = [_short(row.outcome) for row in collected.rows]
    outcomes = [
        "nearly the same as another" if reason.startswith("nearly the same") else reason for reason in reasons
    ]
    counts = (
        pl.DataFrame({"outcome": outcomes}, schema={"outcome": pl.String})
        .group_by("outcome")
        .agg(images=pl.len())
    )
    print_frame(counts.sort("images", "outcome", descending=[True, False]))
    for line in collected.waiting[:5]:
        say(f"not downloaded: {line}", err=True)
    if collected.waiting:
        say(f"{len(collected.waiting)} requests can be retried: run the same command", err=True)
    credits_ = out / "ATTRIBUTION.md"
    say(f"{collected.kept} images in {out}, {collected.requests} requests; credits in {credits_}")
    say(f"next: sorites annotate serve context --source folder:{out} --out labels.sqlite")
