"""The verb that says what a run will take before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say
from sorites.errors import SoritesError

if TYPE_CHECKING:
    from sorites.pipeline.costs import Calibration, Costs

CALIBRATE = "calibrate"
FILE = Path("calibration.json")


def plan(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[calibrate] SUITE", help="A suite; after the word calibrate, one to measure this machine on."),
    ],
    source: options.SourceNames = None,
    strange: options.Strange = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="[NAME=]SPEC", help="Count this model. May be repeated.")
    ] = None,
    shift: options.Shifts = None,
    level: options.Levels = None,
    severity: options.Severities = None,
    labels: options.LabelFile = None,
    limit: options.Limit = None,
    order: options.Order = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", metavar="FILE", help='Times of a machine, from "sorites plan calibrate".')
    ] = None,
    workers: options.Workers = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="P", min=0, help="The price of an hour of the machine, in any currency.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file in which calibrate keeps its times.")] = FILE,
    format_: options.Format = "table",
) -> None:
    """Say what a run will take: pictures, passes, bytes, time and price.

    Reads a suite and lists its pictures; no model is loaded and nothing runs.
    "sorites plan calibrate SUITE" measures this machine on a few pictures and
    writes the times that --calibration reads.
    """
    from sorites.pipeline.costs import calibrate, costs, read_calibration

    if (words[0] == CALIBRATE and len(words) == 1) or len(words) > 2 or (len(words) == 2 and words[0] != CALIBRATE):
        raise SoritesError(f"wanted: sorites plan SUITE, or: sorites plan calibrate SUITE; got {' '.join(words)!r}")
    if price is not None and calibration is None:
        raise SoritesError("--price needs the time, and that --calibration FILE. Make one: sorites plan calibrate SUITE")
    recipe = options.load_suite(
        words[-1], shift, level, severity, {}, **options.further_sources(source, strange), models=tuple(model or ()),
        labels=labels, limit=limit, order=order,
    )  # fmt: skip
    if words[0] == CALIBRATE and len(words) == 2:
        known = calibrate(recipe, out, workers)
        _print_calibration(known)
        say(f"wrote {out}\nnext: sorites plan {words[1]} --calibration {out}")
        return
    found = costs(recipe)
    held = read_calibration(calibration) if calibration else None
    _print(found, held, workers, price, format_)


def _print(found: Costs, known: Calibration | None, workers: int | None, price: float | None, format_: str) -> None:
    from sorites.pipeline.costs import told

    count = workers or (max(known.speedup) if known else 1)
    seconds, measured = found.seconds(known, count) if known else (None, True)
    cost = None if seconds is None or price is None else seconds / 3600 * price
    if format_ == "json":
        say(
            json.dumps(
                {**told(found), "workers": count, "seconds": seconds, "measured_workers": measured, "price": cost}, indent=1
            )
        )
        return
    per_shift = ", ".join(f"{name} {count:,}" for name, count in found.images.items())
    say(f"pictures   {sum(found.images.values()):,} of {found.samples:,} samples ({per_shift})")
    models = f"{len(found.models)} model{'s' * (len(found.models) != 1)} ({', '.join(found.models) or 'none named'})"
    say(f"passes     {found.passes:,}: each picture by {models}")
    if found.probes:
        say(f"probes     at most {found.probes:,} more pictures for each model, to refine failure points")
    size = found.bytes()
    files = found.units * len(found.models)
    say(f"table      {found.rows:,} rows, about {_size(size)}, in {files:,} files ({found.slice} samples to a unit)")
    if seconds is None:
        say('time       unknown: measure this machine with "sorites plan calibrate SUITE", then add --calibration FILE')
        return
    assert known is not None
    how = "" if measured else f"; extrapolated: {max(known.speedup)} workers were measured"
    say(f"time       {_time(seconds)} with {count} workers (measured {known.date} on {known.machine}{how})")
    if cost is not None:
        say(f"price      {cost:,.2f} at {price:g} per hour")


def _print_calibration(known: Calibration) -> None:
    say(f"decode     {known.decode * 1e3:.2f} ms a sample")
    for name, seconds in known.shifts.items():
        say(f"shift      {seconds * 1e3:.2f} ms a picture of {name}")
    for name, seconds in known.models.items():
        say(f"model      {seconds * 1e3:.2f} ms a picture by {name}")
    for count, times in known.speedup.items():
        say(f"workers    {count}: {times:.2f} times as much as one")


def _size(size: int) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} seconds"
