"""APGD against torchattacks on a small network that was trained a little, and against closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sorites.core.rng import rng_for
from sorites.training.attack.apgd import LOSSES, Norm, apgd, cross_entropy, inside, logit_ratio, start

torch = pytest.importorskip("torch")

SIDE, CLASSES = 16, 10
EPS: dict[Norm, tuple[float, ...]] = {"l2": (0.5, 0.75, 1.0), "linf": (5 / 255, 8 / 255, 12 / 255)}


def images(n: int, seed: int) -> tuple[Any, Any]:
    """Gratings of ten directions and colours under noise: N x 3 x 16 x 16 in 0..1, and their classes."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    labels = rng.integers(CLASSES, size=n)
    turn = (np.pi * labels / CLASSES)[:, None, None]
    wave = np.sin(20 * (np.cos(turn) * x + np.sin(turn) * y) + rng.uniform(0, 6, n)[:, None, None])
    colour = rng.uniform(0.3, 1, (n, 3, 1, 1))
    made = 0.5 + 0.3 * wave[:, None] * colour + rng.normal(0, 0.1, (n, 3, SIDE, SIDE))
    return torch.from_numpy(np.clip(made, 0, 1).astype(np.float32)), torch.from_numpy(labels)


@pytest.fixture(scope="module")
def network() -> Any:
    """A convolutional network of 10 classes after a hundred steps."""
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES),
    )  # fmt: skip
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for i in range(120):
        x, y = images(64, 100 + i)
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net.eval().requires_grad_(False)


def one_hot(labels: Any) -> Any:
    return torch.nn.functional.one_hot(labels, CLASSES).bool()


def ours(network: Any, x: Any, y: Any, eps: float, norm: Norm, loss: str, steps: int, seed: int = 0) -> Any:
    """Which images stay right, as a run of ours finds it: only those are attacked that are right."""
    right = network(x).argmax(1) == y
    begin = [start(one.numpy(), eps, norm, rng_for(seed, str(i), loss)) for i, one in enumerate(x)]
    point, wrong = apgd(network, x, one_hot(y), torch.from_numpy(np.stack(begin)), eps, norm, loss, steps)
    return right & ~wrong, point


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("loss", ["ce", "dlr"])
def test_verdicts_are_those_of_torchattacks(network: Any, norm: Norm, loss: str) -> None:
    torchattacks = pytest.importorskip("torchattacks")
    x, y = images(120, 7)
    kept = []
    for eps in EPS[norm]:
        theirs = torchattacks.APGD(network, norm=norm.capitalize(), eps=eps, steps=30, loss=loss)
        stays = network(theirs(x, y)).argmax(1) == y
        mine, point = ours(network, x, y, eps, norm, loss, 30)
        same = float((stays == mine).float().mean())
        assert same >= 0.95
        kept.append(float(mine.float().mean()))
        moved = (point - x).flatten(1)
        size = moved.norm(dim=1) if norm == "l2" else moved.abs().amax(1)
        assert size.max() <= eps * (1 + 1e-5)
        assert point.min() >= 0
        assert point.max() <= 1
    assert kept[0] > kept[1] > kept[2]
    assert kept[0] > 0.4
    assert kept[2] < 0.3, "the sweep covers the dial, or equal verdicts say nothing"


@pytest.mark.slow
def test_the_points_are_wrong_where_they_are_said_to_be(network: Any) -> None:
    x, y = images(60, 8)
    begin = torch.from_numpy(
        np.stack([start(one.numpy(), 0.75, "l2", rng_for(0, str(i), "a")) for i, one in enumerate(x)])
    )
    point, wrong = apgd(network, x, one_hot(y), begin, 0.75, "l2", "ce", 30)
    assert 0 < wrong.sum() < 60
    assert ((network(point).argmax(1) != y) == wrong).all()


def test_a_linear_model_is_beaten_exactly_where_geometry_says(network: Any) -> None:
    """Between two half spaces the distance is known: (w1 - w0) . x / |w1 - w0|."""
    rng = np.random.default_rng(3)
    weights = torch.from_numpy(rng.normal(size=(3, 12)).astype(np.float32))
    weights[2] = -10  # a class that never wins
    x = torch.from_numpy(rng.uniform(0.4, 0.6, (200, 12)).astype(np.float32))

    def logits(at: Any) -> Any:
        return (at - 0.5) @ weights.T - torch.tensor([0.0, 0.0, 100.0])

    y = logits(x).argmax(1)
    gap = weights[0] - weights[1]
    distance = ((x - 0.5) @ gap).abs() / gap.norm()
    right = torch.nn.functional.one_hot(y, 3).bool()
    begin = torch.from_numpy(
        np.stack([start(one.numpy(), 0.05, "l2", rng_for(0, str(i), "a")) for i, one in enumerate(x)])
    )
    for loss in LOSSES:
        _, wrong = apgd(logits, x, right, begin, 0.05, "l2", loss, 100)
        clear = (distance - 0.05).abs() > 0.001
        assert (wrong == (distance < 0.05))[clear].all()
        assert 0.2 < wrong.float().mean() < 0.8


def test_a_image_is_attacked_alike_in_any_company(network: Any) -> None:
    x, y = images(40, 9)
    whole, _ = ours(network, x, y, 0.4, "l2", "dlr", 20)
    begin = [start(one.numpy(), 0.4, "l2", rng_for(0, str(i), "dlr")) for i, one in enumerate(x)]
    for i in range(0, 40, 5):
        _, wrong = apgd(
            network,
            x[i : i + 1],
            one_hot(y[i : i + 1]),
            torch.from_numpy(begin[i][None]),
            0.4,
            "l2",
            "dlr",
            20,
        )
        assert bool(whole[i]) == bool((network(x[i : i + 1]).argmax(1) == y[i : i + 1]) & ~wrong)


def test_losses_are_the_published_ones(network: Any) -> None:
    torchattacks = pytest.importorskip("torchattacks")
    x, y = images(50, 10)
    given = network(x)
    theirs = torchattacks.APGD(network).dlr_loss(given, y)
    assert torch.allclose(logit_ratio(given, one_hot(y)), theirs, atol=1e-6)
    plain = torch.nn.functional.cross_entropy(given, y, reduction="none")
    assert torch.allclose(cross_entropy(given, one_hot(y)), plain, atol=1e-5)


def test_several_right_classes_count_as_one() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    right = torch.tensor([[True, True, False, False]])
    shares = logits.softmax(1)[0]
    assert torch.allclose(cross_entropy(logits, right), -torch.log(shares[0] + shares[1]))
    assert torch.allclose(logit_ratio(logits, right), torch.tensor([(1.0 - 3.0) / (3.0 - 1.0)]))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_starts_lie_on_the_sphere_and_turn_up_along_one_direction(norm: Norm) -> None:
    x = np.full((8, 8, 3), 0.5, np.float32)
    near, far = (start(x, eps, norm, rng_for(0, "a", "apgd")) - x for eps in (0.05, 0.1))
    size = np.linalg.norm(far) if norm == "l2" else np.abs(far).max()
    assert size == pytest.approx(0.1, rel=1e-4)
    assert np.allclose(2 * near, far, atol=1e-6)
    held = inside(torch.from_numpy(x + 3 * far)[None], torch.from_numpy(x)[None], 0.1, norm)
    moved = (held - torch.from_numpy(x)).flatten()
    assert float(moved.norm() if norm == "l2" else moved.abs().max()) == pytest.approx(0.1, rel=1e-4)


def test_rounding_to_8_bits_moves_a_image_by_as_much_as_the_docs_say() -> None:
    """Rounding errors are uniform over one step of 1/255, whose variance is 1/12."""
    expected = math.sqrt(3 * 224 * 224 / 12) / 255
    assert expected == pytest.approx(0.44, abs=0.005)
    image = np.random.default_rng(0).uniform(0, 1, (224, 224, 3))
    assert np.linalg.norm(np.round(image * 255) / 255 - image) == pytest.approx(expected, rel=0.01)
    assert expected / 25 > 4 / 255
