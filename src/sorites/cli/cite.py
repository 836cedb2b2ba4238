"""BibTeX of the papers behind a suite: of the benchmark, of its shifts and of its scorers."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import Any

from sorites import __version__
from sorites.io.readers import toml_table
from sorites.suites.suite import Suite, load

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
    """Return which papers stand behind suites, shifts and scorers."""
    return toml_table(files(HERE).joinpath("works.toml").read_text(encoding="utf-8"))


def keys_of(suite: Suite) -> list[str]:
    """Return the keys of the papers behind a suite, each once: its own, then those of its shifts
    and scorers.
    """
    known = works()
    shifts = {dial.name for dial in suite.shifts}
    found = list(known["suites"].get(suite.name, ()))
    found += [key for key, names in known["shifts"].items() if shifts & set(names)]
    scorers = [name.partition("(")[0] for name in (*suite.scorers, *suite.scorers_if_fitted)]
    found += [key for name in scorers for key in known["scorers"].get(name, ())]
    return list(dict.fromkeys(found))


def cite(suite: str) -> str:
    """Return BibTeX for a suite, the toolkit itself first."""
    return "\n\n".join([OWN, *(papers()[key] for key in keys_of(load(suite)))]) + "\n"
