"""Damaged files of a capture are named by ``check``, and no verb reads another image or verdict than was written."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.apps.studio.conftest import GRID, STAGE, capture_of, write_images
from tests.faults.mutations import DAMAGES, damage, duplicate

import sorites
from sorites import core
from sorites.apps.studio.devices import DeviceOptions, Devices, open_devices
from sorites.apps.studio.folder import REVIEWS_NAME, CaptureFolder, open_folder, verdicts
from sorites.apps.studio.references import Reference, references
from sorites.core.errors import Damaged, SoritesError
from sorites.core.labels import labels

SPACE = labels(["n01440764", "n01443537"])
KINDS = (
    "capture.json",
    "shots.jsonl",
    "review.jsonl",
    "es-test/settings.json",
    "es-test/sampled*/*/*.png",
    "es-test/param_control/**/*.JPEG",
    "originals/**/*.JPEG",
)


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    opened = open_devices(DeviceOptions(megapixels=0.06), STAGE)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> list[Reference]:
    images = write_images(tmp_path_factory.mktemp("images"), 1)
    return references(core.source(f"folder:{images}", SPACE), SPACE)


@pytest.fixture(scope="module")
def captured(
    devices: Devices, held: list[Reference], tmp_path_factory: pytest.TempPathFactory
) -> CaptureFolder:
    """Return a capture of one image with all its originals, and one verdict."""
    folder = CaptureFolder(tmp_path_factory.mktemp("captures") / "es", "test", GRID)
    folder.prepare(held)
    capture_of(folder, devices, originals="keep").run(held)
    log = folder.open_log(REVIEWS_NAME)
    log.add("verdict", reviewer="a", sample=held[0].id, flags=["crop"], note="")
    log.close()
    return folder


def file_of(folder: CaptureFolder, kind: str) -> Path:
    return sorted(folder.root.glob(kind))[0]


def content(root: Path) -> str:
    """Return a hash of all that a run and a review see of a capture."""
    hasher = hashlib.sha256()
    for sample in sorites.source(f"imagenet_es:{root}", SPACE):
        hasher.update(repr((sample.id, sample.label, sample.setting)).encode() + sample.load().tobytes())
    folder = open_folder(root)
    hasher.update(repr((sorted(verdicts(folder)), sorted(folder.grid.as_json()))).encode())
    return hasher.hexdigest()


def outcome(root: Path) -> str:
    try:
        return content(root)
    except SoritesError as error:
        return str(error)


def named(folder: CaptureFolder, path: Path) -> None:
    with pytest.raises(Damaged) as caught:
        sorites.check(folder.root)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_named_and_never_read(captured: CaptureFolder, kind: str, damage_kind: str) -> None:
    rng, whole = np.random.default_rng(6), content(captured.root)
    path = file_of(captured, kind)
    for _ in range(3 if damage_kind in ("flip", "truncate") else 1):
        with damage(path, damage_kind, rng, b"foreign content\n"):
            if path.suffix == ".jsonl" and damage_kind in ("truncate", "empty"):
                # Lines that are lost at the end are those of a killed process: their photographs are unknown.
                assert "not part of it" in sorites.check(captured.root) or "0 verdicts" in sorites.check(
                    captured.root
                )
                continue
            named(captured, path)
            read = outcome(captured.root)
            assert read == whole or path.name in read
    assert "unchanged" in sorites.check(captured.root)


@pytest.mark.slow
def test_no_flip_goes_unnoticed(captured: CaptureFolder) -> None:
    rng, whole, count = np.random.default_rng(9), content(captured.root), 0
    for kind in KINDS:
        path = file_of(captured, kind)
        for _ in range(40):
            with damage(path, "flip", rng, b""):
                named(captured, path)
                read = outcome(captured.root)
                assert read == whole or path.name in read
                count += 1
    print(f"{count} flips in a capture, {count} named")


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_named(captured: CaptureFolder, kind: str) -> None:
    with duplicate(file_of(captured, kind)) as copy:
        assert str(copy) in sorites.check(captured.root)


def test_logs_of_another_capture_are_refused(
    captured: CaptureFolder, held: list[Reference], tmp_path: Path
) -> None:
    other = CaptureFolder(tmp_path / "es", "test", GRID)
    other.prepare(held)
    for name in ("shots.jsonl", REVIEWS_NAME):
        shutil.copy(captured.root / name, other.root / name)
        with pytest.raises(Damaged, match="another capture"):
            sorites.check(other.root)
        (other.root / name).unlink()


def test_repeating_the_capture_repairs_photographs_and_references(
    captured: CaptureFolder, devices: Devices, held: list[Reference], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(captured.root, tmp_path / "es"))
    folder = CaptureFolder(root, "test", GRID)
    for kind in KINDS[3:6]:
        path = file_of(folder, kind)
        path.write_bytes(b"x" * path.stat().st_size)
    folder.prepare(held)
    capture = capture_of(folder, devices, originals="keep")
    capture.run(held)
    assert capture.taken == 1
    assert "unchanged" in sorites.check(root)


def test_a_kill_while_a_photograph_is_replaced_does_not_look_like_damage(
    captured: CaptureFolder, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(captured.root, tmp_path / "es"))
    folder = CaptureFolder(root, "test", GRID)
    path, line = next(iter(folder.done().items()))
    log = folder.open_log("shots.jsonl")
    new = b"another photograph"
    log.add("replace", file=path, hash=sorites_digest(new), original=None, original_hash=None)
    log.close()
    assert "unchanged" in sorites.check(root)
    (root / path).write_bytes(new)
    assert "unchanged" in sorites.check(root)
    assert path not in folder.done()
    assert line.file == path


def sorites_digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
