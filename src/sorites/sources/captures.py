"""The digests of a capture of ``sorites studio capture``: in its record, and in the log of its photographs.

Datasets in the published layout have neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sorites.core.errors import Damaged
from sorites.io.digests import read_sealed
from sorites.io.listed import RESTORE, listed_files
from sorites.io.logs import read_log
from sorites.io.paths import is_file

# The record of a capture, which lists its references and its grid, and the log of its photographs.
RECORD, SHOTS = "capture.json", "shots.jsonl"
REMOVE_LINE = "Delete this line and repeat the capture; its photograph is taken again."


def capture_id(root: Path) -> str:
    """Return the random id of a capture, which its logs contain.

    Raises:
        Damaged: Its record is damaged.
    """
    return str(read_sealed(root / RECORD, RESTORE).get("id", ""))


def events(root: Path, name: str, remedy: str) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a log of a capture.

    Raises:
        Damaged: A line is damaged, or belongs to another capture.
    """
    id_ = capture_id(root) if is_file(root / RECORD) else ""
    for number, entry in enumerate(read_log(root / name, remedy), start=1):
        if entry.get("capture", "") != id_:
            raise Damaged(root / name, f"line {number}: it belongs to another capture", remedy)
        yield entry


def photograph_digests(root: Path) -> dict[str, tuple[str, ...]]:
    """Return the accepted digests of photographs and originals, by path in the capture.

    Before a file is replaced, the log has a line with its new digest; until the file is logged as taken, both
    are accepted. The last one is that of the photograph.

    Raises:
        Damaged: The log or the record is damaged.
    """
    digests: dict[str, tuple[str, ...]] = {}
    for entry in events(root, SHOTS, REMOVE_LINE):
        files = {entry.get("file"): entry.get("hash"), entry.get("original"): entry.get("original_hash")}
        for name, digest in files.items():
            if name is not None and entry["event"] == "shot":
                digests[str(name)] = (str(digest),)
            elif name in digests and entry["event"] == "replace":
                digests[str(name)] = (*digests[str(name)], str(digest))
    return digests


def image_digests(root: Path) -> dict[str, str]:
    """Return the digests of the images of a capture by path, for reading; empty for published datasets.

    A photograph that was being replaced when a capture was killed has none.
    """
    if not is_file(root / RECORD):
        return {}
    taken = {name: found[0] for name, found in photograph_digests(root).items() if len(found) == 1}
    listed = listed_files(root / RECORD, RESTORE)
    return {**{name: found[0] for name, found in listed.items()}, **taken}
