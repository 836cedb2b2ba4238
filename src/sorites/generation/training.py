"""Train one slider, step by step; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sorites.diffusion.layers import Low, attached, shapes, targets
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.prompts import Words, encoded
from sorites.diffusion.sliders import Slider, made
from sorites.errors import SoritesError
from sorites.files import write_bytes
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
        words = tuple(encoded(pipe, prompt, "", side * factor) for prompt in prompts)
        key = digest(pipe.version, concept, shift, json.dumps(recipe.facts(), sort_keys=True)).hex()
        lows = _start(pipe, recipe, key)
        optimizer = torch.optim.AdamW([part for low in lows.values() for part in low], lr=recipe.rate)
        done = _resumed(state, lows, optimizer, key)
        tick(done)
        losses = _learn(pipe, (words[0], words[1]), lows, optimizer, recipe, side, (done, state, key), tick)
    scale = recipe.alpha / recipe.rank
    folded = {name: (down.detach().cpu(), (up.detach() * scale).cpu()) for name, (down, up) in lows.items()}
    facts = {"class": concept, "neutral": prompts[0], "positive": prompts[1], "recipe": dict(recipe.facts()), "last_loss": losses}
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


def generator(key: str, *parts: object) -> Any:
    """Return a generator that follows from a key and further parts, such as the number of a step."""
    import torch

    return torch.Generator().manual_seed(int.from_bytes(digest(key, *parts, size=8), "little") >> 1)


def _learn(
    pipe: Pipe, words: tuple[Words, Words], lows: Mapping[str, Low], optimizer: Any, recipe: SliderRecipe, side: int,
    resume: tuple[int, Path, str], tick: Callable[[int], None],
) -> float:  # fmt: skip
    import torch

    done, state, key = resume
    times, path, last = noise_schedule(pipe, recipe).timesteps, [], math.nan
    keep = recipe.refresh * max(1, round(KEPT / recipe.refresh))
    with attached(pipe.parts.unet, [lows]) as dial:
        for step in range(done, recipe.steps):
            draw = generator(key, step)
            place = int(torch.randint(1, recipe.noise_steps, (1,), generator=draw))
            if step % recipe.refresh == 0:
                until = place if recipe.refresh == 1 else recipe.noise_steps - 1
                path = trajectories(pipe, words[0], dial, recipe, side, until, draw)
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * (0.5 + 0.5 * math.cos(math.pi * step / recipe.steps) if recipe.decay else 1.0)
            found = loss(pipe, path[place], times[place], words, dial, recipe)
            last = float(found.detach())
            if not math.isfinite(last):
                raise SoritesError(f"training failed at step {step + 1}: the loss is {last}. Try a smaller rate or eta")
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
            tick(1)
            if (step + 1) % keep == 0 and step + 1 < recipe.steps:
                _keep(state, lows, optimizer, key, step + 1)
    return last


def _keep(state: Path, lows: Mapping[str, Low], optimizer: Any, key: str, done: int) -> None:
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    for name, low in lows.items():
        for side, part in zip(("down", "up"), low, strict=True):
            of = optimizer.state[part]
            kept = {"weight": part.detach(), "mean": of["exp_avg"], "square": of["exp_avg_sq"], "step": of["step"]}
            tensors |= {f"{name}.{side}.{what}": value.cpu().contiguous() for what, value in kept.items()}
    write_bytes(save(tensors, metadata={"key": key, "done": str(done)}), state)


def _resumed(state: Path, lows: Mapping[str, Low], optimizer: Any, key: str) -> int:
    """Take what was learnt so far from the file, if it is of this slider; return how many steps that were."""
    import torch
    from safetensors import safe_open

    if not state.is_file():
        return 0
    try:
        with safe_open(str(state), framework="pt") as file, torch.no_grad():
            header = file.metadata() or {}
            if header.get("key") != key:
                return 0
            for name, low in lows.items():
                for side, part in zip(("down", "up"), low, strict=True):
                    stem = f"{name}.{side}"
                    part.copy_(file.get_tensor(f"{stem}.weight"))
                    optimizer.state[part] = {
                        "step": file.get_tensor(f"{stem}.step"),
                        "exp_avg": file.get_tensor(f"{stem}.mean").to(part.device),
                        "exp_avg_sq": file.get_tensor(f"{stem}.square").to(part.device),
                    }
            return int(header["done"])
    except Exception as error:  # a damaged file makes the reader raise nearly anything
        raise SoritesError(f"cannot go on from {state}: {error}. Delete it, and that slider is trained from its start") from error
