"""Edit photographs by an instruction: pipelines like InstructPix2Pix, with the strength of the text as
severity.

The network sees noisy latents beside those of the photograph. Guidance has two scales: how much the
photograph and how much the instruction counts (Brooks et al., CVPR 2023). Severity multiplies the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sorites.core.compute.arithmetic import reproducible
from sorites.core.errors import SoritesError
from sorites.core.samples import ImageF32, ImageU8
from sorites.diffusion.latents import decode_latents
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import noise_seed
from sorites.diffusion.schedulers import make_scheduler, set_steps, step

KIND = "pix2pix"


@dataclass(frozen=True)
class InstructOptions:
    """Settings of an edit by instruction; the defaults are those of the published pipeline.

    Attributes:
        steps: Denoising steps.
        guidance: The text guidance at severity 1.
        image_guidance: The guidance by the photograph.
        scheduler: A scheduler by name, or ``own``.
    """

    steps: int = 100
    guidance: float = 7.5
    image_guidance: float = 1.5
    scheduler: str = "own"

    def __post_init__(self) -> None:
        checks = (
            ("steps", 1 <= self.steps <= 1000, "a whole number from 1 to 1000"),
            ("guidance", 0 < self.guidance <= 100, "a number above 0, at most 100"),
            ("image_guidance", 1 <= self.image_guidance <= 100, "a number from 1 to 100"),
        )
        for name, valid, expected in checks:
            if not valid:
                raise SoritesError(f"{name}: expected {expected}, got {getattr(self, name)!r}")


def instruct_photograph(
    pipe: Pipe, photograph: ImageU8, instruction: str, severities: Sequence[float], how: InstructOptions,
    seed: int | str,
) -> list[ImageF32]:  # fmt: skip
    """Return a photograph edited by an instruction at some severities.

    Args:
        pipe: A pipeline of the kind ``pix2pix``.
        photograph: The photograph at the pipeline's width, square.
        instruction: What to change, such as "make it snow".
        severities: Multiples of the text guidance.
        how: The settings of the edit.
        seed: The seed of the noise, or a text that it is drawn from.
    """
    import torch

    number = seed if isinstance(seed, int) else noise_seed(seed, 0, "prompt")
    with pipe.busy, reproducible(pipe.device), torch.no_grad():
        shown = _photograph_latents(pipe, photograph)
        hidden = torch.cat([_encoded(pipe, text) for text in (instruction, "", "")])
        # One image per pass: what is drawn must not depend on the other severities of a call.
        return [_draw(pipe, shown, hidden, severity * how.guidance, how, number) for severity in severities]


def _photograph_latents(pipe: Pipe, photograph: ImageU8) -> Any:
    """Return the latents that the network sees beside the noisy ones; they are not scaled."""
    import torch

    vae = pipe.parts.vae
    pixels = torch.from_numpy(np.ascontiguousarray(photograph))[None].permute(0, 3, 1, 2)
    encoding = vae.encode(pixels.to(pipe.device, vae.dtype) / 127.5 - 1)
    return encoding.latent_dist.mode() if hasattr(encoding, "latent_dist") else encoding.latents


def _encoded(pipe: Pipe, text: str) -> Any:
    tokenizer, encoder = pipe.parts.tokenizer, pipe.parts.text_encoder
    tokens = tokenizer(
        text,
        padding="max_length",
        max_length=tokenizer.model_max_length,
        truncation=True,
        return_tensors="pt",
    )
    mask = None
    if getattr(encoder.config, "use_attention_mask", None):
        mask = tokens.attention_mask.to(pipe.device)
    return encoder(tokens.input_ids.to(pipe.device), attention_mask=mask)[0].to(pipe.network.dtype)


def _draw(pipe: Pipe, shown: Any, hidden: Any, guidance: float, how: InstructOptions, seed: int) -> ImageF32:
    import torch

    scheduler = set_steps(make_scheduler(pipe.parts.scheduler, how.scheduler), how.steps, pipe.device, 1)
    draw = torch.Generator("cpu").manual_seed(seed)
    latents = torch.randn(shown.shape, generator=draw, dtype=pipe.network.dtype).to(pipe.device)
    latents = latents * scheduler.init_noise_sigma
    beside = torch.cat([shown, shown, torch.zeros_like(shown)]).to(latents)
    for time in scheduler.timesteps:
        noisy = scheduler.scale_model_input(torch.cat([latents] * 3), time)
        out = pipe.network(
            torch.cat([noisy, beside], dim=1), time, encoder_hidden_states=hidden, return_dict=False
        )[0]
        text, image, neither = out.chunk(3)
        out = neither + guidance * (text - image) + how.image_guidance * (image - neither)
        latents = step(scheduler, out, time, latents, [draw])
    return next(decode_latents(pipe, latents))
