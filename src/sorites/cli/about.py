"""``sorites ask``, ``cite`` and ``list``: questions, references and registered names."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites import __version__
from sorites.apps.options import AskOptions
from sorites.cli import options
from sorites.cli.output import say

if TYPE_CHECKING:
    from sorites.core import Measure, Shift
    from sorites.core.registry import Registry
    from sorites.suites.suite import Suite


HERE = "sorites.cli"
OWN = f"""@software{{sorites,
  title = {{Sorites: how far can the world shift before a vision model fails, and does the model know?}},
  author = {{{{The Sorites authors}}}},
  version = {{{__version__}}},
  year = {{2026}},
  license = {{Apache-2.0}}
}}"""


@functools.cache
def papers() -> dict[str, str]:
    """Return the entries of ``papers.bib`` by key."""
    text = files(HERE).joinpath("papers.bib").read_text(encoding="utf-8")
    entries = [entry.strip() for entry in re.split(r"\n(?=@)", text) if entry.strip()]
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries}


@functools.cache
def works() -> dict[str, Any]:
    """Return the keys of the papers for each suite, shift and scorer."""
    from sorites.io.readers import toml_table

    return toml_table(files(HERE).joinpath("works.toml").read_text(encoding="utf-8"))


def keys_of(suite: Suite) -> list[str]:
    """Return the keys of a suite's papers: its own, then those of its shifts and scorers."""
    known = works()
    shifts = set(suite.shift_names)
    keys = list(known["suites"].get(suite.name, ()))
    keys += [key for key, names in known["shifts"].items() if shifts & set(names)]
    scorers = [name.partition("(")[0] for name in (*suite.scorers, *suite.scorers_if_fitted)]
    keys += [key for name in scorers for key in known["scorers"].get(name, ())]
    return list(dict.fromkeys(keys))


def cite(suite: options.SuiteName) -> None:
    """Print BibTeX for the papers behind a suite.

    Prints the entries of Sorites, of the benchmark, and of the shifts and
    scorers of the suite.
    """
    from sorites.suites.suite import load

    entries = [OWN, *(papers()[key] for key in keys_of(load(suite)))]
    say("\n\n".join(entries) + "\n", nl=False, exact=True)


@options.derived(AskOptions)
def ask(choice: AskOptions) -> None:
    """Find the command that answers a question.

    Searches the questions by their words, offline, and prints the best three
    with their commands; without words, prints all questions.
    """
    from sorites.apps.asking import described, found

    say(described(found(choice), short=not choice.words))


KINDS = ("shifts", "models", "sources", "metrics", "scorers", "measures", "encoders", "suites", "recipes")

# A name and a line about it.
Entry = tuple[str, str]


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}; default: all."),
    ] = None,
) -> None:
    """List shifts, models, sources, metrics and other registered names.

    Includes the plug-ins of installed packages. Prints each name with a
    one-line description.
    """
    say(list_names(kind), nl=False)


def list_names(kind: str | None = None) -> str:
    """Return the names of one kind, or of all kinds, with a one-line description of each."""
    from sorites.core.errors import UnknownName

    if kind is not None and kind not in KINDS:
        raise UnknownName("kind", kind, KINDS, f"One of {', '.join(KINDS)}.")
    blocks = []
    for name in [kind] if kind else KINDS:
        entries = _entries(name)
        width = max((len(entry) for entry, _ in entries), default=0)
        # Docstrings mark names by backticks, which a terminal shows as they are.
        lines = [f"  {entry:<{width}}  {about.replace('`', '')}".rstrip() for entry, about in entries]
        blocks.append("\n".join([*([] if kind else [f"{name}:"]), *lines]))
    return "\n".join(blocks) + "\n"


def _entries(kind: str) -> list[Entry]:
    from sorites.core import ENCODERS, MEASURES, METRICS, MODELS, SCORERS, SHIFTS, SOURCES
    from sorites.core.registry import first_sentence
    from sorites.suites.suite import builtin_suites, load

    if kind == "suites":
        return [(name, load(name).about) for name in builtin_suites()]
    if kind == "recipes":
        from sorites.training.recipe import about, builtin_recipes

        return [(name, about(name)) for name in builtin_recipes()]
    if kind == "shifts":
        return [(name, _about_shift(SHIFTS.get(name))) for name in SHIFTS.names()]
    if kind == "measures":
        return [(name, _about_measure(MEASURES.get(name))) for name in MEASURES.names()]
    kinds: dict[str, Registry[Any]] = {
        "models": MODELS,
        "sources": SOURCES,
        "metrics": METRICS,
        "scorers": SCORERS,
        "encoders": ENCODERS,
    }
    registry = kinds[kind]
    return [(name, first_sentence(registry.get(name))) for name in registry.names()]


def _about_shift(shift: Shift) -> str:
    levels = ", ".join(f"{level:.3g}" for level in shift.levels)
    dial = f"{shift.unit}; levels {levels}" if levels else f"{len(shift.settings)} settings"
    return f"{shift.about}  [{shift.family}; {dial}]"


def _about_measure(measure: Measure) -> str:
    unit = f"{measure.unit}; " if measure.unit else ""
    return f"{measure.about}  [{unit}{measure.nearer} is nearer]"
