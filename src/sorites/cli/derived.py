"""Commands derived from options objects (``sorites.core.options``)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from sorites.core.messages import in_shell
from sorites.core.options import Declaration, Options

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
