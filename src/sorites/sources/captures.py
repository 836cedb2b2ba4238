"""The digests of a capture of ``sorites studio capture``: in its record, and in the log of its photographs.

Datasets in the published layout have neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter

from sorites.core.errors import Damaged
from sorites.io.digests import read_sealed
from sorites.io.listed import RESTORE, listed_files
from sorites.io.logs import Entry, read_entries
from sorites.io.paths import is_file

# The record of a capture, which lists its references and its grid, and the log of its photographs.
RECORD, SHOTS = "capture.json", "shots.jsonl"
REMOVE_LINE = "Delete this line and repeat the capture; its photograph is taken again."


class CaptureEntry(Entry):
    """An event of a log of a capture."""

    capture: str = ""
    """The id of the capture."""


class Stored(CaptureEntry):
    """A photograph in the folder: paths and digests of its file and of the camera's own, if that is kept."""

    file: str
    hash: str
    original: str | None = None
    original_hash: str | None = None

    def digests(self) -> dict[str, str]:
        """Return the digests by path."""
        files = {self.file: self.hash}
        if self.original is not None and self.original_hash is not None:
            files[self.original] = self.original_hash
        return files


class ShotTaken(Stored):
    """A photograph was taken and written."""

    event: Literal["shot"] = "shot"
    sample: str
    params: dict[str, Any]
    bytes: int
    camera_file: str
    camera_bytes: int
    answered: dict[str, Any] = Field(default_factory=dict)
    """Settings that the camera reports."""
    exif: dict[str, Any] = Field(default_factory=dict)
    fixed: dict[str, str] = Field(default_factory=dict)
    """White balance, picture style and quality as the camera reported them after the shot."""
    lamps: dict[str, list[bool | float]] = Field(default_factory=dict)
    """Whether each lamp was on, and its brightness in percent, as the bridge reported it."""
    retries: int = 0
    retakes: int = 0
    """How often the photograph was taken again because it did not match its image."""
    correlation: float | None = None
    """Rank correlation with the image; None for a black or white photograph."""
    suspicious: str | None = None
    """Why the photograph does not match its image."""
    matrix: list[list[float]] | None = None
    """The homography from pixels of the screen to pixels of the frame with which it was rectified."""
    shown: list[float] | None = None
    """Left, top, width and height of the image on the screen, in its pixels."""
    taken: float | None = None
    """When the photograph was taken, if this entry is of a later rectification of the camera's file."""


class ShotReplaced(Stored):
    """A photograph is about to be replaced by this one."""

    event: Literal["replace"] = "replace"


class ShotFailed(CaptureEntry):
    """A photograph failed."""

    event: Literal["failed"] = "failed"
    sample: str
    params: dict[str, Any]
    why: str


class Prepared(CaptureEntry):
    """The settings that stay the same were set; ``deviations`` describes those that the camera refused."""

    event: Literal["prepared"] = "prepared"
    fixed: dict[str, str]
    deviations: list[str]


class Paused(CaptureEntry):
    """The capture waits for the operator."""

    event: Literal["pause"] = "pause"
    why: str


class Calibrated(CaptureEntry):
    """The homography from screen to frame was found again."""

    event: Literal["calibration"] = "calibration"
    camera_file: str
    matrix: list[list[float]]
    markers: int
    off_px: float
    frame: list[int]
    drift_px: float | None = None
    warnings: list[str] = Field(default_factory=list)


class ImageVerdict(CaptureEntry):
    """A reviewer's verdict on an image."""

    event: Literal["verdict"] = "verdict"
    reviewer: str
    sample: str
    flags: list[str] = Field(default_factory=list)
    """What is wrong with all photographs of the image."""
    shots: dict[str, list[str]] = Field(default_factory=dict)
    """What is wrong with single photographs, by their path in the capture."""
    note: str = ""


ShotEvent = ShotTaken | ShotReplaced | ShotFailed | Prepared | Paused | Calibrated
SHOT_EVENTS: TypeAdapter[ShotEvent] = TypeAdapter(Annotated[ShotEvent, Field(discriminator="event")])
VERDICTS: TypeAdapter[ImageVerdict] = TypeAdapter(ImageVerdict)
E = TypeVar("E", bound=CaptureEntry)


def capture_id(root: Path) -> str:
    """Return the random id of a capture, which its logs contain.

    Raises:
        Damaged: Its record is damaged.
    """
    return str(read_sealed(root / RECORD, RESTORE).get("id", ""))


def events(root: Path, name: str, kinds: TypeAdapter[E], remedy: str) -> Iterator[E]:
    """Yield the events of a log of a capture.

    Args:
        root: The folder of the capture.
        name: The log.
        kinds: The events that it may contain: ``SHOT_EVENTS`` or ``VERDICTS``.
        remedy: What to do about a damaged line.

    Raises:
        Damaged: A line is damaged, belongs to another capture, or has other fields.
    """
    id_ = capture_id(root) if is_file(root / RECORD) else ""
    for number, entry in enumerate(read_entries(root / name, kinds, remedy), start=1):
        if entry.capture != id_:
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
    for entry in events(root, SHOTS, SHOT_EVENTS, REMOVE_LINE):
        for name, digest in entry.digests().items() if isinstance(entry, Stored) else ():
            if isinstance(entry, ShotTaken):
                digests[name] = (digest,)
            elif name in digests:
                digests[name] = (*digests[name], digest)
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
