"""Rates that fall with the distance from the head, against timm's own groups."""

from __future__ import annotations

from typing import Any

import pytest

from sorites.core.compute.torch_tools import import_torchvision
from sorites.training.optim import layer_groups, layer_of

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def timm() -> Any:
    import_torchvision()
    return pytest.importorskip("timm")


def named(network: Any, groups: list[dict[str, Any]], rate: str) -> dict[str, tuple[float, float]]:
    """Map each parameter's name to its share of the rate and its weight decay."""
    name_of = {id(weights): name for name, weights in network.named_parameters()}
    return {name_of[id(w)]: (group[rate], group["weight_decay"]) for group in groups for w in group["params"]}


@pytest.mark.parametrize(
    "name",
    ["resnet18", "vit_tiny_patch16_224", "efficientnet_b0", "convnext_atto", "swin_tiny_patch4_window7_224"],
)
def test_groups_of_timms_networks_are_timms(timm: Any, name: str) -> None:
    from timm.optim import param_groups_layer_decay

    network = timm.create_model(name, pretrained=False, num_classes=5)
    theirs = param_groups_layer_decay(network, weight_decay=0.05, layer_decay=0.6)
    wanted = {
        name: (pytest.approx(0.01 * scale), decay)
        for name, (scale, decay) in named(network, theirs, "lr_scale").items()
    }
    assert named(network, layer_groups(network, lr=0.01, weight_decay=0.05, decay=0.6), "lr") == wanted


def plain() -> Any:
    nn = torch.nn
    network = nn.Module()
    network.stem, network.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
    network.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)) for _ in range(3))
    network.head = nn.Linear(4, 2)
    return network


def test_another_network_is_cut_into_its_blocks_and_members() -> None:
    layers = layer_of(plain())
    assert [
        layers[name]
        for name in ("stem.weight", "norm.weight", "blocks.0.0.weight", "blocks.2.1.bias", "head.bias")
    ] == [
        0,
        0,
        1,
        3,
        4,
    ]
    rates = named(network := plain(), layer_groups(network, 1.0, 0.1, 0.5), "lr")
    assert rates["head.weight"] == (1.0, 0.1)
    assert rates["head.bias"] == (1.0, 0.0)
    assert rates["stem.weight"] == (0.5**4, 0.1)


def test_frozen_parameters_are_left_out() -> None:
    network = plain()
    network.stem.requires_grad_(False)
    assert {"stem.weight", "stem.bias"} == {n for n, _ in network.named_parameters()} - named(
        network, layer_groups(network, 1, 0), "lr"
    ).keys()


def test_no_decay_is_one_rate_for_all() -> None:
    network = plain()
    assert {rate for rate, _ in named(network, layer_groups(network, 0.3, 0.0, 1.0), "lr").values()} == {0.3}
    optimiser = torch.optim.SGD(layer_groups(network, 0.3, 0.0), lr=1.0, momentum=0.9)
    assert optimiser.param_groups[-1]["lr"] == 0.3
