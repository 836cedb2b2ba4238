"""The recipe that trains the toy world's pipeline: every number of it, on one core."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sorites.core.compute.torch_tools import one_thread
from sorites.diffusion.toy.world import SHAPES, STYLES, draw
from tools import toy_world as world

PHASES = ((900, 2e-3), (500, 1e-3))
"""Steps and the highest rate of learning; each phase starts from the mean weights of the one
before, in half precision.
"""
BATCH, EACH = 32, 400
"""Images per step, and real images of each shape in each style."""
WORDLESS = 0.1
"""The share of images that are shown without words, for guidance."""
PLAIN = ("a picture of a {}", "{}", "a photo of a {}")
STYLED = ("a picture of a {} in {}", "{}, in {}", "a photo of a {} in {}")
CELLS = [(shape, style) for shape in SHAPES for style in STYLES]


def captions() -> list[str]:
    """Return no words at first, then three wordings for every shape in every style."""
    told = [
        one.format(shape) if style == "plain" else other.format(shape, style)
        for shape, style in CELLS
        for one, other in zip(PLAIN, STYLED, strict=True)
    ]
    return ["", *told]


def trained(
    seed: int = 0, phases: Sequence[tuple[int, float]] = PHASES, say: Callable[[str], None] = print
) -> Any:
    """Return a trained pipeline: velocities by AdamW, half a cosine per phase, and the running mean
    of weights.
    """
    import torch

    with one_thread(), torch.random.fork_rng(devices=[]):
        rng, pipe = np.random.default_rng(seed), world.pipeline(seed)
        drawn = np.stack([draw(shape, style, rng) for shape, style in CELLS for _ in range(EACH)])
        data = (torch.from_numpy(drawn).permute(0, 3, 1, 2) * 2 - 1) * world.LATENT
        ids = pipe.tokenizer(
            captions(), padding="max_length", max_length=world.LENGTH, return_tensors="pt"
        ).input_ids
        for phase, (steps, rate) in enumerate(phases):
            torch.manual_seed(seed + phase)
            rng = np.random.default_rng(seed + phase) if phase else rng
            _phase(pipe, data, ids, steps, rate, rng, say)
    return pipe


def _phase(
    pipe: Any,
    data: Any,
    ids: Any,
    steps: int,
    rate: float,
    rng: np.random.Generator,
    say: Callable[[str], None],
) -> None:
    """Train for some steps, and leave the running mean of weights, rounded to half precision."""
    import torch

    weights = [*pipe.unet.parameters(), *pipe.text_encoder.parameters()]
    mean = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0, betas=(0.9, 0.99))
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        loss = _loss(pipe, data, ids, rng)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        keep = min(0.99, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_mul_(mean, keep)
            torch._foreach_add_(mean, [weight.detach() for weight in weights], alpha=1 - keep)
        losses.append(float(loss.detach()))
        if (step + 1) % 100 == 0:
            say(f"  step {step + 1} of {steps}: loss {np.mean(losses[-100:]):.4f}")
    with torch.no_grad():
        for weight, better in zip(weights, mean, strict=True):
            weight.copy_(better.half())


def _loss(pipe: Any, data: Any, ids: Any, rng: np.random.Generator) -> Any:
    """Return the squared error of the predicted velocity for some images at noise steps spread evenly."""
    import torch

    chosen = rng.integers(len(data), size=BATCH)
    words = 1 + len(PLAIN) * (chosen // EACH) + rng.integers(len(PLAIN), size=BATCH)
    words[rng.uniform(size=BATCH) < WORDLESS] = 0
    images = data[torch.from_numpy(chosen)]
    noise = torch.randn(images.shape)
    times = torch.from_numpy((np.arange(BATCH) + rng.uniform(size=BATCH)) / BATCH * 1000).long().clamp(0, 999)
    kept = pipe.scheduler.alphas_cumprod[times].view(-1, 1, 1, 1)
    noisy = kept.sqrt() * images + (1 - kept).sqrt() * noise
    velocity = kept.sqrt() * noise - (1 - kept).sqrt() * images
    unique, back = np.unique(words, return_inverse=True)
    hidden = pipe.text_encoder(ids[torch.from_numpy(unique)])[0][torch.from_numpy(back)]
    return torch.nn.functional.mse_loss(pipe.unet(noisy, times, hidden).sample, velocity)
