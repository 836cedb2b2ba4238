"""The models of a plan by their names in the table: with the suite's classes where they have none, with a version, and steady."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from sorites import core
from sorites.core import Model, Outputs
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.models._versioned import versioned
from sorites.suite import Suite

Forward = Callable[[list[NDArray[Any]]], Outputs]


def loaded(suite: Suite, given: Mapping[str, Model], labels: Labels) -> dict[str, Model]:
    """Load the models of a suite; one that is given as an object takes the place of what the suite names."""
    found: dict[str, Model] = {}
    for entry, name in zip(suite.models, suite.model_names, strict=True):
        model = _with_classes(given.get(name) or core.model(entry), labels)
        known = model if model.version else versioned(model)
        found[name] = replace(known, forward=steady(name, known.forward))
    return found


def _with_classes(model: Model, labels: Labels) -> Model:
    """Return the model as it is, or one without classes of its own (zero-shot) with the suite's."""
    return model if model.for_classes is None else replace(model.for_classes(labels.names), name=model.name)


def steady(name: str, forward: Forward) -> Forward:
    """Return the same pass with its features held to the width that they had the first time; others are an error."""
    first: list[int | None] = []

    def run(pictures: list[NDArray[Any]]) -> Outputs:
        outputs = forward(pictures)
        if not len(outputs):
            return outputs
        wide = None if outputs.features is None else outputs.features.shape[1]
        if not first:
            first.append(wide)
        if wide != first[0]:
            raise SoritesError(f"model {name} gave features of width {wide}, and {first[0]} before")
        return outputs

    return run
