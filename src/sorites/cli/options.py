"""Options that several verbs share, and how their values are parsed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.core.errors import SoritesError
from sorites.io.readers import toml_table
from sorites.io.stores import to_path

if TYPE_CHECKING:
    from sorites.evaluation.engines import Engine
    from sorites.suites.suite import Suite


def _allow_pixels(context: typer.Context, most: int | None) -> int | None:
    """Allow images of up to ``most`` pixels while the verb runs, also in its worker processes."""
    if most is not None:
        from sorites.sources.decode import pixel_limit as pixels_allowed

        context.with_resource(pixels_allowed(most))
    return most


RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        parser=to_path,
        help='A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN.',
    ),
]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial", help="Use all rows, including samples that only some models, settings or runs cover."
    ),
]
SuiteName = Annotated[
    str, typer.Argument(metavar="SUITE", help="A built-in suite, or the path of a .toml file.")
]
SourceName = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME[:PATH]",
        help="Read images from this source: stamps, folder:PATH, webdataset:PATH.",
    ),
]
SourceNames = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="[NAME=]SPEC",
        help=(
            "Read images from this source: stamps, folder:PATH, webdataset:PATH. Repeat as NAME=SPEC for"
            " more sources."
        ),
    ),
]
Ood = Annotated[
    list[str] | None,
    typer.Option(
        "--ood",
        metavar="[GROUP:]NAME=SPEC",
        help=("Add an OOD source, such as far:textures=folder:PATH. It needs no labels. May be repeated."),
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
        help="Apply this severity, in the unit of the shift given by --shift. May be repeated.",
    ),
]
LabelFile = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="A file of class names, one per line; default: the 1000 classes of ImageNet.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help="Use only the first N samples of a fixed random order."),
]
SuiteSeed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Random seed.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")]
Kernels = Annotated[
    Path | None,
    typer.Option(
        "--kernels",
        metavar="PATH",
        help="Blur with this published kernel stack instead of the built-in aberrations.",
    ),
]
Padding = Annotated[
    str | None,
    typer.Option(
        "--padding",
        metavar="zeros|reflect",
        help="How the lens aberrations pad the image border.",
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
        help="Number of tasks to run in parallel; default: one per core.",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="shards",
        help=("Read whole shards in hash order, and no more of a large source than --limit needs."),
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:N]|mps",
        help="Device for the models; default: a GPU if available.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="float32|bfloat16|float16|int8",
        help="Floating-point precision of torch models.",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Engine that runs the tasks: local (threads), processes, or ray (also on a cluster).",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Head of the Ray cluster, for --engine ray; default: RAY_ADDRESS, or a local Ray instance.",
    ),
]
GpusPerWorker = Annotated[
    float,
    typer.Option(
        "--gpus-per-worker",
        metavar="F",
        min=0,
        help="Fraction of a GPU for each worker of --engine ray.",
    ),
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        "--max-pixels",
        metavar="N",
        min=1,
        max=10**15,
        help="Refuse images with more pixels than this; default: 100 million.",
        callback=_allow_pixels,
    ),
]
Format = Annotated[str, typer.Option("--format", metavar="table|csv|json", help="Output format.")]
LensFolder = Annotated[
    Path | None,
    typer.Option("--lenses", metavar="DIR", help="A folder of traced lenses; default: the built-in ones."),
]
LensName = Annotated[
    str, typer.Argument(metavar="LENS", help='The name of a lens, from "sorites lens list".')
]
Glasses = Annotated[
    list[str] | None,
    typer.Option(
        "--glass",
        metavar="NAME=ND,VD",
        help="Define a glass that no catalogue contains: index and Abbe number. May be repeated.",
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
    """Load a suite by name or path and apply the options of the command line."""
    from sorites.evaluation.reopen import refuse_attacks
    from sorites.suites.suite import load

    refuse_attacks(suite, shifts or ())
    return load(suite).override(
        shifts=shifts or (), levels=levels or (), severities=severities or (), options=options, **others
    )


def engine_of(name: str, address: str | None = None, gpus: float = 0.0) -> Engine | str:
    """Return the engine named by --engine; only ray accepts an address and GPU fractions."""
    if name != "ray":
        if address is not None or gpus:
            raise SoritesError(f"--address and --gpus-per-worker require --engine ray, got --engine {name}")
        return name
    from sorites.evaluation.engines.ray import ray_engine as on

    return on(address, gpus)


def batch_size(text: str) -> int | None:
    """Return the value of --batch, or None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise SoritesError(f"--batch must be a positive integer or auto, got {text!r}")
    return int(text)


def further_sources(sources: list[str] | None, ood: list[str] | None) -> dict[str, Any]:
    """Return the suite keys ``source``, ``source_name`` and ``sources`` from --source and --ood."""
    first, others = (sources[0], sources[1:]) if sources else (None, [])
    named = [(text, "id", "--source NAME=SPEC") for text in others]
    named += [(text, "ood", "--ood GROUP:NAME=SPEC") for text in ood or ()]
    entries = []
    for text, role, expected in named:
        label, equals, spec = str(text).partition("=")
        group, _, name = label.rpartition(":")
        if not equals or not name or not spec:
            raise SoritesError(f"expected {expected}, such as far:textures=folder:PATH, got {text!r}")
        entries.append({"spec": spec, "name": name, "role": role, "group": group or None})
    label, equals, spec = (first or "").partition("=")
    is_named = equals and "/" not in label and ":" not in label and "," not in label
    return {
        "source": spec if is_named else first,
        "source_name": label if is_named else None,
        "sources": tuple(entries),
    }


def shift_options(texts: list[str] | None, **flags: Path | str | None) -> dict[str, Any]:
    """Return the options of the shifts: those with a flag of their own, and those given as ``KEY=VALUE``."""
    values: dict[str, Any] = {
        key: str(value) if isinstance(value, Path) else value for key, value in flags.items()
    }
    return values | key_values(texts, "--option")


def key_values(texts: list[str] | None, option: str) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts; values that are not valid TOML (3, true, 0.5) stay text."""
    values: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise SoritesError(f"{option} expects KEY=VALUE, got {text!r}")
        try:
            values[key] = toml_table(f"value = {value}")["value"]
        except ValueError:
            values[key] = value
    return values
