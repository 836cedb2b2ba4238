"""Options that several verbs share, and how the words typed after them are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.core.errors import SoritesError
from sorites.io.readers import toml_table
from sorites.io.stores import place

if TYPE_CHECKING:
    from sorites.evaluation.engines import Engine
    from sorites.suites.suite import Suite


def _allow_pixels(context: typer.Context, most: int | None) -> int | None:
    """Allow images of ``most`` pixels until the verb is done, in the processes that it starts as well."""
    if most is not None:
        from sorites.sources.decode import pixels_allowed

        context.with_resource(pixels_allowed(most))
    return most


RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        parser=place,
        help='A run folder, made by "sorites run"; also on a store, s3://BUCKET/RUN.',
    ),
]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial", help="Use all that is there, also what only some models, settings or runs have."
    ),
]
SuiteName = Annotated[
    str, typer.Argument(metavar="SUITE", help="The name of a built-in suite, or the path of a .toml file.")
]
SourceName = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME[:PATH]",
        help="Read images from here: stamps, folder:PATH, webdataset:PATH.",
    ),
]
SourceNames = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="[NAME=]SPEC",
        help=(
            "Read images from here: stamps, folder:PATH, webdataset:PATH. Repeat it as NAME=SPEC for"
            " further ones."
        ),
    ),
]
Ood = Annotated[
    list[str] | None,
    typer.Option(
        "--ood",
        metavar="[GROUP:]NAME=SPEC",
        help=(
            "Also show images that no model can know: far:textures=folder:PATH. They need no labels. May be"
            " repeated."
        ),
    ),
]
Shifts = Annotated[
    list[str] | None, typer.Option("--shift", metavar="NAME", help="Apply only this shift. May be repeated.")
]
Levels = Annotated[
    list[int] | None,
    typer.Option("--level", metavar="N", help="Apply only this published level. May be repeated."),
]
Severities = Annotated[
    list[float] | None,
    typer.Option(
        "--severity",
        metavar="X",
        help="Apply this severity, in the unit of the one --shift. May be repeated.",
    ),
]
LabelFile = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="A file of class names, one per line; the default is ImageNet's thousand.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help="Take only the first N samples of a fixed shuffled order."),
]
SuiteSeed = Annotated[int | None, typer.Option("--seed", metavar="N", help="The seed of every random draw.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The seed of every random draw.")]
Kernels = Annotated[
    Path | None,
    typer.Option(
        "--kernels",
        metavar="PATH",
        help="Blur with this published kernel stack instead of our own aberrations.",
    ),
]
Padding = Annotated[
    str | None,
    typer.Option(
        "--padding",
        metavar="zeros|reflect",
        help="The values that the lens aberrations see beyond the border.",
    ),
]
Lenses = Annotated[
    Path | None,
    typer.Option("--lenses", metavar="DIR", help="A folder of your own traced lenses for the shift lens."),
]
SuiteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="Set an option of the suite's shifts. May be repeated."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="The number of units of work that run at a time; the default is one per core.",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="shards",
        help=(
            "Take whole shards in the order of a hash, and read no more of a huge source than --limit needs."
        ),
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:N]|mps",
        help="The device on which models compute; the default is a GPU if there is one.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="float32|bfloat16|float16|int8",
        help="The numbers that torch models compute with.",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="The engine that runs the units of work: local (threads), processes, or ray, also on a cluster.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The head of a Ray cluster, for --engine ray; the default is RAY_ADDRESS, or Ray started here.",
    ),
]
GpusPerWorker = Annotated[
    float,
    typer.Option(
        "--gpus-per-worker",
        metavar="F",
        min=0,
        help="The share of a GPU that each worker of --engine ray gets.",
    ),
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        "--max-pixels",
        metavar="N",
        min=1,
        max=10**15,
        help="Refuse images of more pixels than this; the default is 100 million.",
        callback=_allow_pixels,
    ),
]
Format = Annotated[
    str, typer.Option("--format", metavar="table|csv|json", help="The format of the printed table.")
]
LensFolder = Annotated[
    Path | None,
    typer.Option(
        "--lenses", metavar="DIR", help="A folder of traced lenses; the default is the built-in ones."
    ),
]
LensName = Annotated[
    str, typer.Argument(metavar="LENS", help='The name of a lens, from "sorites lens list".')
]
Glasses = Annotated[
    list[str] | None,
    typer.Option(
        "--glass",
        metavar="NAME=ND,VD",
        help="Define a glass no catalogue here has: index and Abbe number. May be repeated.",
    ),
]


def load_suite(
    suite: str,
    shifts: list[str] | None,
    levels: list[int] | None,
    severities: list[float] | None,
    options: dict[str, Any],
    **others: Any,
) -> Suite:
    """Load a suite by name or path and replace what the command line names."""
    from sorites.evaluation.reopen import refuse_attacks
    from sorites.suites.suite import load

    refuse_attacks(suite, shifts or ())
    return load(suite).override(
        shifts=shifts or (), levels=levels or (), severities=severities or (), options=options, **others
    )


def engine_of(name: str, address: str | None = None, gpus: float = 0.0) -> Engine | str:
    """Return the engine that was typed; only ray has an address and shares of GPUs."""
    if name != "ray":
        if address is not None or gpus:
            raise SoritesError(f"--address and --gpus-per-worker belong to --engine ray, got --engine {name}")
        return name
    from sorites.evaluation.engines.ray import on

    return on(address, gpus)


def batch_size(text: str) -> int | None:
    """Return the batch that was typed, or None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise SoritesError(f"--batch wants a whole number above 0, or auto; got {text!r}")
    return int(text)


def further_sources(sources: list[str] | None, ood: list[str] | None) -> dict[str, Any]:
    """Return the suite's ``source``, ``source_name`` and ``sources`` from the words after --source
    and --ood.
    """
    first, others = (sources[0], sources[1:]) if sources else (None, [])
    named = [(text, "id", "--source NAME=SPEC") for text in others]
    named += [(text, "ood", "--ood GROUP:NAME=SPEC") for text in ood or ()]
    entries = []
    for text, role, wanted in named:
        label, equals, spec = str(text).partition("=")
        group, _, name = label.rpartition(":")
        if not equals or not name or not spec:
            raise SoritesError(f"wanted {wanted}, such as far:textures=folder:PATH, got {text!r}")
        entries.append({"spec": spec, "name": name, "role": role, "group": group or None})
    label, equals, spec = (first or "").partition("=")
    is_named = equals and "/" not in label and ":" not in label and "," not in label
    return {
        "source": spec if is_named else first,
        "source_name": label if is_named else None,
        "sources": tuple(entries),
    }


def shift_options(texts: list[str] | None, **flags: Path | str | None) -> dict[str, Any]:
    """Return the options of the shifts: those that have a flag, and any others given as ``KEY=VALUE``."""
    found: dict[str, Any] = {
        key: str(value) if isinstance(value, Path) else value for key, value in flags.items()
    }
    return found | key_values(texts, "--option")


def key_values(texts: list[str] | None, option: str) -> dict[str, Any]:
    """Return what was typed as ``KEY=VALUE``; a value is read as TOML where it is that (3, true,
    0.5), otherwise as text.
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise SoritesError(f"{option} wants KEY=VALUE, got {text!r}")
        try:
            found[key] = toml_table(f"value = {value}")["value"]
        except ValueError:
            found[key] = value
    return found
