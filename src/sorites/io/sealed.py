"""Records of folders: sealed JSON files that list the digests of the other files of their folder.

The key ``files`` of a record maps each path in the folder to a digest. A file that may be replaced while its
record exists is either left out until it is final, or its name ends in its digest, so that no interrupted
write looks like damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sorites.core.errors import Damaged
from sorites.io.digests import MISMATCH, Verifier, digest_of, read_sealed
from sorites.io.files import local_copies
from sorites.io.paths import is_relative_inside
from sorites.io.validation import problems

# What to do about a damaged file that nothing can recreate.
RESTORE = "Restore it from a backup."

R = TypeVar("R", bound=BaseModel)


def read_typed(path: Path, kind: type[R], remedy: str, context: object = None) -> R:
    """Read a sealed JSON file as a model; ``context`` is passed to its validators.

    Raises:
        Damaged: It cannot be read, does not match its digest, or a field is missing, unknown or of another
            type.
    """
    try:
        return kind.model_validate(read_sealed(path, remedy), context=context)
    except ValidationError as error:
        raise Damaged(path, problems(error, kind)[0], remedy) from error


def listed_files(record: Path, remedy: str) -> dict[str, str]:
    """Return the digests that a record lists, by path in its folder; empty if it lists none.

    Raises:
        Damaged: The record is damaged, or lists something else.
    """
    files = read_sealed(record, remedy).get("files", {})
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise Damaged(record, "files: expected digests by path", remedy)
    outside = next((name for name in files if not is_relative_inside(name)), None)
    if outside is not None:
        raise Damaged(record, f"files: expected paths inside the folder, got {outside!r}", remedy)
    return files


def read_listed(path: Path, digest: str | None, remedy: str) -> bytes:
    """Return the content of a file, after it was compared with its digest.

    Args:
        path: The file.
        digest: The digest that the record of its folder lists; None if it lists none.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It is missing, has no digest, or does not match it.
    """
    try:
        data = local_copies([path])[0].read_bytes()
    except OSError as error:
        raise Damaged(path, _missing(error), remedy) from error
    if digest is None or digest_of(data) != digest:
        reason = "its folder has no digest of it" if digest is None else MISMATCH if data else "it is empty"
        raise Damaged(path, reason, remedy)
    return data


def _missing(error: OSError) -> str:
    return "it is missing" if isinstance(error, FileNotFoundError) else error.strerror or str(error)


def listed_problems(folder: Path, files: Mapping[str, str]) -> dict[Path, str]:
    """Return the files of a folder that differ from their digests, each with the reason; all are read."""
    expected = {folder / name: digest for name, digest in files.items()}
    return Verifier(folder, remember=False).problems(expected)


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
