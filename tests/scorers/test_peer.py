"""Every scorer on features and a head against pytorch-ood 0.4 on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import rankdata

from sorites import core
from sorites.core import Outputs

if TYPE_CHECKING:
    from tests.scorers.conftest import Case

torch = pytest.importorskip("torch")


def tensors(case: Case) -> dict[str, Any]:
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in vars(case).items()}


def linear(case: Case) -> Any:
    layer = torch.nn.Linear(*case.weight.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(case.weight))
        layer.bias.copy_(torch.from_numpy(case.bias))
    return layer


def pooled(case: Case) -> Callable[[Any], Any]:
    layer = linear(case)
    return lambda maps: layer(maps.flatten(1))


def on_features(make: Callable[[Any, Case], Any]) -> Callable[[Any, Case], np.ndarray]:
    def score(peer: Any, case: Case) -> np.ndarray:
        t = tensors(case)
        return np.asarray(
            make(peer, case).fit_features(t["train"], t["labels"]).predict_features(t["asked"]).detach()
        )

    return score


def on_maps(make: Callable[[Any, Case], Any], fitted: bool = False) -> Callable[[Any, Case], np.ndarray]:
    def score(peer: Any, case: Case) -> np.ndarray:
        t = tensors(case)
        detector = make(peer, case)
        if fitted:
            detector.fit_feature_maps(t["train"][:, :, None, None], t["labels"])
        return np.asarray(detector.predict_feature_maps(t["asked"][:, :, None, None]).detach())

    return score


def on_logits(make: Callable[[Any], Any]) -> Callable[[Any, Case], np.ndarray]:
    return lambda peer, case: np.asarray(
        make(peer).predict_logits(torch.from_numpy(case.outputs().logits)).detach()
    )


def on_fitted_logits(make: Callable[[Any], Any]) -> Callable[[Any, Case], np.ndarray]:
    def score(peer: Any, case: Case) -> np.ndarray:
        train, asked = (
            torch.from_numpy(case.outputs(rows).logits).double() for rows in (case.train, case.asked)
        )
        detector = make(peer).fit_logits(train, torch.from_numpy(case.labels))
        return np.asarray(detector.predict_logits(asked).detach())

    return score


def gradnorm(peer: Any, case: Case) -> np.ndarray:
    found = peer.GradNorm(linear(case), param_filter=lambda name: name == "weight")
    found.to("cpu")
    return np.asarray(found.predict(tensors(case)["asked"]))


EXACT: dict[str, Callable[[Any, Case], np.ndarray]] = {
    "energy": on_logits(lambda p: p.EnergyBased(None)),
    "max_logit": on_logits(lambda p: p.MaxLogit(None)),
    "knn(k=10)": on_features(lambda p, c: p.KNN(None, k=10)),
    "rmds": on_features(lambda p, c: p.RMD(None)),
    "vim(dim=12)": on_features(
        lambda p, c: p.ViM(None, 12, torch.from_numpy(c.weight), torch.from_numpy(c.bias))
    ),
    "react": on_maps(lambda p, c: p.ReAct(None, pooled(c), percentile=0.9), fitted=True),
    "ash_b": on_maps(lambda p, c: p.ASH(None, pooled(c), variant="ash-b", percentile=0.9)),
    "ash_s": on_maps(lambda p, c: p.ASH(None, pooled(c), variant="ash-s", percentile=0.9)),
    "ash_p": on_maps(lambda p, c: p.ASH(None, pooled(c), variant="ash-p", percentile=0.9)),
    "scale": on_maps(lambda p, c: p.SCALE(None, pooled(c), percentile=0.85)),
    "dice": on_features(lambda p, c: p.DICE(None, torch.from_numpy(c.weight), torch.from_numpy(c.bias), 0.9)),
    "gradnorm": gradnorm,
    "nnguide(k=10)": on_features(lambda p, c: p.NNGuide(None, linear(c), k=10)),
    "fdbd": on_features(lambda p, c: p.fDBD(None, linear(c))),
    "she": on_features(lambda p, c: p.SHE(None, linear(c))),
    "gmm": on_features(lambda p, c: p.GMM(None)),
    "klm": on_fitted_logits(lambda p: p.KLMatching(None)),
    "nci(alpha=0.01)": on_features(lambda p, c: p.NCI(None, linear(c), alpha=0.01)),
}
"""The same number, where the peer has the same unit."""


def ours(spec: str, case: Case) -> np.ndarray:
    scorer = core.scorer(spec)
    if hasattr(scorer, "fit"):
        scorer.fit(case.batches(), case.head)
    return np.asarray(scorer(case.outputs()))


@pytest.mark.parametrize("spec", EXACT)
def test_the_same_number_as_the_peer(spec: str, case: Case, peer: Any) -> None:
    theirs = EXACT[spec](peer, case)
    if spec == "rmds":
        theirs = theirs * len(case.train)  # its covariances are sums, not means
    np.testing.assert_allclose(ours(spec, case), theirs, rtol=1e-4, atol=1e-4)


def test_mds_is_twice_the_peers_with_a_mean_for_a_sum(case: Case, peer: Any) -> None:
    theirs = on_features(lambda p, c: p.Mahalanobis(None))(peer, case)
    np.testing.assert_allclose(ours("mds", case), 2 * len(case.train) * theirs, rtol=1e-4)


@pytest.mark.parametrize("top", [3, 6, 100])
def test_gen_is_the_peers_sum_where_that_does_not_clip(case: Case, peer: Any, top: int) -> None:
    """It takes the mean, and cuts probabilities at 1e-7."""
    flat = (case.outputs().logits / 4).astype(np.float32)
    theirs = np.asarray(peer.GEN(None, gamma=0.1, M=top).predict_logits(torch.from_numpy(flat)))
    np.testing.assert_allclose(
        core.scorer("gen", top=top)(Outputs(flat)), theirs * min(top, flat.shape[1]), rtol=1e-4
    )


def test_entropy_is_that_of_scipy(case: Case) -> None:
    from scipy.special import softmax
    from scipy.stats import entropy

    logits = np.concatenate([case.outputs().logits, [[900, *[0] * (case.outputs().logits.shape[1] - 1)]]])
    theirs = entropy(softmax(logits.astype(np.float64), axis=1), axis=1)
    np.testing.assert_allclose(
        core.scorer("entropy")(Outputs(logits.astype(np.float32))), theirs, rtol=1e-4, atol=1e-6
    )


def test_msp_ranks_as_the_peer(case: Case, peer: Any) -> None:
    theirs = np.asarray(peer.MaxSoftmax(None).predict_logits(torch.from_numpy(case.outputs().logits)))
    np.testing.assert_array_equal(rankdata(ours("msp", case)), rankdata(theirs))


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_mcm_has_the_peers_probability(case: Case, peer: Any, temperature: float) -> None:
    flat = case.outputs()
    unbiased = Outputs((case.asked @ case.weight.T).astype(np.float32), flat.features)
    scorer = core.scorer("mcm", temperature=temperature).fit((), (case.weight, np.zeros_like(case.bias)))
    theirs = peer.MCM(None, torch.from_numpy(case.weight), temperature=temperature)
    probability = -np.asarray(theirs.predict_features(torch.from_numpy(case.asked)))
    np.testing.assert_allclose(1 / (1 + np.exp(scorer(unbiased))), probability, rtol=2e-5)


def test_openmax_ranks_as_the_peer_on_correct_training_images(case: Case, peer: Any) -> None:
    """The peer minimises the likelihood of a shifted Weibull by a simplex search, which stops early."""
    logits = case.outputs(case.train).logits
    assert logits is not None
    correct = logits.argmax(axis=1) == case.labels
    detector = peer.OpenMax(None, tailsize=20, alpha=3)
    detector.fit_logits(torch.from_numpy(logits[correct]), torch.from_numpy(case.labels[correct]))
    theirs = np.asarray(detector.predict_logits(torch.from_numpy(case.outputs().logits)))
    assert np.corrcoef(rankdata(ours("openmax", case)), rankdata(theirs))[0, 1] > 0.99


def test_vra_is_the_peers_where_every_feature_has_the_same_percentiles(case: Case, peer: Any) -> None:
    """The peer takes percentiles of each feature alone; without a lower limit both only clip."""
    column = np.sort(np.abs(np.random.default_rng(0).normal(size=600))).astype(np.float32)
    order = np.random.default_rng(1).permuted(np.tile(column, (case.train.shape[1], 1)), axis=1)
    train = np.ascontiguousarray(order.T)
    scorer = core.scorer("vra", low=0, high=90).fit([(case.outputs(train), case.labels)], case.head)
    theirs = peer.VRA(None, pooled(case), lower_percentile=0.0, upper_percentile=0.9)
    theirs.fit_feature_maps(torch.from_numpy(train)[:, :, None, None], torch.from_numpy(case.labels))
    asked = np.maximum(case.asked, column[0])
    expected = theirs.predict_feature_maps(torch.from_numpy(asked)[:, :, None, None]).detach()
    np.testing.assert_allclose(scorer(case.outputs(asked)), expected, rtol=1e-4, atol=1e-4)
