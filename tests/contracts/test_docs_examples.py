"""Examples of the docs: commands name verbs and options that there are, and Python imports what
there is and calls it rightly.

Commands are parsed as the command line parses them, also those that cannot be run here; tests/docs
runs the others.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import sorites
from sorites.cli import app
from sorites.cli.guard import RunByDefault

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the page and the text of every block of these kinds."""
    for page in PAGES:
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind in kinds:
                yield page.name, text


def commands() -> list[tuple[str, str]]:
    lines = [
        (page, line) for page, text in blocks(("", "sh")) for line in text.replace("\\\n", " ").splitlines()
    ]
    return [(page, line.strip()) for page, line in lines if line.strip().startswith("sorites ")]


def test_there_are_examples() -> None:
    assert commands()
    assert list(blocks(("python",)))


@pytest.mark.parametrize(
    ("page", "line"), commands(), ids=[f"{page}: {line[:60]}" for page, line in commands()]
)
def test_a_command_names_a_verb_and_options_that_there_are(page: str, line: str) -> None:
    words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("...", "…")]
    command: Any = typer.main.get_command(app)
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        assert words, f"{page}: {line}: a group without a verb"
        if isinstance(command, RunByDefault) and words[0] not in command.commands:
            words.insert(0, "run")
        assert words[0] in command.commands, f"{page}: {line}: no verb {words[0]}"
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    typed = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert typed <= known, f"{page}: {line}"


@pytest.mark.parametrize(("page", "text"), list(blocks(("python",))))
def test_python_compiles_and_names_what_there_is(page: str, text: str) -> None:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sorites"):
            home = importlib.import_module(str(node.module))
            missing = [alias.name for alias in node.names if not hasattr(home, alias.name)]
            assert not missing, f"{page}: {node.module} has no {missing}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "sorites"
        ):
            function = getattr(sorites, node.func.attr)
            named = [keyword.arg for keyword in node.keywords if keyword.arg]
            parameters = inspect.signature(function).parameters
            takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            assert takes_any or set(named) <= set(parameters), (
                f"{page}: sorites.{node.func.attr}({', '.join(named)})"
            )
