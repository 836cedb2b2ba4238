"""Folders that are pipelines, and folders that are not."""

from __future__ import annotations

import contextlib
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sorites.core.errors import SoritesError
from sorites.diffusion.pipeline import COMPONENTS, Pipe, check_folder, load, version_of


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
    (copied / "model_index.json").write_text(json.dumps({"_class_name": "KandinskyPipeline"}))
    with pytest.raises(SoritesError, match="StableDiff.*got 'KandinskyPipeline'"):
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
    with pytest.raises(SoritesError, match=r"unet.*safetensors.*pickle"):
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


EVIL = "from pathlib import Path\nPath({!r}).touch()\nclass Evil:\n    pass\n"


@pytest.mark.parametrize(
    ("component", "named"),
    [
        ("unet", ["evil", "Evil"]),
        ("unet", ["evil", "UNet2DConditionModel"]),
        ("tokenizer", ["evil", "Evil"]),
        ("tokenizer_2", ["evil", "Evil"]),
        ("scheduler", ["os", "system"]),
        ("safety_checker", ["evil", "Evil"]),
        ("evil", ["evil", "Evil"]),
        ("unet", ["diffusers", "FluxTransformer2DModel"]),
        ("unet", ["diffusers"]),
        ("unet", ["diffusers", "UNet2DConditionModel", "more"]),
        ("unet", [["diffusers"], "UNet2DConditionModel"]),
    ],
)
def test_code_in_a_folder_is_not_run(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: str, named: list[object]
) -> None:
    never = tmp_path / "never"
    for place in (copied / component, copied, tmp_path):
        place.mkdir(exist_ok=True)
        (place / "evil.py").write_text(EVIL.format(str(never)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    index = json.loads((copied / "model_index.json").read_text())
    (copied / "model_index.json").write_text(json.dumps({**index, component: named}))
    with pytest.raises(SoritesError) as caught:
        load(copied)
    assert caught.value.fields == {"component": component}
    assert not never.exists()


def test_code_that_a_pipeline_or_a_component_asks_for_is_not_run(copied: Path, tmp_path: Path) -> None:
    never = tmp_path / "never"
    for name in ("pipeline.py", "unet/evil.py", "text_encoder/evil.py", "tokenizer/evil.py"):
        (copied / name).write_text(EVIL.format(str(never)))
    for part in ("unet", "text_encoder"):
        config = json.loads((copied / part / "config.json").read_text())
        config["auto_map"] = {"AutoModel": "evil.Evil"}
        (copied / part / "config.json").write_text(json.dumps(config))
    with contextlib.suppress(SoritesError):
        load(copied)
    assert not never.exists()
    index = json.loads((copied / "model_index.json").read_text())
    (copied / "model_index.json").write_text(json.dumps({**index, "_class_name": ["pipeline", "Evil"]}))
    with pytest.raises(SoritesError):
        load(copied, fresh=True)
    assert not never.exists()


def test_the_allowed_classes_exist() -> None:
    """Every class that may be named is one of diffusers or transformers; old names may be gone."""
    import diffusers
    import transformers
    from diffusers.pipelines import stable_diffusion

    libraries = {"diffusers": diffusers, "transformers": transformers, "stable_diffusion": stable_diffusion}
    gone = {"CLIPFeatureExtractor", "CLIPTokenizerFast", "StableDiffusionSafetyChecker"}
    for allowed in COMPONENTS.values():
        for library, names in allowed.items():
            assert [name for name in names - gone if not hasattr(libraries[library], name)] == []


def test_versions_of_diffusers_that_run_code_of_a_folder_are_not_allowed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = [line for line in extras if line.startswith("diffusers")]
    assert wanted
    assert all("0.37.1" not in Requirement(line).specifier for line in wanted)
