"""Learn weights step by step; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.generation.recipe import SliderRecipe
from sorites.generation.word_recipe import WordRecipe
from sorites.rng import digest


@dataclass(frozen=True, eq=False)
class Lesson:
    """A lesson: weights by name, the file that keeps them on the way, and the key of all that they follow from."""

    called: str
    """The name of what the weights make, for errors: slider or word."""
    weights: Mapping[str, Any]
    optimizer: Any
    state: Path
    key: str
    every: int
    """Steps between two states that are written to disk."""


def generator(key: str, *parts: object) -> Any:
    """Return a generator that follows from a key and further parts, such as the number of a step."""
    import torch

    return torch.Generator().manual_seed(int.from_bytes(digest(key, *parts, size=8), "little") >> 1)


def learn(
    lesson: Lesson, recipe: SliderRecipe | WordRecipe, loss: Callable[[int, Any], Any], tick: Callable[[int], None]
) -> float:
    """Take every step that is left, with ``loss(step, generator)`` for each; return the last loss."""
    done, last = _resumed(lesson), math.nan
    tick(done)
    for step in range(done, recipe.steps):
        for group in lesson.optimizer.param_groups:
            group["lr"] = recipe.rate * (0.5 + 0.5 * math.cos(math.pi * step / recipe.steps) if recipe.decay else 1.0)
        found = loss(step, generator(lesson.key, step))
        last = float(found.detach())
        if not math.isfinite(last):
            raise SoritesError(
                f"training the {lesson.called} failed at step {step + 1}: the loss is {last}. Try a smaller rate"
                + (" or eta" if isinstance(recipe, SliderRecipe) else "")
            )
        lesson.optimizer.zero_grad()
        found.backward()
        lesson.optimizer.step()
        tick(1)
        if (step + 1) % lesson.every == 0 and step + 1 < recipe.steps:
            _keep(lesson, step + 1)
    return last


def _keep(lesson: Lesson, done: int) -> None:
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    for name, part in lesson.weights.items():
        of = lesson.optimizer.state[part]
        kept = {"weight": part.detach(), "mean": of["exp_avg"], "square": of["exp_avg_sq"], "step": of["step"]}
        tensors |= {f"{name}.{what}": value.cpu().contiguous() for what, value in kept.items()}
    write_bytes(save(tensors, metadata={"key": lesson.key, "done": str(done)}), lesson.state)


def _resumed(lesson: Lesson) -> int:
    """Take what was learnt so far from the file, if it is of this lesson; return how many steps that were."""
    import torch
    from safetensors import safe_open

    if not lesson.state.is_file():
        return 0
    try:
        with safe_open(str(lesson.state), framework="pt") as file, torch.no_grad():
            header = file.metadata() or {}
            if header.get("key") != lesson.key:
                return 0
            for name, part in lesson.weights.items():
                part.copy_(file.get_tensor(f"{name}.weight"))
                lesson.optimizer.state[part] = {
                    "step": file.get_tensor(f"{name}.step"),
                    "exp_avg": file.get_tensor(f"{name}.mean").to(part.device),
                    "exp_avg_sq": file.get_tensor(f"{name}.square").to(part.device),
                }
            return int(header["done"])
    except Exception as error:  # a damaged file makes the reader raise nearly anything
        raise SoritesError(
            f"cannot go on from {lesson.state}: {error}. Delete it, and that {lesson.called} is trained from its start"
        ) from error
