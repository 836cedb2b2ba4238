"""Trajectories along a slider on the toy world: 50 noise steps, six severities, the slider on from
noise step 750.

Sharing the early steps can give at most 1.25 x. The plain loop has the same batch and does not
share them; diffusers draws one image at a time with the slider loaded by peft. Time is the
process's own, which neighbours on a busy machine change less.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench._timing import in_turns

STEPS, SEVERITIES, PROMPT, SEEDS = 50, (0.0, 0.5, 1.0, 1.5, 2.0, 2.5), "a picture of a disc", range(1, 9)
ROUNDS = 3


def run() -> Iterator[tuple[str, float, str]]:
    from sorites.diffusion.pipeline import load
    from sorites.diffusion.sampler import SamplerOptions as Drawing
    from sorites.diffusion.sampler import along, sample
    from sorites.diffusion.shelves import shelf

    pipe, shelf_ = load("toy"), shelf("toy")
    disc = shelf_.concepts[0]
    slider, folder = shelf_.slider(pipe, "snow", disc), shelf_.places["snow", disc]
    drawing = Drawing(steps=STEPS, guidance=2.0, negative="")
    requests = [along(PROMPT, seed, slider, SEVERITIES) for seed in SEEDS]
    theirs = _theirs(pipe.path, folder)

    def shared() -> Any:
        return sample(pipe, requests, drawing)

    shared()
    ours, plain, one_by_one = in_turns(
        ROUNDS,
        time.process_time,
        shared,
        lambda: _plain(pipe, requests, drawing),
        lambda: _one_by_one(theirs),
    )
    for name, others, aim in (
        ("shared early steps against the plain loop of that batch (x)", plain, "aim >= 1.18, at most 1.25"),
        (
            "against diffusers, one image at a time (x)",
            [len(SEEDS) * t for t in one_by_one],
            "aim >= 1.5, its time of one seed",
        ),
    ):
        yield _line(name, [b / a for a, b in zip(ours, others, strict=True)], aim)
    yield _line(
        "share of the time outside the network", [_outside(pipe, shared) for _ in range(ROUNDS)], "aim <= 0.1"
    )


def _line(name: str, found: list[float], aim: str) -> tuple[str, float, str]:
    """Return the median of some rounds, with all of them in its note."""
    return name, statistics.median(found), f"{aim}; rounds {', '.join(f'{value:.3f}' for value in found)}"


def _plain(pipe: Any, requests: Any, drawing: Any) -> Any:
    """Draw as many images together through every step, as a loop that does not know of the early ones."""
    import torch

    from sorites.core.compute.torch_tools import one_thread
    from sorites.diffusion import sampler
    from sorites.diffusion.sampler import early_and_late, scheduler_of
    from sorites.diffusion.sliders import attach_sliders as attached

    images, seeds = [], sampler.BATCH // len(SEVERITIES)
    with pipe.busy, one_thread(), torch.no_grad():
        for some in (requests[i : i + seeds] for i in range(0, len(requests), seeds)):
            scheduler = scheduler_of(pipe, drawing)
            early, late = early_and_late(scheduler, drawing)
            start = sampler._start(pipe, [request.beginning for request in some], drawing, scheduler)
            state = start.repeated([i for i in range(len(some)) for _ in SEVERITIES])
            sampler._denoise(pipe, state, early, scheduler, drawing, None, None)
            with attached(pipe.parts.unet, [slider.lows for slider in some[0].sliders]) as dial:
                places = torch.tensor([place for request in some for place in request.places])
                sampler._denoise(pipe, state, late, copy.deepcopy(scheduler), drawing, dial, places)
            images += sampler.decode_latents(pipe, state.latents)
    return images


def _theirs(path: Any, slider: Any) -> Any:
    import diffusers
    import torch

    from sorites.diffusion.pipeline import silence_libraries as quiet

    with quiet():
        pipe = diffusers.StableDiffusionPipeline.from_pretrained(
            path, safety_checker=None, dtype=torch.float32
        )
        pipe.load_lora_weights(slider, adapter_name="slider")
    pipe.set_progress_bar_config(disable=True)
    return pipe


def _one_by_one(pipe: Any) -> None:
    import torch

    from sorites.core.compute.torch_tools import one_thread

    def switch(pipe: Any, step: int, now: Any, kept: dict[str, Any]) -> dict[str, Any]:
        if int(now) <= 770 and not switch.on:  # type: ignore[attr-defined]
            pipe.enable_lora()
            switch.on = True  # type: ignore[attr-defined]
        return kept

    with one_thread():
        for severity in SEVERITIES:
            pipe.set_adapters(["slider"], [severity])
            pipe.disable_lora()
            switch.on = False  # type: ignore[attr-defined]
            pipe(
                PROMPT, num_inference_steps=STEPS, guidance_scale=2.0, generator=torch.Generator().manual_seed(SEEDS[0]),
                callback_on_step_end=switch, output_type="np",
            )  # fmt: skip


def _outside(pipe: Any, work: Any) -> float:
    """Return the share of the time that is not spent in the network."""
    unet, inside = pipe.parts.unet, [0.0]
    forward = unet.forward

    def timed(*given: Any, **more: Any) -> Any:
        start = time.process_time()
        try:
            return forward(*given, **more)
        finally:
            inside[0] += time.process_time() - start

    unet.forward = timed
    try:
        start = time.process_time()
        work()
        whole = time.process_time() - start
    finally:
        del unet.forward
    return 1 - inside[0] / whole
