"""Names that users type or read: verbs and flags, functions and their parameters, registries, and
the files of the package.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sorites
from tools.net.hashes import Entry, of_bytes, of_file, of_leaves, of_plain
from tools.net.home import Task

REGISTRIES = ("shifts", "models", "sources", "metrics", "scorers", "measures", "encoders")
TEXTS = (".css", ".js", ".html", ".bib")
"""Files of the package that are pages and prose."""


def tasks() -> list[Task]:
    return [
        Task(("lists/verbs", "lists/flags", "cli", "words/cli"), command_line),
        Task(("lists/api", "lists/registries", "api"), interface),
        Task(("package", "lists/package", "words/package"), package_data),
    ]


def command_line() -> Iterator[Entry]:
    """Every verb, its flags and their types and defaults."""
    import typer.main

    verbs = dict(_verbs(typer.main.get_command(importlib.import_module("sorites.cli").app), ""))
    yield "lists/verbs", sorted(verbs)
    for verb, command in verbs.items():
        flags = [
            flag
            for param in command.params
            for flag in (*param.opts, *param.secondary_opts)
            if flag.startswith("-")
        ]
        yield f"lists/flags/{verb}", sorted(flags)
        yield (
            f"lists/flags/{verb}/(arguments)",
            [_argument(param) for param in command.params if not _is_flag(param)],
        )
        for param in command.params:
            name = max(param.opts, key=len) if _is_flag(param) else f"({_argument(param)})"
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            facts = (
                str(kind),
                param.nargs,
                param.required,
                getattr(param, "multiple", None),
                param.min,
                param.max,
            )
            yield (
                f"cli/{verb}/{name}",
                of_plain([*facts, None if callable(param.default) else str(param.default)]),
            )
        yield (
            f"words/cli/{verb}",
            of_plain([command.help, [getattr(param, "help", None) for param in command.params]]),
        )


def _argument(param: Any) -> str:
    return str(param.metavar or param.name).split()[0]


def _is_flag(param: Any) -> bool:
    return bool(param.opts[0].startswith("-"))


def _verbs(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if path and not getattr(command, "hidden", False):
        yield path, command
    for name, part in getattr(command, "commands", {}).items():
        yield from _verbs(part, f"{path} {name}".strip())


def interface() -> Iterator[Entry]:
    """What ``import sorites`` has: names, and the parameters of functions with their defaults."""
    yield "lists/api/sorites", sorted(dir(sorites))
    for name in sorted(set(sorites.__all__) | set(dir(sorites))):
        obj = getattr(sorites, name)
        if not callable(obj):
            continue
        try:
            parameters = inspect.signature(obj).parameters
        except (TypeError, ValueError):
            continue
        yield f"lists/api/{name}", sorted(parameters)
        for called, parameter in parameters.items():
            default = parameter.default
            plain = (
                default
                if isinstance(default, str | int | float | bool | tuple | None)
                else type(default).__name__
            )
            yield f"api/{name}/{called}", "required" if default is parameter.empty else of_plain(plain)
    core = importlib.import_module("sorites.core")
    for kind in REGISTRIES:
        yield f"lists/registries/{kind}", sorted(getattr(core, kind.upper()).names())


def package_data() -> Iterator[Entry]:
    """Every file of the package that is no code, by the end of its path: data by value, pages as texts."""
    home = Path(str(sorites.__file__)).parent
    files = [
        path for path in sorted(home.rglob("*")) if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    yield "lists/package/files", sorted(f"{path.name}" for path in files)
    for path in files:
        name = "/".join(
            path.relative_to(home).parts[-3:]
            if path.parent.parent.name in ("snow", "night")
            else path.parts[-2:]
        )
        if path.suffix in TEXTS:
            yield f"words/package/{name}", of_bytes(path.read_bytes())
        elif path.suffix == ".toml":
            held = tomllib.loads(path.read_text(encoding="utf-8"))
            for part, digest in of_leaves(held):
                prose = (
                    part.rpartition("/")[2] in ("about", "instructions", "ask", "title", "text", "note")
                    or "text/" in part
                )
                yield f"{'words/' if prose else ''}package/{name}/{part}", digest
        else:
            yield from ((f"package/{name}/{part}".rstrip("/"), digest) for part, digest in of_file(path))
