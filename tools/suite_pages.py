"""Pages of the site about built-in suites: what each runs, and the protocol of its paper beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from sorites.cli.about import works
from sorites.core import Shift
from sorites.suites.suite import Dial, Frame, Suite, builtin_suites, load

PROTOCOLS = Path(__file__).parents[1] / "docs" / "protocols.toml"
SHOWN_SETTINGS = 8


def protocols() -> dict[str, Any]:
    """Return the protocols of papers by suite: page, command, and rows of topic, paper and suite."""
    return tomllib.loads(PROTOCOLS.read_text(encoding="utf-8"))


def wrapped(line: str) -> str:
    """Break a long command before its options, so that it can be copied as it stands."""
    first, *options = re.split(r" (?=--)", line)
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) < 68:
            lines[-1] += f" {option}"
        else:
            lines.append(f"  {option}")
    return " \\\n".join(lines)


def suite_pages(reference: Callable[[str], str]) -> dict[str, str]:
    """Return the page of each built-in suite by its name; ``reference`` writes a key of papers.bib out."""
    cited, told = works()["suites"], protocols()
    return {
        name: _page(load(name), told.get(name), [reference(key) for key in cited.get(name, ())])
        for name in builtin_suites()
    }


def suites_page() -> str:
    """Return the list of all built-in suites."""
    rows = [f"| [`{name}`](suites/{name}.md) | {load(name).about} |" for name in builtin_suites()]
    return "\n".join(
        [
            "# All suites\n\nWhat each built-in suite runs and, where it follows a paper, the paper's protocol beside ours."
            " The keys of a suite of your own are in [suites](../suites.md).\n",
            "| suite | what it tests |\n|---|---|",
            *rows,
            "",
        ]
    )


def _page(suite: Suite, protocol: dict[str, Any] | None, cited: list[str]) -> str:
    told = protocol or {}
    paper = f"Paper: {'; '.join(cited)}.\n\n" if cited else ""
    details = f"[Details](../../{told['page']}).\n\n" if told else ""
    command = told.get("command", f"sorites run {suite.name} --out RUN")
    parts = [
        f"# {suite.name}\n\n{suite.about}\n\n{paper}```sh\n{wrapped(command)}\n```\n\n{details}",
        _protocol(told["rows"]) if told else "",
        f"## What it runs\n\n| key | value |\n|---|---|\n{''.join(_settings(suite))}\n",
        _shifts(suite),
        f"## The suite\n\n```toml\n{_text(suite.name)}\n```\n",
    ]
    return "\n".join(filter(None, parts))


def _protocol(rows: Iterable[list[str]]) -> str:
    lines = "".join(f"| {topic} | {paper} | {ours} |\n" for topic, paper, ours in rows)
    return f"## The paper's protocol beside ours\n\n| what | in the paper | here |\n|---|---|---|\n{lines}"


def _settings(suite: Suite) -> Iterable[str]:
    labels = suite.labels if isinstance(suite.labels, str) else f"{len(suite.labels)} classes"
    yield f"| source | `{suite.source}`, unless `--source` names another |\n"
    yield f"| classes | {labels} |\n"
    yield f"| images | {f'at most {suite.limit}' if suite.limit else 'all of the source'} |\n"
    yield f"| frame | {_frame(suite.frame)} |\n"
    for name, frame in suite.frames.items():
        yield f"| frame of {name} | {_frame(frame)} |\n"
    yield f"| models | {_names(suite.models) or 'those of `--model`'} |\n"
    if suite.scorers:
        yield f"| scorers | {_names(suite.scorers)} |\n"
    if suite.scorers_if_fitted:
        yield f"| scorers with `--fit` | {_names(suite.scorers_if_fitted)} |\n"
    if suite.reference:
        yield f"| reference of corruption errors | `{suite.reference}` |\n"


def _frame(frame: Frame | None) -> str:
    if frame is None:
        return "none: images keep their size, and models prepare them"
    cropped = f", {frame.crop} px cropped from the centre" if frame.crop else ""
    return f"shorter side scaled to {frame.resize} px ({frame.filter}){cropped}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shifts(suite: Suite) -> str:
    rows = [*map(_dial, suite.shifts)]
    for camera in suite.compose:
        rows.append(f"| {camera.name} (all of these together) | | |\n")
        rows += map(_dial, camera.shifts)
    if not rows:
        return "## Shifts\n\nThe captured images of the source, at their own settings.\n"
    return f"## Shifts\n\n| shift | unit | severities |\n|---|---|---|\n{''.join(rows)}"


def _dial(dial: Dial) -> str:
    shift: Shift = dial.shift()
    values = dial.setting_values(shift, foresee=False)
    if shift.settings:
        shown = f"{len(values)} settings"
    else:
        shown = ", ".join(f"{float(value):.4g}" for value in values)  # type: ignore[arg-type]
    return f"| [`{dial.name}`](../shifts.md#{dial.name}) | {shift.unit} | {shown} |\n"


def _text(name: str) -> str:
    """Return a suite as it is written, with long lists of classes left out."""
    text = files("sorites.suites").joinpath(f"{name}.toml").read_text(encoding="utf-8").strip()
    before, labels, rest = text.partition("labels = [\n")
    if not labels:
        return text
    return f"{before}labels = [ ... ]{rest.partition(chr(10) + ']')[2]}"
