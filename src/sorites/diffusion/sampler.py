"""Draw pictures: noise to latents step by step, with the sliders switched on from a noise step downwards.

All pictures of a prompt and a seed are the same until the sliders come in, so those steps are done once for all of them; the
later steps take every severity of a trajectory through the network together. Each picture has a generator of its own.
Dünkel et al., "CNS-Bench", ICCV 2025, 3.2; Gandikota et al., "Concept Sliders", ECCV 2024.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sorites.diffusion.layers import Dial, attached
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.prompts import Words, words_for
from sorites.diffusion.requests import Drawing, Request, noise_seed
from sorites.diffusion.schedules import early_and_late, scheduler_of
from sorites.errors import SoritesError
from sorites.torch_tools import one_thread
from sorites.types import Image, to_image, to_picture

BATCH = 12
"""Pictures that go through the network at once; with guidance each goes through it twice."""

AHEAD = 4
"""Batches that are begun together: their early steps have fewer pictures, and fill the network only so."""


@dataclass(eq=False)
class State:
    """Pictures on their way: latents, the words of each, and the generator that each draws further noise from."""

    latents: Any
    words: list[Words]
    generators: list[Any]

    def repeated(self, places: Sequence[int]) -> State:
        """Return a state that starts from the pictures at these places, each with a copy of its generator."""
        return State(self.latents[list(places)], [self.words[i] for i in places], [_twin(self.generators[i]) for i in places])


def sample(pipe: Pipe, requests: Sequence[Request], drawing: Drawing | None = None, batch: int = BATCH) -> list[list[Image]]:
    """Return the pictures of each request, H x W x 3 in 0..1, one for each of its places."""
    return list(sampled(pipe, requests, drawing, batch))


def sampled(pipe: Pipe, requests: Sequence[Request], drawing: Drawing | None = None, batch: int = BATCH) -> Iterator[list[Image]]:
    """Yield the pictures of each request in the order of the requests, a few batches at a time."""
    if batch < 1:
        raise SoritesError(f"wanted at least 1 picture at a time, got {batch}")
    for group in _groups(requests, batch):
        yield from _drawn(pipe, group, drawing or Drawing(), batch)


def _groups(requests: Sequence[Request], batch: int) -> Iterator[list[Request]]:
    """Yield requests that stand in a row and share their sliders or their beginnings, as many as fill a few batches."""
    group: list[Request] = []
    for request in requests:
        full = sum(len(one.places) for one in group) + len(request.places) > AHEAD * batch or len(group) == batch
        if group and (full or not _alike(group[-1], request)):
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _alike(one: Request, other: Request) -> bool:
    return one.beginning == other.beginning or one.sliders == other.sliders


def _drawn(pipe: Pipe, requests: Sequence[Request], drawing: Drawing, batch: int) -> list[list[Image]]:
    import torch

    with pipe.busy, one_thread(), torch.no_grad():
        scheduler = scheduler_of(pipe, drawing)
        early, late = early_and_late(scheduler, drawing)
        beginnings = list(dict.fromkeys(request.beginning for request in requests))
        start = _start(pipe, beginnings, drawing, scheduler)
        _walk(pipe, start, early, scheduler, drawing, None, None)
        pictures: list[list[Image]] = [[] for _ in requests]
        for sliders, members in _by_sliders(requests):
            jobs = [(member, place) for member in members for place in requests[member].places]
            with attached(pipe.parts.unet, [slider.lows for slider in sliders]) as dial:
                for some in (jobs[i : i + batch] for i in range(0, len(jobs), batch)):
                    state = start.repeated([beginnings.index(requests[member].beginning) for member, _ in some])
                    places = torch.tensor([place for _, place in some], dtype=state.latents.dtype, device=pipe.device)
                    _walk(pipe, state, late, copy.deepcopy(scheduler), drawing, dial, places)
                    dial.scales = None
                    for (member, _), image in zip(some, decoded(pipe, state.latents, drawing.size), strict=True):
                        pictures[member].append(image)
    return pictures


def _by_sliders(requests: Sequence[Request]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """Yield sets of sliders with the places of the requests that have them."""
    found: dict[tuple[int, ...], list[int]] = {}
    for place, request in enumerate(requests):
        found.setdefault(tuple(map(id, request.sliders)), []).append(place)
    for members in found.values():
        yield requests[members[0]].sliders, members


def _start(pipe: Pipe, beginnings: Sequence[tuple[str, str, int]], drawing: Drawing, scheduler: Any) -> State:
    import torch

    unet, factor = pipe.parts.unet, int(pipe.parts.vae_scale_factor)
    side = (drawing.side or pipe.side) // factor
    generators = [torch.Generator("cpu").manual_seed(noise_seed(noise, seed, drawing.seeding)) for _, noise, seed in beginnings]
    shape = (1, int(unet.config.in_channels), side, side)
    noises = [torch.randn(shape, generator=generator, dtype=unet.dtype) for generator in generators]
    latents = torch.cat(noises).to(pipe.device) * scheduler.init_noise_sigma
    return State(latents, [words_for(pipe, prompt, drawing, side * factor) for prompt, _, _ in beginnings], generators)


def _walk(
    pipe: Pipe, state: State, times: Sequence[Any], scheduler: Any, drawing: Drawing, dial: Dial | None, places: Any
) -> None:
    """Take a state through some noise steps."""
    import torch

    if not times or not len(state.latents):
        return
    guided = drawing.guidance > 1
    hidden, added = Words.batch(state.words, guided)
    if dial is not None and places.shape[1] and bool((places != 0).any()):
        dial.scales = torch.cat([places, places]) if guided else places
    options = {"generator": state.generators} if type(scheduler).__name__ == "EulerAncestralDiscreteScheduler" else {}
    for time in times:
        into = scheduler.scale_model_input(torch.cat([state.latents] * 2) if guided else state.latents, time)
        out = pipe.parts.unet(into, time, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False)[0]
        if guided:
            without, with_ = out.chunk(2)
            out = without + drawing.guidance * (with_ - without)
        state.latents = scheduler.step(out, time, state.latents, return_dict=False, **options)[0]


def decoded(pipe: Pipe, latents: Any, size: int | None = None) -> Iterator[Image]:
    """Yield the pictures of some latents, scaled to a width where one is wanted."""
    import torch

    vae = pipe.parts.vae
    number = torch.float32 if getattr(vae.config, "force_upcast", False) else latents.dtype
    if vae.dtype != number:
        vae.to(number)
    scaled = latents.to(number) / vae.config.scaling_factor
    mean, std = getattr(vae.config, "latents_mean", None), getattr(vae.config, "latents_std", None)
    if mean is not None and std is not None:
        shift, spread = (torch.tensor(part, device=scaled.device, dtype=number).view(1, -1, 1, 1) for part in (mean, std))
        scaled = scaled * spread + shift
    pictures = (vae.decode(scaled, return_dict=False)[0] / 2 + 0.5).clamp(0, 1)
    for picture in pictures.permute(0, 2, 3, 1).float().cpu().numpy():
        yield _scaled(np.ascontiguousarray(picture, np.float32), size)


def _scaled(image: Image, size: int | None) -> Image:
    """Return a picture at the width wanted, scaled as the published scripts do: from 8 bits, bicubic."""
    if size is None or size == image.shape[0]:
        return image
    from PIL import Image as Pillow

    return to_image(np.asarray(Pillow.fromarray(to_picture(image)).resize((size, size), Pillow.Resampling.BICUBIC)))


def _twin(generator: Any) -> Any:
    import torch

    made = torch.Generator("cpu")
    made.set_state(generator.get_state())
    return made
