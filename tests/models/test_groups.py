"""Classifiers of groups of classes: the rule of LAION-C's evaluation, files of groups, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax

from sorites import core
from sorites.core import Box, Model, Outputs
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import imagenet, labels
from sorites.evaluation.run import run
from sorites.models.groups import grouped

MEMBERS = {
    "dog": ("n02085782", "n02085936", "n02086079"),
    "cat": ("n02123045", "tiger cat"),
    "ball": ("n02799071",),
}


def classifier(scale: float = 1.0) -> Model:
    weights = np.random.default_rng(3).normal(size=(3, 1000)).astype(np.float32)

    def forward(images: list[np.ndarray]) -> Outputs:
        means = np.stack([np.asarray(image, np.float32).mean(axis=(0, 1)) for image in images])
        return Outputs(logits=scale * (means / 40) @ weights, features=means)

    return Model("m", forward, labels=imagenet().ids, version="7", scale="logits")


def images(count: int = 6) -> list[np.ndarray]:
    return [np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8) for i in range(count)]


def test_a_group_has_the_mean_probability_of_its_classes() -> None:
    model, shown = grouped(classifier(), MEMBERS, "g"), images()
    given = model(shown).logits
    assert given is not None
    assert model.labels == ("dog", "cat", "ball")
    for row, image in zip(given, shown, strict=True):
        probabilities = softmax(np.asarray(classifier()([image]).logits[0], np.float64))
        means = [
            sum(probabilities[imagenet().find(one)] for one in classes) / len(classes)
            for classes in MEMBERS.values()
        ]
        np.testing.assert_allclose(np.exp(row.astype(np.float64)), means, rtol=1e-5)


def test_the_version_follows_the_groups_and_the_model() -> None:
    other = {**MEMBERS, "cat": ("n02123045",)}
    assert grouped(classifier(), MEMBERS, "g").version != grouped(classifier(), other, "g").version
    assert grouped(classifier(), MEMBERS, "g").head is None


def test_a_file_of_groups_is_a_label_space(tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(MEMBERS))
    space = labels(str(file))
    assert space.ids == ("dog", "cat", "ball")
    assert space.find("n02085936") == space.find("Dog") == 0
    with pytest.raises(UnknownName):
        space.find("n01440764")


@pytest.mark.parametrize(
    "content", ["[]", '{"a": ["x"]}', '{"a": ["x"], "b": ["x"]}', '{"a": "x", "b": ["y"]}']
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "groups.json"
    file.write_text(content)
    with pytest.raises(SoritesError, match=r"groups\.json"):
        labels(str(file))


def test_a_model_without_the_classes_is_refused() -> None:
    with pytest.raises(UnknownName):
        grouped(classifier(), {**MEMBERS, "cow": ("nothing like it",)}, "g")
    detector = Model("d", lambda images: Outputs(boxes=[(Box((0, 0, 1, 1), 0, 0.5),)]), output="boxes")
    with pytest.raises(SoritesError, match="boxes"):
        grouped(detector, MEMBERS, "g")
    for argument in (None, "file.json"):
        with pytest.raises(SoritesError, match="groups:FILE"):
            core.model("groups" if argument is None else f"groups:{argument}")


def test_folders_of_wordnet_ids_are_judged_by_their_group(tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(MEMBERS))
    for name, image in zip(("n02085782", "n02123045", "n02799071"), images(), strict=False):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(image).save(tmp_path / "images" / name / "1.png")
    made = run(
        "laion_c",
        source=f"folder:{tmp_path / 'images'}",
        labels=str(file),
        models=[grouped(classifier(), MEMBERS, "g")],
        shifts=["laion_glitch"],
        levels=[2],
        out=tmp_path / "run",
    )
    rows = made.collect().filter(shift="clean", output="label").sort("sample_id")
    assert rows["label"].to_list() == [0, 1, 2]
    assert rows["correct"].null_count() == 0
