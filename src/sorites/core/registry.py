"""One registry of names per kind of plug-in, filled by decorators and by entry points.

Another package adds plug-ins by naming its module under the entry-point group ``sorites.plugins``;
the module is imported once, the first time any registry is read, and its decorators register the plug-ins.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
import warnings
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from sorites.core.errors import SoritesError, UnknownName, left_by_exit
from sorites.core.torch_tools import mend_torchvision

T = TypeVar("T")
# The entry-point group in which other packages name their modules.
GROUP = "sorites.plugins"

_loading = threading.RLock()
_loaded: set[str] = set()
_rooms: list[str] = []


def _load_once(name: str) -> None:
    """Import a room, or the plug-ins of other packages if ``name`` is ``GROUP``, unless that was
    done before.
    """
    with _loading:
        if name in _loaded:
            return
        _loaded.add(name)
        if name != GROUP:
            importlib.import_module(name)
            return
        points = entry_points(group=GROUP)
        # built-in rooms come first, so that no plug-in can take a built-in name
        for room in _rooms if points else ():
            _load_once(room)
        if points:
            mend_torchvision()
        for point in points:
            try:
                point.load()
            except (Exception, SystemExit) as error:  # a broken plug-in must not stop the tool
                why = left_by_exit(error) if isinstance(error, SystemExit) else error
                warnings.warn(f"plug-in {point.name} ({point.value}) did not load: {why}", stacklevel=2)


class Registry(Generic[T]):
    """The plug-ins of one kind by name. ``room`` is the package whose import registers the built-in ones."""

    def __init__(self, kind: str, room: str) -> None:
        self.kind, self.room = kind, room
        self._objects: dict[str, T] = {}
        _rooms.append(room)

    def add(self, name: str, obj: T) -> T:
        """Register ``object`` under ``name`` and return it; a name that is already taken raises an error."""
        if name in self._objects:
            raise SoritesError(f"the {self.kind} name {name!r} is taken; choose another")
        self._objects[name] = obj
        return obj

    def get(self, name: str) -> T:
        """Return the plug-in of that name; an unknown name raises an error with the nearest known names."""
        self._fill()
        if name not in self._objects:
            raise UnknownName(self.kind, name, self._objects, f'See "sorites list {self.kind}s".')
        return self._objects[name]

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        self._fill()
        return sorted(self._objects)

    def _fill(self) -> None:
        """Import the room and the plug-ins of other packages, once."""
        _load_once(self.room)
        _load_once(GROUP)


def import_all(room: str, path: Iterable[str]) -> None:
    """Import every module of a room so that their decorators run; a room's ``__init__`` passes
    ``__name__, __path__``.
    """
    for module in pkgutil.walk_packages(path, f"{room}."):
        importlib.import_module(module.name)
