"""Files that are listed with their digests in the sealed ``run.json`` of their folder.

A file may be replaced, and the process may be killed at any moment. The new digest is therefore listed before
the file is written, and the former one is removed from the list afterwards; meanwhile both are accepted. An
empty digest stands for a file that may be absent. The caller holds the lock of the folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from sorites.core.errors import Damaged
from sorites.core.messages import option
from sorites.io.digests import MISMATCH, Verifier, digest_of, read_bytes, read_sealed, write_sealed
from sorites.io.files import write_bytes

# The record of a run folder, and its key with the digests of other files.
RUN, FILES = "run.json", "files"
# Advice for damaged files that cannot be recreated from the run folder.
ANOTHER = f"Restore it from a backup, or choose another {option('out', 'DIR')}."
# The digest of no file.
ABSENT = ""

Digests = tuple[str, ...]


def read_content(folder: Path) -> dict[str, Any]:
    """Return the content of ``run.json``; empty if there is none.

    Raises:
        Damaged: It cannot be read, or it has changed.
    """
    path = folder / RUN
    return read_sealed(path, ANOTHER) if path.exists() else {}


def listed_files(folder: Path) -> dict[str, Digests]:
    """Return the accepted digests of the listed files, by path relative to the folder.

    Raises:
        Damaged: ``run.json`` cannot be read.
    """
    files = read_content(folder).get(FILES, {})
    try:
        return {str(name): tuple(map(str, digests)) for name, digests in files.items()}
    except (AttributeError, TypeError) as error:
        raise Damaged(folder / RUN, f"{FILES}: {error}", ANOTHER) from error


def write_listed(folder: Path, name: str, data: bytes) -> str:
    """Write a file and list its digest; before ``run.json`` exists, the file is only written.

    Args:
        folder: The folder.
        name: Path of the file relative to the folder.
        data: Its content.

    Returns:
        The digest.

    Raises:
        SoritesError: It cannot be written.
    """
    new = digest_of(data)
    begun = (folder / RUN).exists()
    if begun:
        _list(folder, name, (new, *listed_files(folder).get(name, (ABSENT,))))
    write_bytes(data, folder / name)
    if begun:
        _list(folder, name, (new,))
    return new


def delete_listed(folder: Path, name: str) -> None:
    """Delete a file, if it exists, and remove it from the list.

    Raises:
        SoritesError: ``run.json`` cannot be read or written.
    """
    accepted = listed_files(folder).get(name)
    if accepted:
        _list(folder, name, (*accepted, ABSENT))
    (folder / name).unlink(missing_ok=True)
    if accepted:
        _list(folder, name, ())


def _list(folder: Path, name: str, digests: Digests) -> None:
    files = listed_files(folder) | {name: tuple(dict.fromkeys(digests))}
    named = {other: accepted for other, accepted in sorted(files.items()) if accepted}
    write_sealed({**read_content(folder), FILES: named}, folder / RUN)


def read_listed(folder: Path, name: str, remedy: str) -> bytes:
    """Read a listed file and verify it.

    Args:
        folder: The folder.
        name: Path of the file relative to the folder.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It cannot be read, is not listed, or has changed.
    """
    accepted, path = listed_files(folder).get(name), folder / name
    data = read_bytes(path, remedy)
    if accepted is None:
        raise Damaged(path, f"{RUN} does not list it", remedy)
    if digest_of(data) not in accepted:
        raise Damaged(path, MISMATCH if data else "it is empty", remedy)
    return data


def is_listed(folder: Path, name: str) -> bool:
    """Return whether a file is listed; it may be damaged.

    Raises:
        Damaged: ``run.json`` cannot be read.
    """
    accepted = listed_files(folder).get(name, (ABSENT,))
    return ABSENT not in accepted or (len(accepted) > 1 and (folder / name).exists())


def existing(folder: Path, pattern: str, verifier: Verifier, remedy: str) -> list[Path]:
    """Return the listed files that match a pattern, in order, after they were verified.

    Args:
        folder: The folder.
        pattern: A pattern of relative paths, such as "facts/*.parquet".
        verifier: Verifies the files.
        remedy: What to do if one is damaged.

    Raises:
        Damaged: A file is missing or has changed.
    """
    files = {name: accepted for name, accepted in listed_files(folder).items() if fnmatch(name, pattern)}
    for path, problem in listed_problems(folder, files, verifier).items():
        raise Damaged(path, problem, remedy)
    paths = [(folder / name, accepted) for name, accepted in sorted(files.items())]
    return [path for path, accepted in paths if ABSENT not in accepted or path.exists()]


def listed_problems(folder: Path, files: Mapping[str, Digests], verifier: Verifier) -> dict[Path, str]:
    """Return the listed files that are missing or have changed, each with the reason."""
    digests = {folder / name: [*filter(None, accepted)] for name, accepted in files.items()}
    optional = {folder / name for name, accepted in files.items() if ABSENT in accepted}
    found = verifier.problems({path: first for path, (first, *_) in digests.items()})
    return {
        path: why
        for path, why in found.items()
        if not any(not verifier.problems({path: other}) for other in digests[path][1:])
        and (path not in optional or path.exists())
    }
