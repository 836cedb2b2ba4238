"""Sample images: denoise latents step by step, with sliders active from a noise step downwards.

All images of a prompt and seed are equal until the sliders become active, so those steps are computed once;
the later steps process all severities of a trajectory as one batch. Each image has its own generator. Dünkel
et al., "CNS-Bench", ICCV 2025, 3.2; Gandikota et al., "Concept Sliders", ECCV 2024.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from sorites.core.compute.arithmetic import reproducible
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.samples import ImageF32, ImageU8, to_float, to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sliders import Slider, SliderScales, attach_sliders

# Requests and settings


# The negative prompt of CNS-Bench.
NEGATIVE = "blurry,text,caption,lowquality,lowresolution,low res,grainy,ugly"
SCHEDULERS, SEEDINGS = ("ddim", "own"), ("prompt", "plain")


@dataclass(frozen=True)
class SamplerOptions:
    """Settings of the sampler; the defaults are those of CNS-Bench."""

    steps: int = 50
    guidance: float = 7.5
    start: int = 750
    """Sliders are active at noise steps up to this number, of 1000: 750 is the last three quarters."""
    negative: str = NEGATIVE
    side: int | None = None
    """Width in pixels at which the network samples; its training width by default."""
    size: int | None = None
    """Width to which finished images are resized; not resized by default."""
    scheduler: str = "ddim"
    """``ddim``, or ``own`` for the pipeline's scheduler."""
    seeding: str = "prompt"
    """``prompt``: noise from the class and the seed; ``plain``: from the seed alone, as in diffusers."""

    def __post_init__(self) -> None:
        checks = (
            ("steps", 1 <= self.steps <= 1000, "a whole number from 1 to 1000"),
            ("guidance", 0 <= self.guidance <= 100, "a number from 0 to 100"),
            ("start", 0 <= self.start <= 1000, "a noise step from 0 to 1000"),
            ("side", self.side is None or 8 <= self.side <= 4096, "pixels from 8 to 4096"),
            ("size", self.size is None or 8 <= self.size <= 4096, "pixels from 8 to 4096"),
            ("scheduler", self.scheduler in SCHEDULERS, " or ".join(SCHEDULERS)),
            ("seeding", self.seeding in SEEDINGS, " or ".join(SEEDINGS)),
        )
        for name, valid, expected in checks:
            if not valid:
                raise SoritesError(f"{name}: expected {expected}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return all settings by name."""
        return asdict(self)


def sampler_options_from(record: SliderRecord, **changes: Any) -> SamplerOptions:
    """Return sampler settings from a slider's record, overridden by the ``changes`` that are not None."""
    names = {field.name for field in fields(SamplerOptions)}
    settings = {key: value for key, value in record.drawing.items() if key in names}
    return SamplerOptions(
        **{**settings, **{key: value for key, value in changes.items() if value is not None}}
    )


TOY_DRAWING = SamplerOptions(steps=20, guidance=2.0, negative="")


@dataclass(frozen=True, eq=False)
class Request:
    """One trajectory: a prompt and a seed, the sliders, and their severities for each image (``places``)."""

    prompt: str
    seed: int
    sliders: tuple[Slider, ...] = ()
    places: tuple[tuple[float, ...], ...] = ((),)
    noise: str = ""
    """Text that determines the noise together with the seed, the prompt by default. Prompts can share
    noise.
    """

    def __post_init__(self) -> None:
        wrong = [place for place in self.places if len(place) != len(self.sliders)]
        if wrong:
            raise SoritesError(
                f"expected one severity for each of {len(self.sliders)} sliders, got {wrong[0]}"
            )

    @property
    def beginning(self) -> tuple[str, str, int]:
        """The key of the early steps, which do not depend on the sliders."""
        return self.prompt, self.noise or self.prompt, self.seed


def along(prompt: str, seed: int, slider: Slider, severities: tuple[float, ...], noise: str = "") -> Request:
    """Return the request for one slider at several severities."""
    return Request(prompt, seed, (slider,), tuple((severity,) for severity in severities), noise)


def noise_seed(noise: str, seed: int, seeding: str) -> int:
    """Return the torch seed of one image."""
    return seed if seeding == "plain" else int.from_bytes(digest(noise, seed, size=8), "little") >> 1


# Prompt encoding
@dataclass(frozen=True, eq=False)
class Words:
    """An encoded prompt and negative prompt; ``pooled`` and ``sizes`` are used only by Stable Diffusion
    XL.
    """

    prompt: Any
    negative: Any
    pooled: Any = None
    negative_pooled: Any = None
    sizes: Any = None

    @staticmethod
    def batch(words: Sequence[Words], guided: bool) -> tuple[Any, dict[str, Any] | None]:
        """Return the hidden states of a batch, negative prompts first if guided, and the added conditions
        if any.
        """
        import torch

        hidden = [encoding.negative for encoding in words] * guided + [encoding.prompt for encoding in words]
        if words[0].pooled is None:
            return torch.cat(hidden), None
        pooled = [encoding.negative_pooled for encoding in words] * guided + [
            encoding.pooled for encoding in words
        ]
        sizes = [encoding.sizes for encoding in words] * (1 + guided)
        return torch.cat(hidden), {"text_embeds": torch.cat(pooled), "time_ids": torch.cat(sizes)}


def words_for(pipe: Pipe, prompt: str, drawing: SamplerOptions, side: int) -> Words:
    """Encode one prompt separately, so that the result does not depend on the rest of a batch."""
    return encode_prompt(pipe, prompt, drawing.negative, side)


def encode_prompt(pipe: Pipe, prompt: str, negative: str, side: int) -> Words:
    """Encode a prompt with the pipeline's encoders."""
    import torch

    with torch.no_grad():
        return encode_with_gradients(pipe, prompt, negative, side)


def encode_with_gradients(pipe: Pipe, prompt: str, negative: str, side: int) -> Words:
    """Encode a prompt with gradients to the embeddings."""
    import torch

    if pipe.kind == "sd":
        encodings = pipe.parts.encode_prompt(prompt, pipe.device, 1, True, negative)
        return Words(encodings[0], encodings[1])
    encodings = pipe.parts.encode_prompt(
        prompt=prompt, device=pipe.device, num_images_per_prompt=1, do_classifier_free_guidance=True,
        negative_prompt=negative or None,
    )  # fmt: skip
    sizes = torch.tensor([[side, side, 0, 0, side, side]], dtype=encodings[0].dtype, device=pipe.device)
    prompt_, negative_, pooled, negative_pooled = encodings
    return Words(prompt_, negative_, pooled, negative_pooled, sizes)


# Noise steps

# Schedulers without memory of earlier steps, so that early steps can be shared between severities.
SHAREABLE = ("DDIMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler")


def scheduler_of(pipe: Pipe, drawing: SamplerOptions) -> Any:
    """Return a separate scheduler with its noise steps set."""
    import diffusers

    own = pipe.parts.scheduler
    if drawing.scheduler == "ddim":
        scheduler = diffusers.DDIMScheduler.from_config(own.config)
    elif type(own).__name__ in SHAREABLE:
        scheduler = type(own).from_config(own.config)
    else:
        raise SoritesError(
            f"the pipeline's scheduler {type(own).__name__} depends on earlier steps; expected"
            f" {', '.join(SHAREABLE)}, or ddim"
        )
    scheduler.set_timesteps(drawing.steps, device=pipe.device)
    return scheduler


def early_and_late(scheduler: Any, drawing: SamplerOptions) -> tuple[list[Any], list[Any]]:
    """Return the noise steps before the sliders become active, and those after."""
    times = list(scheduler.timesteps)
    first = next((index for index, time in enumerate(times) if float(time) <= drawing.start), len(times))
    return times[:first], times[first:]


def passes(steps: int, early: int, severities: int, shared: bool = True) -> int:
    """Return the number of forward passes of a trajectory, not counting those for guidance."""
    return (early if shared else early * severities) + (steps - early) * severities


# Training targets, for word training and the diffusion classifier

# Noise steps of training.
NOISE_STEPS = 1000


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
    return (latents * vae.config.scaling_factor).to(pipe.network.dtype)


def add_noise(pipe: Pipe, latents: Any, noise: Any, times: Any) -> tuple[Any, Any]:
    """Return latents with added noise at some steps, and the network's target: the noise or the velocity."""
    scheduler = pipe.parts.scheduler
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


def predict_noise(pipe: Pipe, noisy: Any, times: Any, conditions: Sequence[Any]) -> Any:
    """Return the network's prediction for noisy latents, each with its own prompt, or class number for a
    DiT.
    """
    import torch

    if pipe.kind == "dit":
        numbers = torch.tensor(list(conditions), device=noisy.device)
        out = pipe.network(noisy, timestep=times, class_labels=numbers, return_dict=False)[0]
        return out[:, : noisy.shape[1]]
    hidden, added = Words.batch(conditions, False)
    return pipe.network(
        noisy, times, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False
    )[0]


# Images per forward pass; guidance doubles them.
BATCH = 12

# Batches whose early steps are computed together, since the early steps have fewer images.
BATCHES_AHEAD = 4


@dataclass(eq=False)
class State:
    """Images in progress: latents, encoded prompts, and the generator of each image."""

    latents: Any
    words: list[Words]
    generators: list[Any]

    def repeated(self, indices: Sequence[int]) -> State:
        """Return a state that starts from the selected images, each with a copy of its generator."""
        return State(
            self.latents[list(indices)],
            [self.words[i] for i in indices],
            [_copy_generator(self.generators[i]) for i in indices],
        )


def sample(
    pipe: Pipe, requests: Sequence[Request], drawing: SamplerOptions | None = None, batch: int = BATCH
) -> list[list[ImageF32]]:
    """Sample images.

    Args:
        pipe: The pipeline.
        requests: The trajectories.
        drawing: Settings of the sampler.
        batch: Images per forward pass.

    Returns:
        For each request its images, H x W x 3 in 0..1, one per place.
    """
    return list(iterate_samples(pipe, requests, drawing, batch))


def iterate_samples(
    pipe: Pipe, requests: Sequence[Request], drawing: SamplerOptions | None = None, batch: int = BATCH
) -> Iterator[list[ImageF32]]:
    """Yield the images of each request in order, a few batches at a time."""
    if batch < 1:
        raise SoritesError(f"batch: expected at least 1, got {batch}")
    for group in _groups(requests, batch):
        yield from _draw(pipe, group, drawing or SamplerOptions(), batch)


def _groups(requests: Sequence[Request], batch: int) -> Iterator[list[Request]]:
    """Yield consecutive requests that share sliders or early steps, as many as fill a few batches."""
    group: list[Request] = []
    for request in requests:
        full = (
            sum(len(earlier.places) for earlier in group) + len(request.places) > BATCHES_AHEAD * batch
            or len(group) == batch
        )
        if group and (full or not _can_share(group[-1], request)):
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _can_share(first: Request, second: Request) -> bool:
    return first.beginning == second.beginning or first.sliders == second.sliders


def _draw(
    pipe: Pipe, requests: Sequence[Request], drawing: SamplerOptions, batch: int
) -> list[list[ImageF32]]:
    import torch

    with pipe.busy, reproducible(pipe.device), torch.no_grad():
        scheduler = scheduler_of(pipe, drawing)
        early, late = early_and_late(scheduler, drawing)
        beginnings = list(dict.fromkeys(request.beginning for request in requests))
        start = _start(pipe, beginnings, drawing, scheduler)
        _denoise(pipe, start, early, scheduler, drawing, None, None)
        images: list[list[ImageF32]] = [[] for _ in requests]
        for sliders, members in _by_sliders(requests):
            jobs = [(member, place) for member in members for place in requests[member].places]
            with attach_sliders(pipe.parts.unet, [slider.lows for slider in sliders]) as dial:
                for chunk in (jobs[i : i + batch] for i in range(0, len(jobs), batch)):
                    state = start.repeated(
                        [beginnings.index(requests[member].beginning) for member, _ in chunk]
                    )
                    places = torch.tensor(
                        [place for _, place in chunk], dtype=state.latents.dtype, device=pipe.device
                    )
                    _denoise(pipe, state, late, copy.deepcopy(scheduler), drawing, dial, places)
                    dial.scales = None
                    for (member, _), image in zip(
                        chunk, decode_latents(pipe, state.latents, drawing.size), strict=True
                    ):
                        images[member].append(image)
    return images


def _by_sliders(requests: Sequence[Request]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """Yield sets of sliders with the indices of their requests."""
    indices_by_sliders: dict[tuple[int, ...], list[int]] = {}
    for index, request in enumerate(requests):
        indices_by_sliders.setdefault(tuple(map(id, request.sliders)), []).append(index)
    for members in indices_by_sliders.values():
        yield requests[members[0]].sliders, members


def _start(
    pipe: Pipe, beginnings: Sequence[tuple[str, str, int]], drawing: SamplerOptions, scheduler: Any
) -> State:
    import torch

    unet, factor = pipe.parts.unet, int(pipe.parts.vae_scale_factor)
    side = (drawing.side or pipe.side) // factor
    generators = [
        torch.Generator("cpu").manual_seed(noise_seed(noise, seed, drawing.seeding))
        for _, noise, seed in beginnings
    ]
    shape = (1, int(unet.config.in_channels), side, side)
    noises = [torch.randn(shape, generator=generator, dtype=unet.dtype) for generator in generators]
    latents = torch.cat(noises).to(pipe.device) * scheduler.init_noise_sigma
    return State(
        latents, [words_for(pipe, prompt, drawing, side * factor) for prompt, _, _ in beginnings], generators
    )


def _denoise(
    pipe: Pipe,
    state: State,
    times: Sequence[Any],
    scheduler: Any,
    drawing: SamplerOptions,
    dial: SliderScales | None,
    places: Any,
) -> None:
    """Take a state through some noise steps."""
    import torch

    if not times or not len(state.latents):
        return
    guided = drawing.guidance > 1
    hidden, added = Words.batch(state.words, guided)
    if dial is not None and places.shape[1] and bool((places != 0).any()):
        dial.scales = torch.cat([places, places]) if guided else places
    options = (
        {"generator": state.generators}
        if type(scheduler).__name__ == "EulerAncestralDiscreteScheduler"
        else {}
    )
    for time in times:
        into = scheduler.scale_model_input(torch.cat([state.latents] * 2) if guided else state.latents, time)
        out = pipe.parts.unet(
            into, time, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False
        )[0]
        if guided:
            without, with_ = out.chunk(2)
            out = without + drawing.guidance * (with_ - without)
        state.latents = scheduler.step(out, time, state.latents, return_dict=False, **options)[0]


def decode_latents(pipe: Pipe, latents: Any, size: int | None = None) -> Iterator[ImageF32]:
    """Yield the images of latents, resized to ``size`` if given."""
    import torch

    vae = pipe.parts.vae
    number = torch.float32 if getattr(vae.config, "force_upcast", False) else latents.dtype
    if vae.dtype != number:
        vae.to(number)
    scaled = latents.to(number) / vae.config.scaling_factor
    mean, std = getattr(vae.config, "latents_mean", None), getattr(vae.config, "latents_std", None)
    if mean is not None and std is not None:
        shift, spread = (
            torch.tensor(part, device=scaled.device, dtype=number).view(1, -1, 1, 1) for part in (mean, std)
        )
        scaled = scaled * spread + shift
    images = (vae.decode(scaled, return_dict=False)[0] / 2 + 0.5).clamp(0, 1)
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


def _copy_generator(generator: Any) -> Any:
    import torch

    copied = torch.Generator("cpu")
    copied.set_state(generator.get_state())
    return copied
