"""What every scorer owes, built in or plugged in: one finite number an image, larger is more OOD,
neighbours apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sorites import core
from sorites.core import SCORERS, Outputs

CLASSES, WIDE = 7, 12


def outputs(n: int, seed: int = 0, scale: float = 3.0) -> Outputs:
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(n, WIDE))).astype(np.float32)
    return Outputs((features @ head()[0].T * scale + head()[1]).astype(np.float32), features)


def head() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    return rng.normal(size=(CLASSES, WIDE)).astype(np.float32), rng.normal(size=CLASSES).astype(np.float32)


def texts(names: Sequence[str]) -> np.ndarray:
    """Embed names as a zero-shot model would."""
    return np.random.default_rng(len(names)).normal(size=(len(names), WIDE))


@pytest.fixture(params=[name for name in SCORERS.names() if not core.scorer(name).looks])
def scorer(request: pytest.FixtureRequest) -> Any:
    made = core.scorer(request.param)
    if "texts" in made.needs:
        made.embed = texts
    if hasattr(made, "fit"):
        batches = [(outputs(60, seed), np.arange(60) % CLASSES) for seed in range(1, 5)]
        made.fit(batches, head())
    return made


def test_one_finite_number_a_image(scorer: Any) -> None:
    for scale in (0.0, 1.0, 300.0):
        scores = np.asarray(scorer(outputs(9, scale=scale)))
        assert scores.shape == (9,)
        assert np.isfinite(scores).all()


def test_neighbours_do_not_matter(scorer: Any) -> None:
    some = outputs(9)
    assert some.logits is not None
    assert some.features is not None
    together = np.asarray(scorer(some))
    alone = [
        np.asarray(scorer(Outputs(some.logits[i : i + 1], some.features[i : i + 1])))[0] for i in range(9)
    ]
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)


def test_outputs_are_not_written_to(scorer: Any) -> None:
    some, fresh = outputs(9), outputs(9)
    scorer(some)
    np.testing.assert_array_equal(some.logits, fresh.logits)
    np.testing.assert_array_equal(some.features, fresh.features)


def test_a_sure_answer_is_less_ood_than_none(scorer: Any) -> None:
    """One class far ahead against all classes level, on features of the same length."""
    features = np.ones((1, WIDE), np.float32)
    sure = Outputs(np.eye(1, CLASSES, dtype=np.float32) * 20, features * 2)
    unsure = Outputs(np.zeros((1, CLASSES), np.float32), features * 0.01)
    if hasattr(scorer, "fit"):
        return
    assert np.asarray(scorer(sure))[0] < np.asarray(scorer(unsure))[0]
