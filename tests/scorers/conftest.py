"""Features, a last layer and logits like those of a small network, with classes and dead units."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sorites.core import Outputs

CLASSES, WIDE = 6, 40


@dataclass(frozen=True)
class Case:
    """A head, training images with labels, and images to be judged; the same as arrays and as batches."""

    weight: np.ndarray
    bias: np.ndarray
    train: np.ndarray
    labels: np.ndarray
    asked: np.ndarray

    @property
    def head(self) -> tuple[np.ndarray, np.ndarray]:
        return self.weight, self.bias

    def outputs(self, features: np.ndarray | None = None) -> Outputs:
        rows = self.asked if features is None else features
        return Outputs((rows @ self.weight.T + self.bias).astype(np.float32), rows)

    def batches(self, size: int = 37) -> list[tuple[Outputs, np.ndarray]]:
        starts = range(0, len(self.train), size)
        return [(self.outputs(self.train[i : i + size]), self.labels[i : i + size]) for i in starts]


def made(seed: int = 0, count: int = 600) -> Case:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1.2, (CLASSES, WIDE))
    labels = np.arange(count) % CLASSES
    mixing = rng.normal(0, 0.25, (WIDE, WIDE))

    def drawn(means: np.ndarray) -> np.ndarray:
        return np.maximum(means + rng.normal(size=means.shape) @ mixing, 0).astype(np.float32)

    weight = (centres + rng.normal(0, 0.2, centres.shape)).astype(np.float32) * 0.3
    asked = np.concatenate([drawn(centres[labels[:40]]), drawn(rng.normal(0, 1.2, (40, WIDE)))])
    return Case(weight, rng.normal(0, 0.3, CLASSES).astype(np.float32), drawn(centres[labels]), labels, asked)


@pytest.fixture(scope="session")
def case() -> Case:
    return made()


@pytest.fixture(scope="session")
def peer() -> Any:
    """pytorch-ood's detectors; its torchvision is made to load beside a CPU torch."""
    from sorites.core.compute.torch_tools import import_torchvision as torchvision_ready

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchvision_ready()
        return pytest.importorskip("pytorch_ood.detector")
