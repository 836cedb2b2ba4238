"""A recipe on twenty small images, and the weights that it ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from sorites.training.recipe import Recipe, parse


def recipe(photos: Path, **keys: Any) -> Recipe:
    data = {"source": f"folder:{photos}", "labels": "found", **keys.pop("data", {})}
    plain: dict[str, Any] = {"name": "r", "epochs": 3, "batch": 4, "optimiser": {"lr": 0.05}}
    if "steps" in keys or "stages" in keys:
        plain.pop("epochs")
    return parse({**plain, **keys, "data": data}, "r")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
