"""Scorers that read inside a model, against autograd, SVD, full Gram matrices and pytorch-ood."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from sorites import core
from sorites.core import Model, Outputs
from sorites.core.errors import SoritesError
from sorites.models.python import as_model
from sorites.scorers import layers as layer_tools

torch = pytest.importorskip("torch")
CLASSES, SIDE = 5, 32


class Small(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Three resolutions, a shared activation, a padding layer, a pooled linear head."""

    sorites = {"size": (SIDE, SIDE), "labels": [f"c{i}" for i in range(CLASSES)], "std": (0.2, 0.25, 0.3)}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 6, 3, 2, 1)
        self.pad = torch.nn.ZeroPad2d(2)
        self.second = torch.nn.Conv2d(6, 8, 5, 2)
        self.third = torch.nn.Conv2d(8, 12, 3, 2, 1)
        self.act = torch.nn.ReLU()
        self.head = torch.nn.Linear(12, CLASSES)

    def maps(self, x: Any) -> list[Any]:
        one = self.act(self.first(x))
        two = self.act(self.second(self.pad(one)))
        return [one, two, self.act(self.third(two))]

    def after(self, stage: int, x: Any) -> Any:
        if stage == 1:
            x = self.act(self.third(x))
        return self.head(x.mean((2, 3)))

    def forward(self, x: Any) -> tuple[Any, Any]:
        pooled = self.maps(x)[-1].mean((2, 3))
        return self.head(pooled), pooled


@pytest.fixture(scope="module")
def network() -> Small:
    return Small().eval()


@pytest.fixture(scope="module")
def model(network: Small) -> Model:
    return as_model("small", network)


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (30, SIDE, SIDE, 3), np.uint8))


def normalised(images: list[np.ndarray], model: Model) -> Any:
    given = (
        torch.from_numpy(np.stack([model.prepare(p, False) for p in images])).permute(0, 3, 1, 2).float()
        / 255
    )
    mean = torch.tensor((0.485, 0.456, 0.406)).view(1, 3, 1, 1)
    return (given - mean) / torch.tensor(Small.sorites["std"]).view(1, 3, 1, 1)


def judged(scorer: Any, model: Model, images: list[np.ndarray]) -> np.ndarray:
    given = model(images)
    return np.asarray(
        scorer(Outputs(given.logits, given.features, inside={scorer.name: scorer.look(model, images)}))
    )


def test_odin_is_the_peers(model: Model, network: Small, images: list[np.ndarray], peer: Any) -> None:
    """In log-odds at temperature 1000: the peer's float32 softmax of five classes keeps four digits
    of the difference.
    """
    scorer = core.scorer("odin", eps=0.01)
    ours = judged(scorer, model, images)
    theirs = peer.ODIN(lambda x: network(x)[0], eps=0.01, norm_std=list(Small.sorites["std"]))
    expected = np.concatenate([theirs.predict(x[None]).numpy() for x in normalised(images, model)])
    np.testing.assert_allclose(-1 / (1 + np.exp(ours.astype(np.float64))), expected, atol=1e-6)
    with torch.no_grad():
        assert np.array_equal(judged(scorer, model, images), ours)


def test_odin_without_a_step_is_msp_at_its_temperature(model: Model, images: list[np.ndarray]) -> None:
    still = judged(core.scorer("odin", eps=0.0), model, images)
    np.testing.assert_allclose(still, core.scorer("msp", temperature=1000.0)(model(images)), atol=1e-6)


def naive_rankfeat(network: Small, x: Any, stages: list[int]) -> np.ndarray:
    logits = []
    with torch.no_grad():
        for stage in stages:
            maps = network.maps(x)[stage]
            flat = maps.flatten(2).double()
            u, s, v = torch.linalg.svd(flat, full_matrices=False)
            rest = flat - s[:, 0, None, None] * u[:, :, :1] @ v[:, :1]
            logits.append(network.after(stage, rest.view_as(maps).float()))
    return -torch.logsumexp(torch.stack(logits).mean(0), dim=1).numpy()


def test_rankfeat_is_the_svds_at_one_and_two_blocks(
    model: Model, network: Small, images: list[np.ndarray], peer: Any
) -> None:
    x = normalised(images, model)
    one, two = (judged(core.scorer("rankfeat", blocks=n), model, images) for n in (1, 2))
    np.testing.assert_allclose(one, naive_rankfeat(network, x, [2]), atol=1e-5)
    np.testing.assert_allclose(two, naive_rankfeat(network, x, [1, 2]), atol=1e-5)
    with torch.no_grad():
        theirs = peer.RankFeat(None, lambda maps: network.after(2, maps)).predict_feature_maps(
            network.maps(x)[2]
        )
    np.testing.assert_allclose(one, theirs.numpy(), atol=1e-4)


def test_rankfeat_of_an_average_pooled_head_is_the_logits_less_a_vector(
    model: Model, network: Small, images: list[np.ndarray]
) -> None:
    weight = network.head.weight.detach().numpy().astype(np.float64)
    maps = [m.detach().flatten(1).double().numpy() for m in network.maps(normalised(images, model))[2]]
    firsts = [np.linalg.svd(m, full_matrices=False)[2][0] for m in maps]
    logits = model(images).logits.astype(np.float64)  # type: ignore[union-attr]
    rest = np.stack(
        [row - weight @ (m @ v) * v.mean() for row, m, v in zip(logits, maps, firsts, strict=True)]
    )
    expected = core.scorer("energy")(Outputs(rest.astype(np.float32)))
    np.testing.assert_allclose(judged(core.scorer("rankfeat", blocks=1), model, images), expected, atol=1e-4)


def test_layers_can_be_named(model: Model, images: list[np.ndarray]) -> None:
    """The third convolution before its activation is another place than the end of its stage."""
    named = judged(core.scorer("rankfeat", layers=("third",)), model, images)
    assert not np.allclose(named, judged(core.scorer("rankfeat", blocks=1), model, images))
    with pytest.raises(SoritesError, match="no layer 'fourth'"):
        judged(core.scorer("rankfeat", layers=("fourth",)), model, images)


def test_stages_end_where_the_resolution_changes(model: Model, images: list[np.ndarray]) -> None:
    batch = torch.from_numpy(np.stack(images[:1])).float()
    assert layer_tools.stages(model.module, batch, "test") == [
        ("module.act", 0),
        ("module.act", 1),
        ("module.act", 2),
    ]


def naive_gram(network: Small, x: Any, powers: int) -> list[np.ndarray]:
    """Whole Gram matrices, summed over rows: one array of N x (channels * powers) a layer."""
    found = []
    with torch.no_grad():
        for maps in network.maps(x):
            flat = maps.flatten(2).double()
            rows = [(flat**p @ (flat**p).mT).sum(2) for p in range(1, powers + 1)]
            found.append(
                torch.cat([r.sign() * r.abs() ** (1 / p) for p, r in enumerate(rows, 1)], dim=1).numpy()
            )
    return found


def fitted_gram(model: Model, train: list[np.ndarray], **params: Any) -> Any:
    scorer = core.scorer("gram", **params)
    given = model(train)
    inside = {scorer.name: scorer.look(model, train)}
    return scorer.fit(
        [(Outputs(given.logits, inside=inside, ids=[f"t{i}" for i in range(len(train))]), None)]
    )


def rich(images: list[np.ndarray]) -> list[np.ndarray]:
    """The images in three lights, so that more than one class is predicted."""
    return [np.clip(p * s, 0, 255).astype(np.uint8) for p in images for s in (0.2, 0.5, 1.0)]


def test_gram_is_the_peers(model: Model, network: Small, images: list[np.ndarray], peer: Any) -> None:
    train = rich(images)
    preds = model(train).logits.argmax(1)  # type: ignore[union-attr]
    known = sorted(set(preds.tolist()))
    layers = [
        torch.nn.Sequential(network.first, network.act),
        torch.nn.Sequential(network.pad, network.second, network.act),
    ]
    layers.append(torch.nn.Sequential(network.third, network.act))

    def head(x: Any) -> Any:
        return network.after(2, x)[:, known]

    theirs = peer.Gram(head, layers, len(known), [1, 2, 3])
    theirs.validation_fraction = 0
    theirs.fit([(normalised(train, model), torch.tensor([known.index(p) for p in preds]))])
    asked = [p for p in images if model([p]).logits.argmax() in known]  # type: ignore[union-attr]
    shifted = [255 - p for p in asked if model([255 - p]).logits.argmax() in known]  # type: ignore[union-attr]
    assert shifted
    ours = judged(fitted_gram(model, train, powers=3, held=0.0), model, shifted)
    assert (ours > 0).any()
    np.testing.assert_allclose(ours, theirs.predict(normalised(shifted, model)).numpy(), rtol=2e-3, atol=1e-3)


def test_gram_matches_plain_loops(model: Model, network: Small, images: list[np.ndarray]) -> None:
    train = rich(images)
    scorer = fitted_gram(model, train, powers=2, held=0.3)
    values, preds = naive_gram(network, normalised(train, model), 2), model(train).logits.argmax(1)  # type: ignore[union-attr]
    from sorites.scorers.gram import _hash

    out = np.array([_hash(f"t{i}") < 0.3 * 2**64 for i in range(len(train))])
    assert scorer.fitted == {"images": 90, "classes": len(set(preds.tolist())), "held": int(out.sum())}

    def stray(rows: np.ndarray, kept: np.ndarray) -> float:
        low, high = kept.min(0), kept.max(0)
        return float(
            (
                np.maximum(low - rows, 0) / abs(low + 1e-6) + np.maximum(rows - high, 0) / abs(high + 1e-6)
            ).sum()
        )

    usual = []
    for layer in values:
        strayed = [
            stray(layer[i], layer[(preds == preds[i]) & ~out])
            for i in np.flatnonzero(out)
            if ((preds == preds[i]) & ~out).any()
        ]
        usual.append(np.mean(strayed) or 1.0)
    asked = [p for p in (255 - q for q in images) if model([p]).logits.argmax() in set(preds.tolist())]  # type: ignore[union-attr]
    theirs, classes = naive_gram(network, normalised(asked, model), 2), model(asked).logits.argmax(1)  # type: ignore[union-attr]
    expected = [
        sum(
            stray(rows[i], layer[preds == classes[i]]) / u
            for layer, rows, u in zip(values, theirs, usual, strict=True)
        )
        for i in range(len(asked))
    ]
    np.testing.assert_allclose(judged(scorer, model, asked), expected, rtol=1e-3)


def test_gram_names_a_class_without_training_images(model: Model, images: list[np.ndarray]) -> None:
    scorer = fitted_gram(model, images[:3])
    seen = {int(c) for c in model(images[:3]).logits.argmax(1)}  # type: ignore[union-attr]
    other = Outputs(
        np.eye(1, CLASSES, (max(seen) + 1) % CLASSES, np.float32),
        inside={"gram": scorer.look(model, images[:1])},
    )
    with pytest.raises(SoritesError, match="predicted as class"):
        scorer(other)


def adascale(network: Small, model: Model, train: list[np.ndarray], asked: list[np.ndarray]) -> Any:
    """The released formula, image by image: features, Q and its rank, scaled logits of both variants."""

    def changed(image: np.ndarray) -> tuple[Any, Any, Any]:
        given = normalised([image], model).requires_grad_()
        logits, features = network(given)
        logits.max().backward()
        gradient = given.grad
        least = gradient.abs().flatten().argsort()[: int(gradient.numel() * 0.05)]
        mask = torch.zeros(gradient.numel())
        mask[least] = 1
        with torch.no_grad():
            after = network(given + gradient.sign() * mask.view_as(gradient) * 0.5)[1]
        return features[0].detach().double(), after[0].double(), logits[0].detach().double()

    def shift(features: Any, after: Any) -> float:
        largest = features.argsort(descending=True)
        return float(after[largest[:6]].relu().sum() + 10 * (features - after)[largest[:2]].abs().sum())

    known = np.array([shift(*changed(image)[:2]) for image in train])
    bias, found = network.head.bias.detach().double(), []
    for image in asked:
        features, after, logits = changed(image)
        percentile = 40 + (1 - np.mean(known <= shift(features, after) * (1 + 1e-6))) * 40
        positive = features.relu().sort(descending=True).values
        ratio = positive.sum() / positive[: 12 - round(12 * percentile / 100)].sum()
        found.append(
            [
                -torch.logsumexp(ratio.exp() * (logits - bias) + bias, 0),
                -torch.logsumexp(logits * ratio**2, 0),
            ]
        )
    return np.array(found)


def test_adascale_is_the_released_formula(network: Small, model: Model, images: list[np.ndarray]) -> None:
    train, asked = images[:20], images[20:]
    expected = adascale(network, model, train, asked)
    head = (network.head.weight.detach().numpy(), network.head.bias.detach().numpy())
    for column, name in enumerate(("adascale_a", "adascale_l")):
        scorer = core.scorer(name, low=40, high=80, first=50, second=17)
        given = model(train)
        inside = {scorer.name: scorer.look(model, train)}
        outputs = Outputs(given.logits, given.features, inside=inside)
        scorer.fit([(outputs, None)], head)
        np.testing.assert_allclose(judged(scorer, model, asked), expected[:, column], rtol=1e-4)


@pytest.mark.parametrize("name", ["odin", "rankfeat", "gram", "adascale_a"])
def test_inside_values_do_not_depend_on_the_batch(name: str, model: Model, images: list[np.ndarray]) -> None:
    scorer = core.scorer(name)
    together = scorer.look(model, images[:6])
    apart = np.concatenate([scorer.look(model, [p]) for p in images[:6]])
    assert np.array_equal(together, apart)


def test_the_model_is_left_as_it_was_and_other_threads_are_not_seen(
    model: Model, images: list[np.ndarray]
) -> None:
    plain, scorer = model(images[:4]), core.scorer("rankfeat")
    alone = scorer.look(model, images[:4])
    found: list[np.ndarray] = []
    batch = torch.from_numpy(np.stack(images[:4])).float()

    def passing() -> None:
        with torch.no_grad():
            found.extend(model.module(batch)[0].numpy() for _ in range(20))

    thread = threading.Thread(target=passing)
    thread.start()
    crowded = scorer.look(model, images[:4])
    thread.join()
    assert np.array_equal(alone, crowded)
    np.testing.assert_allclose(found, np.repeat(np.asarray(plain.logits)[None], 20, axis=0), atol=1e-5)
    assert not any(part._forward_hooks for part in model.module.modules())
    assert all(p.grad is None for p in model.module.parameters())


@pytest.mark.parametrize("name", ["odin", "rankfeat", "gram", "adascale_a"])
def test_models_without_a_torch_module_raise(name: str, images: list[np.ndarray]) -> None:
    plain = as_model("plain", lambda images: np.zeros((len(images), 3), np.float32))
    with pytest.raises(SoritesError, match="plain does not"):
        core.scorer(name).look(plain, images[:1])


def test_missing_inside_values_raise(model: Model, images: list[np.ndarray]) -> None:
    with pytest.raises(SoritesError, match=r"inside\['odin'\]"):
        core.scorer("odin")(model(images[:1]))


def test_network_without_feature_maps_raises(images: list[np.ndarray]) -> None:
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 3))
    flat.sorites = {"size": (SIDE, SIDE)}
    with pytest.raises(SoritesError, match="needs feature maps"):
        core.scorer("rankfeat").look(as_model("flat", flat), images[:1])


@pytest.mark.parametrize(
    ("name", "params"), [("odin", {"eps": -1.0}), ("rankfeat", {"blocks": 3}), ("gram", {"held": 1.0})]
)
def test_parameters_out_of_range_raise(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(SoritesError, match=f"scorer {name}: "):
        core.scorer(name, **params)
