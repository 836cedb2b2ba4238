"""Registries of plug-ins by name, filled by decorators and entry points.

Other packages add plug-ins by naming a module in the entry-point group ``sorites.plugins``. The module is
imported once, when a registry is first read, and its decorators register the plug-ins.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from sorites.core.compute.torch_tools import with_torchvision
from sorites.core.errors import Notice, SoritesError, UnknownName, exit_message
from sorites.core.messages import command
from sorites.core.specs import is_like_a_path, spec_of_path
from sorites.io.paths import exists

T = TypeVar("T")
# What the specs of user code begin with.
PREFIX = "python:"
# Entry-point group of third-party plug-ins.
GROUP = "sorites.plugins"

_loading = threading.RLock()
_loaded: set[str] = set()
_rooms: list[str] = []


def _load_once(name: str) -> None:
    """Import a package, or all third-party plug-ins if ``name`` is ``GROUP``, unless already done."""
    with _loading:
        if name in _loaded:
            return
        _loaded.add(name)
        if name != GROUP:
            importlib.import_module(name)
            return
        points = entry_points(group=GROUP)
        # Built-in plug-ins are loaded first, so that third-party ones cannot take their names.
        for room in _rooms if points else ():
            _load_once(room)
        for point in points:
            try:
                with_torchvision(point.load)
            except (Exception, SystemExit) as error:  # a broken plug-in must not stop the tool
                why = exit_message(error) if isinstance(error, SystemExit) else error
                text = f"plug-in {point.name} ({point.value}) did not load: {why}"
                warnings.warn(Notice(text, code="plugin_failed", plugin=point.name), stacklevel=2)


def load_object(kind: str, argument: str | None) -> Any:
    """Return an object of user code, from a module that is installed or in the current folder.

    Args:
        kind: What the object is for, such as "model", for messages.
        argument: ``module:name``.

    Raises:
        SoritesError: The argument has another form, or the module cannot be imported.
        UnknownName: The module has no such object.

    Example:
        >>> load_object("model", "math:sqrt")(9)
        3.0
    """
    name, _, attribute = (argument or "").partition(":")
    if not name or not attribute:
        raise SoritesError(f"{kind} python: expected python:module:name, got {argument!r}")
    module = _import_user_module(name)
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise UnknownName(f"object in module {module.__name__}", attribute, names)
    return getattr(module, attribute)


def _import_user_module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return with_torchvision(lambda: importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise SoritesError(f"no Python module named {name!r}, installed or in {here}") from error
        raise SoritesError(f"module {name} needs {error.name}, which is not installed") from error
    except SystemExit as error:
        raise SoritesError(f"module {name} could not be imported: {exit_message(error)}") from error
    except Exception as error:
        raise SoritesError(f"module {name} could not be imported: {type(error).__name__}: {error}") from error


class Registry(Generic[T]):
    """Plug-ins of one kind by name.

    Args:
        kind: Singular noun for messages, such as "shift".
        room: Package whose import registers the built-in plug-ins.
        adopt: Makes a plug-in from the name and the object of ``python:module:name``; None if a registered
            plug-in called python does.
    """

    def __init__(self, kind: str, room: str, adopt: Callable[[str, Any], T] | None = None) -> None:
        self.kind, self.room, self._adopt = kind, room, adopt
        self._objects: dict[str, T] = {}
        self._forms: dict[str, Callable[[str], T]] = {}
        self._guesses: list[Callable[[str], str | None]] = []
        _rooms.append(room)

    def add(self, name: str, obj: T) -> T:
        """Register ``obj`` under ``name`` and return it.

        Raises:
            SoritesError: The name is taken.
        """
        if name in self._objects:
            raise SoritesError(f"the {self.kind} name {name!r} is already taken")
        self._objects[name] = obj
        return obj

    def add_form(self, prefix: str, make: Callable[[str], T]) -> None:
        """Register a form of names, ``prefix:argument``, whose plug-ins are made when they are asked for.

        Args:
            prefix: The text before the colon.
            make: Makes the plug-in from the whole name.

        Raises:
            SoritesError: The prefix is taken.
        """
        if prefix in self._forms:
            raise SoritesError(f"the {self.kind} form {prefix!r} is already taken")
        self._forms[prefix] = make

    def add_guess(self, guess: Callable[[str], str | None]) -> None:
        """Register what looks for an unknown name elsewhere, such as among the models of a library.

        Args:
            guess: Returns the spec to type for a name, or None.
        """
        self._guesses.append(guess)

    def get(self, name: str) -> T:
        """Return the plug-in called ``name``, which may be ``python:module:name``.

        Raises:
            UnknownName: There is none; the message suggests similar names.
            SoritesError: The object of user code cannot be used.
        """
        if self._adopt is not None and name.startswith(PREFIX):
            return self._adopt(name, load_object(self.kind, name.removeprefix(PREFIX)))
        self._fill()
        if (prefix := name.partition(":")[0]) in self._forms and prefix != name:
            return self._forms[prefix](name)
        if name not in self._objects:
            raise self._unknown(name)
        return self._objects[name]

    def _unknown(self, name: str) -> UnknownName:
        """Return the error about an unknown name, with the spec to type if there is one."""
        if spec := spec_of_path(self.kind, name):
            return UnknownName(self.kind, name, (), f"For a path, pass {spec}")
        see, is_path = f"See {command('list', f'{self.kind}s')}.", is_like_a_path(self.kind, name)
        unknown = UnknownName(self.kind, name, () if is_path else self._objects, see)
        if unknown.fields["suggestions"]:
            return unknown
        if found := next(filter(None, (guess(name) for guess in self._guesses)), None):
            return UnknownName(self.kind, name, (), f"Pass {found}")
        if is_path and not exists(Path(name)):
            return UnknownName(self.kind, name, (), f"There is no such file or folder. {see}")
        return unknown

    def __contains__(self, name: str) -> bool:
        """Return whether ``get`` finds a plug-in of this name; user code is found if its name says so."""
        if self._adopt is not None and name.startswith(PREFIX):
            return True
        self._fill()
        prefix, colon, _ = name.partition(":")
        return name in self._objects or bool(colon and prefix in self._forms)

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        self._fill()
        return sorted(self._objects)

    def _fill(self) -> None:
        _load_once(self.room)
        _load_once(GROUP)


def import_all(room: str, path: Iterable[str]) -> None:
    """Import every module of a package so that their decorators run.

    A package's ``__init__`` passes ``__name__, __path__``.
    """
    for module in pkgutil.walk_packages(path, f"{room}."):
        importlib.import_module(module.name)


def first_sentence(plugin: Any) -> str:
    """Return the first sentence of a plug-in's docstring."""
    paragraph = " ".join((inspect.getdoc(plugin) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph)[0]
