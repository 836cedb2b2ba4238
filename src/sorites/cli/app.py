"""The Typer app: every verb in its panel of ``sorites --help``, and the entry point ``main``."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from sorites.cli.output import printing_notices, say, unwritten
from sorites.core.errors import SoritesError, TooManyErrors
from sorites.core.progress import telling_phases
from sorites.io.paths import reason

EVALUATE, INSPECT, IMAGES = "Evaluate models", "Inspect", "Make images"
MEASURE, LENSES, TRAIN, PEOPLE = "Measure and score", "Lenses", "Train models", "Annotate"
# Exit code of a run in which nothing was evaluated, or too many rows have errors.
RUN_FAILED = 3
# The verbs that are named when none is typed.
FIRST = ("run", "report", "compare", "passport", "view")


@dataclass(frozen=True)
class Verb:
    """A verb of the command line: its panel, and the module and name of its function or group."""

    panel: str
    module: str
    name: str

    @property
    def target(self) -> Callable[..., None] | typer.Typer:
        """The function or group, which is imported when it is needed."""
        target: Callable[..., None] | typer.Typer
        target = getattr(importlib.import_module(f"sorites.cli.{self.module}"), self.name)
        return target


VERBS = {
    "run": Verb(EVALUATE, "run", "run"),
    "import": Verb(EVALUATE, "run", "import_"),
    "export": Verb(EVALUATE, "run", "export"),
    "log": Verb(EVALUATE, "report", "log"),
    "attack": Verb(EVALUATE, "training", "attack"),
    "metrics": Verb(EVALUATE, "report", "metrics"),
    "report": Verb(EVALUATE, "report", "report"),
    "passport": Verb(EVALUATE, "compare", "passport"),
    "compare": Verb(EVALUATE, "compare", "compare"),
    "verify": Verb(EVALUATE, "compare", "verify"),
    "leaderboard": Verb(EVALUATE, "compare", "leaderboard"),
    "guard": Verb(EVALUATE, "guard", "app"),
    "view": Verb(INSPECT, "view", "view"),
    "ask": Verb(INSPECT, "about", "ask"),
    "list": Verb(INSPECT, "about", "list_"),
    "explain": Verb(INSPECT, "training", "explain"),
    "check": Verb(INSPECT, "run", "check"),
    "compact": Verb(INSPECT, "run", "compact"),
    "plan": Verb(INSPECT, "run", "plan"),
    "doctor": Verb(INSPECT, "doctor", "doctor"),
    "cite": Verb(INSPECT, "about", "cite"),
    "show": Verb(IMAGES, "images", "show"),
    "build": Verb(IMAGES, "images", "build"),
    "context": Verb(IMAGES, "images", "context"),
    "sheet": Verb(IMAGES, "report", "sheet"),
    "collect": Verb(IMAGES, "images", "collect"),
    "generate": Verb(IMAGES, "generate", "app"),
    "studio": Verb(IMAGES, "studio", "app"),
    "score": Verb(MEASURE, "run", "score"),
    "similarity": Verb(MEASURE, "analysis", "similarity"),
    "distance": Verb(MEASURE, "analysis", "distance"),
    "slices": Verb(MEASURE, "analysis", "slices"),
    "conformal": Verb(MEASURE, "analysis", "conformal"),
    "recalibrate": Verb(MEASURE, "analysis", "recalibrate"),
    "features": Verb(MEASURE, "analysis", "features"),
    "filter": Verb(MEASURE, "analysis", "filter_"),
    "decompose": Verb(MEASURE, "analysis", "decompose_app"),
    "train": Verb(TRAIN, "training", "app"),
    "annotate": Verb(PEOPLE, "annotate", "app"),
    "lens": Verb(LENSES, "lens", "app"),
    "kernels": Verb(LENSES, "lens", "kernels_app"),
}


@functools.cache
def command_of(name: str) -> Any:
    """Build the command or group of a verb."""
    verb = VERBS[name]
    target = verb.target
    if isinstance(target, typer.Typer):
        group = get_group(target)
        group.name, group.rich_help_panel = name, verb.panel
        return group
    alone = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, context_settings=app.info.context_settings
    )
    alone.command(name, rich_help_panel=verb.panel)(target)
    return get_command(alone)


def _outline(name: str) -> TyperCommand:
    """Return what the list of verbs shows of a verb, without the cost of its parameters."""
    verb = VERBS[name]
    about: Any = verb.target
    if isinstance(about, typer.Typer):
        about = about.registered_callback.callback if about.registered_callback else about.info.help
    text = about if isinstance(about, str) else str(about.__doc__)
    return TyperCommand(name, help=text.partition("\n\n")[0], rich_help_panel=verb.panel)


class _Commands(dict[str, Any]):
    """The commands by verb, each built when it is asked for."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(VERBS))

    def __getitem__(self, name: str) -> Any:
        return command_of(name)

    def get(self, name: str, default: Any = None) -> Any:
        return command_of(name) if name in VERBS else default

    def items(self) -> Any:
        return [(name, command_of(name)) for name in VERBS]

    def values(self) -> Any:
        return [command_of(name) for name in VERBS]


class Verbs(TyperGroup):
    """The top-level group: it builds the verb that was typed, and explains errors of files it reads."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of ``sorites --help``, without building them."""
        return list(VERBS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the list of verbs."""
        listing = _Listing(
            name=self.name, help=self.help, params=self.params, context_settings=self.context_settings
        )
        listing.format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed, and remember its words for messages about damaged runs."""
        ctx.obj = args
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error about a file becomes a ``SoritesError``."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and (explanation := explain_merged(error)):
                raise SoritesError(explanation) from error
            if error.filename is None or isinstance(error, BrokenPipeError):
                raise
            raise SoritesError(f"{str(error.filename)[:200]}: {reason(error)}") from error
        except BaseException as error:
            if explanation := explain_failed_read(error, ctx.obj or ()):
                raise SoritesError(explanation) from error
            raise


class _Listing(Verbs):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _outline(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperGroup.format_help(self, ctx, formatter)


app = typer.Typer(
    name="sorites",
    cls=Verbs,
    help="How far can the world shift before a vision model fails, and does the model know?",
    no_args_is_help=False,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from sorites import __version__

        say(__version__)
        raise typer.Exit()
    if context.invoked_subcommand is None:
        say(_welcome())


def _welcome() -> str:
    width = max(map(len, FIRST))
    verbs = "\n".join(f"  sorites {name:<{width}}  {_outline(name).help}" for name in FIRST)
    return (
        f"{app.info.help}\n\n{verbs}\n\n"
        'What would you like to know?  sorites ask "which lens should I buy"\n'
        "Start here:                   sorites run demo\n"
        "All verbs:                    sorites --help"
    )


def explain_merged(error: FileNotFoundError) -> str:
    """Say what to do if another process deleted a shard before it was read; empty if it was another file."""
    from sorites.core.table import missing_shard

    shard = missing_shard(error)
    return f"{shard}: another process has merged or removed this shard. Repeat the command." if shard else ""


def explain_failed_read(error: BaseException, words: Sequence[str]) -> str:
    """List damaged files of the run folders in the command, if Polars failed to read a table.

    Returns:
        One line per damaged file and the repair command, or an empty string if the error has another cause.
    """
    if type(error).__module__.partition(".")[0] not in ("polars", "pyo3_runtime"):
        return ""
    from sorites.core.table import repair
    from sorites.evaluation.integrity.damage import damage, lines

    for folder in (Path(word) for word in words if "://" not in word and (Path(word) / "run.json").is_file()):
        try:
            damaged = damage(folder)
        except SoritesError as unreadable:
            return unreadable.message
        if damaged:
            return "\n".join([*lines(damaged), repair(folder)])
    return ""


def _say_aside(text: str) -> None:
    from sorites.core.progress import console

    console().print(text, soft_wrap=True)


def main() -> None:
    """Run the command line.

    A ``SoritesError`` is printed without a traceback, with exit code 2, or 3 for a run with too many errors.
    Finished work is kept after an interrupt. Typer turns Ctrl-C into an exit code and ignores a closed pipe.
    """
    from sorites.evaluation.engines.interrupts import CODE, handle_interrupts

    try:
        with handle_interrupts(), printing_notices(), telling_phases(_say_aside):
            app()
    except SoritesError as error:
        _fail(error)
    except OSError as error:
        if (full := unwritten(error)) is None:
            raise
        _fail(full)
    except SystemExit as exit_:
        if exit_.code == CODE:
            say("stopped; run the same command to continue", err=True)
        raise


def _fail(error: SoritesError) -> None:
    say(f"sorites: {error.message}", err=True)
    sys.exit(RUN_FAILED if isinstance(error, TooManyErrors) else 2)
