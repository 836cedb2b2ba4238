"""Options objects: one frozen dataclass per verb, shared by its Python function and its command.

A field declares its type, default, help and spelling in a shell once. ``sorites.cli.options`` builds the
parameters of a command from the fields; the Python function has the same names and defaults, which a contract
test compares.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from sorites.core.errors import SoritesError
from sorites.core.messages import option, singular

_KEY = "declaration"


@dataclass(frozen=True)
class Declaration:
    """Description and spelling of an option.

    Attributes:
        help: What it does, for users of both interfaces.
        python: What only users of the Python function need to know, such as further accepted types.
        typed: What only users of the command need to know.
        metavar: The placeholder of its value in a shell.
        kind: The type of one value in a shell.
        repeat: It may be given several times; its flag is the singular of its name.
        argument: It is positional in a shell.
        flag: The name of its flag, if that is not its own; for a switch, ``on/off``.
        parse: Converts the typed value, or the list of them.
        low: The smallest value that a shell accepts.
        high: The largest value that a shell accepts.
        shell: False if another option stands for it in a shell.
    """

    help: str
    python: str = ""
    typed: str = ""
    metavar: str | None = None
    kind: type = str
    repeat: bool = False
    argument: bool = False
    flag: str = ""
    parse: Callable[[Any], Any] | None = None
    low: float | None = None
    high: float | None = None
    shell: bool = True

    @property
    def documentation(self) -> str:
        """The entry of the option in the docstring of the Python function."""
        return f"{self.help} {self.python}".strip()

    def spelling(self, name: str) -> str:
        """Return the flag of the option of this name."""
        flag = self.flag or (singular(name) if self.repeat else name).replace("_", "-")
        return "/".join(f"--{part}" for part in flag.split("/"))


def declare(default: Any = dataclasses.MISSING, help: str = "", **details: Any) -> Any:
    """Declare a field of an options object; without a default it is required."""
    return dataclasses.field(default=default, metadata={_KEY: Declaration(help, **details)})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of options objects."""

    @classmethod
    def declarations(cls) -> dict[str, Declaration]:
        """Return the declarations by the name of the option."""
        return {field.name: field.metadata[_KEY] for field in dataclasses.fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the defaults of all options that are not required."""
        fields = dataclasses.fields(cls)
        return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}

    @classmethod
    def from_shell(cls, typed: Mapping[str, Any]) -> Self:
        """Return the options for values as a shell delivers them; None and empty lists are defaults."""
        declared = cls.declarations()
        return cls(**{key: _parsed(declared[key], value) for key, value in typed.items() if _given(value)})

    def command_line(self, verb: str) -> str:
        """Return the command with these options, as it is typed in a shell."""
        defaults, words = self.defaults(), ["sorites", *verb.split()]
        for name, declaration in self.declarations().items():
            value = getattr(self, name)
            if name not in defaults or value != defaults[name]:
                words += _words(declaration, declaration.spelling(name), value)
        return shlex.join(words)


def _words(declaration: Declaration, flag: str, value: Any) -> list[str]:
    if declaration.kind is bool:
        on, _, off = flag.partition("/")
        return [on if value else off]
    if isinstance(value, Mapping):
        value = [f"{key}={text}" for key, text in value.items()]
    several = value if isinstance(value, list | tuple) else [value]
    flags = () if declaration.argument else (flag,)
    return [word for one in several for word in (*flags, str(one))]


def _given(value: Any) -> bool:
    return value is not None and value != [] and value != ()


def _parsed(declaration: Declaration, value: Any) -> Any:
    if declaration.parse is not None:
        return declaration.parse(value)
    return tuple(value) if declaration.repeat else value


def key_values(texts: list[str] | None, name: str) -> dict[str, Any]:
    """Parse the ``KEY=VALUE`` texts of an option; values that are not valid TOML (3, true, 0.5) stay text."""
    from sorites.io.readers import toml_table

    values: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise SoritesError(f"{option(name, None)} expects KEY=VALUE, got {text!r}")
        try:
            values[key] = toml_table(f"value = {value}")["value"]
        except ValueError:
            values[key] = value
    return values
