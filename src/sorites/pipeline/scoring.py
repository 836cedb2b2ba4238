"""From outputs to strangeness: what each scorer needs of a model, and the score of each picture, or why it has none."""

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


def refuse(name: str, scorer: Scorer, model: Model, outputs: Outputs) -> None:
    """Raise an error by name when the model, which gave ``outputs``, cannot give what the scorer needs."""
    has = {
        "features": outputs.features is not None,
        "head": model.head is not None,
        **dict.fromkeys(INSIDE, model.module is not None),
    }
    lacks = [need for need in sorted(scorer.needs) if not has.get(need, True)]
    if not lacks:
        return _agrees(name, model, outputs) if "head" in scorer.needs else None
    which = "lite0 to lite2, timm models and torch modules (python:module:name)"
    hint = f"; {which} show it" if lacks[0] in INSIDE else ""
    raise SoritesError(f"{name} needs {WORDS[lacks[0]]}, which {model.name} does not show{hint}. Leave out the one or the other.")


def _agrees(name: str, model: Model, outputs: Outputs) -> None:
    """Check that the head makes the logits of the features, or it is not the head."""
    if model.head is None or outputs.features is None or outputs.logits is None:
        return
    weight, bias = model.head
    wanted = (outputs.logits.shape[1], outputs.features.shape[1])
    if weight.shape != wanted:
        raise SoritesError(f"{name}: the head of {model.name} is {weight.shape}; its logits and features are {wanted}")
    made = outputs.features.astype(np.float64) @ weight.T + bias
    if not np.allclose(made, outputs.logits, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(outputs.logits).max()))):
        raise SoritesError(f"{name}: the head of {model.name} does not make its logits from its features")


def for_model(scorer: Scorer, head: Any) -> Scorer:
    """Return a copy for one model; it gets the head now if it needs no training pictures, and stays to be fitted if it does."""
    copied = copy.deepcopy(scorer)
    return copied if "training" in scorer.needs else copied.fit((), head)


def look_inside(scorer: Scorer, name: str, model: Model, picture: Picture, framed: bool) -> tuple[Any, str | None]:
    """Return the row that a scorer sees inside the model for one picture, or none and why."""
    leave_if_asked()
    try:
        return scorer.look(model, [picture], framed), None
    except (Exception, SystemExit) as error:
        return None, reason(error, f"scorer {name}")


def scores(
    name: str, scorer: Scorer, model: Model, outputs: Outputs, pictures: Sequence[tuple[Picture | None, bool]]
) -> list[Scored]:
    """Score the pictures that a model saw: one entry per picture, which comes with whether it is framed."""
    if not scorer.looks:
        return scored(name, scorer, outputs)
    rows = [look_inside(scorer, name, model, picture, framed) for picture, framed in pictures if picture is not None]
    seen = [i for i, (_, error) in enumerate(rows) if error is None]
    found: list[Scored] = [(None, error) for _, error in rows]
    if seen:
        inside = {name: np.concatenate([rows[i][0] for i in seen])}
        for i, score in zip(seen, scored(name, scorer, replace(outputs[np.array(seen)], inside=inside)), strict=True):
            found[i] = score
    return found


def scored(name: str, scorer: Scorer, outputs: Outputs) -> list[Scored]:
    """Score pictures together, one entry each; when that fails, one by one."""
    count = len(outputs)
    if not count:
        return []
    try:
        given = np.asarray(scorer(outputs), np.float64)
        if given.shape != (count,):
            raise SoritesError(f"scorer {name} gave shape {given.shape} for {count} pictures")
    except (Exception, SystemExit) as error:
        if count > 1:
            return [scored(name, scorer, outputs[i : i + 1])[0] for i in range(count)]
        return [(None, reason(error, f"scorer {name}"))]
    return [(float(score), None) if np.isfinite(score) else (None, f"scorer {name} gave {score}") for score in given]


def try_scorer(name: str, scorer: Scorer, model: Model, outputs: Outputs, picture: Picture) -> None:
    """Raise an error where the model lacks what the scorer needs, or where it cannot score ``picture``.

    One that is to be fitted is not asked for a score before it is.
    """
    refuse(name, scorer, model, outputs)
    copied = for_model(scorer, model.head)
    if "training" in scorer.needs:
        failed = look_inside(copied, name, model, picture, False)[1] if copied.looks else None
    else:
        ((_, failed),) = scores(name, copied, model, outputs, [(picture, False)])
    if failed:
        raise SoritesError(f"{name} cannot score what {model.name} gives for a plain grey picture: {failed}")
