"""Networks to be trained: their heads, their input, and where they start from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.models import lite, trained
from sorites.models.preprocess import Input
from sorites.models.trained import blank, start

TEN = [f"class {i}" for i in range(10)]


def images(wants: Input, count: int) -> list[ImageU8]:
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.normal(0, 9, (50, *wants.size, 3)), axis=2) + 128
    return list(walks.clip(0, 255).astype(np.uint8))


def test_the_small_network_has_the_size_of_the_one_that_was_tried() -> None:
    made = start("small", TEN, images=images)
    weights = sum(p.numel() for p in made.module.parameters())
    assert round(weights / 1000) == 319
    logits, features = made.module(torch.zeros(2, 3, 32, 32))
    assert (logits.shape, features.shape) == ((2, 10), (2, 128))
    assert made.parent == {"spec": "small", "weights": None}


def test_whitened_patches_are_white() -> None:
    """The covariance of filtered patches is the identity, less what the shrinkage takes from
    directions of little variance.
    """
    wants = trained.small_input()
    some = images(wants, 50)
    filters = torch.from_numpy(trained.whitening(some, wants))
    scaled = (np.stack(some).astype(np.float32) / 255 - np.float32(wants.mean)) / np.float32(wants.std)
    white = torch.nn.functional.conv2d(torch.from_numpy(scaled).permute(0, 3, 1, 2), filters, stride=2)
    flat = white.permute(1, 0, 2, 3).reshape(trained.PATCHES, -1).double()
    covariance = torch.cov(flat)
    off = covariance - torch.diag(covariance.diagonal())
    assert off.abs().max() < 1e-3
    assert covariance.diagonal()[-5:].sub(1).abs().max() < 0.05


def test_what_is_random_follows_from_the_seed() -> None:
    one, same, other = (
        start("small", TEN, seed=seed, images=images).module.state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["linear.weight"], other["linear.weight"])
    assert torch.equal(one["whitening"], other["whitening"])


def test_lite_keeps_its_weights_and_gets_a_new_head() -> None:
    made = start("lite0", TEN)
    published = lite.load(0).state_dict()
    kept = {name.removeprefix("network."): value for name, value in made.module.state_dict().items()}
    assert all(
        torch.equal(kept[name], value) for name, value in published.items() if not name.startswith("_fc")
    )
    assert kept["_fc.weight"].shape == (10, 1280)
    assert made.head == ("network._fc",)
    assert made.parent["spec"] == "lite0"
    assert len(made.parent["weights"]) == 32
    same = start("lite0", imagenet().ids).module.state_dict()
    assert torch.equal(same["network._fc.weight"], published["_fc.weight"])


def test_random_weights_are_random() -> None:
    made = start("lite0@random", TEN)
    assert made.parent == {"spec": "lite0@random", "weights": None}
    stem = "_conv_stem.weight"
    assert not torch.equal(made.module.state_dict()[f"network.{stem}"], lite.load(0).state_dict()[stem])


@pytest.mark.slow
def test_timm_by_name_from_a_file_and_without_weights(tmp_path: object) -> None:
    plain = start("timm:resnet18@random", TEN)
    assert (plain.layers, plain.head) == ("timm:resnet18", ("network.fc",))
    inner = {name.removeprefix("network."): value for name, value in plain.module.state_dict().items()}
    save_file(inner, f"{tmp_path}/w.safetensors")
    made = start(f"timm:resnet18@{tmp_path}/w.safetensors", ["a", "b", "c"], seed=3)
    state = made.module.state_dict()
    assert torch.equal(state["network.conv1.weight"], inner["conv1.weight"])
    assert state["network.fc.weight"].shape == (3, 512)
    assert made.parent["weights"] is not None


def test_another_size_is_tried_at_once() -> None:
    assert start("timm:resnet18@random", TEN, size=64).wants.size == (64, 64)
    with pytest.raises(SoritesError, match="images of 40 px"):
        start("timm:vit_tiny_patch16_224@random", TEN, size=40)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("smal", "'smal'. Did you"),
        ("onnx:x.onnx", "train named 'onnx:x.onnx'"),
        ("timm:resnet5O@random", "no timm model named 'resnet5O'"),
        ("trained:/nowhere", "trained model"),
        ("trained", "folder of a trained model"),
        ("lite0:x", "train named 'lite0:x'"),
    ],
)
def test_what_cannot_be_trained_is_reported(spec: str, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        start(spec, TEN)


@pytest.mark.slow
def test_layers_are_built_again_by_their_name() -> None:
    for spec in ("small", "lite0@random", "timm:resnet18@random"):
        made = start(spec, TEN, images=images)
        again = blank(made.layers, len(TEN), made.wants)
        again.module.load_state_dict(made.module.state_dict())
        assert again.head == made.head
