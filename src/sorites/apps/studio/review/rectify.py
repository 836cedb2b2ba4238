"""Rectify the photographs of a capture again from the camera's files that it kept.

A photograph keeps the calibration that it was taken with, which is measured before it. If the camera moved
between two calibrations, the next one may fit better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sorites.apps.studio.calibration import decode_photo
from sorites.apps.studio.cameras import Photo
from sorites.apps.studio.folder import CaptureFolder
from sorites.apps.studio.likeness import likeness
from sorites.apps.studio.markers import QUALITY, Matrix, encode_jpeg, rectify
from sorites.apps.studio.screen.server import Shown
from sorites.apps.studio.sheets import images_of
from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.io.decode import decode
from sorites.io.digests import Verifier, digest_of
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.logs import Log
from sorites.sources.captures import (
    REMOVE_LINE,
    SHOT_EVENTS,
    SHOTS,
    Calibrated,
    ShotReplaced,
    ShotTaken,
    events,
)

LOCK = ".sorites.lock"
CHOICES = ("own", "next", "best")


@dataclass(frozen=True)
class Rectified:
    """The result of a rectification: photographs that changed, that stayed the same, and that could not be
    rectified, with the reason.
    """

    changed: tuple[str, ...]
    same: int
    left_out: Mapping[str, str]


def rectify_again(
    folder: CaptureFolder,
    calibration: str = "own",
    quality: int = QUALITY,
    bar: Bar | None = None,
) -> Rectified:
    """Rectify every photograph whose camera file was kept, also those that are damaged or deleted.

    Args:
        folder: The capture.
        calibration: ``own`` uses the calibration before the photograph, ``next`` the one after it, and
            ``best`` the one of the two with which the photograph is more like its reference.
        quality: JPEG quality.
        bar: Progress display, of the photographs whose camera file is there.

    Raises:
        SoritesError: The choice is unknown, or no camera file was kept.
        Damaged: The log or the record is damaged.
    """
    if calibration not in CHOICES:
        raise SoritesError(
            f"{option('calibration', None)}: expected {', '.join(CHOICES)}, got {calibration!r}"
        )
    with locked(folder.root, "capture", LOCK):
        sweep_temporaries(folder.root)
        return _rectify_all(folder, calibration, quality, bar)


def _rectify_all(folder: CaptureFolder, calibration: str, quality: int, bar: Bar | None) -> Rectified:
    logged = list(events(folder.root, SHOTS, SHOT_EVENTS, REMOVE_LINE))
    shots = {entry.file: entry for entry in logged if isinstance(entry, ShotTaken)}
    calibrations = [entry for entry in logged if isinstance(entry, Calibrated)]
    references = dict(images_of(folder))
    left_out, usable = _usable(folder, shots, references)
    if not usable:
        reason = next(iter(left_out.values()), "there are no photographs")
        raise SoritesError(f"no photograph of {folder.root} can be rectified again: {reason}")
    tick = bar("photographs", len(usable)) if bar else lambda n: None
    log, changed = folder.open_log(SHOTS), list[str]()
    try:
        for shot in usable:
            reference = decode(references[_image_of(shot.file)])
            again = _rectified(folder, shot, reference, _matrices(shot, calibrations, calibration), quality)
            if again is not None:
                _replace(folder, again[0], again[1], log)
                changed.append(shot.file)
            tick(1)
    finally:
        log.close()
    return Rectified(tuple(changed), len(usable) - len(changed), left_out)


def _image_of(path: str) -> str:
    """Return class and stem of the image that a photograph shows."""
    return "/".join(path.rpartition(".")[0].split("/")[-2:])


def _usable(
    folder: CaptureFolder, shots: Mapping[str, ShotTaken], references: Mapping[str, Path]
) -> tuple[dict[str, str], list[ShotTaken]]:
    """Return why photographs cannot be rectified again, and the others."""
    kept = {s.original: s.original_hash for s in shots.values() if s.original and s.original_hash}
    damaged = Verifier(folder.root).problems({folder.root / name: hash_ for name, hash_ in kept.items()})
    left_out: dict[str, str] = {}
    for path, shot in shots.items():
        if shot.original is None:
            left_out[path] = "the camera's file was not kept"
        elif folder.root / shot.original in damaged:
            left_out[path] = f"{shot.original} is damaged"
        elif shot.matrix is None or shot.shown is None:
            left_out[path] = "its calibration is not in the log, which an earlier version wrote"
        elif _image_of(path) not in references:
            left_out[path] = "its image is missing; the command that took the capture writes it again"
    return left_out, [shot for path, shot in shots.items() if path not in left_out]


def _matrices(shot: ShotTaken, calibrations: list[Calibrated], choice: str) -> list[Matrix]:
    """Return the homographies to try, the photograph's own one first where it is among them."""
    own = np.array(shot.matrix, np.float64)
    taken = shot.time if shot.taken is None else shot.taken
    # Times of the log are rounded, so a calibration may have the time of the photograph before it.
    not_before = [np.array(entry.matrix, np.float64) for entry in calibrations if entry.time >= taken]
    later = [matrix for matrix in not_before if not np.array_equal(matrix, own)][:1]
    return [own] if choice == "own" or not later else later if choice == "next" else [own, *later]


def _rectified(
    folder: CaptureFolder, shot: ShotTaken, reference: ImageU8, matrices: list[Matrix], quality: int
) -> tuple[ShotTaken, bytes] | None:
    """Return the new log entry and content of a photograph; None if its file has this content already."""
    assert shot.original is not None
    assert shot.shown is not None
    original = (folder.root / shot.original).read_bytes()
    frame = decode_photo(Photo(shot.camera_file, original))
    left, top, width, height = shot.shown
    shown = Shown(0, (0, 0), left, top, width, height)
    metered = shot.params.get("mode") == "auto"
    size = (reference.shape[1], reference.shape[0])
    tried = []
    for matrix in matrices:
        image = rectify(frame, matrix, shown, size)
        tried.append((likeness(image, reference, metered=metered), image, matrix))
    match, image, matrix = max(tried, key=lambda found: found[0].correlation or 0.0)
    data = encode_jpeg(image, original, quality)
    if digest_of(data) == shot.hash and _content(folder.root / shot.file) == data:
        return None
    entry = shot.having(
        hash=digest_of(data),
        bytes=len(data),
        taken=shot.time if shot.taken is None else shot.taken,
        matrix=matrix.tolist(),
        correlation=None if match.correlation is None else round(match.correlation, 4),
        suspicious=match.problem,
    )
    return entry, data


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _replace(folder: CaptureFolder, shot: ShotTaken, data: bytes, log: Log) -> None:
    """Write a photograph; its new digest is logged before and after."""
    log.write(
        ShotReplaced(file=shot.file, hash=shot.hash, original=shot.original, original_hash=shot.original_hash)
    )
    write_bytes(data, folder.root / shot.file)
    log.write(shot)
