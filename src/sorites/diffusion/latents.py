"""Latents: images to and from the autoencoder of a pipeline, and the targets of training at a noise step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sorites.core.errors import SoritesError
from sorites.core.samples import ImageF32, ImageU8, to_float, to_uint8
from sorites.diffusion.conditions import Words, predict
from sorites.diffusion.pipeline import Pipe

# Noise steps of training.
NOISE_STEPS = 1000
# Pixels that the autoencoder decodes at a time, at most; a single image may be larger. Decoding takes more
# memory than denoising.
PIXELS_PER_DECODING = 1 << 20


def latents_of(pipe: Pipe, images: Sequence[ImageU8]) -> Any:
    """Return the latents of 8-bit images of the pipeline's width: the autoencoder's mean, without
    sampling.
    """
    import torch

    vae = pipe.parts.vae
    number = torch.float32 if getattr(vae.config, "force_upcast", False) else vae.dtype
    if vae.dtype != number:
        vae.to(number)
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).to(pipe.device, number) / 127.5 - 1
    with torch.no_grad():
        encoding = vae.encode(stacked)
        latents = encoding.latent_dist.mode() if hasattr(encoding, "latent_dist") else encoding.latents
    mean, std = getattr(vae.config, "latents_mean", None), getattr(vae.config, "latents_std", None)
    if mean is not None and std is not None:
        shift, spread = (
            torch.tensor(part, device=pipe.device, dtype=number).view(1, -1, 1, 1) for part in (mean, std)
        )
        latents = (latents - shift) / spread
    return ((latents - _offset(pipe)) * vae.config.scaling_factor).to(pipe.network.dtype)


def _offset(pipe: Pipe) -> float:
    """Return the mean of latents before they are scaled; only Stable Diffusion 3 and FLUX have one."""
    if pipe.kind not in ("sd3", "flux"):
        return 0.0
    return float(getattr(pipe.parts.vae.config, "shift_factor", None) or 0.0)


def add_noise(pipe: Pipe, latents: Any, noise: Any, times: Any) -> tuple[Any, Any]:
    """Return latents with added noise at some steps, and the network's target: the noise or the velocity."""
    scheduler = pipe.parts.scheduler
    if pipe.is_flow:
        part = (times / NOISE_STEPS).to(latents.device, latents.dtype).view(-1, *(1,) * (latents.ndim - 1))
        return (1 - part) * latents + part * noise, noise - latents
    alphas = getattr(scheduler, "alphas_cumprod", None)
    kind = getattr(scheduler.config, "prediction_type", "")
    if alphas is None or kind not in ("epsilon", "v_prediction"):
        raise SoritesError(
            f"the pipeline's scheduler {type(scheduler).__name__} predicts {kind!r}; expected epsilon or"
            " v_prediction"
        )
    share = alphas.to(latents.device, latents.dtype)[times].view(-1, *(1,) * (latents.ndim - 1))
    noisy = share.sqrt() * latents + (1 - share).sqrt() * noise
    return noisy, noise if kind == "epsilon" else share.sqrt() * noise - (1 - share).sqrt() * latents


def image_error(pipe: Pipe, noisy: Any, out: Any, wanted: Any, times: Any) -> Any:
    """Return how far the image that a prediction stands for is from the wanted latents.

    Where noise hides the image, a prediction of noise stands for one that is far off; such errors count as
    errors of the noise.
    """
    shape = (-1, *(1,) * (noisy.ndim - 1))
    if pipe.is_flow:
        return noisy - (times / NOISE_STEPS).to(noisy).view(shape) * out - wanted
    scheduler = pipe.parts.scheduler
    share = scheduler.alphas_cumprod.to(noisy)[times].view(shape)
    if getattr(scheduler.config, "prediction_type", "") == "v_prediction":
        return share.sqrt() * noisy - (1 - share).sqrt() * out - wanted
    error = (noisy - (1 - share).sqrt() * out) / share.sqrt() - wanted
    return error * (share / (1 - share)).sqrt().clamp(max=1)


def predict_noise(pipe: Pipe, noisy: Any, times: Any, conditions: Sequence[Any]) -> Any:
    """Return the network's prediction for noisy latents, each with its own prompt, or class number for a
    DiT.
    """
    import torch

    if pipe.kind == "dit":
        numbers = torch.tensor(list(conditions), device=noisy.device)
        out = pipe.network(noisy, timestep=times, class_labels=numbers, return_dict=False)[0]
        return out[:, : noisy.shape[1]]
    return predict(pipe, noisy, times, *Words.batch(conditions, False))


def decode_latents(pipe: Pipe, latents: Any, size: int | None = None) -> Iterator[ImageF32]:
    """Yield the images of latents, resized to ``size`` if given."""
    import torch

    vae = pipe.parts.vae
    number = torch.float32 if getattr(vae.config, "force_upcast", False) else latents.dtype
    if vae.dtype != number:
        vae.to(number)
    scaled = latents.to(number) / vae.config.scaling_factor + _offset(pipe)
    mean, std = getattr(vae.config, "latents_mean", None), getattr(vae.config, "latents_std", None)
    if mean is not None and std is not None:
        shift, spread = (
            torch.tensor(part, device=scaled.device, dtype=number).view(1, -1, 1, 1) for part in (mean, std)
        )
        scaled = scaled * spread + shift
    pixels = (scaled.shape[-1] * pipe.factor) * (scaled.shape[-2] * pipe.factor)
    for part in scaled.split(max(1, PIXELS_PER_DECODING // pixels)):
        images = (vae.decode(part, return_dict=False)[0] / 2 + 0.5).clamp(0, 1)
        for image in images.permute(0, 2, 3, 1).float().cpu().numpy():
            yield _resize(np.ascontiguousarray(image, np.float32), size)


def _resize(image: ImageF32, size: int | None) -> ImageF32:
    """Resize as the published scripts do: from 8 bits, bicubic."""
    if size is None or size == image.shape[0]:
        return image
    from PIL import Image as Pillow

    return to_float(
        np.asarray(Pillow.fromarray(to_uint8(image)).resize((size, size), Pillow.Resampling.BICUBIC))
    )
