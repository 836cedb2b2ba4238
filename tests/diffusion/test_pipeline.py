"""Folders that are pipelines, and folders that are not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.diffusion.pipeline import Pipe, check_folder, load, version_of


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "pipe"))


def test_a_pipeline_says_what_it_is(tiny: Pipe) -> None:
    assert (tiny.kind, tiny.side) == ("sd", 16)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="does not exist"):
        load(tmp_path / "nowhere")


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no model_index.json"):
        load(tmp_path)


def test_another_kind_of_pipeline_is_refused(copied: Path) -> None:
    (copied / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    with pytest.raises(SoritesError, match="got 'FluxPipeline'"):
        load(copied)


def test_a_missing_part_is_named(copied: Path) -> None:
    shutil.rmtree(copied / "vae")
    with pytest.raises(SoritesError, match="no folder vae"):
        load(copied)


def test_pickled_weights_are_refused_unread(copied: Path, tmp_path: Path) -> None:
    never = tmp_path / "never"
    (copied / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    (copied / "unet" / "diffusion_pytorch_model.bin").write_bytes(
        f"cos\nsystem\n(S'touch {never}'\ntR.".encode()
    )
    with pytest.raises(SoritesError, match=r"a pickle"):
        load(copied)
    assert not never.exists()


def test_damaged_weights_are_an_error_in_words(copied: Path) -> None:
    (copied / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(SoritesError, match="cannot load the pipeline"):
        load(copied)


def test_the_version_follows_from_the_weights(copied: Path, tiny: Pipe) -> None:
    assert version_of(copied) == tiny.version
    file = copied / "unet" / "diffusion_pytorch_model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert version_of(copied) != tiny.version


def test_weights_that_are_there_only_in_half_precision_are_read(copied: Path) -> None:
    for file in copied.rglob("*.safetensors"):
        file.rename(file.with_name(file.name.replace(".safetensors", ".fp16.safetensors")))
    assert check_folder(copied)[0] == "sd"
    assert load(copied).side == 16
