"""ControlNet: edges against OpenCV, images against diffusers, and what is held while a slider moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diffusion.conftest import random_slider
from tests.diffusion.folders import write_folder

from sorites.core import to_uint8
from sorites.core.errors import SoritesError
from sorites.diffusion.control import edges, with_control
from sorites.diffusion.inversion import PhotoEdit, edit_photograph
from sorites.diffusion.pipeline import Pipe, load, silence_libraries
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample
from sorites.diffusion.shelves import refuse_other_pipeline

PROMPT, SEED = "a picture of a bald eagle", 7
HOW = SamplerOptions(3, 3.0, negative="blurry", seeding="plain")
slow = pytest.mark.slow


@pytest.mark.parametrize("kind", ["noise", "shapes", "ramp"])
def test_edges_are_those_of_opencv(kind: str) -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    image = {
        "noise": rng.integers(0, 256, (41, 53, 3)),
        "shapes": np.kron(rng.integers(0, 256, (6, 5, 3)), np.ones((9, 11, 1))),
        "ramp": np.add.outer(np.arange(40) * 5, np.arange(50) * 2)[..., None] % 256 * np.ones(3),
    }[kind].astype(np.uint8)
    found = edges(image)
    np.testing.assert_array_equal(found[..., 0], cv2.Canny(image, 100, 200))
    assert found.any()
    assert found.shape == image.shape


def control_folder(pipe: Pipe, folder: Path) -> Path:
    """Write a ControlNet for a pipeline whose last layers, which begin as 0, are random."""
    import diffusers
    import torch

    with silence_libraries(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = diffusers.ControlNetModel.from_unet(
            pipe.parts.unet, conditioning_embedding_out_channels=(8, 16)
        )
        for name, weight in network.named_parameters():
            if "controlnet" in name:
                torch.nn.init.normal_(weight, std=0.1)
        network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    return load(write_folder("sd1", tmp_path_factory.mktemp("control") / "sd1"))


@pytest.fixture(scope="module")
def folder(pipe: Pipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return control_folder(pipe, tmp_path_factory.mktemp("nets") / "edges")


@slow
def test_images_are_those_of_diffusers(pipe: Pipe, folder: Path) -> None:
    """Held are the edges of the image without a ControlNet."""
    import diffusers
    import torch
    from PIL import Image

    held = with_control(pipe, folder, scale=0.7)
    plain = sample(pipe, [Request(PROMPT, SEED)], HOW)[0][0]
    found = sample(held, [Request(PROMPT, SEED)], HOW)[0][0]
    with silence_libraries():
        theirs = diffusers.StableDiffusionControlNetPipeline(
            **pipe.parts.components, controlnet=diffusers.ControlNetModel.from_pretrained(folder),
            requires_safety_checker=False,
        )  # fmt: skip
        theirs.set_progress_bar_config(disable=True)
        wanted = theirs(
            PROMPT, Image.fromarray(edges(to_uint8(plain))), num_inference_steps=3, guidance_scale=3.0,
            negative_prompt="blurry", controlnet_conditioning_scale=0.7,
            generator=torch.Generator().manual_seed(SEED), output_type="np",
        ).images[0]  # fmt: skip
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(found - plain).max() > 1e-3


@slow
def test_severities_share_what_is_held(pipe: Pipe, folder: Path) -> None:
    """Images of several severities and seeds in one batch are those that were drawn alone."""
    held, slider = with_control(pipe, folder), random_slider(pipe)
    requests = [along(PROMPT, seed, slider, (0.0, 1.0)) for seed in (1, 2)]
    together = sample(held, requests, HOW)
    for request, images in zip(requests, together, strict=True):
        for severity, image in zip((0.0, 1.0), images, strict=True):
            alone = sample(held, [along(PROMPT, request.seed, slider, (severity,))], HOW)[0][0]
            np.testing.assert_allclose(image, alone, atol=1e-4)
    assert np.abs(together[0][0] - together[0][1]).max() > 1e-3


@slow
@pytest.mark.parametrize("method", ["edit_friendly", "ddim"])
def test_photographs_hold_their_own_edges(pipe: Pipe, folder: Path, method: str) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    slider, how = random_slider(pipe), PhotoEdit(method, SamplerOptions(3, 1.0, negative=""))
    held = with_control(pipe, folder)
    plain, moved = (edit_photograph(one, photo, PROMPT, slider, (1.0,), how, "a")[0] for one in (pipe, held))
    assert np.abs(plain - moved).max() > 1e-4


def test_a_pipeline_with_a_controlnet_is_another_one(tiny: Pipe, tmp_path: Path) -> None:
    """Its images have another version, and sliders of the pipeline may still be drawn with it."""
    folder = control_folder(tiny, tmp_path / "net")
    held, other = with_control(tiny, folder), with_control(tiny, folder, scale=0.5)
    assert len({tiny.version, held.version, other.version}) == 3
    assert held.base_version == tiny.version
    slider: Any = random_slider(tiny)
    refuse_other_pipeline(slider.record.having(pipeline_version=tiny.version), held, "snow")
    with pytest.raises(SoritesError, match="another pipeline"):
        refuse_other_pipeline(slider.record.having(pipeline_version="other"), held, "snow")


def test_what_is_no_controlnet_is_refused(tiny: Pipe, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"config\.json"):
        with_control(tiny, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
    with pytest.raises(SoritesError, match="ControlNetModel"):
        with_control(tiny, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "ControlNetModel"}))
    with pytest.raises(SoritesError, match="safetensors"):
        with_control(tiny, tmp_path)
    with pytest.raises(SoritesError, match="python:module:function"):
        with_control(tiny, tmp_path, "depth")
    with pytest.raises(SoritesError, match="scale"):
        with_control(tiny, tmp_path, scale=0)
