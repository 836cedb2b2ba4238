"""From scorers to rows: what each needs of a model, and how strange each picture is to it, or why that cannot be said."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sorites.core import Model, Outputs, Picture, Scorer
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.pipeline.pictures import reason

Scored = tuple[float | None, str | None]
"""The strangeness of one picture, or none and why."""

WORDS = {
    "features": "the model's features",
    "head": "the model's last linear layer",
    "gradient": "the gradient at the model's input",
    "maps": "the model's feature maps",
    "layers": "the activations of the model's layers",
}
INSIDE = frozenset({"gradient", "maps", "layers"})
"""Needs that only a model with its torch module meets."""


def needs(scorer: Scorer) -> frozenset[str]:
    """What a scorer says it needs beyond logits; one that is fitted and says nothing needs training pictures."""
    return frozenset(getattr(scorer, "needs", {"training"} if hasattr(scorer, "fit") else ()))


def refuse(name: str, scorer: Scorer, model: Model, one: Outputs) -> None:
    """An error by name when the model, which gave ``one``, cannot give what the scorer needs."""
    has = {
        "features": one.features is not None,
        "head": model.head is not None,
        **dict.fromkeys(INSIDE, model.module is not None),
    }
    lacks = [need for need in sorted(needs(scorer)) if not has.get(need, True)]
    if not lacks:
        return _agrees(name, model, one) if "head" in needs(scorer) else None
    which = "lite0 to lite2, timm models and torch modules (python:module:name)"
    hint = f"; {which} show it" if lacks[0] in INSIDE else ""
    raise SoritesError(f"{name} needs {WORDS[lacks[0]]}, which {model.name} does not show{hint}. Leave out the one or the other.")


def _agrees(name: str, model: Model, one: Outputs) -> None:
    """The head makes the logits of the features, or it is not the head."""
    if model.head is None or one.features is None or one.logits is None:
        return
    weight, bias = model.head
    wanted = (one.logits.shape[1], one.features.shape[1])
    if weight.shape != wanted:
        raise SoritesError(f"{name}: the head of {model.name} is {weight.shape}; its logits and features are {wanted}")
    made = one.features.astype(np.float64) @ weight.T + bias
    if not np.allclose(made, one.logits, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(one.logits).max()))):
        raise SoritesError(f"{name}: the head of {model.name} does not make its logits from its features")


def own(scorer: Scorer, model: Model) -> Scorer:
    """The scorer for one model, with its last layer where that is all it needs; others stay to be fitted."""
    if not hasattr(scorer, "fit"):
        return scorer
    mine: Any = copy.deepcopy(scorer)
    if "training" not in needs(scorer):
        mine.fit((), model.head)
    made: Scorer = mine
    return made


def looked(scorer: Any, name: str, model: Model, one: Outputs, picture: Picture, framed: bool) -> tuple[Outputs | None, str]:
    """The outputs with what a scorer that looks inside sees there, or none and why."""
    if not hasattr(scorer, "look"):
        return one, ""
    leave_if_asked()
    try:
        return replace(one, inside={name: scorer.look(model, [picture], framed)}), ""
    except Exception as error:
        return None, reason(error, f"scorer {name}")


def stacked(ones: Sequence[Outputs]) -> Outputs:
    """Outputs of one picture each as those of all."""

    def column(parts: list[Any]) -> Any:
        return None if parts[0] is None else np.concatenate(parts)

    inside = {key: column([one.inside[key] for one in ones]) for key in ones[0].inside}
    return Outputs(column([one.logits for one in ones]), column([one.features for one in ones]), inside=inside)


def scored(name: str, scorer: Scorer, ones: Sequence[Outputs]) -> list[Scored]:
    """One entry a picture. They are scored together; when that fails, one by one."""
    if not ones:
        return []
    try:
        given = np.asarray(scorer(stacked(ones)), np.float64)
        if given.shape != (len(ones),):
            raise SoritesError(f"scorer {name} gave shape {given.shape} for {len(ones)} pictures")
    except Exception as error:
        if len(ones) > 1:
            return [scored(name, scorer, [one])[0] for one in ones]
        return [(None, reason(error, f"scorer {name}"))]
    return [(float(score), None) if np.isfinite(score) else (None, f"scorer {name} gave {score}") for score in given]
