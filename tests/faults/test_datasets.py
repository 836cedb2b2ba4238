"""Damaged files of a built dataset are named by ``check``, and no verb reads another image or label than was written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tests.faults.mutations import DAMAGES, damage, duplicate

import sorites
from sorites import core
from sorites.core import ArrayRef, Sample
from sorites.core.errors import Damaged, SoritesError
from sorites.core.labels import labels
from sorites.datasets.context import build_scattered
from sorites.io.digests import read_sealed, write_sealed
from sorites.suites.suite import Suite

LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]
KINDS = ("sorites.json", "sorites.parquet", "*.png")


@pytest.fixture(scope="module")
def built(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("datasets") / "built"
    build(out, photos)
    return out


def build(out: Path, photos: Path) -> None:
    source = f"folder:{photos}"
    sorites.build(
        Suite(name="s"), out, source=source, shifts=["contrast"], levels=[5], limit=4, labels=LABELS
    )


def file_of(folder: Path, kind: str, rng: np.random.Generator) -> Path:
    found = sorted(folder.rglob(kind))
    return found[int(rng.integers(len(found)))]


def content(folder: Path) -> str:
    """Return a hash of all that a run sees of a dataset."""
    hasher = hashlib.sha256()
    for sample in sorites.source(f"folder:{folder}", labels(LABELS)):
        hasher.update(repr((sample.id, sample.label, sample.shift, sample.setting)).encode())
        hasher.update(sample.load().tobytes())
    return hasher.hexdigest()


def named_or_unchanged(folder: Path, path: Path, whole: str) -> None:
    """Assert that ``check`` names a file, and that reading the dataset fails or gives the same."""
    with pytest.raises(Damaged) as caught:
        sorites.check(folder)
    assert str(path) in str(caught.value)
    read = outcome(folder)
    assert read == whole or path.name in read


def outcome(folder: Path) -> str:
    try:
        return content(folder)
    except SoritesError as error:
        return str(error)


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_named_and_never_read(built: Path, kind: str, damage_kind: str) -> None:
    rng, whole = np.random.default_rng(7), content(built)
    for _ in range(4 if damage_kind in ("flip", "truncate") else 1):
        path = file_of(built, kind, rng)
        with damage(path, damage_kind, rng, b"foreign content"):
            named_or_unchanged(built, path, whole)
    assert "unchanged" in sorites.check(built)


@pytest.mark.slow
def test_no_flip_goes_unnoticed(built: Path) -> None:
    rng, whole, count = np.random.default_rng(8), content(built), 0
    for kind in KINDS:
        for _ in range(100):
            path = file_of(built, kind, rng)
            with damage(path, "flip", rng, b""):
                named_or_unchanged(built, path, whole)
                count += 1
    print(f"{count} flips in a dataset, {count} named")


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_named_and_not_read(built: Path, kind: str) -> None:
    whole = content(built)
    with duplicate(file_of(built, kind, np.random.default_rng(1))) as copy:
        assert str(copy) in sorites.check(built)
        assert content(built) == whole


def test_an_image_in_the_place_of_another_is_named(built: Path) -> None:
    whole = content(built)
    first, second = sorted(built.rglob("*.png"))[:2]
    with damage(first, "foreign", np.random.default_rng(0), second.read_bytes()):
        named_or_unchanged(built, first, whole)


def test_building_again_repairs_images_and_sidecar(built: Path, photos: Path) -> None:
    before = {
        path: path.read_bytes() for path in built.rglob("*.*") if path.suffix in (".png", ".parquet", ".json")
    }
    for path in before:
        if path.name != "sorites.json":
            path.write_bytes(b"")
    build(built, photos)
    assert {path: path.read_bytes() for path in before} == before


def test_an_unfinished_dataset_is_not_read_and_not_called_damaged(built: Path) -> None:
    record = (built / "sorites.json").read_bytes()
    content = read_sealed(built / "sorites.json", "")
    write_sealed({key: value for key, value in content.items() if key != "files"}, built / "sorites.json")
    for read in (lambda: sorites.check(built), lambda: sorites.source(f"folder:{built}")):
        with pytest.raises(SoritesError, match="not finished") as caught:
            read()
        assert not isinstance(caught.value, Damaged)
    (built / "sorites.json").write_bytes(record)


def disc(name: str, label: int) -> Sample:
    alpha = np.zeros((60, 60), np.uint8)
    alpha[20:40, 20:40] = 255
    return Sample(name, ArrayRef(np.full((60, 60, 3), 40 * label, np.uint8)), label, alpha=lambda: alpha)


@pytest.mark.parametrize("name", ["sorites.json", "sorites.parquet", "annotations.json", "images"])
def test_composites_are_checked_and_made_again(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        core.SOURCES._objects, "discs", lambda path, labels: [disc(f"d{i}", i) for i in (1, 3)]
    )
    out, options = tmp_path / "made", {"size": 96, "limit": 2, "drawn": True, "objects": "1..2"}
    build_scattered(out, "discs", **options)  # type: ignore[arg-type]
    path = next((out / name).iterdir()) if name == "images" else out / name
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(Damaged, match=path.name):
        sorites.check(out)
    if name == "sorites.json":
        with pytest.raises(Damaged, match=path.name):
            build_scattered(out, "discs", **options)  # type: ignore[arg-type]
        return
    build_scattered(out, "discs", **options)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert "unchanged" in sorites.check(out)
