"""Sample images: denoise latents step by step, with sliders active from a noise step downwards.

All images of a prompt and seed are equal until the sliders become active, so those steps are computed once;
the later steps process all severities of a trajectory as one batch. Each image has its own generator. Dünkel
et al., "CNS-Bench", ICCV 2025, 3.2; Gandikota et al., "Concept Sliders", ECCV 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sorites.core.compute.arithmetic import reproducible
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.samples import ImageF32, to_uint8
from sorites.diffusion.conditions import Words, encode_prompt, predict
from sorites.diffusion.latents import decode_latents
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.schedulers import NAMES, copied, make_scheduler, set_steps, step
from sorites.diffusion.sliders import Slider, SliderScales, attach_sliders

# Requests and settings


# The negative prompt of CNS-Bench.
NEGATIVE = "blurry,text,caption,lowquality,lowresolution,low res,grainy,ugly"
SEEDINGS = ("prompt", "plain")


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
    """A name of ``schedulers.KINDS``, or ``own`` for the pipeline's scheduler."""
    seeding: str = "prompt"
    """``prompt``: noise from the class and the seed; ``plain``: from the seed alone, as in diffusers."""

    def __post_init__(self) -> None:
        checks = (
            ("steps", 1 <= self.steps <= 1000, "a whole number from 1 to 1000"),
            ("guidance", 0 <= self.guidance <= 100, "a number from 0 to 100"),
            ("start", 0 <= self.start <= 1000, "a noise step from 0 to 1000"),
            ("side", self.side is None or 8 <= self.side <= 4096, "pixels from 8 to 4096"),
            ("size", self.size is None or 8 <= self.size <= 4096, "pixels from 8 to 4096"),
            ("scheduler", self.scheduler in NAMES, ", ".join(NAMES)),
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


# Noise steps


def scheduler_of(pipe: Pipe, drawing: SamplerOptions) -> Any:
    """Return a separate scheduler with its noise steps set."""
    scheduler = make_scheduler(pipe.parts.scheduler, drawing.scheduler)
    positions = pipe.positions(drawing.side or pipe.side)
    return set_steps(scheduler, drawing.steps, pipe.device, positions, pipe.kind == "flux")


def early_and_late(scheduler: Any, drawing: SamplerOptions) -> tuple[list[Any], list[Any]]:
    """Return the noise steps before the sliders become active, and those after."""
    times = list(scheduler.timesteps)
    first = next((index for index, time in enumerate(times) if float(time) <= drawing.start), len(times))
    return times[:first], times[first:]


def passes(steps: int, early: int, severities: int, shared: bool = True) -> int:
    """Return the number of forward passes of a trajectory, not counting those for guidance."""
    return (early if shared else early * severities) + (steps - early) * severities


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
    held: Any = None
    """Maps that a ControlNet holds, one per image."""

    def repeated(self, indices: Sequence[int]) -> State:
        """Return a state that starts from the selected images, each with a copy of its generator."""
        return State(
            self.latents[list(indices)],
            [self.words[i] for i in indices],
            [_copy_generator(self.generators[i]) for i in indices],
            None if self.held is None else self.held[list(indices)],
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
        if pipe.control is not None:
            start.held = _held(pipe, beginnings, drawing, batch)
        _denoise(pipe, start, early, scheduler, drawing, None, None)
        images: list[list[ImageF32]] = [[] for _ in requests]
        for sliders, members in _by_sliders(requests):
            jobs = [(member, place) for member in members for place in requests[member].places]
            with attach_sliders(pipe.network, [slider.lows for slider in sliders], pipe.device) as dial:
                for chunk in (jobs[i : i + batch] for i in range(0, len(jobs), batch)):
                    rows = [beginnings.index(requests[member].beginning) for member, _ in chunk]
                    state = start.repeated(rows)
                    places = torch.tensor(
                        [place for _, place in chunk], dtype=state.latents.dtype, device=pipe.device
                    )
                    _denoise(pipe, state, late, copied(scheduler, rows), drawing, dial, places)
                    dial.scales = None
                    for (member, _), image in zip(
                        chunk, decode_latents(pipe, state.latents, drawing.size), strict=True
                    ):
                        images[member].append(image)
                    pipe.rest()
    return images


def _held(pipe: Pipe, beginnings: Sequence[tuple[str, str, int]], drawing: SamplerOptions, batch: int) -> Any:
    """Return the maps that a ControlNet holds: those of the images without sliders and ControlNet."""
    free = replace(pipe, control=None)
    requests = [Request(prompt, seed, noise=noise) for prompt, noise, seed in beginnings]
    images = [to_uint8(found[0]) for found in sample(free, requests, replace(drawing, size=None), batch)]
    return pipe.control.maps(images, pipe.device)


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

    factor = int(pipe.parts.vae_scale_factor)
    side = pipe.latent_side(drawing.side or pipe.side)
    generators = [
        torch.Generator("cpu").manual_seed(noise_seed(noise, seed, drawing.seeding))
        for _, noise, seed in beginnings
    ]
    shape, number = (1, pipe.channels, side, side), pipe.network.dtype
    noises = [torch.randn(shape, generator=generator, dtype=number) for generator in generators]
    latents = torch.cat(noises).to(pipe.device) * getattr(scheduler, "init_noise_sigma", 1.0)
    return State(
        latents,
        [encode_prompt(pipe, prompt, drawing.negative, side * factor) for prompt, _, _ in beginnings],
        generators,
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
    guided = drawing.guidance > 1 and not pipe.has_embedded_guidance
    hidden, added = Words.batch(state.words, guided)
    held = state.held if state.held is None or not guided else torch.cat([state.held] * 2)
    if dial is not None and places.shape[1] and bool((places != 0).any()):
        dial.scales = torch.cat([places, places]) if guided else places
    for time in times:
        into = torch.cat([state.latents] * 2) if guided else state.latents
        if not pipe.is_flow:
            into = scheduler.scale_model_input(into, time)
        out = predict(pipe, into, time, hidden, added, drawing.guidance, held)
        if guided:
            without, with_ = out.chunk(2)
            out = without + drawing.guidance * (with_ - without)
        state.latents = step(scheduler, out, time, state.latents, state.generators)


def _copy_generator(generator: Any) -> Any:
    import torch

    copied = torch.Generator("cpu")
    copied.set_state(generator.get_state())
    return copied
