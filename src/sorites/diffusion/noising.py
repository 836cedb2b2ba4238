"""Add noise to pictures, and say what the network should predict for them: word training and the classifier need both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.prompts import Words
from sorites.errors import SoritesError
from sorites.types import Picture

NOISE_STEPS = 1000
"""Noise steps that networks of this kind are trained on."""


def latents_of(pipe: Pipe, pictures: Sequence[Picture]) -> Any:
    """Return the latents of 8-bit pictures of the pipeline's width: the mean of what the autoencoder gives, without a draw."""
    import torch

    vae = pipe.parts.vae
    number = torch.float32 if getattr(vae.config, "force_upcast", False) else vae.dtype
    if vae.dtype != number:
        vae.to(number)
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).to(pipe.device, number) / 127.5 - 1
    with torch.no_grad():
        found = vae.encode(stacked)
        latents = found.latent_dist.mode() if hasattr(found, "latent_dist") else found.latents
    mean, std = getattr(vae.config, "latents_mean", None), getattr(vae.config, "latents_std", None)
    if mean is not None and std is not None:
        shift, spread = (torch.tensor(part, device=pipe.device, dtype=number).view(1, -1, 1, 1) for part in (mean, std))
        latents = (latents - shift) / spread
    return (latents * vae.config.scaling_factor).to(pipe.network.dtype)


def noised(pipe: Pipe, latents: Any, noise: Any, times: Any) -> tuple[Any, Any]:
    """Return latents with noise of some steps on them, and what the network should say: the noise, or the velocity."""
    scheduler = pipe.parts.scheduler
    kept = getattr(scheduler, "alphas_cumprod", None)
    kind = getattr(scheduler.config, "prediction_type", "")
    if kept is None or kind not in ("epsilon", "v_prediction"):
        raise SoritesError(
            f"the pipeline's scheduler {type(scheduler).__name__} predicts {kind!r}; wanted epsilon or v_prediction"
        )
    share = kept.to(latents.device, latents.dtype)[times].view(-1, *(1,) * (latents.ndim - 1))
    noisy = share.sqrt() * latents + (1 - share).sqrt() * noise
    return noisy, noise if kind == "epsilon" else share.sqrt() * noise - (1 - share).sqrt() * latents


def predicted(pipe: Pipe, noisy: Any, times: Any, conditions: Sequence[Any]) -> Any:
    """Return what the network says of noisy latents, each with its own words, or with the number of its class for a DiT."""
    import torch

    if pipe.kind == "dit":
        numbers = torch.tensor(list(conditions), device=noisy.device)
        out = pipe.network(noisy, timestep=times, class_labels=numbers, return_dict=False)[0]
        return out[:, : noisy.shape[1]]
    hidden, added = Words.batch(conditions, False)
    return pipe.network(noisy, times, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False)[0]
