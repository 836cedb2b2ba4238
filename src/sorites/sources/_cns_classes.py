"""Read the class numbers of a CNS-Bench folder: ImageNet's, or those of a file of its own."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath

from sorites.errors import SoritesError
from sorites.labels import Labels, imagenet, labels
from sorites.reading.places import is_file, path_of
from sorites.reading.texts import lines, whole

OWN_CLASSES = "classes.tsv"
_NUMBERED = re.compile(r"(\d+)[_ -]")
_WANTED = "one class per line, or a number, a tab and a class"


@functools.cache
def classes() -> dict[int, str]:
    """Return the hundred classes of the benchmark: ImageNet's number to the name it has there."""
    rows = files("sorites.sources").joinpath("cns_classes.tsv").read_text(encoding="utf-8").splitlines()
    return {int(number): name for number, _, name in (row.split("\t") for row in rows[1:])}


@dataclass(frozen=True)
class ClassNumbers:
    """The classes of a folder by number: ``names`` are what labels are found by, ``file`` says where they come from."""

    names: dict[int, str]
    file: Path | None = None
    found: Labels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hundred = {number: name for number, name in classes().items() if self.file is None}
        object.__setattr__(self, "found", labels([hundred.get(number, name) for number, name in self.names.items()]))

    @property
    def allowed(self) -> str:
        """Return the numbers that a picture's class may have, in words."""
        ordered = sorted(self.names)
        if ordered == list(range(len(ordered))):
            return f"a class from 0 to {len(ordered) - 1}"
        return f"a class that {self.file} numbers"

    def of_folder(self, name: str, folder: Path | PurePosixPath) -> int:
        """Return the class of a folder, by the number its name starts with or by its name; both must be one class of a file."""
        numbered = _NUMBERED.match(name + "_")
        first = whole(numbered[1]) if numbered else None
        place = self.found.get(name, _NUMBERED.sub("", name, count=1))
        named = None if place is None else list(self.names)[place]
        if first in self.names and (self.file is None or named in (first, None)):
            return int(first or 0)
        if named is not None and first is None:
            return named
        raise SoritesError(f"{folder}: wanted a class folder like {self._example(named)}")

    def _example(self, named: int | None) -> str:
        if self.file is None:
            return "'022_bald eagle': a class number below 1000 and a name"
        number = next(iter(self.names)) if named is None else named
        return f"'{number:03d}_{self.names[number]}': the number of {self.allowed}, then its name"

    def label(self, number: int, space: Labels, picture: Path) -> int:
        """Return the label that a class has in the label space of a run."""
        name = self.names.get(number)
        label = None if name is None else space.get(name)
        if label is None:
            called = str(number) if self.file is None else f"{number} ({name})"
            why = "CNS-Bench has ImageNet's classes." if self.file is None else "Add --labels FILE, a file that has its name."
            raise SoritesError(f"{picture}: class {called} is not among the labels. {why}")
        return label


def class_numbers(root: Path, option: str | None) -> ClassNumbers:
    """Return how the classes of a folder are numbered: by the file of the option, by its own file, or as in ImageNet."""
    own = root / OWN_CLASSES
    if option is None and not is_file(own):
        return as_imagenet()
    file = own if option is None else path_of(option)
    if not is_file(file):
        raise SoritesError(f"cns_bench: wanted classes=FILE, a text file with {_WANTED}; got {option}, which does not exist")
    names: dict[int, str] = {}
    for place, line in enumerate(text for text in lines(file, _WANTED) if text.strip()):
        number, tab, name = line.partition("\t")
        first, called = (whole(number), name.strip()) if tab else (place, line.strip())
        if first is None or not called or first in names:
            raise SoritesError(f"{file}: wanted {_WANTED}, each number once; got {line[:80]!r}")
        names[first] = called
    if not names:
        raise SoritesError(f"{file}: wanted {_WANTED}; got an empty file")
    return ClassNumbers(names, file)


@functools.cache
def as_imagenet() -> ClassNumbers:
    """Return the numbers of the published set: ImageNet's."""
    return ClassNumbers(dict(enumerate(imagenet().ids)))
