"""The models of a plan by their names in the table: with the suite's classes where they have none, and each with a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sorites import core
from sorites.core import Model
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.models._versioned import versioned
from sorites.suite import Suite
from sorites.torch_tools import Computing, computed


def loaded(suite: Suite, given: Mapping[str, Model], labels: Labels) -> dict[str, Model]:
    """Load the models of a suite; one that is given as an object takes the place of what the suite names."""
    found: dict[str, Model] = {}
    with computed(Computing(suite.device, suite.precision)):
        for entry, name in zip(suite.models, suite.model_names, strict=True):
            model = _with_classes(given.get(name) or core.model(entry), labels)
            _refuse_precision(suite, name, model, name in given)
            found[name] = model if model.version else versioned(model)
    return found


def _refuse_precision(suite: Suite, name: str, model: Model, is_given: bool) -> None:
    """Refuse another precision than float32 for a model that nobody here can tell what to compute with."""
    if suite.precision not in (None, "float32") and (is_given or model.module is None):
        raise SoritesError(f"precision {suite.precision}: the model {name} is no torch model that is loaded here; leave it out")


def _with_classes(model: Model, labels: Labels) -> Model:
    """Return the model as it is, or one without classes of its own (zero-shot) with the suite's."""
    return model if model.for_classes is None else replace(model.for_classes(labels.names), name=model.name)
