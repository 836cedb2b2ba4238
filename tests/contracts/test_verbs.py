"""A verb has one options object: its Python function and its command agree with it in names, defaults and help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

import sorites
from sorites.cli.app import VERBS, command_of
from sorites.core.messages import in_shell
from sorites.core.options import Options

# Parameters of functions that belong to the interface and not to the verb.
INTERFACE = {"bar", "say"}
# Functions of ``sorites`` that are no verbs of the command line.
LIBRARY_ONLY = {"assert_robust", "images", "read", "check_guard"}


def functions() -> dict[str, Any]:
    """Return the functions of ``sorites`` that do something: all but decorators and look-ups."""
    look_ups = {"encoder", "measure", "model", "scorer", "shift", "source"}
    names = [name for name in sorites.__all__ if not name.startswith("add_") and name not in look_ups]
    return {name: getattr(sorites, name) for name in names if inspect.isfunction(getattr(sorites, name))}


def command(verb: str) -> Any:
    """Return the command of a verb; that of a group, such as ``train``, is ``train run``."""
    built = command_of(verb)
    return built.get_command(None, "run") if hasattr(built, "get_command") else built


def options_of(verb: str) -> type[Options]:
    target: Any = VERBS[verb].target
    if isinstance(target, typer.Typer):
        target = next(c.callback for c in target.registered_commands if c.callback.__name__ == "run")  # type: ignore[union-attr]
    return target.options  # type: ignore[no-any-return]


SHARED = sorted(functions().keys() & VERBS.keys())


def entries(function: Any) -> dict[str, str]:
    """Return the entries of a docstring's Args by name, each on one line."""
    text = (inspect.getdoc(function) or "").partition("Args:\n")[2]
    block = re.split(r"\n\n\w|\n(?=\S)", text)[0]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", block, re.MULTILINE)
    return {name: " ".join(entry.split()) for name, entry in found}


def parameters(function: Any) -> Iterator[inspect.Parameter]:
    return (p for p in inspect.signature(function).parameters.values() if p.name not in INTERFACE)


def test_every_verb_of_the_library_is_one_of_the_command_line() -> None:
    assert functions().keys() - LIBRARY_ONLY <= VERBS.keys()
    assert len(SHARED) >= 12


@pytest.mark.parametrize("verb", SHARED)
def test_the_function_has_the_names_and_defaults_of_the_options(verb: str) -> None:
    options, given = options_of(verb), list(parameters(functions()[verb]))
    assert {p.name for p in given} == options.declarations().keys()
    keywords = [p for p in given if p.kind is not inspect.Parameter.VAR_KEYWORD]
    defaults = {p.name: p.default for p in keywords if p.default is not inspect.Parameter.empty}
    collected = {p.name for p in given} - {p.name for p in keywords}
    assert defaults == {k: v for k, v in options.defaults().items() if k not in collected}


@pytest.mark.parametrize("verb", SHARED)
def test_the_docstring_says_what_the_options_say(verb: str) -> None:
    said = entries(functions()[verb])
    for name, declaration in options_of(verb).declarations().items():
        assert said[name] == declaration.documentation, name
        assert declaration.help.endswith(".")


@pytest.mark.parametrize("verb", SHARED)
def test_the_command_has_the_names_defaults_and_help_of_the_options(verb: str) -> None:
    options, typed = options_of(verb), {parameter.name: parameter for parameter in command(verb).params}
    for name, declaration in options.declarations().items():
        if not declaration.shell:
            assert name not in typed
            continue
        parameter = typed[name]
        assert parameter.help.startswith(in_shell(declaration.help)), name
        assert parameter.required == (name not in options.defaults()), name
        if not declaration.argument:
            assert declaration.spelling(name).split("/")[0] in parameter.opts
    # Without any option, the command builds the same object as the function.
    required = {name: None for name in options.declarations() if name not in options.defaults()}
    bare = {name: typed[name].default for name in typed.keys() - required.keys()}
    own = {name: value for name, value in bare.items() if name in options.declarations()}
    examples = {name: ["x"] if options.declarations()[name].repeat else "x" for name in required}
    built = options.from_shell({**own, **examples})
    assert {name: getattr(built, name) for name in options.defaults()} == options.defaults()


def test_the_list_of_verbs_shows_each_with_its_first_sentence() -> None:
    from sorites.cli.app import app

    top = get_command(app)
    assert list(top.list_commands(None)) == list(VERBS)  # type: ignore[attr-defined, arg-type]
    assert top.get_command(None, "fly") is None  # type: ignore[attr-defined, arg-type]
    for verb in VERBS:
        assert str(command_of(verb).help).strip()


def test_options_are_spelled_as_they_are_typed() -> None:
    from sorites.evaluation.options import RunOptions

    options = RunOptions.from_shell(
        {"suite": "demo", "source": ["stamps", "b=folder:x y"], "models": ["lite0", "lite1"], "batch": "auto"}
    )
    assert options.id_sources == {"b": "folder:x y"}
    assert (options.source, options.models, options.batch) == ("stamps", ("lite0", "lite1"), "auto")
    words = RunOptions(suite="demo", models=("lite0", "lite1"), keep_features=True, options={"a": 3})
    expected = "sorites run demo --option a=3 --model lite0 --model lite1 --keep-features"
    assert words.command_line("run") == expected
