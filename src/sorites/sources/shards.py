"""Sources in several files: how the files are found, and the registry of those whose files can be read
independently.
"""

from __future__ import annotations

import fnmatch
import glob
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites.core import Sample
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.io.paths import entries, is_dir, is_file, path_of, reason
from sorites.io.readers import parse_integer
from sorites.io.stores import StorePath, to_path

# The maximum number of files per pattern.
MAX_FILES = 100_000

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")


@dataclass(frozen=True)
class Shard:
    """A named part of a source, and the function that reads its samples."""

    name: str
    read: Callable[[], Iterable[Sample]]


# Maps the name of a source to a function that lists its shards, given the path and the labels.
SHARDED: dict[str, Callable[[str | None, Labels], Sequence[Shard]]] = {}


def find(spec: str, suffix: str) -> list[Path]:
    """Return the files of a source: a file, those of a folder, or those of a pattern such as
    ``a-{000..012}.tar`` or ``a-*.tar``.

    An existing name is taken literally, even if it contains special characters; so are the existing
    folders of a pattern.

    Args:
        spec: The path as typed.
        suffix: The file name extension in folders, such as ``.tar``.

    Raises:
        SoritesError: There are no files, or two of the same name.
    """
    path = path_of(spec)
    if isinstance(path, StorePath):
        return _on_store(spec, path, suffix)
    if is_file(path):
        return [path]
    if is_dir(path):
        names = [Path(entry.path) for entry in entries(path)]
        found = [name for name in names if name.suffix == suffix] or [
            # Compressed ones are found too, so that a message can say how to unpack them.
            name
            for name in names
            if f"{suffix}." in name.name
        ]
    else:
        found = [file for name in expand(str(path)) for file in _glob(name)]
    return _check_names(spec, found, suffix)


def _on_store(spec: str, path: StorePath, suffix: str) -> list[Path]:
    """Return the files of a path on a store, with one listing per folder."""
    names = expand(str(path))
    if len(names) == 1 and not glob.has_magic(to_path(names[0]).name):
        path = StorePath(names[0])
        inside: list[Path] = [] if path.suffix == suffix else list(path.glob(f"*{suffix}"))
        return _check_names(spec, inside or ([path] if path.is_file() else []), suffix)
    listed = {
        folder: {file.name: file for file in to_path(folder).glob("*")}
        for folder in {str(to_path(name).parent) for name in names}
    }
    found: list[Path] = []
    for name in map(to_path, names):
        available = listed[str(name.parent)]
        matches = [available[file] for file in sorted(available) if fnmatch.fnmatchcase(file, name.name)]
        if not matches:
            raise SoritesError(f"no file at {name}")
        found += matches
    return _check_names(spec, found, suffix)


def _check_names(spec: str, found: list[Path], suffix: str) -> list[Path]:
    """Return the files; raise an error if there are none, or two of the same name."""
    if not found:
        raise SoritesError(
            f"no {suffix} files at {spec}: expected a file, a folder of files, or a pattern like"
            f" a-{{000..012}}{suffix}"
        )
    name, times = Counter(file.name for file in found).most_common(1)[0]
    if times > 1:
        raise SoritesError(f"{spec} matches {times} files called {name}; rename them")
    return found


def expand(pattern: str) -> list[str]:
    """Expand braces like a shell: ``{08..10}`` counts with leading zeros, ``{a,b}`` lists."""
    parts: list[list[str]] = []
    end = 0
    for match in _BRACES.finditer(pattern):
        parts += [[pattern[end : match.start()]], _choices(match)]
        end = match.end()
    parts.append([pattern[end:]])
    names = list(itertools.islice(map("".join, itertools.product(*parts)), MAX_FILES + 1))
    if len(names) > MAX_FILES:
        raise SoritesError(f"{pattern} matches more than {MAX_FILES:,} files")
    return names


def _choices(match: re.Match[str]) -> list[str]:
    first, last, listed = match.groups()
    if listed is not None:
        return list(listed.split(","))
    low, high = parse_integer(first), parse_integer(last)
    if low is None or high is None or abs(high - low) > MAX_FILES:
        raise SoritesError(f"{match[0][:60]} matches more than {MAX_FILES:,} files")
    step = 1 if high >= low else -1
    return [str(i).zfill(len(first)) for i in range(low, high + step, step)]


def _glob(name: str) -> list[Path]:
    """Return the files that match a pattern; an existing file is taken literally."""
    if is_file(name):
        return [Path(name)]
    if not glob.has_magic(name):
        raise SoritesError(f"no file at {name}")
    literal = next((folder for folder in Path(name).parents if is_dir(folder)), Path())
    pattern = Path(name).relative_to(literal)
    try:
        return sorted(literal / match for match in glob.glob(str(pattern), root_dir=literal, recursive=True))
    except (ValueError, OSError, re.error, RecursionError) as error:
        raise SoritesError(f"{name} is not a valid file name pattern: {reason(error)}") from error
