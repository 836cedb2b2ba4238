"""Classify into groups of classes, such as the super-classes of LAION-C: ``groups:FILE.json,MODEL``.

The probability of a group is the mean of the probabilities of its classes, as in the evaluation of LAION-C;
classes outside of all groups do not count. Logits are the logarithms of these means.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from sorites import core
from sorites.core import Model, Outputs, add_model
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, class_groups, imagenet
from sorites.core.rng import digest
from sorites.models.trial import settle_scale

# The version of grouping; increase it when logits change.
VERSION = 1


@add_model
def groups(argument: str | None) -> Model:
    """Classify into groups of a classifier's classes that a JSON file lists (groups:FILE.json,lite0)."""
    file, comma, spec = (argument or "").partition(",")
    if not file or not comma or not spec:
        raise SoritesError(
            f"model groups: expected a file of groups and a classifier, got {argument or 'nothing'}. Use"
            " groups:FILE.json,lite0"
        )
    return grouped(core.model(spec), class_groups(file), f"groups:{Path(file).name},{spec}")


def grouped(model: Model, members: dict[str, tuple[str, ...]], name: str) -> Model:
    """Return a classifier of groups of classes.

    Args:
        model: A classifier of single classes.
        members: The ids or names of the classes of each group.
        name: The name of the result.

    Raises:
        SoritesError: The model is no classifier with classes of its own.
        UnknownName: It lacks a class.
    """
    if model.output != "label" or model.labels is None:
        raise SoritesError(
            f"model {name}: expected a classifier that names its classes, such as lite0; {model.name} has"
            f" {'boxes' if model.output == 'boxes' else 'none'}"
        )
    inner = settle_scale(model)
    own = _labels(model.labels)
    places = [np.array([own.find(one) for one in classes]) for classes in members.values()]

    def forward(images: list[NDArray[Any]]) -> Outputs:
        outputs = inner.forward(images)
        if outputs.logits is None:
            return outputs
        logs = log_softmax(np.asarray(outputs.logits, np.float64), axis=1)
        means = [logsumexp(logs[:, columns], axis=1) - np.log(len(columns)) for columns in places]
        return replace(outputs, logits=np.stack(means, axis=1).astype(np.float32))

    listed = [text for pair in members.items() for text in (pair[0], *pair[1])]
    return replace(
        inner,
        name=name,
        forward=forward,
        labels=tuple(members),
        version=digest(VERSION, inner.version, *listed).hex() if inner.version else "",
        head=None,
        module=None,
        cache_version=None,
        scale="logits",
        graph=None,
    )


def _labels(names: tuple[str, ...]) -> Labels:
    """Return the classes of a model as labels; those of ImageNet are found by WordNet id and by name."""
    return imagenet() if names == imagenet().ids else Labels(names, names)
