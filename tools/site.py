"""Build the site: ``python -m tools.site [--out site]``, which is what ``make docs`` types.

Writes the pages that come from registries and docstrings to docs/generated, then runs Sphinx. A warning is an
error. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from sorites.apps.asking import Question, measured, questions
from sorites.cli.about import papers, works
from sorites.cli.app import VERBS, command_of
from sorites.core import METRICS, SCORERS, SHIFTS, Shift
from sorites.core.registry import first_sentence
from sorites.reports.figures.strips import strip
from tools.suite_pages import suite_pages, suites_page, wrapped

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = DOCS / "generated"
SIDE = 160
# Accents of BibTeX as combining characters.
ACCENTS = {'"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303"}
# Pages that describe shifts; those that none of them names are corruptions of ImageNet-C.
ABOUT_SHIFTS = ("optics", "lenses", "camera", "weather", "grids", "distance")
COMMON = "optics.md#the-common-corruptions"


def example_image() -> np.ndarray:
    """Return a synthetic photograph with edges, a gradient, fine lines, text and saturated colours."""
    y, _ = np.mgrid[:SIDE, :SIDE] / SIDE
    sky = np.stack([0.45 + 0.3 * y, 0.6 + 0.2 * y, 0.85 - 0.1 * y], axis=-1)
    image = Image.fromarray(np.uint8(np.where((y > 0.65)[..., None], [0.33, 0.45, 0.22], sky) * 255))
    draw = ImageDraw.Draw(image)
    draw.ellipse((112, 12, 142, 42), fill=(250, 225, 90))
    draw.polygon([(18, 104), (58, 40), (98, 104)], fill=(150, 60, 50))
    draw.rectangle((28, 104, 88, 146), fill=(225, 210, 185), outline=(40, 40, 40))
    draw.rectangle((50, 116, 68, 146), fill=(70, 45, 35))
    for i in range(12):
        draw.line((100 + 4 * i, 96, 100 + 4 * i, 140), fill=(20, 20, 20), width=1 + i // 4)
    draw.text((104, 143), "SORITES", fill=(255, 255, 255))
    return np.asarray(image)


def reference(key: str) -> str:
    """Return authors, title and year of a paper in ``papers.bib``."""
    entry = papers()[key]
    field = {name: re.search(rf"{name} = \{{(.+?)\}},?\n", entry) for name in ("author", "title", "year")}
    author, title, year = (plain(found[1]) if found else "" for found in field.values())
    first, *others = author.split(" and ")
    return f"{first}{' et al.' if others else ''}, “{title}” ({year})"


def plain(text: str) -> str:
    """Return text of BibTeX with its accents as letters and without braces."""
    accented = re.sub(
        r"""\\(["'`^~])\{?(\w)\}?""",
        lambda found: unicodedata.normalize("NFC", found[2] + ACCENTS[found[1]]),
        text,
    )
    return re.sub(r"[{}\\]", "", accented)


def text_of(docstring: str) -> str:
    """Return a docstring in Google style as Markdown."""
    body, _, sections = inspect.cleandoc(docstring).partition("\nArgs:\n")
    body = re.split(r"\n(?:Returns|Raises|Attributes|Yields):\n", body)[0]
    lines = re.split(r"\n\w+:\n", sections)[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", lines, re.MULTILINE)
    options = "".join(f"- `{name}`: {escaped(' '.join(entry.split()))}\n" for name, entry in entries)
    return f"{escaped(body)}\n\n{options}".strip()


def escaped(text: str) -> str:
    """Escape what Markdown would read as markup, outside code."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([*_<\[\]|])", r"\\\1", part) for i, part in enumerate(parts))


def questions_page() -> str:
    """Return the list of all questions; each has a page of its own, which the search finds by its title."""
    head = (
        "# Questions\n\nWhat users want to know. Each page has the commands for your images and for the embedded photographs."
        ' In a shell: `sorites ask "which lens"`.\n'
    )
    lines = [f"- [{one.question}](questions/{one.name}.md) {one.answer}" for one in questions()]
    names = [f"questions/{one.name}" for one in questions()]
    return "\n".join([head, *lines, "", ":::{toctree}", ":hidden:", *names, ":::", ""])


# What stands for the user's own files in the commands of a question.
PLACEHOLDERS = {
    "PHOTOS": "a folder of images in class folders",
    "classes.txt": "a file with one class name per line",
    "RUN": "a run folder",
    "BASE": "the run folder of the model so far",
    "NEW": "that of the new model",
}


def question_page(one: Question) -> str:
    """Return the page of a question: its commands, an example with its files, and a picture of its answer."""
    minutes = "1 minute" if one.minutes == 1 else f"{one.minutes} minutes"
    day = datetime.date.fromisoformat(measured())
    commands, example = ("\n".join(map(wrapped, lines)) for lines in (one.commands, one.example))
    files = "".join(f"`{name}`:\n\n```python\n{text.strip()}\n```\n\n" for name, text in one.files.items())
    own = f"## With your images and model\n\n```sh\n{commands}\n```\n\n{_placeholders(commands)}"
    return (
        f"# {one.question}\n\n{one.answer}\n\n{own if one.commands != one.example else ''}"
        f"## On the embedded data\n\n{files}```sh\n{example}\n```\n\nAbout {minutes} on two cores, after the"
        f" downloads (measured on {day.day} {day:%B %Y}).\n\n![The answer of the example](../../answers/{one.name}.webp)\n\n"
        f"[Details](../../{one.page}). Further words for it: {one.words}.\n"
    )


def _placeholders(commands: str) -> str:
    """Say what stands for the user's own files in some commands."""
    said = [f"{name} is {text}" for name, text in PLACEHOLDERS.items() if re.search(rf"\b{name}\b", commands)]
    return f"{', '.join(said[:-1])}{' and ' if len(said) > 1 else ''}{said[-1]}.\n\n" if said else ""


def shifts_page() -> str:
    """Return the page of all shifts by family, and draw a strip of each."""
    image, families = example_image(), sorted({SHIFTS.get(name).family for name in SHIFTS.names()})
    cited: dict[str, list[str]] = {}
    for key, names in works()["shifts"].items():
        for name in names:
            cited.setdefault(name, []).append(reference(key))
    parts = [
        "# Shifts\n\nEvery built-in shift on one drawn image: clean, then its published levels or a spread of its settings."
        " `sorites show SHIFT IMAGE` draws the same of your own image.\n"
    ]
    for family in families:
        parts.append(f"## Family {family}\n")
        shifts = [shift for shift in map(SHIFTS.get, SHIFTS.names()) if shift.family == family]
        parts += [_shift(shift, image, cited.get(shift.name, [])) for shift in shifts]
    return "\n".join(parts)


def _shift(shift: Shift, image: np.ndarray, cited: list[str]) -> str:
    file = GENERATED / "strips" / f"{shift.name}-{shift.version}.webp"
    if not file.exists():
        strip(image, shift, side=112).save(file, quality=80)
    levels = ", ".join(f"{level:.3g}" for level in shift.levels)
    dial = f"Unit: {escaped(shift.unit)}. Levels: {levels}." if levels else f"{len(shift.settings)} settings."
    paper = f"Paper: {'; '.join(map(escaped, cited))}." if cited else "No paper: defined by Sorites."
    about = escaped(shift.about)
    return (
        f"### {shift.name}\n\n{about}\n\n{dial} Version {shift.version}. {paper} [Details](../{_about(shift.name)}).\n\n"
        f"![{shift.name} at increasing severities](strips/{file.name})\n"
    )


def _about(name: str) -> str:
    """Return the page that describes a shift."""
    pages = (
        page for page in ABOUT_SHIFTS if f"`{name}`" in (DOCS / f"{page}.md").read_text(encoding="utf-8")
    )
    return next((f"{page}.md" for page in pages), COMMON)


def metrics_page() -> str:
    """Return the page of all metrics: definition, docstring, interval and measured coverage."""
    definitions, _, coverage = (
        (DOCS / "metrics.md").read_text(encoding="utf-8").partition("| metric | interval |")
    )
    defined, measured = _cells(definitions, 3), _cells(coverage, 6)
    parts = [
        "# All metrics\n\nTheir definitions and docstrings. The coverage is that of 95 % intervals in simulation with 20, 100 and"
        " 1000 samples; [how far the intervals can be trusted](../metrics.md#how-far-the-intervals-can-be-trusted) has the"
        " conditions. Conventions are in [metrics](../metrics.md).\n"
    ]
    for name in METRICS.names():
        parts.append(f"## {name}\n")
        if name in defined:
            parts.append(f"Definition: {_from_here(defined[name][1])}.\n")
        parts.append(f"{text_of(METRICS.get(name).__doc__ or '')}\n")
        if name in measured:
            parts.append(_interval(*measured[name][1:6]))
    return "\n".join(parts)


def _cells(table: str, least: int) -> dict[str, list[str]]:
    """Return the cells of the row that names a metric, by metric."""
    rows: dict[str, list[str]] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if line.startswith("| `") and len(cells) >= least:
            rows |= {name: cells for name in re.findall(r"`(\w+)`", cells[0]) if name not in rows}
    return rows


def _from_here(text: str) -> str:
    """Return Markdown of a page of docs with its links as seen from docs/generated."""
    return text.replace("](#", "](metrics.md#").replace("](", "](../")


def _interval(interval: str, unit: str, *measured: str) -> str:
    sizes = ", ".join(
        f"n = {n}: {x or 'not simulated'}" for n, x in zip((20, 100, 1000), measured, strict=True)
    )
    coverage = f", over {unit}. Coverage in %: {_from_here(sizes)}" if unit else ""
    return f"Interval: {_from_here(interval) or 'none'}{coverage}.\n"


def scorers_page() -> str:
    """Return the page of all scorers with their papers."""
    parts = [
        "# All scorers\n\nFrom their docstrings; a higher score is more OOD. Which to use: [scorers](../scorers.md).\n"
    ]
    for name in SCORERS.names():
        scorer = SCORERS.get(name)
        cited = "; ".join(escaped(reference(key)) for key in works()["scorers"].get(name, ()))
        text = text_of(scorer.__doc__ or "") or escaped(first_sentence(scorer))
        parts.append(f"## {name}\n\n{text}\n" + (f"\nPaper: {cited}.\n" if cited else ""))
    return "\n".join(parts)


def verbs_page() -> str:
    """Return the page of all verbs with their options."""
    parts = [
        "# All verbs and options\n\nWhat `sorites VERB --help` prints. The five that most users need are in [verbs](../verbs.md).\n"
    ]
    for name in VERBS:
        parts += _verb(name, command_of(name))
    return "\n".join(parts)


def _verb(name: str, command: Any) -> Iterable[str]:
    help_ = escaped(inspect.cleandoc(command.help or ""))
    yield f"## sorites {name}\n\n{help_}\n"
    for child, sub in getattr(command, "commands", {}).items():
        yield from _verb(f"{name} {child}", sub)
    if hasattr(command, "commands"):
        return
    rows = []
    for parameter in command.params:
        flags = " / ".join([*parameter.opts, *parameter.secondary_opts])
        spelled = (
            f"`{parameter.metavar or parameter.name.upper()}`"
            if parameter.param_type_name == "argument"
            else f"`{flags}`"
        )
        described = escaped(" ".join((getattr(parameter, "help", None) or "").split()))
        rows.append(f"| {spelled} | {described}{' Required.' if parameter.required else ''} |")
    yield "\n".join(["| option | meaning |", "|---|---|", *rows, ""])


def schemas_page() -> str:
    """Return the page of the JSON Schemas."""
    parts = ["# Schemas\n\nJSON Schemas of the documents that Sorites writes.\n"]
    for path in sorted((DOCS / "schema").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        parts.append(
            f"## {path.name}\n\n[Download](../schema/{path.name}). {escaped(schema.get('description', ''))}\n"
        )
        parts.append("| key | required | meaning |\n|---|---|---|")
        for key, value in schema.get("properties", {}).items():
            meaning = escaped(" ".join(str(value.get("description", "")).split()))
            parts.append(f"| `{key}` | {'yes' if key in schema.get('required', ()) else 'no'} | {meaning} |")
        parts.append("")
    return "\n".join(parts)


def changelog_page() -> str:
    """Return the changelog with links from this folder."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](../")


PAGES: dict[str, Callable[[], str]] = {
    "questions": questions_page,
    "shifts": shifts_page,
    "suites": suites_page,
    "metrics": metrics_page,
    "scorers": scorers_page,
    "verbs": verbs_page,
    "schemas": schemas_page,
    "changelog": changelog_page,
}


def generate() -> None:
    """Write the generated pages; a page that has not changed keeps its time, so that Sphinx skips it."""
    for folder in ("strips", "questions", "suites"):
        (GENERATED / folder).mkdir(parents=True, exist_ok=True)
    texts = {name: page() for name, page in PAGES.items()}
    texts |= {f"questions/{one.name}": question_page(one) for one in questions()}
    texts |= {f"suites/{name}": page for name, page in suite_pages(reference).items()}
    for old in (*GENERATED.glob("questions/*.md"), *GENERATED.glob("suites/*.md")):
        if f"{old.parent.name}/{old.stem}" not in texts:
            old.unlink()
    for name, text in texts.items():
        file = GENERATED / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def main() -> int:
    """Generate the pages and build the site; return the exit code of Sphinx."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="the folder to write")
    out = parser.parse_args().out
    generate()
    options = ["-b", "html", "-W", "--keep-going", "-n", "-q", "-d", str(ROOT / "build" / "doctrees")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(out)], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
