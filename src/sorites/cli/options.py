"""Options of commands: those that several verbs share, and commands derived from options objects.

``derived`` makes the parameters of a command from the fields of an options object (``sorites.core.options``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sorites.core.messages import in_shell
from sorites.core.options import Declaration, Options
from sorites.evaluation.options import EngineOptions
from sorites.io.stores import to_path

if TYPE_CHECKING:
    from sorites.evaluation.engines import Engine


def _allow_pixels(context: typer.Context, most: int | None) -> int | None:
    """Allow images of up to ``most`` pixels while the verb runs, also in its worker processes."""
    if most is not None:
        from sorites.io.decode import pixel_limit

        context.with_resource(pixel_limit(most))
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
Grids = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar='"A x B"',
        help="Apply two or three shifts at once, at all combinations of their settings. May be repeated.",
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


def engine_of(name: str, address: str | None = None, gpus: float = 0.0) -> Engine | str:
    """Return the engine named by --engine; only ray accepts an address and GPU fractions."""
    return EngineOptions(engine=name, address=address, gpus_per_worker=gpus).chosen_engine()


T = TypeVar("T", bound=Options)


def derived(options: type[T], **extra: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of an options object.

    Args:
        options: The class of the options, whose fields become parameters of the command.
        extra: Further parameters that only the command has, such as an output format: the annotation and the
            default by name. They are passed to the function as keywords.

    Returns:
        A decorator. The command has the function's name and docstring.
    """

    def decorate(action: Callable[..., None]) -> Callable[..., None]:
        def command(**typed: Any) -> None:
            own = {name: typed.pop(name) for name in extra}
            action(options.from_shell(typed), **own)

        parameters = [*_parameters(options), *(_extra(name, *how) for name, how in extra.items())]
        command.__name__, command.__doc__ = action.__name__, action.__doc__
        # Typer reads the parameters of a command from its signature and annotations.
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        vars(command).update(__signature__=inspect.Signature(parameters), options=options)
        return command

    return decorate


def _parameters(options: type[Options]) -> list[inspect.Parameter]:
    defaults = options.defaults()
    declared = {
        name: declaration for name, declaration in options.declarations().items() if declaration.shell
    }
    return [
        _parameter(name, declaration, name in defaults, defaults.get(name))
        for name, declaration in declared.items()
    ]


def _parameter(name: str, declaration: Declaration, optional: bool, default: Any) -> inspect.Parameter:
    kind: Any = list[declaration.kind] if declaration.repeat else declaration.kind  # type: ignore[name-defined]
    shown = None if declaration.repeat or default in (None, ()) else declaration.kind(default)
    if optional and shown is None:
        kind = kind | None
    limits: Any = {"min": declaration.low, "max": declaration.high}
    how: Any = {"help": _help(declaration), "metavar": declaration.metavar}
    if declaration.argument:
        typed = typer.Argument(**how, show_default=shown is not None)
    else:
        typed = typer.Option(declaration.spelling(name), **how, **limits)
    return _extra(name, Annotated[kind, typed], shown if optional else inspect.Parameter.empty)


def _extra(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(declaration: Declaration) -> str:
    repeated = " May be repeated." if declaration.repeat and not declaration.argument else ""
    return in_shell(f"{declaration.help} {declaration.typed}".strip()) + repeated
