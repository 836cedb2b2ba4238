"""CIFAR-10 out of the package's sheets and script; a small archive of the same make stands in for
the real one.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.sources import cifar

TEN = labels(cifar.CLASSES)
EACH = 20
PIXELS = np.random.default_rng(0).integers(0, 256, (EACH * 6, 32, 32, 3), dtype=np.uint8)
NUMBERS = np.arange(EACH * 6) % 10


def archive(folder: Path, numbers: np.ndarray = NUMBERS, sheets: int = 6) -> Path:
    files = {}
    for i, name in enumerate([*(f"data_batch_{n}.png" for n in range(1, 6)), "test_batch.png"][:sheets]):
        buffer = io.BytesIO()
        Pillow.fromarray(PIXELS[i * EACH : (i + 1) * EACH].reshape(EACH, 1024, 3)).save(buffer, "PNG")
        files[name] = buffer.getvalue()
    parts = (numbers[: EACH * 5], numbers[EACH * 5 :])
    said = "".join(f"function(t){{t.exports=[{','.join(map(str, part))}]}}," for part in parts)
    files["index.bundle.js"] = f"exports.tools=[1,2,3];{said}".encode()
    path = folder / "package.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    path = archive(tmp_path)
    monkeypatch.setattr(cifar, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(cifar, "SPLITS", {"train": slice(0, EACH * 5), "test": slice(EACH * 5, EACH * 6)})
    return path


def test_images_and_classes_are_those_of_the_sheets(small: Path) -> None:
    for split, first in (("train", 0), ("test", EACH * 5)):
        samples = cifar.cifar(f"{split},{small}", TEN)
        assert [s.label for s in samples] == NUMBERS[first : first + len(samples)].tolist()
        for i, sample in enumerate(samples):
            np.testing.assert_array_equal(sample.load(), PIXELS[first + i])
        assert {s.split for s in samples} == {split}
        assert all(s.framed for s in samples)
    assert len({s.id for part in ("train", "test") for s in cifar.cifar(f"{part},{small}", TEN)}) == EACH * 6


def test_is_decoded_once(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cifar.cifar(str(small), TEN)
    cifar.read.cache_clear()
    monkeypatch.setattr(cifar, "unpack", lambda path: pytest.fail("decoded again"))
    np.testing.assert_array_equal(cifar.cifar(str(small), TEN)[3].load(), first[3].load())


def test_groups_say_who_is_in_distribution_and_who_is_near(small: Path) -> None:
    groups = {s.attrs[1].value: s.attrs[0].value for s in cifar.cifar(str(small), TEN)}
    assert {name for name, group in groups.items() if group == "id"} == {
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "ship",
    }
    assert {name for name, group in groups.items() if group == "near"} == {"dog", "horse", "truck"}
    assert groups["frog"] == "far"
    assert {s.attrs[1].value for s in cifar.cifar(f"ood,{small}", TEN)} == {
        "dog",
        "frog",
        "horse",
        "truck",
    }
    assert {s.attrs[0].value for s in cifar.cifar(f"train,id,{small}", TEN)} == {"id"}


def test_classes_outside_the_labels_have_none(small: Path) -> None:
    samples = cifar.cifar(str(small), labels(["cat", "frog"]))
    assert {s.attrs[1].value: (s.label, s.split) for s in samples}["cat"] == (0, "test")
    assert {s.attrs[1].value: (s.label, s.split) for s in samples}["ship"] == (None, "unknown")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tset", "train, test,"),
        ("nowhere.tgz", "there is no file nowhere.tgz"),
    ],
)
def test_reports_the_allowed_words(path: str, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        cifar.cifar(path, TEN)


def test_needs_its_classes_among_the_labels() -> None:
    with pytest.raises(SoritesError, match="labels"):
        cifar.cifar(None, labels("imagenet"))


def test_another_file_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "SHA256", "0" * 64)
    with pytest.raises(SoritesError, match="is not the expected file"):
        cifar.cifar(str(small), TEN)


def test_broken_archives_are_reported(tmp_path: Path) -> None:
    (tmp_path / "no.tgz").write_bytes(b"not a tar")
    with pytest.raises(SoritesError, match="is not the archive of"):
        cifar.unpack(tmp_path / "no.tgz")
    with pytest.raises(SoritesError, match="is not the archive of"):
        cifar.unpack(archive(tmp_path, sheets=5))
    with pytest.raises(SoritesError, match="100 and 20 images"):
        cifar.unpack(archive(tmp_path, NUMBERS[:-1]))
