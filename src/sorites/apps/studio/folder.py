"""The folder of a capture: the published ImageNet-ES layout, the log, the originals and the reviews."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image as Pillow

from sorites.apps.serving import new_token
from sorites.apps.studio.cameras import Photo
from sorites.apps.studio.references import Reference
from sorites.core import camera_grid as es_grid
from sorites.core.camera_grid import Grid, Params
from sorites.core.errors import Damaged, SoritesError
from sorites.core.messages import command, option
from sorites.io.digests import Verifier, digest_of, digest_of_file, read_sealed, write_sealed
from sorites.io.files import read_json, write_bytes
from sorites.io.listed import FILES, RESTORE, Digests, listed_files, read_listed, write_listed
from sorites.io.logs import Log
from sorites.sources.captures import (
    RECORD,
    REMOVE_LINE,
    SHOT_EVENTS,
    SHOTS,
    VERDICTS,
    ImageVerdict,
    ShotTaken,
    capture_id,
    events,
)
from sorites.sources.papers.imagenet_es import PARTS

# Originals: keep the camera's files, recompress them, or drop them
CHOICES = ("keep", "jpeg", "drop")
FOLDER = "originals"
QUALITY = 80


def check_originals(choice: str) -> str:
    """Return the choice if it is valid."""
    if choice not in CHOICES:
        raise SoritesError(f"{option('originals', None)}: expected {', '.join(CHOICES)}, got {choice!r}")
    return choice


def original_of(path: str, photo: Photo, choice: str) -> dict[str, bytes]:
    """Return the content of the camera's file of a photograph by its path relative to the capture; empty if
    it is dropped.
    """
    if choice == "drop":
        return {}
    return {f"{FOLDER}/{path}": photo.data if choice == "keep" else _recompress(photo.data)}


def _recompress(data: bytes) -> bytes:
    file = io.BytesIO()
    with Pillow.open(io.BytesIO(data), formats=("JPEG",)) as opened:
        opened.save(file, "JPEG", quality=QUALITY, exif=opened.getexif())
    return file.getvalue()


SETUP = "studio.json"
ENDING = ".JPEG"


@dataclass(frozen=True)
class Shot:
    """One expected photograph: a reference at a setting, and its folder relative to the capture."""

    reference: Reference
    params: Params
    place: str

    @property
    def path(self) -> str:
        """The path of the rectified photograph."""
        return f"{self.place}/{self.reference.folder}/{self.reference.stem}{ENDING}"


@dataclass(frozen=True)
class CaptureFolder:
    """The folder of a capture."""

    root: Path
    split: str
    grid: Grid

    @property
    def part(self) -> str:
        """The folder of the split in the layout, es-test or es-val."""
        return next(part.folder for part in PARTS if part.split == self.split)

    @property
    def log(self) -> Path:
        """The path of the log."""
        return self.root / SHOTS

    def open_log(self, name: str) -> Log:
        """Open a log of the capture to add to it."""
        return Log(self.root / name, capture=capture_id(self.root))

    def prepare(self, references: list[Reference]) -> None:
        """Write the references and the grid, and list their digests in the record.

        A damaged file is written again if its content is still known.

        Raises:
            SoritesError: The folder was started with another grid.
            Damaged: The record is damaged, or a file that cannot be written again.
        """
        record = self.root / RECORD
        before = read_sealed(record, RESTORE) if record.exists() else {"id": new_token()}
        listed = listed_files(record, RESTORE)
        grid = json.dumps(self.grid.as_json(), indent=1).encode()
        name = f"{self.part}/{es_grid.GRID_FILE}"
        if digest_of(grid) not in listed.get(name, (digest_of(grid),)):
            self._check_extends(name)
            write_listed(record, name, grid)
            before, listed = read_sealed(record, RESTORE), listed_files(record, RESTORE)
        where = next(part.references for part in PARTS if part.split == self.split)
        files = {name: self._place(name, grid, listed)}
        for reference in references:
            data, ending = reference.file
            name = f"{self.part}/{where}/{reference.folder}/{reference.stem}{ending}"
            files[name] = self._place(name, data, listed)
        if listed != (now := {**listed, **files}):
            write_sealed({**before, FILES: {name: digests[0] for name, digests in now.items()}}, record)

    def _check_extends(self, name: str) -> None:
        """Check that the grid differs from that of the folder by more automatic shots only."""
        read_listed(self.root / RECORD, name, RESTORE)
        earlier = es_grid.captured_grid(self.root / self.part, self.split)
        if earlier.lights != self.grid.lights:
            raise SoritesError(
                f"{self.root} was started {'with' if len(earlier.lights) > 1 else 'without'} lamps; use the"
                f" same {option('lamps', None)}, or another {option('out', 'DIR')}"
            )
        if replace(earlier, shots=self.grid.shots) != self.grid or self.grid.shots < earlier.shots:
            raise SoritesError(
                f"{self.root} was started with another grid ({name}); use the same {option('grid', None)}, at"
                f" least {option('auto', str(earlier.shots))}, or another {option('out', 'DIR')}"
            )

    def _place(self, name: str, data: bytes, listed: Mapping[str, Digests]) -> Digests:
        """Write a file unless it is as listed, and return its digest."""
        path, accepted = self.root / name, listed.get(name, (digest_of(data),))
        if not path.exists() or name not in listed or digest_of_file(path) not in accepted:
            if digest_of(data) not in accepted:
                raise Damaged(path, "it is missing or changed, and its source has changed since", RESTORE)
            write_bytes(data, path)
        return accepted

    def shots(self, reference: Reference, light: str) -> Iterator[Shot]:
        """Yield the expected photographs of an image under a light, manual settings first."""
        for params, place in self.grid.under(light):
            yield Shot(reference, params, f"{self.part}/{place}")

    def done(self) -> dict[str, ShotTaken]:
        """Return the last log entry of each photograph whose file, and the original, have the logged digests.

        Raises:
            Damaged: The log is damaged.
        """
        entries = {
            entry.file: entry
            for entry in events(self.root, SHOTS, SHOT_EVENTS, REMOVE_LINE)
            if isinstance(entry, ShotTaken)
        }
        expected = {
            self.root / name: digest for entry in entries.values() for name, digest in entry.digests().items()
        }
        changed = Verifier(self.root).problems(expected)
        return {
            path: entry
            for path, entry in entries.items()
            if not any(self.root / name in changed for name in entry.digests())
        }

    def setup(self) -> dict[str, Any]:
        """Return the token and port of the screen, which stay the same when a capture is resumed."""
        file = self.root / SETUP
        try:
            stored = read_json(file)
            return {"token": str(stored["token"]), "port": int(stored["port"])}
        except (SoritesError, KeyError, TypeError, ValueError):
            return {"token": new_token(), "port": 0}

    def keep_setup(self, token: str, port: int) -> None:
        """Store the token and port of the screen in a file that only the owner can read."""
        file = self.root / SETUP
        write_bytes(json.dumps({"token": token, "port": port}).encode(), file)
        file.chmod(0o600)


def open_folder(root: Path) -> CaptureFolder:
    """Return the capture in a folder.

    Raises:
        SoritesError: There is none.
        Damaged: Its record or its grid is damaged.
    """
    for part in PARTS:
        if (root / RECORD).is_file() and part.captured and (root / part.folder / es_grid.GRID_FILE).is_file():
            name = f"{part.folder}/{es_grid.GRID_FILE}"
            read_listed(root / RECORD, name, RESTORE)
        if part.captured and (root / part.folder / es_grid.GRID_FILE).is_file():
            return CaptureFolder(root, part.split, es_grid.captured_grid(root / part.folder, part.split))
    raise SoritesError(
        f"{root} contains no capture. Create one with {command('studio capture', out=root)} or"
        f" {command('studio demo')}"
    )


# Reviews
REVIEWS_NAME = "review.jsonl"
REMOVE_VERDICT = "Delete this line and review the image again."
# Issues documented by the paper's reviewers.
KINDS = {"crop": "crop error", "missed": "missed image", "label": "label mismatch"}


def verdicts(folder: CaptureFolder) -> dict[tuple[str, str], ImageVerdict]:
    """Return the last verdict of every reviewer on every image."""
    found = events(folder.root, REVIEWS_NAME, VERDICTS, REMOVE_VERDICT)
    return {(verdict.reviewer, verdict.sample): verdict for verdict in found}


# Flags that a new rectification of the camera's file may mend; the others need a new photograph.
MENDED_BY_RECTIFYING = frozenset({"crop"})


def flagged(folder: CaptureFolder) -> dict[str, frozenset[str]]:
    """Return the flags of photographs by path: of the photograph itself or of its image, by any reviewer.

    A flag counts until the photograph is taken again; a crop error also until it is rectified again.
    """
    done, by_sample = folder.done(), dict[str, list[str]]()
    for path, shot in done.items():
        by_sample.setdefault(shot.sample, []).append(path)
    found: dict[str, frozenset[str]] = {}
    for (_, sample), verdict in verdicts(folder).items():
        for path in by_sample.get(sample, ()):
            kinds = {*verdict.flags, *verdict.shots.get(path, ())}
            kinds = {kind for kind in kinds if _mended(done[path], kind) < verdict.time}
            if kinds:
                found[path] = found.get(path, frozenset()) | kinds
    return found


def _mended(shot: ShotTaken, kind: str) -> float:
    """Return when what a flag is about was last made anew."""
    return shot.time if shot.taken is None or kind in MENDED_BY_RECTIFYING else shot.taken


def suspicious(folder: CaptureFolder) -> dict[str, str]:
    """Return the photographs that do not match their reference although they were taken again, by path, with
    the reason.
    """
    return {path: shot.suspicious for path, shot in folder.done().items() if shot.suspicious}


def undecided(folder: CaptureFolder) -> dict[str, str]:
    """Return the suspicious photographs that no reviewer has seen since they were taken, with the reason.

    What a reviewer has seen and not flagged is right: automatic exposure may leave an image all white.
    """
    seen = dict[str, float]()
    for (_, sample), verdict in verdicts(folder).items():
        seen[sample] = max(seen.get(sample, 0.0), verdict.time)
    done = folder.done()
    return {
        path: reason
        for path, reason in suspicious(folder).items()
        if seen.get(done[path].sample, 0.0) <= _mended(done[path], "missed")
    }


def to_retake(folder: CaptureFolder) -> frozenset[str]:
    """Return the paths of the flagged photographs, and of suspicious ones that no reviewer has seen."""
    return frozenset(flagged(folder).keys() | undecided(folder).keys())
