"""Edits by an instruction against the call of diffusers' own pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.conftest import scene

from sorites.core.errors import SoritesError
from sorites.diffusion.instruct import InstructOptions, instruct_photograph
from sorites.diffusion.pipeline import BY_INSTRUCTION, Pipe, load, silence_libraries
from tools import toy_world as toys


def pix2pix() -> Any:
    """Return an untrained pipeline like InstructPix2Pix: its network sees a photograph beside the latents."""
    import torch
    from diffusers import StableDiffusionInstructPix2PixPipeline, UNet2DConditionModel

    torch.manual_seed(0)
    config = dict(toys.unet(16).config)
    return StableDiffusionInstructPix2PixPipeline(
        vae=toys.autoencoder(),
        text_encoder=toys.text_encoder(),
        tokenizer=toys.tokenizer(),
        unet=UNet2DConditionModel.from_config({**config, "in_channels": 6}),
        scheduler=toys.scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pix2pix")
    pix2pix().save_pretrained(out)
    return out


@pytest.fixture(scope="module")
def instructed(folder: Path) -> Pipe:
    return load(folder, kinds=BY_INSTRUCTION)


def test_edits_are_those_of_diffusers(instructed: Pipe, folder: Path) -> None:
    import torch
    from diffusers import StableDiffusionInstructPix2PixPipeline

    image = scene(3, 16, 16)
    how = InstructOptions(steps=4, guidance=3.0, image_guidance=1.4)
    ours = instruct_photograph(instructed, image, "a disc in snow", (0.5, 1.0), how, 5)
    with silence_libraries():
        theirs = StableDiffusionInstructPix2PixPipeline.from_pretrained(
            folder, safety_checker=None, feature_extractor=None, requires_safety_checker=False
        )
        theirs.set_progress_bar_config(disable=True)
        for severity, found in zip((0.5, 1.0), ours, strict=True):
            wanted = theirs(
                "a disc in snow",
                image=Image.fromarray(image),
                num_inference_steps=4,
                guidance_scale=3.0 * severity,
                image_guidance_scale=1.4,
                generator=torch.Generator().manual_seed(5),
                output_type="np",
            ).images[0]
            np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_pipeline_of_another_kind_is_refused(folder: Path, instructed: Pipe) -> None:
    with pytest.raises(SoritesError, match="expected a pipeline among"):
        load(folder)
    with pytest.raises(SoritesError, match="expected a pipeline among"):
        load("toy", kinds=BY_INSTRUCTION)
    with pytest.raises(SoritesError, match="image_guidance"):
        InstructOptions(image_guidance=0.5)
