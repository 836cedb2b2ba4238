"""Records of folders: sealed JSON files that list the digests of the other files of their folder.

The key ``files`` of a record maps each path in the folder to its digest, or to several accepted ones. A file
may be replaced, and the process may be killed at any moment. The new digest is therefore listed before the
file is written, and the former one is removed from the list afterwards; meanwhile both are accepted. An empty
digest stands for a file that may be absent. The caller holds the lock of the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from sorites.core.errors import Damaged
from sorites.core.messages import option
from sorites.io.digests import MISMATCH, Verifier, digest_of, read_bytes, read_sealed, write_sealed
from sorites.io.files import write_bytes
from sorites.io.paths import is_relative_inside

# The record of a run folder, and the key of a record with the digests of other files.
RUN, FILES = "run.json", "files"
# What to do about a damaged file that nothing can recreate.
RESTORE = "Restore it from a backup."
# The same if the file belongs to an output folder.
ANOTHER = f"Restore it from a backup, or choose another {option('out', 'DIR')}."
# The digest of no file.
ABSENT = ""

Digests = tuple[str, ...]


# Reading records.


def read_content(record: Path, remedy: str = ANOTHER) -> dict[str, Any]:
    """Return the content of a record; empty if there is none.

    Raises:
        Damaged: It cannot be read, or it has changed.
    """
    return read_sealed(record, remedy) if record.exists() else {}


def listed_files(record: Path, remedy: str = ANOTHER) -> dict[str, Digests]:
    """Return the accepted digests of the files that a record lists, by path in its folder.

    Raises:
        Damaged: The record is damaged, or lists something else.
    """
    files = read_content(record, remedy).get(FILES, {})
    if not isinstance(files, dict):
        raise Damaged(record, f"{FILES}: expected digests by path", remedy)
    listed = {name: (found,) if isinstance(found, str) else found for name, found in files.items()}
    for name, found in listed.items():
        if not isinstance(found, list | tuple) or not all(isinstance(digest, str) for digest in found):
            raise Damaged(record, f"{FILES}: expected digests by path", remedy)
        if not is_relative_inside(name):
            raise Damaged(record, f"{FILES}: expected paths inside the folder, got {name!r}", remedy)
    return {name: tuple(found) for name, found in listed.items()}


def digests_of(files: Mapping[str, str], name: str) -> Digests:
    """Return the digest of a file in the list of a typed record, as ``read_verified`` expects it."""
    return (files[name],) if name in files else ()


def is_listed(record: Path, name: str) -> bool:
    """Return whether a file is listed; it may be damaged.

    Raises:
        Damaged: The record cannot be read.
    """
    accepted = listed_files(record).get(name, (ABSENT,))
    return ABSENT not in accepted or (len(accepted) > 1 and (record.parent / name).exists())


# Reading listed files.


def read_listed(record: Path, name: str, remedy: str) -> bytes:
    """Read a listed file and verify it.

    Args:
        record: The record.
        name: Path of the file in the folder.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It cannot be read, is not listed, or has changed.
    """
    return read_verified(record.parent / name, listed_files(record).get(name, ()), remedy)


def read_verified(path: Path, accepted: Digests, remedy: str) -> bytes:
    """Return the content of a file, after it was compared with its digest.

    Args:
        path: The file.
        accepted: The digests that the record of its folder lists; empty if it lists none.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It is missing, has no digest, or does not match it.
    """
    data = read_bytes(path, remedy)
    if not accepted:
        raise Damaged(path, "the record of its folder does not list it", remedy)
    if digest_of(data) not in accepted:
        raise Damaged(path, MISMATCH if data else "it is empty", remedy)
    return data


def existing(record: Path, pattern: str, verifier: Verifier, remedy: str) -> list[Path]:
    """Return the listed files that match a pattern, in order, after they were verified.

    Args:
        record: The record.
        pattern: A pattern of paths in the folder, such as "facts/*.parquet".
        verifier: Verifies the files.
        remedy: What to do if one is damaged.

    Raises:
        Damaged: A file is missing or has changed.
    """
    folder = record.parent
    files = {name: accepted for name, accepted in listed_files(record).items() if fnmatch(name, pattern)}
    for path, problem in listed_problems(folder, files, verifier).items():
        raise Damaged(path, problem, remedy)
    paths = [(folder / name, accepted) for name, accepted in sorted(files.items())]
    return [path for path, accepted in paths if ABSENT not in accepted or path.exists()]


# Replacing listed files.


def write_listed(record: Path, name: str, data: bytes) -> str:
    """Write a file and list its digest; before the record exists, the file is only written.

    Args:
        record: The record.
        name: Path of the file in the folder.
        data: Its content.

    Returns:
        The digest.

    Raises:
        SoritesError: It cannot be written.
    """
    new, begun = digest_of(data), record.exists()
    if begun:
        _list(record, name, (new, *listed_files(record).get(name, (ABSENT,))))
    write_bytes(data, record.parent / name)
    if begun:
        _list(record, name, (new,))
    return new


def delete_listed(record: Path, name: str) -> None:
    """Delete a file, if it exists, and remove it from the list.

    Raises:
        SoritesError: The record cannot be read or written.
    """
    accepted = listed_files(record).get(name)
    if accepted:
        _list(record, name, (*accepted, ABSENT))
    (record.parent / name).unlink(missing_ok=True)
    if accepted:
        _list(record, name, ())


def _list(record: Path, name: str, digests: Digests) -> None:
    files = listed_files(record) | {name: tuple(dict.fromkeys(digests))}
    named = {other: accepted for other, accepted in sorted(files.items()) if accepted}
    write_sealed({**read_content(record), FILES: named}, record)


# Checking folders.


def listed_problems(
    folder: Path, files: Mapping[str, Digests | str], verifier: Verifier | None = None
) -> dict[Path, str]:
    """Return the listed files that are missing or have changed, each with the reason.

    Args:
        folder: The folder.
        files: Accepted digests by path in the folder.
        verifier: Verifies the files; by default all are read.
    """
    verifier = verifier or Verifier(folder, remember=False)
    accepted = {folder / name: (found,) if isinstance(found, str) else found for name, found in files.items()}
    digests = {path: [*filter(None, found)] for path, found in accepted.items()}
    wrong = verifier.problems({path: found[0] for path, found in digests.items() if found})
    return {
        path: why
        for path, why in wrong.items()
        if not any(not verifier.problems({path: other}) for other in digests[path][1:])
        and (ABSENT not in accepted[path] or path.exists())
    }


def refuse(found: Mapping[Path, str], remedy: str, most: int = 10) -> None:
    """Raise an error that names the damaged files that a check found; nothing happens if there are none.

    Args:
        found: The reason by file.
        remedy: What to do.
        most: The number of files to name.

    Raises:
        Damaged: There are damaged files.
    """
    if not found:
        return
    (path, reason), *further = found.items()
    lines = [f"{other} cannot be read: {why}" for other, why in further[: most - 1]]
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    raise Damaged(path, reason, "\n".join([remedy, *lines, *more]))


def others(folder: Path, known: Iterable[str]) -> list[Path]:
    """Return the files of a local folder that are not known, in order; locks and hidden files are known."""
    names = set(known)
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.startswith(".")
        and path.relative_to(folder).as_posix() not in names
    )


def unchanged(whole: str, foreign: list[Path]) -> str:
    """Return the summary of a folder whose files are unchanged, with the files that do not belong to it."""
    more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    return f"{whole}, unchanged" + (f"\nnot part of it: {foreign[0]}{more}" if foreign else "")
