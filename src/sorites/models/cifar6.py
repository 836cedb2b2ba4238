"""The classifier of the built-in OOD benchmark: frozen EfficientNet-lite1 features and a linear head for
six CIFAR-10 classes.

The head is a multinomial logistic regression, fitted once on the CIFAR-10 training images of the
in-distribution classes and stored in the user's cache. The encoder uses another backbone, so that the
two do not make the same mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import Head, Model, Sample, add_model
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.core.rng import digest, hashed_order
from sorites.io.files import cache, cached
from sorites.models import lite
from sorites.models.preprocess import Input
from sorites.models.torch_module import linear_head, torch_model

VERSION = 1
# The default number of training images.
IMAGES = 3000
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "ship")
# The L2 penalty on the weights of the head, relative to the mean loss per image.
SHRINK = 1e-3
BATCH_SIZE = 32


@add_model
def cifar6(argument: str | None = None) -> Model:
    """Classify six classes of CIFAR-10 (cifar6 or cifar6:N): lite1 features and a head fitted on N images
    (default 3000).
    """
    count = IMAGES if argument is None else int(argument) if argument.isdecimal() else 0
    if not 100 <= count <= 30_000:
        raise SoritesError(f"model cifar6: expected a number of images from 100 to 30000, got {argument!r}")
    import torch

    weight, bias = _head(count)
    network = lite.load(1)
    network._fc = torch.nn.Linear(weight.shape[1], len(CLASSES))
    network._fc.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
    wants = Input(size=(lite.SIZES[1],) * 2, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    return torch_model("cifar6", lite.one_pass(network), wants, CLASSES, linear_head(network._fc))


def _head(count: int) -> Head:
    """Return the head for ``count`` images, loaded from the cache or fitted."""
    backbone = lite.lite1(None)
    key = digest(VERSION, backbone.cache_key(), count, CLASSES, SHRINK).hex()
    path = cache("models", f"cifar6-{count}-{key[:12]}.safetensors")
    return cached(path, lambda: _fit_and_pack(backbone, count), _read)


def _read(path: Path) -> Head:
    from safetensors.numpy import load_file

    arrays = load_file(path)
    return arrays["weight"], arrays["bias"]


def _fit_and_pack(backbone: Model, count: int) -> bytes:
    from safetensors.numpy import save

    source = core.source("cifar:train,id", labels(CLASSES))
    samples = hashed_order(source, lambda sample: ["cifar6", sample.id])[:count]
    ground_truth = np.array([sample.label for sample in samples], np.int64)
    weight, bias = fit_linear_head(_features(backbone, samples), ground_truth, len(CLASSES))
    return save({"weight": weight, "bias": bias})


def _features(backbone: Model, samples: Sequence[Sample]) -> NDArray[np.float32]:
    batches = (samples[start : start + BATCH_SIZE] for start in range(0, len(samples), BATCH_SIZE))
    features = [backbone([sample.load() for sample in batch], True).features for batch in batches]
    return np.concatenate([part for part in features if part is not None])


def fit_linear_head(
    features: NDArray[np.float32], ground_truth: NDArray[np.int64], classes: int, shrink: float = SHRINK
) -> Head:
    """Fit a multinomial logistic regression.

    It minimises mean cross-entropy + ``shrink`` / 2 x squared weights, on standardised features.

    Returns:
        The weights C x D and bias C, converted back to the original scale of the features.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    mean, scale = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64) + 1e-6
    inputs = np.column_stack([(features - mean) / scale, np.ones(len(features))])
    one_hot = np.eye(classes)[ground_truth]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(classes, -1)
        logs = log_softmax(inputs @ weights.T, axis=1)
        decay = weights * shrink
        decay[:, -1] = 0
        slope = (np.exp(logs) - one_hot).T @ inputs / len(inputs) + decay
        return float(-(logs * one_hot).sum() / len(inputs) + (decay * weights).sum() / 2), slope.ravel()

    solution = minimize(
        loss, np.zeros(classes * inputs.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 300}
    ).x
    weights = solution.reshape(classes, -1)
    weight = weights[:, :-1] / scale
    return weight.astype(np.float32), (weights[:, -1] - weight @ mean).astype(np.float32)
