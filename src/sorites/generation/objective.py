"""The loss that trains a slider: with it on, the prediction for the class lies eta times further towards the shift.

    loss = | predict(x_t, class, slider on) - [neutral + eta (positive - unconditional)] |^2

with neutral and unconditional the prediction for the class and positive that for the class in the shift, all with the slider off.
x_t lies on trajectories that the network draws of the class with the slider on, as it is so far. The released configuration has
the same words for target, neutral and unconditional; guidance by words against the same words changes nothing, so those
trajectories are drawn without it here, at half the price. Gandikota et al. 2024; Dünkel et al. 2025, equation 2.
"""

from __future__ import annotations

from typing import Any

from sorites.diffusion.layers import Dial
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.prompts import Words
from sorites.generation.recipe import SliderRecipe


def trajectories(pipe: Pipe, words: Words, dial: Dial, recipe: SliderRecipe, side: int, last: int, draw: Any) -> list[Any]:
    """Return latents at each noise step up to the ``last`` one wanted, drawn with the slider on at severity 1."""
    import torch

    scheduler = noise_schedule(pipe, recipe)
    shape = (recipe.batch, int(pipe.parts.unet.config.in_channels), side, side)
    latents = torch.randn(shape, generator=draw).to(pipe.device, pipe.parts.unet.dtype) * scheduler.init_noise_sigma
    found = [latents]
    with torch.no_grad():
        for time in scheduler.timesteps[:last]:
            out = predicted(pipe, latents, time, words, dial, recipe)
            latents = scheduler.step(out, time, latents, return_dict=False)[0]
            found.append(latents)
    return found


def noise_schedule(pipe: Pipe, recipe: SliderRecipe) -> Any:
    """Return DDIM at the recipe's number of steps."""
    import diffusers

    scheduler = diffusers.DDIMScheduler.from_config(pipe.parts.scheduler.config)
    scheduler.set_timesteps(recipe.noise_steps, device=pipe.device)
    return scheduler


def predicted(pipe: Pipe, latents: Any, time: Any, words: Words, dial: Dial, recipe: SliderRecipe | None) -> Any:
    """Return the network's prediction for some words; with a recipe the slider is on at severity 1, without one it is off."""
    import torch

    scale = None if recipe is None else recipe.alpha / recipe.rank
    dial.scales = None if scale is None else torch.full((len(latents), 1), scale, device=latents.device)
    hidden, added = Words.batch([words] * len(latents), False)
    out = pipe.parts.unet(latents, time, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False)[0]
    dial.scales = None
    return out


def loss(pipe: Pipe, latents: Any, time: Any, words: tuple[Words, Words], dial: Dial, recipe: SliderRecipe) -> Any:
    """Return the squared distance of the slider's prediction from its target."""
    import torch

    with torch.no_grad():
        neutral, positive = (predicted(pipe, latents, time, some, dial, None) for some in words)
        target = neutral + recipe.eta * (positive - neutral)
    return torch.nn.functional.mse_loss(predicted(pipe, latents, time, words[0], dial, recipe).float(), target.float())
