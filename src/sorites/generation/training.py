"""Train one slider, step by step; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.diffusion.layers import Dial, Low, attached, shapes, targets
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.prompts import Words, encoded
from sorites.diffusion.sliders import Slider, made
from sorites.generation.learning import Lesson, generator, learn
from sorites.generation.objective import loss, noise_schedule, trajectories
from sorites.generation.recipe import SliderRecipe
from sorites.rng import digest
from sorites.torch_tools import one_thread

UNFINISHED = "training.safetensors"
KEPT = 40
"""Steps between two states that are written to disk, about."""


def trained(
    pipe: Pipe, concept: str, shift: str, recipe: SliderRecipe, state: Path, tick: Callable[[int], None] = lambda _: None
) -> Slider:
    """Train the slider of a class and a shift; ``state`` is the file that keeps what is learnt so far."""
    import torch

    with pipe.busy, one_thread(), torch.enable_grad():
        factor = int(pipe.parts.vae_scale_factor)
        side = min(recipe.side or pipe.side, pipe.side) // factor
        prompts = recipe.words(concept, shift)
        neutral, positive = (encoded(pipe, prompt, "", side * factor) for prompt in prompts)
        key = digest(pipe.version, concept, shift, json.dumps(recipe.facts(), sort_keys=True)).hex()
        lows = _start(pipe, recipe, key)
        weights = {f"{name}.{half}": part for name, low in lows.items() for half, part in zip(("down", "up"), low, strict=True)}
        optimizer = torch.optim.AdamW(list(weights.values()), lr=recipe.rate)
        keep = recipe.refresh * max(1, round(KEPT / recipe.refresh))
        with attached(pipe.parts.unet, [lows]) as dial:
            losses = _losses(pipe, (neutral, positive), dial, recipe, side)
            last = learn(Lesson("slider", weights, optimizer, state, key, keep), recipe, losses, tick)
    scale = recipe.alpha / recipe.rank
    folded = {name: (down.detach().cpu(), (up.detach() * scale).cpu()) for name, (down, up) in lows.items()}
    facts = {"class": concept, "neutral": prompts[0], "positive": prompts[1], "recipe": dict(recipe.facts()), "last_loss": last}
    return made(shift, folded, facts)


def _start(pipe: Pipe, recipe: SliderRecipe, key: str) -> dict[str, Low]:
    """Return fresh matrices: down at random, up at 0, so that the slider does nothing yet."""
    import torch

    modules, draw = dict(pipe.parts.unet.named_modules()), generator(key, "start")
    lows = {}
    for name in targets(pipe.parts.unet, recipe.layers):
        shape, other = shapes(modules[name], recipe.rank)
        bound = math.sqrt(3 / math.prod(shape[1:]))
        down = (torch.rand(shape, generator=draw) * 2 - 1) * bound
        lows[name] = (down.to(pipe.device).requires_grad_(), torch.zeros(other, device=pipe.device).requires_grad_())
    return lows


def _losses(pipe: Pipe, words: tuple[Words, Words], dial: Dial, recipe: SliderRecipe, side: int) -> Callable[[int, Any], Any]:
    """Return the loss of a step: at a noise step drawn for it, of trajectories that several steps in a row may share."""
    import torch

    times, path = noise_schedule(pipe, recipe).timesteps, []

    def at(step: int, draw: Any) -> Any:
        nonlocal path
        place = int(torch.randint(1, recipe.noise_steps, (1,), generator=draw))
        if step % recipe.refresh == 0:
            until = place if recipe.refresh == 1 else recipe.noise_steps - 1
            path = trajectories(pipe, words[0], dial, recipe, side, until, draw)
        return loss(pipe, path[place], times[place], words, dial, recipe)

    return at
