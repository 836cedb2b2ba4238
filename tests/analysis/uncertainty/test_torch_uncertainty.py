"""The same numbers as torch-uncertainty, an independent library, where both define them.

It computes in float32, so most tolerances are 1e-6. Differences of definition are written as formulas.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.analysis.uncertainty.test_recalibration import drawn, single
from tests.metrics.conftest import frame, row

from sorites import core, metrics
from sorites.analysis.uncertainty.kept import softmax
from sorites.analysis.uncertainty.recalibration import brier_of, ece, fit_temperature, fit_vector, nll_of
from sorites.analysis.uncertainty.scores import FREE_RANKS, METHODS, PENALTY, of_answers, threshold
from sorites.core import Outputs

pytestmark = pytest.mark.slow

# A multiple of 15 bins: the two libraries distribute a remainder otherwise.
IMAGES = 600
FLOAT32 = 2e-6


@pytest.fixture(scope="module")
def peer() -> Any:
    """torch-uncertainty's metrics, post-processing and OOD criteria."""
    from sorites.core.compute.torch_tools import import_torchvision as torchvision_ready

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchvision_ready()
        pytest.importorskip("torch_uncertainty")
        parts = ("metrics.classification", "post_processing", "ood_criteria")
        classification, post, criteria = (
            importlib.import_module(f"torch_uncertainty.{part}") for part in parts
        )
    return SimpleNamespace(metrics=classification, post=post, criteria=criteria)


@pytest.fixture(scope="module")
def case() -> SimpleNamespace:
    import torch

    logits, labels = drawn(5, IMAGES, sharp=1.7)
    logits = logits.astype(np.float32).astype(np.float64)
    p = softmax(logits)
    return SimpleNamespace(
        logits=logits, labels=labels, p=p, tensor=torch.from_numpy(p), target=torch.from_numpy(labels)
    )


def computed(make: Callable[[], Any], *given: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = make()
        metric.update(*given)
        return float(metric.compute())


def ranked(scores: np.ndarray, wrong: np.ndarray, known: np.ndarray | None = None) -> Any:
    """A table of OOD scores; images that are not known are OOD."""
    known = np.ones(len(scores), bool) if known is None else known
    more = {"output": "ood", "scorer": "s"}
    return frame(
        row(
            f"p{i}", "clean", 0.0, bool(not wrong[i]) if known[i] else None,
            score=float(scores[i]), known=bool(known[i]), label=1 if known[i] else None, **more,
        )
        for i in range(len(scores))
    )  # fmt: skip


def trapezoids(value: float, first: float, last: float, n: int) -> float:
    """Return the area from coverage 1/n to 1 by trapezoids, as the peer computes it, from the mean over all n
    coverages.
    """
    return (n * value - (first + last) / 2) / (n - 1)


def test_areas_under_risk_coverage_curves(peer: Any, case: SimpleNamespace) -> None:
    scores, wrong = 1 - case.p.max(axis=1), case.p.argmax(axis=1) != case.labels
    table = ranked(scores, wrong)
    first, last = float(wrong[scores.argmin()]), float(wrong.mean())
    area, generalised = (metric(table)["value"][0] for metric in (metrics.aurc, metrics.augrc))
    theirs = computed(peer.metrics.AURC, case.tensor, case.target)
    assert trapezoids(area, first, last, IMAGES) == pytest.approx(theirs, abs=FLOAT32)
    # The generalised risk is 0 at coverage 0, where our area begins: only the first step differs.
    theirs = computed(peer.metrics.AUGRC, case.tensor, case.target)
    assert trapezoids(generalised, first / IMAGES, 0.0, IMAGES) == pytest.approx(theirs, abs=FLOAT32)


def test_selective_classification_with_ood_images(peer: Any) -> None:
    import torch

    rng = np.random.default_rng(3)
    known = rng.random(IMAGES) < 0.7
    wrong = known & (rng.random(IMAGES) < 0.2)
    scores = (rng.normal(0, 1, IMAGES) + wrong + 1.5 * ~known).astype(np.float32)
    found = metrics.scod(ranked(scores, wrong, known)).row(0, named=True)
    given = torch.from_numpy(scores), torch.from_numpy(wrong), torch.from_numpy(~known)
    loss = wrong | ~known
    first, last = float(loss[scores.argmin()]), float(loss.mean())
    # With equal costs, the peer counts an error as one half.
    theirs = 2 * computed(lambda: peer.metrics.SCODAURC(ood_cost=0.5), *given)
    assert trapezoids(found["value"], first, last, IMAGES) == pytest.approx(theirs, abs=FLOAT32)
    theirs = 2 * computed(lambda: peer.metrics.SCODAUGRC(ood_cost=0.5), *given)
    assert trapezoids(found["generalised"], first / IMAGES, 0.0, IMAGES) == pytest.approx(theirs, abs=FLOAT32)
    assert (found["id"], found["ood"]) == (known.sum(), (~known).sum())


def test_calibration_errors_brier_score_and_nll(peer: Any, case: SimpleNamespace) -> None:
    conf, correct = case.p.max(axis=1), (case.p.argmax(axis=1) == case.labels).astype(np.float64)
    rows = frame(row(f"p{i}", "clean", 0.0, bool(correct[i]), conf=conf[i]) for i in range(IMAGES))
    given = case.tensor, case.target
    theirs = computed(
        lambda: peer.metrics.CalibrationError(task="multiclass", num_classes=4, num_bins=15), *given
    )
    assert ece(conf, correct) == pytest.approx(theirs, abs=FLOAT32)
    assert metrics.calibration_error(rows)["value"][0] == pytest.approx(theirs, abs=FLOAT32)
    bins = {"task": "multiclass", "num_classes": 4, "num_bins": 15}
    theirs = computed(lambda: peer.metrics.AdaptiveCalibrationError(**bins), *given)
    assert ece(conf, correct, adaptive=True) == pytest.approx(theirs, abs=FLOAT32)
    assert metrics.adaptive_calibration_error(rows)["value"][0] == pytest.approx(theirs, abs=FLOAT32)
    theirs = computed(lambda: peer.metrics.BrierScore(num_classes=4), *given)
    assert brier_of(case.p, single(case.labels)).mean() == pytest.approx(theirs, abs=FLOAT32)
    theirs = computed(peer.metrics.CategoricalNLL, *given)
    assert nll_of(case.p, single(case.labels)).mean() == pytest.approx(theirs, abs=FLOAT32)


def conformal(peer: Any, method: str) -> Any:
    import torch

    make: dict[str, Callable[..., Any]] = {
        "thr": peer.post.ConformalClsTHR,
        "aps": lambda **more: peer.post.ConformalClsAPS(randomized=False, **more),
        "raps": lambda **more: peer.post.ConformalClsRAPS(
            randomized=False, penalty=PENALTY, regularization_rank=FREE_RANKS, **more
        ),
    }
    return make[method](alpha=0.1, model=torch.nn.Identity(), enable_ts=False)


@pytest.mark.parametrize("method", ["thr", "aps", "raps"])
def test_conformity_scores_and_sets(peer: Any, method: str) -> None:
    import torch

    logits, labels = drawn(6, IMAGES, classes=12)
    probabilities = softmax(logits)
    ours = METHODS[method](probabilities, np.ones(IMAGES))  # a draw of 1: scores without chance
    made = conformal(peer, method)
    if method != "thr":
        theirs = made._calculate_all_labels(torch.from_numpy(probabilities)).numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    data = torch.utils.data.TensorDataset(torch.from_numpy(logits), torch.from_numpy(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(torch.utils.data.DataLoader(data, batch_size=100))
    answers = of_answers(ours, single(labels))
    # The peer interpolates the plain quantile; ours is the next order statistic of n + 1, as the proof needs.
    plain = float(made.quantile)
    assert plain == pytest.approx(np.quantile(answers, 0.9), abs=FLOAT32)
    assert plain <= threshold(answers, 0.1) <= np.sort(answers)[int(0.9 * IMAGES) + 1]
    # With the same threshold the sets are equal, except that the peer never returns an empty set.
    mine = ours <= plain
    theirs = made.conformal(torch.from_numpy(logits)).numpy() > 0
    same = np.abs(ours - plain).min(axis=1) > 1e-6
    full = mine.any(axis=1) & same
    np.testing.assert_array_equal(mine[full], theirs[full])
    assert full.mean() > 0.9
    assert (theirs[~mine.any(axis=1)].sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("kind", "fit"), [("TemperatureScaler", fit_temperature), ("VectorScaler", fit_vector)]
)
def test_scaling_reaches_the_peers_nll(peer: Any, kind: str, fit: Any) -> None:
    import torch

    logits, labels = drawn(7, 2000)
    given = torch.from_numpy(logits).float()
    data = torch.utils.data.TensorDataset(given, torch.from_numpy(labels))
    more = {"num_classes": 4} if kind == "VectorScaler" else {}
    scaler = getattr(peer.post, kind)(model=torch.nn.Identity(), max_iter=500, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler.fit(torch.utils.data.DataLoader(data, batch_size=500), progress=False)
    theirs = nll_of(softmax(scaler(given).detach().double().numpy()), single(labels)).mean()
    ours = nll_of(fit(logits, single(labels))(logits), single(labels)).mean()
    # Both problems are convex. The peer's optimiser stops early with several parameters.
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert ours <= theirs + 1e-6


def test_ood_scores_and_false_positives(peer: Any, case: SimpleNamespace) -> None:
    import torch

    logits = torch.from_numpy(case.logits)[:, None]
    outputs = Outputs(case.logits.astype(np.float32))
    for name, kind in (("max_logit", "MaxLogitCriterion"), ("energy", "EnergyCriterion")):
        np.testing.assert_allclose(
            core.scorer(name)(outputs), getattr(peer.criteria, kind)()(logits).numpy(), atol=FLOAT32
        )
    # Ours ranks by log-odds, which do not saturate; the order is the same.
    theirs = peer.criteria.MaxSoftmaxCriterion()(torch.from_numpy(case.p)).numpy()
    order = np.argsort(core.scorer("msp")(outputs), kind="stable")
    assert (np.diff(theirs[order]) >= -FLOAT32).all()
    known = np.arange(IMAGES) % 3 > 0
    scores = (theirs + 0.2 * ~known).astype(np.float32)
    table = ranked(scores, np.zeros(IMAGES, bool), known)
    given = torch.from_numpy(scores), torch.from_numpy((~known).astype(np.int64))
    wanted = computed(lambda: peer.metrics.FPR95(pos_label=1), *given)
    found = metrics.fpr95_ood_pos(table)["value"][0]
    assert found == pytest.approx(wanted, abs=FLOAT32)
