"""Grad-CAM and guided backpropagation against captum, and against closed forms where captum has none."""

from __future__ import annotations

import functools
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.conftest import scene
from tests.training.networks import small

from sorites import core
from sorites.core import Model, Outputs
from sorites.core.errors import SoritesError
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model
from sorites.training.explain import grad_cam, guided_backprop, guided_grad_cam
from sorites.training.explain.gradcam import explained, layers, network_of

torch = pytest.importorskip("torch")

IMAGES = [scene(i, 224, 224) for i in range(3)]


def inputs(model: Model, images: Any = IMAGES) -> Any:
    return torch.from_numpy(np.stack([model.prepare(image, False) for image in images]).astype(np.float32))


def theirs(model: Model, layer: Any, targets: list[int], images: Any = IMAGES) -> Any:
    captum = pytest.importorskip("captum.attr")
    whole = captum.LayerGradCam(lambda x: model.module(x)[0], layer)
    given = inputs(model, images).requires_grad_()
    return whole.attribute(given, torch.tensor(targets), relu_attributions=True)[:, 0].detach().numpy()


def resnet() -> Model:
    """A ResNet-18 of timm with random weights, at 96 px."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    from sorites.core.compute.torch_tools import import_with_torchvision as beside_torchvision
    from sorites.models.timm import _parts
    from sorites.models.torch_module import _graph, with_features

    torch.manual_seed(0)
    library = beside_torchvision("timm", "the test", "timm")
    network = library.create_model("resnet18", pretrained=False, num_classes=10).eval()
    wants = Input(size=(96, 96))
    graph = _graph(with_features(network, _parts).eval(), wants)
    return Model("resnet", lambda images: Outputs(), wants.prepare, version="1", module=graph)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "last"), [("lite0", "_swish"), ("resnet", "layer4")])
def test_grad_cam_is_that_of_captum(name: str, last: str) -> None:
    if name == "lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    model = core.model("lite0") if name == "lite0" else resnet()
    targets = [1, 5, 9]
    maps, _, layer = explained(model, IMAGES, targets)
    assert layer == last
    module = dict(network_of(model.module).named_modules())[last]
    ours, captum = grad_cam(model, IMAGES, targets), theirs(model, module, targets)
    assert ours.shape == (3, 7, 7) if name == "lite0" else (3, 3, 3)
    assert ours.max() > 1e-3
    assert np.abs(ours - captum).max() <= 1e-5 * max(1.0, float(np.abs(captum).max()))
    assert maps.shape == (3, *inputs(model).shape[1:3])


@pytest.mark.slow
def test_any_layer_can_be_named_and_a_wrong_name_lists_them() -> None:
    model = resnet()
    module = dict(network_of(model.module).named_modules())["layer2.0.bn1"]
    ours = grad_cam(model, IMAGES, [0, 1, 2], layer="layer2.0.bn1")
    assert ours.shape == (3, 12, 12)
    assert np.allclose(ours, theirs(model, module, [0, 1, 2]), atol=1e-5)
    with pytest.raises(SoritesError, match="'layer5'. Did you mean layer"):
        grad_cam(model, IMAGES, layer="layer5")


@pytest.mark.parametrize("functional", [False, True])
def test_guided_backprop_is_captums_for_relu(functional: bool) -> None:
    captum = pytest.importorskip("captum.attr")
    from torch import nn

    class Net(nn.Module):
        """Two blocks with ReLU, as modules or as functions, the second in place."""

        def __init__(self, functional: bool) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.one, self.two = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, 2)
            self.last = nn.Linear(8, 4)
            self.functional = functional
            self.first, self.second = nn.ReLU(), nn.ReLU()

        def forward(self, x: Any) -> Any:
            x = x.permute(0, 3, 1, 2)
            x = torch.relu(self.one(x)) if self.functional else self.first(self.one(x))
            x = nn.functional.relu(self.two(x), inplace=True) if self.functional else self.second(self.two(x))
            return (self.last(x.mean((2, 3))),)

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(False)

        def forward(self, x: Any) -> Any:
            return self.net(x)[0]

    model = Model("net", lambda images: Outputs(), version="1", module=Net(functional).eval())
    images = [scene(i, 48, 48) for i in range(3)]
    whole = First().eval()
    with pytest.warns(UserWarning, match="ReLU"):
        wanted = captum.GuidedBackprop(whole).attribute(
            inputs(model, images).requires_grad_(), torch.tensor([0, 1, 2])
        )
    assert np.abs(wanted.detach().numpy()).max() > 1e-5
    assert np.allclose(guided_backprop(model, images, [0, 1, 2]), wanted.detach().numpy(), atol=1e-9)


@pytest.mark.parametrize("name", ["ReLU", "ReLU6", "SiLU", "GELU", "Hardswish"])
def test_the_rule_of_each_activation_in_closed_form(name: str) -> None:
    """One pixel, one activation f, one weight w: the guided gradient is max(w, 0) f'(x) where f(x)
    is positive.
    """
    from torch import nn

    slope = {
        "ReLU": lambda x: 1.0 * (x > 0),
        "ReLU6": lambda x: 1.0 * (0 < x < 6),
        "SiLU": lambda x: 1 / (1 + np.exp(-x)) * (1 + x * (1 - 1 / (1 + np.exp(-x)))),
        "GELU": lambda x: 0.5 * (1 + _erf(x / np.sqrt(2))) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi),
        "Hardswish": lambda x: 1.0 if x >= 3 else (2 * x + 3) / 6,
    }[name]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = getattr(nn, name)()

        def forward(self, x: Any) -> Any:
            fired = self.act((x - 100) / 10).sum((1, 2))
            return (torch.stack([2 * fired[:, 0], -2 * fired[:, 0]], 1),)

    model = Model("net", lambda images: Outputs(), version="1", module=Net())
    for level in (80, 105, 120, 150, 180):
        x = (level - 100) / 10
        image = np.full((1, 1, 3), level, np.uint8)
        expected = 2 * slope(x) / 10 if x > 0 else 0.0
        got = guided_backprop(model, [image], [0])[0, 0, 0]
        assert got[0] == pytest.approx(expected, abs=1e-6)
        assert got[1:].tolist() == [0, 0]
        assert not guided_backprop(model, [image], [1]).any(), "what speaks against a class does not pass"


def _erf(x: float) -> float:
    from scipy.special import erf

    return float(erf(x))


def test_captum_leaves_relu6_unguided_and_ours_does_not() -> None:
    captum = pytest.importorskip("captum.attr")
    model = small(act=torch.nn.ReLU6)
    images = [scene(i, 32, 32) for i in range(2)]
    plain = inputs(model, images).requires_grad_()
    (gradient,) = torch.autograd.grad(model.module(plain)[0][:, 1].sum(), plain)

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model.module

        def forward(self, x: Any) -> Any:
            return self.net(x)[0]

    with pytest.warns(UserWarning, match="ReLU"):
        unguided = captum.GuidedBackprop(First()).attribute(inputs(model, images).requires_grad_(), 1)
    assert torch.allclose(unguided, gradient, atol=1e-7)
    assert np.abs(guided_backprop(model, images, [1, 1]) - gradient.numpy()).max() > 1e-5


def test_guided_grad_cam_is_the_product() -> None:
    model = small()
    images = [scene(i, 32, 32) for i in range(2)]
    cam = torch.from_numpy(grad_cam(model, images, [0, 3]))
    large = torch.nn.functional.interpolate(cam[:, None], (32, 32), mode="bilinear")[:, 0, :, :, None].numpy()
    product = guided_backprop(model, images, [0, 3]) * large
    assert np.abs(product).max() > 0
    assert np.allclose(guided_grad_cam(model, images, [0, 3]), product, atol=1e-8)


def test_without_targets_the_answers_are_explained_and_weights_are_left_as_they_were() -> None:
    model = small()
    images = [scene(i, 40, 40) for i in range(3)]
    answers = model.module(inputs(model, images))[0].argmax(1).tolist()
    assert np.array_equal(grad_cam(model, images), grad_cam(model, images, answers))
    assert all(weights.requires_grad and weights.grad is None for weights in model.module.parameters())
    assert not any(part._forward_hooks for part in model.module.modules())
    with pytest.raises(SoritesError, match="3 for each of 3 images, got 4"):
        grad_cam(model, images, [0, 1, 4])


def test_layers_are_found_with_their_layout() -> None:
    from torch import nn

    class Last(nn.Module):
        """Maps with the channels last, as in Swin."""

        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 3, 1)

    net = nn.Sequential(nn.Conv2d(3, 5, 3, 2), Last())
    found = {layer.name: layer for layer in layers(net, torch.zeros(1, 3, 9, 9))}
    assert found["0"].size == found["1"].size == (4, 4)
    assert (found["0"].channels_last, found["1"].channels_last) == (False, True)


def test_models_without_maps_or_gradients_are_refused_by_name(tiny: Any) -> None:
    from torch import nn

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut = nn.Flatten(1, 2)

        def forward(self, x: Any) -> Any:
            return (self.cut(x).mean(1),)

    with pytest.raises(SoritesError, match="no layer of tokens"):
        grad_cam(Model("tokens", lambda p: Outputs(), version="1", module=Tokens()), IMAGES)
    with pytest.raises(SoritesError, match="explanation needs gradients"):
        grad_cam(tiny(), IMAGES)


class Meeting(torch.nn.Module):  # type: ignore[misc]
    """Passes its input on; in the middle of each pass of the main thread it calls a function in another."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Any = None
        self.found: list[Any] = []

    def forward(self, x: Any) -> Any:
        if self.meanwhile is not None and threading.current_thread() is threading.main_thread():
            with ThreadPoolExecutor(1) as pool:
                self.found.append(pool.submit(self.meanwhile).result())
        return x


def meeting_network() -> tuple[Model, Meeting]:
    torch.manual_seed(0)
    meeting = Meeting()
    stages = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, 2), torch.nn.ReLU(), meeting, torch.nn.Conv2d(4, 6, 3, 2), torch.nn.ReLU()
    )
    network = torch.nn.Sequential(
        stages, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 5)
    )
    wants = Input(size=(24, 24), crop_pct=1.0, mean=(0,) * 3, std=(1,) * 3)
    return torch_model("meeting", network, wants, tuple("abcde")), meeting


@pytest.mark.parametrize("explain", [guided_backprop, grad_cam, guided_grad_cam])
def test_other_threads_neither_disturb_an_explanation_nor_are_disturbed(explain: Any) -> None:
    model, meeting = meeting_network()
    images = [np.random.default_rng(i).integers(0, 256, (24, 24, 3), np.uint8) for i in range(2)]
    odin = core.scorer("odin")
    layer = {} if explain is guided_backprop else {"layer": "0.1"}
    alone, score = explain(model, images, **layer), odin.look(model, images)
    gram = core.scorer("gram").look(model, images)
    for other, expected in ((odin, score), (core.scorer("gram"), gram)):
        meeting.meanwhile = functools.partial(other.look, model, images)
        again = explain(model, images, **layer)
        np.testing.assert_array_equal(again, alone)
        assert len(meeting.found) >= 2
        for found in meeting.found:
            np.testing.assert_array_equal(found, expected)
        meeting.found.clear()
