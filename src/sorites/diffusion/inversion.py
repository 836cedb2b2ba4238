"""Move photographs along sliders: invert a photograph to noisy latents, and denoise them with the slider.

Two inversions of the noise steps in which sliders act:

- ``ddim``: the deterministic steps of DDIM backwards (Song et al., ICLR 2021). Each step solves for the
  latents that the forward step would bring back, by fixed-point iteration (as Pan et al., ICCV 2023), so that
  a photograph is reproduced where that converges.
- ``edit_friendly``: noisy latents are drawn for every step independently, and what the network's step misses
  is kept and added again (Huberman-Spiegelglas et al., CVPR 2024). Without an edit the photograph is
  reproduced up to the autoencoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sorites.core.compute.arithmetic import reproducible
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.samples import ImageF32, ImageU8
from sorites.diffusion.conditions import Words, encode_prompt, predict
from sorites.diffusion.latents import decode_latents, latents_of
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import SamplerOptions, early_and_late, noise_seed
from sorites.diffusion.schedulers import make_scheduler, set_steps
from sorites.diffusion.sliders import Slider, SliderScales, attach_sliders

METHODS = ("edit_friendly", "ddim")
# Iterations that solve one inverse step of DDIM.
FIXED_POINT_STEPS = 4
# Networks whose latents these steps describe.
TARGETS = ("epsilon", "v_prediction")


@dataclass(frozen=True)
class Schedule:
    """The noise steps in which sliders act: their times, and the share of the image's variance before and
    after each.
    """

    times: tuple[Any, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    target: str


@dataclass(frozen=True, eq=False)
class Inverted:
    """A photograph as noisy latents, and what each step has to add; nothing for ``ddim``."""

    latents: Any
    residuals: tuple[Any, ...]


def schedule_of(pipe: Pipe, drawing: SamplerOptions) -> Schedule:
    """Return the steps of DDIM at which sliders act.

    Raises:
        SoritesError: The network is a flow or predicts neither noise nor velocity, or no step is left.
    """
    own = pipe.parts.scheduler
    target = str(own.config.get("prediction_type", ""))
    if pipe.is_flow or target not in TARGETS:
        raise SoritesError(
            f"photographs are inverted for networks that predict {' or '.join(TARGETS)}, got"
            f" {target or 'a flow'}"
        )
    scheduler = set_steps(make_scheduler(own, "ddim"), drawing.steps, pipe.device, 1)
    early, times = early_and_late(scheduler, drawing)
    if not times:
        raise SoritesError(f"no noise step is at or below {drawing.start}: increase {option('start', 'N')}")
    shares = [scheduler.alphas_cumprod[int(time)] for time in (*early, *times)]
    after = [*shares[len(early) + 1 :], scheduler.final_alpha_cumprod]
    return Schedule(tuple(times), tuple(shares[len(early) :]), tuple(after), target)


def _parts(out: Any, latents: Any, share: Any, target: str) -> tuple[Any, Any]:
    """Return the image and the noise that a prediction stands for."""
    if target == "epsilon":
        return (latents - (1 - share) ** 0.5 * out) / share**0.5, out
    return share**0.5 * latents - (1 - share) ** 0.5 * out, share**0.5 * out + (1 - share) ** 0.5 * latents


class Walker:
    """Asks a network for image and noise at the steps of a schedule, under one prompt."""

    def __init__(self, pipe: Pipe, words: Words, drawing: SamplerOptions, dial: SliderScales) -> None:
        self.pipe, self.words, self.guidance, self.dial = pipe, words, drawing.guidance, dial
        self.schedule = schedule_of(pipe, drawing)
        self.held: Any = None
        """The map of the photograph that a ControlNet holds."""

    def parts(self, latents: Any, index: int, severities: Any = None) -> tuple[Any, Any]:
        """Return the image and the noise that the network sees in latents before a step."""
        import torch

        schedule, guided = self.schedule, self.guidance > 1
        time, share = schedule.times[index], schedule.before[index].to(latents)
        if severities is not None and bool((severities != 0).any()):
            scales = severities[:, None]
            self.dial.scales = torch.cat([scales, scales]) if guided else scales
        hidden, added = Words.batch([self.words] * len(latents), guided)
        into = torch.cat([latents] * 2) if guided else latents
        held = None if self.held is None else self.held.expand(len(into), -1, -1, -1)
        out = predict(self.pipe, into, time, hidden, added, held=held)
        self.dial.scales = None
        if guided:
            without, with_ = out.chunk(2)
            out = without + self.guidance * (with_ - without)
        return _parts(out, latents, share, schedule.target)

    def ddim(self, latents: Any, index: int, severities: Any = None) -> Any:
        """Return the latents after a deterministic step."""
        image, noise = self.parts(latents, index, severities)
        share = self.schedule.after[index].to(latents)
        return share**0.5 * image + (1 - share) ** 0.5 * noise

    def mean(self, latents: Any, index: int, severities: Any = None) -> Any:
        """Return the mean of the latents after a random step (DDPM)."""
        image, noise = self.parts(latents, index, severities)
        before, after = (part[index].to(latents) for part in (self.schedule.before, self.schedule.after))
        variance = (1 - after) / (1 - before) * (1 - before / after)
        return after**0.5 * image + (1 - after - variance).clamp(min=0) ** 0.5 * noise


def _invert_ddim(walker: Walker, latents: Any) -> Inverted:
    for index in reversed(range(len(walker.schedule.times))):
        before, after = (part[index].to(latents) for part in (walker.schedule.before, walker.schedule.after))
        cleaner, guess = latents, latents
        for _ in range(FIXED_POINT_STEPS):
            _, noise = walker.parts(guess, index)
            image = (cleaner - (1 - after) ** 0.5 * noise) / after**0.5
            guess = before**0.5 * image + (1 - before) ** 0.5 * noise
        latents = guess
    return Inverted(latents, ())


def _invert_edit_friendly(walker: Walker, latents: Any, seed: int) -> Inverted:
    import torch

    draw = torch.Generator("cpu").manual_seed(seed)
    noisy = []
    for share in walker.schedule.before:
        noise = torch.randn(latents.shape, generator=draw, dtype=torch.float32).to(latents)
        noisy.append(share.to(latents) ** 0.5 * latents + (1 - share.to(latents)) ** 0.5 * noise)
    wanted = [*noisy[1:], latents]
    residuals = tuple(
        wanted[index] - walker.mean(noisy[index], index) for index in range(len(walker.schedule.times))
    )
    return Inverted(noisy[0], residuals)


@dataclass(frozen=True)
class PhotoEdit:
    """How photographs are edited.

    Attributes:
        method: One of ``METHODS``.
        drawing: The sampler settings; ``steps``, ``start``, ``guidance`` and ``size`` are used.
    """

    method: str
    drawing: SamplerOptions

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UnknownName("inversion", self.method, METHODS)


def edit_photograph(
    pipe: Pipe,
    photograph: ImageU8,
    prompt: str,
    slider: Slider | None,
    severities: Sequence[float],
    how: PhotoEdit,
    key: str,
) -> list[ImageF32]:
    """Return a photograph at severities of a slider; at 0, or without a slider, its reconstruction.

    Args:
        pipe: The pipeline.
        photograph: The photograph at the pipeline's width, square.
        prompt: The prompt that names its class.
        slider: The slider; None for the reconstruction.
        severities: The severities.
        how: The inversion and the sampler settings.
        key: What the noise of ``edit_friendly`` is drawn from, such as the id of the photograph.
    """
    import torch

    with pipe.busy, reproducible(pipe.device), torch.no_grad():
        words = encode_prompt(pipe, prompt, how.drawing.negative, pipe.side)
        lows = [] if slider is None else [slider.lows]
        with attach_sliders(pipe.network, lows, pipe.device) as dial:
            walker = Walker(pipe, words, how.drawing, dial)
            if pipe.control is not None:
                walker.held = pipe.control.maps([photograph], pipe.device)
            latents = latents_of(pipe, [photograph])
            inverted = (
                _invert_ddim(walker, latents)
                if how.method == "ddim"
                else _invert_edit_friendly(walker, latents, noise_seed(key, 0, "prompt"))
            )
            # One image per pass: what is drawn must not depend on the other severities of a call.
            images = [
                _denoise(walker, inverted, severity if slider is not None else 0.0, how)
                for severity in severities
            ]
        pipe.rest()
    return images


def _denoise(walker: Walker, inverted: Inverted, severity: float, how: PhotoEdit) -> ImageF32:
    latents, scale = inverted.latents, inverted.latents.new_tensor([severity])
    for index in range(len(walker.schedule.times)):
        if how.method == "ddim":
            latents = walker.ddim(latents, index, scale)
        else:
            latents = walker.mean(latents, index, scale) + inverted.residuals[index]
    return next(decode_latents(walker.pipe, latents, how.drawing.size))
