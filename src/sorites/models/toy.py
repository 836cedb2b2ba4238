"""Classifiers of the toy world (four shapes, 16 px), trained on its images; the weights are embedded."""

from __future__ import annotations

import copy
from typing import Any

from sorites.core import Model, add_model
from sorites.core.errors import MissingExtra, SoritesError
from sorites.diffusion.toy.world import KINDS, SHAPES, SIDE, load_classifier
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model, with_features


@add_model
def toy(argument: str | None = None) -> Model:
    """Classify shapes of the toy world: toy:all was trained on plain, snow and night images, toy:plain on
    plain ones only.
    """
    kind = argument or "all"
    if kind not in KINDS:
        raise SoritesError(f"model toy: expected toy:{' or toy:'.join(KINDS)}, got toy:{kind}")
    try:
        network = copy.deepcopy(load_classifier(kind))  # the one that is cached stays on the CPU
    except ImportError as error:
        raise MissingExtra("the model toy", "torch") from error
    last = network[-1]
    head = last.weight[: len(SHAPES)].numpy().copy(), last.bias[: len(SHAPES)].numpy().copy()
    wants = Input(size=(SIDE, SIDE), mean=(0.5,) * 3, std=(1.0,) * 3, crop_pct=1.0)
    return torch_model(f"toy:{kind}", with_features(network, _parts), wants, SHAPES, head)


def _parts(network: Any, x: Any) -> tuple[Any, Any]:
    features = network[:-1](x)
    return network[-1](features)[:, : len(SHAPES)], features
