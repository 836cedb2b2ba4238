"""Make images: ``sorites show``, ``build``, ``context`` and ``collect``.

``collect`` is the only verb that searches the web.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.analysis.options import ShowOptions
from sorites.apps.collecting.options import CollectOptions
from sorites.cli import options
from sorites.cli.options import derived
from sorites.cli.output import say
from sorites.core.errors import SoritesError
from sorites.core.messages import noun
from sorites.evaluation.options import BuildOptions

if TYPE_CHECKING:
    from sorites.apps.collecting.collect import Collected
    from sorites.apps.collecting.plan import Query
    from sorites.apps.collecting.records import Outcome

DatasetFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset folder to write.")]


@derived(ShowOptions)
def show(options: ShowOptions) -> None:
    """Draw one image at several severities of a shift.

    Writes the shifted versions side by side as one image. With --source,
    ground-truth boxes are drawn too, and a shift that the sample defines
    itself is used.
    """
    from sorites.reports.figures.strips import draw

    out = options.out or f"{Path(str(options.image)).stem}-{options.shift}.png"
    _, own = draw(replace(options, out=out))
    suite = "demo" if own or options.source is None else "boxes_demo"
    suite += f" --source {options.source}" if options.source is not None else ""
    more = "".join(f" --option {key}={value}" for key, value in (options.options or {}).items())
    say(f"wrote {out}\nnext: sorites run {suite} --shift {options.shift}{more}")


@derived(BuildOptions)
def build(options: BuildOptions) -> None:
    """Write the shifted images of a suite as a dataset folder.

    Writes image files with their settings, which "sorites run SUITE --source
    folder:DIR" evaluates.
    """
    from sorites.core.progress import bars
    from sorites.datasets.build import write_dataset

    with bars() as bar:
        built = write_dataset(options, bar)
    for error in built.errors[:20]:
        say(f"not written: {error}", err=True)
    failed = f"; {len(built.errors)} failed" if built.errors else ""
    say(f"wrote {built.images} {noun(built.images, 'image')} to {options.out}{failed}")
    same = "".join(f" --shift {name}" for name in options.shifts)
    same += "".join(f' --grid "{text}"' for text in options.grid)
    same += f" --labels {options.labels}" if options.labels else ""
    say(f"next: sorites run {options.suite} --source folder:{options.out}{same}")


def context(
    out: DatasetFolder,
    source: Annotated[
        str,
        typer.Option("--source", metavar="NAME[:PATH]", help="Source of the cut-outs: images with a mask."),
    ] = "stamps",
    limit: options.Limit = None,
    seed: options.Seed = 0,
    drawn: Annotated[
        bool, typer.Option("--drawn", help="Draw every background instead of downloading photographs.")
    ] = False,
    objects: Annotated[
        str | None,
        typer.Option(
            "--objects",
            metavar="N|M..N",
            help="Put this many objects of COCO classes into each image, with boxes.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="PX",
            help="Side of the images in pixels; default: 256, or 640 with --objects.",
        ),
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Compose cut-outs with common and uncommon times, weathers and places.

    Writes a dataset folder for the suite context; with --objects, images of
    several objects with their boxes.
    """
    if objects is not None:
        from sorites.datasets.context import build_scattered
        from sorites.sources.composites import SIDE

        count, boxes = build_scattered(
            out, source, objects=objects, size=size or SIDE, seed=seed, limit=limit, drawn=drawn
        )
        say(f"wrote {count} {noun(count, 'image')} with {boxes} {noun(boxes, 'box', 'boxes')} to {out}")
        say(f"next: sorites run boxes_demo --source context:{out}")
        return
    from sorites.datasets.context import SIZE, build_context

    count, images = build_context(out, source, seed=seed, limit=limit, drawn=drawn, size=size or SIZE)
    say(f"wrote {images} {noun(images, 'image')} of {count} {noun(count, 'object')} to {out}")
    say(f"next: sorites run context --source context:{out}")


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
        say(f"requests that can be retried: {len(collected.waiting)}; run the same command", err=True)
    credits_ = out / "ATTRIBUTION.md"
    say(
        f"{collected.kept} {noun(collected.kept, 'image')} in {out}, {collected.requests}"
        f" {noun(collected.requests, 'request')}; credits in {credits_}"
    )
    say(f"next: sorites annotate serve context --source folder:{out} --out labels.sqlite")
