"""The sampler against diffusers' own loop, and what an image must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.diffusion.conftest import random_slider

from sorites.core.errors import SoritesError
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample

FEW = SamplerOptions(steps=4, guidance=3.0, negative="")
SEVERITIES = (0.0, 0.5, 1.0, 2.5)


def _theirs(pipe: Pipe, prompt: str, seed: int, drawing: SamplerOptions) -> Any:
    """Draw with the loop of diffusers, and DDIM as it is in the pipeline's folder, without clipping."""
    import diffusers
    import torch

    pipe.parts.scheduler = diffusers.DDIMScheduler.from_config(pipe.parts.scheduler.config, clip_sample=False)
    pipe.parts.set_progress_bar_config(disable=True)
    return pipe.parts(
        prompt,
        num_inference_steps=drawing.steps,
        guidance_scale=drawing.guidance,
        negative_prompt=drawing.negative or None,
        generator=torch.Generator().manual_seed(seed),
        output_type="np",
    ).images[0]


@pytest.mark.slow
@pytest.mark.parametrize("negative", ["", "snow"])
def test_image_without_sliders_is_the_one_that_diffusers_draws(tiny: Pipe, negative: str) -> None:
    drawing = SamplerOptions(steps=6, guidance=3.0, negative=negative, seeding="plain")
    ours = sample(tiny, [Request("a picture of a disc", 7)], drawing)[0][0]
    np.testing.assert_allclose(ours, _theirs(tiny, "a picture of a disc", 7, drawing), atol=1e-5)


@pytest.mark.slow
def test_stable_diffusion_xl_is_drawn_as_diffusers_draws_it(large: Pipe) -> None:
    drawing = SamplerOptions(steps=4, guidance=3.0, negative="", seeding="plain")
    assert large.kind == "sdxl"
    ours = sample(large, [Request("a picture of a disc", 7)], drawing)[0][0]
    np.testing.assert_allclose(ours, _theirs(large, "a picture of a disc", 7, drawing), atol=1e-5)


def test_severity_0_is_bit_for_bit_the_image_without_an_adapter(tiny: Pipe) -> None:
    slider = random_slider(tiny)
    plain = sample(tiny, [Request("a disc", 1, (), ((), (), (), ()))], FEW)[0]
    alone = sample(tiny, [along("a disc", 1, slider, (0.0, 0.0, 0.0, 0.0))], FEW)[0]
    among = sample(tiny, [along("a disc", 1, slider, SEVERITIES)], FEW)[0]
    assert np.array_equal(alone[0], plain[0])
    assert np.array_equal(among[0], plain[0])
    assert np.abs(among[-1] - plain[0]).max() > 0.02


def test_shared_early_steps_equal_separate_runs(tiny: Pipe) -> None:
    slider = random_slider(tiny)
    together = sample(tiny, [along("a disc", 1, slider, SEVERITIES)], FEW)[0]
    apart = [sample(tiny, [along("a disc", 1, slider, (severity,))], FEW)[0][0] for severity in SEVERITIES]
    np.testing.assert_allclose(together, apart, atol=1e-4)


def test_sliders_leave_the_early_steps_alone(tiny: Pipe) -> None:
    slider = random_slider(tiny)
    never = SamplerOptions(steps=4, guidance=3.0, negative="", start=0)
    plain, turned = sample(tiny, [along("a disc", 1, slider, (0.0, 2.5))], never)[0]
    assert np.array_equal(plain, turned)


@pytest.mark.slow
def test_images_do_not_depend_on_batch_or_order(tiny: Pipe) -> None:
    slider = random_slider(tiny)
    requests = [
        along(f"a {shape}", seed, slider, (0.0, 1.0)) for shape in ("disc", "cross") for seed in (1, 2)
    ]
    want = [sample(tiny, [request], FEW, batch=1)[0] for request in requests]
    np.testing.assert_allclose(sample(tiny, requests, FEW, batch=12), want, atol=1e-4)
    np.testing.assert_allclose(sample(tiny, requests[::-1], FEW, batch=3)[::-1], want, atol=1e-4)
    assert np.abs(np.subtract(want[0], want[1])).max() > 0.02


def test_sliders_together_add_up(tiny: Pipe) -> None:
    """The same slider twice, at .4 and .6, is the slider at 1."""
    slider = random_slider(tiny)
    both = sample(tiny, [Request("a disc", 1, (slider, slider), ((0.4, 0.6),))], FEW)[0][0]
    once = sample(tiny, [along("a disc", 1, slider, (1.0,))], FEW)[0][0]
    np.testing.assert_allclose(both, once, atol=1e-4)


def test_other_words_can_share_the_noise(tiny: Pipe) -> None:
    first, other = Request("a disc", 1), Request("a disc in snow", 1, noise="a disc")
    one_step = SamplerOptions(steps=1, guidance=1.0, negative="")
    drawn = sample(tiny, [first, other, Request("a disc in snow", 1)], one_step)
    near, far = (float(np.abs(drawn[0][0] - drawn[i][0]).mean()) for i in (1, 2))
    assert near < far / 2


def test_the_pipelines_own_scheduler_is_taken_where_asked(large: Pipe) -> None:
    own = SamplerOptions(steps=4, guidance=1.0, negative="", scheduler="own")
    slider = random_slider(large)
    together = sample(large, [along("a disc", 1, slider, (0.0, 1.0))], own)[0]
    apart = [sample(large, [along("a disc", 1, slider, (severity,))], own)[0][0] for severity in (0.0, 1.0)]
    np.testing.assert_allclose(together, apart, atol=1e-4)


def test_images_are_scaled_from_8_bits_as_published(tiny: Pipe) -> None:
    from PIL import Image

    plain = sample(tiny, [Request("a disc", 1)], FEW)[0][0]
    scaled = sample(
        tiny, [Request("a disc", 1)], SamplerOptions(steps=4, guidance=3.0, negative="", size=32)
    )[0][0]
    bits = Image.fromarray(np.round(plain * 255).astype(np.uint8)).resize((32, 32), Image.Resampling.BICUBIC)
    np.testing.assert_allclose(scaled, np.asarray(bits) / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("key", "value"), [("steps", 0), ("guidance", -1), ("start", 1001), ("scheduler", "dpm"), ("size", 2)]
)
def test_a_drawing_that_cannot_be_is_refused(key: str, value: object) -> None:
    with pytest.raises(SoritesError, match=key):
        SamplerOptions(**{key: value})  # type: ignore[arg-type]


def test_places_must_fit_the_sliders(tiny: Pipe) -> None:
    with pytest.raises(SoritesError, match="each of 1 sliders"):
        Request("a disc", 1, (random_slider(tiny),), ((1.0, 2.0),))
