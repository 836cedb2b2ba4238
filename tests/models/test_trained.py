"""Trained folders as models of the house."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sorites
from sorites.core import model
from sorites.core.errors import Notice, SoritesError
from sorites.io.digests import read_sealed, write_sealed
from sorites.models.trained import blank, start
from sorites.suites.suite import Suite
from sorites.training.loop import train
from sorites.training.recipe import parse


@pytest.fixture(scope="module")
def folder(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = {"source": f"folder:{photos}", "labels": "found", "validation": 0.2}
    recipe = parse({"name": "r", "epochs": 4, "batch": 4, "optimiser": {"lr": 0.05}, "data": data}, "r")
    return train(recipe, tmp_path_factory.mktemp("trained") / "r")


def torch_logits(folder: Path, images: list[Any]) -> np.ndarray:
    """What the network gives without the house's export: scaled here, normalised here, run by torch."""
    from safetensors.torch import load_file

    record = json.loads((folder / "model.json").read_text())
    network = blank(record["network"], len(record["classes"]))
    network.module.load_state_dict(load_file(folder / "model.safetensors"))
    mean, std = (torch.tensor(record["input"][key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    shown = (
        torch.from_numpy(np.stack([network.wants.prepare(p, False) for p in images])).permute(0, 3, 1, 2)
        / 255
    )
    with torch.inference_mode():
        given: np.ndarray = network.module.eval()((shown - mean) / std)[0].numpy()
    return given


def test_a_run_sees_what_torch_sees(folder: Path, photos: Path, tmp_path: Path) -> None:
    with pytest.warns(Notice, match="was trained on 16 of the 20 samples"):
        table = sorites.run(
            Suite(name="s"), source=f"folder:{photos}", models=[f"trained:{folder}"],
            labels=str(folder / "labels.txt"), shifts=["contrast"], out=tmp_path / "run", keep_features=True,
        )  # fmt: skip
    clean = table.collect().filter(shift="clean").sort("sample_id")
    samples = sorted(sorites.source(f"folder:{photos}"), key=lambda sample: sample.id)
    theirs = torch_logits(folder, [sample.load() for sample in samples])
    shares = np.exp(theirs) / np.exp(theirs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clean["conf"], shares.max(axis=1), atol=1e-4)
    assert clean["pred"].to_list() == theirs.argmax(axis=1).tolist()
    ours = model(f"trained:{folder}")([sample.load() for sample in samples])
    assert ours.logits is not None
    np.testing.assert_allclose(ours.logits, theirs, atol=1e-4)


def test_it_brings_its_classes_and_its_head(folder: Path) -> None:
    made = model(f"trained:{folder}")
    assert made.labels == ("n01440764", "n01443537", "n01484850", "n01491361")
    assert made.head is not None
    assert made.head[0].shape == (4, 128)


def test_its_version_follows_from_weights_recipe_data_and_parent(folder: Path, tmp_path: Path) -> None:
    versions = {model(f"trained:{folder}").version}
    for key, value in (
        ("recipe_hash", "0"),
        ("data_hash", "0"),
        ("parent", {"spec": "small", "weights": "0"}),
    ):
        other = tmp_path / key
        shutil.copytree(folder, other)
        write_sealed({**read_sealed(other / "model.json", ""), key: value}, other / "model.json")
        versions.add(model(f"trained:{other}").version)
    assert len(versions) == 4


def test_it_can_be_a_parent(folder: Path) -> None:
    same = start(f"trained:{folder}", ["n01440764", "n01443537", "n01484850", "n01491361"])
    other = start(f"trained:{folder}", ["a", "b"])
    assert same.parent["weights"] == other.parent["weights"]
    ours, theirs = same.module.state_dict(), other.module.state_dict()
    assert torch.equal(ours["second.conv.weight"], theirs["second.conv.weight"])
    assert (ours["linear.weight"].shape, theirs["linear.weight"].shape) == ((4, 128), (2, 128))


def test_an_unfinished_training_says_how_to_go_on(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "r"
    shutil.copytree(folder, other)
    (other / "model.json").unlink()
    held = read_sealed(other / "train.json", "")
    write_sealed({**held, "command": "sorites train run x --out r"}, other / "train.json")
    with pytest.raises(SoritesError, match="sorites train run"):
        model(f"trained:{other}")


def test_what_is_not_a_trained_folder_is_reported(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="trained model"):
        model(f"trained:{tmp_path}")
    with pytest.raises(SoritesError, match="--out DIR"):
        model("trained")
    for name, said in (
        ("model.json", "model.json cannot be read"),
        ("model.safetensors", "model.safetensors cannot be read"),
    ):
        other = tmp_path / name
        shutil.copytree(folder, other)
        (other / name).write_text('{"format": "x"}')
        with pytest.raises(SoritesError, match=said):
            model(f"trained:{other}")
