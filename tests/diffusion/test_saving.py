"""Pipelines that save memory, against diffusers and a pretended GPU, and estimates against measured tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.generation.conftest import FEW, QUICK
from tests.devices.pretended import pretended
from tests.diffusion.conftest import random_slider
from tests.diffusion.folders import write_folder

from sorites.apps.generation.sliders import trained
from sorites.core.errors import SoritesError
from sorites.diffusion import estimates
from sorites.diffusion.estimates import estimate, memory_table
from sorites.diffusion.memory import drawing_bytes, parameter_bytes
from sorites.diffusion.pipeline import Pipe, load, silence_libraries
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample
from sorites.diffusion.saving import OFFLOADS, Saving

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
slow = pytest.mark.slow
PROMPT, SEED = "a picture of a bald eagle", 7
WIDE = SamplerOptions(2, 3.0, negative="blurry", side=32, scheduler="own", seeding="plain")


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root, made = tmp_path_factory.mktemp("saving"), {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = write_folder(family, root / family)
        return made[family]

    return folder


@slow
def test_tiles_and_slices_are_those_of_diffusers(folder_of: Callable[[str], Path]) -> None:
    """Images are 32 px wide and tiles 16 px; one image at a time gives the same images."""
    import diffusers
    import torch

    folder = folder_of("sd1")
    with silence_libraries():
        theirs = diffusers.DiffusionPipeline.from_pretrained(folder, safety_checker=None)
    theirs.set_progress_bar_config(disable=True)
    theirs.vae.enable_tiling()
    wanted = theirs(
        PROMPT, num_inference_steps=2, guidance_scale=3.0, negative_prompt="blurry", height=32, width=32,
        generator=torch.Generator().manual_seed(SEED), output_type="np",
    ).images[0]  # fmt: skip
    requests = [Request(PROMPT, SEED), Request(PROMPT, SEED + 1)]
    plain, tiled, sliced = (
        np.stack([images[0] for images in sample(load(folder, fresh=True, saving=saving), requests, WIDE)])
        for saving in (Saving(), Saving(tiling=True), Saving(slicing=True))
    )
    np.testing.assert_allclose(tiled[0], wanted, atol=1e-5)
    assert np.abs(tiled - plain).max() > 1e-3, "tiles change images"
    np.testing.assert_allclose(sliced, plain, atol=1e-5)


def test_tiles_are_part_of_what_images_depend_on(tiny: Pipe, tiny_folder: Path) -> None:
    plain, sliced, tiled = (
        replace(tiny, saving=saving).computed
        for saving in (Saving(), Saving(slicing=True), Saving(tiling=True))
    )
    with pytest.raises(SoritesError, match="AutoencoderTiny"):
        load(tiny_folder, fresh=True, saving=Saving(tiling=True))
    assert memory_table("toy", batches=(1,))["tiling"].to_list() == [False]
    assert plain == sliced == ""
    assert tiled


def test_what_cannot_wait_on_the_cpu_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(SoritesError, match="none, model, sequential"):
        Saving("all")
    with pytest.raises(SoritesError, match="device is the CPU"):
        load(tiny_folder, "cpu", fresh=True, saving=Saving("model"))


@slow
def test_networks_wait_on_the_cpu(tiny: Pipe, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a pretended GPU: only the network that works is there, and images are the same."""
    import diffusers

    parts = copy.deepcopy(tiny.parts)
    monkeypatch.setattr(diffusers.StableDiffusionPipeline, "from_pretrained", lambda *_, **__: parts)
    requests = [Request("a disc", seed) for seed in (1, 2, 3)]
    wanted = [images[0] for images in sample(tiny, requests, FEW, batch=2)]
    seen: list[dict[str, str]] = []
    with pretended("cuda"):
        pipe = load(tiny_folder, "cuda", "float32", fresh=True, saving=Saving("model"))
        networks = {name: getattr(pipe.parts, name) for name in ("text_encoder", "unet", "vae")}

        def look(*_: Any) -> None:
            seen.append({name: _place(network) for name, network in networks.items()})

        pipe.network.conv_in.register_forward_pre_hook(look)
        found = [images[0] for images in sample(pipe, requests, FEW, batch=2)]
        after = {name: _place(network) for name, network in networks.items()}
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    working = {"text_encoder": "cpu", "unet": "cuda", "vae": "cpu"}
    assert seen
    assert all(places == working for places in seen)
    assert set(after.values()) == {"cpu"}


@slow
@pytest.mark.parametrize(
    ("family", "dtype"),
    [("sd1", "bfloat16"), ("sd1", "float32"), ("sdxl", "float32"), ("sd3", "float32"), ("flux", "float32")],
)
def test_layers_wait_elsewhere_between_uses(
    folder_of: Callable[[str], Path], family: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With accelerate's hooks weights are there for the pass of their layer only, and images are equal to the
    bit. As diffusers does it, but for the device of the passes, which is the CPU here.
    """
    import diffusers
    import torch
    from accelerate import cpu_offload

    def wait(parts: Any, device: str) -> None:
        for model in parts.components.values():
            if isinstance(model, torch.nn.Module):
                cpu_offload(model, torch.device("cpu"), offload_buffers=len(model._parameters) > 0)

    pipe, waiting = (load(folder_of(family), dtype=dtype, fresh=True) for _ in range(2))
    slider = random_slider(pipe) if family.startswith("sd") and family != "sd3" else None
    asked = [along(PROMPT, seed, slider, (0.0, 1.0)) if slider else Request(PROMPT, seed) for seed in (1, 2)]
    wanted = sample(pipe, asked, WIDE, batch=2)
    saving = Saving("sequential")
    monkeypatch.setattr(diffusers.DiffusionPipeline, "enable_sequential_cpu_offload", wait)
    saving.apply(waiting.parts, "cuda")
    waiting = replace(waiting, saving=saving)
    networks = [part for part in waiting.parts.components.values() if isinstance(part, torch.nn.Module)]
    assert {_place(network) for network in networks} == {"meta"}
    for found, images in zip(sample(waiting, asked, WIDE, batch=2), wanted, strict=True):
        np.testing.assert_array_equal(found, images)
    assert {_place(network) for network in networks} == {"meta"}


def test_layers_that_wait_elsewhere_are_not_trained(tiny: Pipe, tmp_path: Path) -> None:
    waiting = replace(tiny, saving=Saving("sequential"))
    with pytest.raises(SoritesError, match="offload"):
        trained(waiting, "disc", "snow", QUICK, tmp_path / "state")


def _place(network: Any) -> str:
    return str(next(network.parameters()).device.type)


@slow
@pytest.mark.parametrize("family", ["sd1", "sdxl", "sd3", "flux"])
def test_estimates_are_what_is_measured(
    folder_of: Callable[[str], Path], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights exactly; the peak of tensors, which is measured on the CPU, within 15 %."""
    folder = folder_of(family)
    pipe = load(folder, fresh=True)
    # As many tokens as the small encoders give.
    how = SamplerOptions(1, 3.0, negative="", side=64, scheduler="own", seeding="plain")
    if family == "sd3":
        monkeypatch.setitem(estimates.TOKENS, "sd3", 77 * 2)
    for batch in (1, 3):
        found = estimate(folder, 64, batch, "float32")
        assert sum(found.weights.values()) == parameter_bytes(pipe)
        measured = drawing_bytes(pipe, how, batch)
        assert max(found.tensors.values()) == pytest.approx(measured, rel=0.15)


@slow
def test_offloading_and_tiles_lower_the_estimate(folder_of: Callable[[str], Path]) -> None:
    found = estimate(folder_of("sd1"), 64, 1, "float32")
    none, model, sequential = (found.peak(name) for name in OFFLOADS)
    assert none == sum(found.weights.values()) + max(found.tensors.values())
    assert sequential < model < none
    half = estimate(folder_of("sd1"), 64, 1, "bfloat16")
    assert {name: found.weights[name] / half.weights[name] for name in found.weights} == {
        "text_encoder": 2, "unet": 2, "vae": 1,
    }, "this autoencoder computes in 32 bits"  # fmt: skip
    assert estimate(folder_of("sd1"), 64, 1, "float32", tiling=True).tensors["vae"] < found.tensors["vae"]
    with pytest.raises(SoritesError, match="none, model, sequential"):
        found.peak("all")
    with pytest.raises(SoritesError, match="float32, bfloat16, float16"):
        estimate(folder_of("sd1"), dtype="int8")
    table = memory_table(folder_of("sd1"), (16, 32), (1,))
    assert table.height == 4
    assert (table["none_gb"] > table["model_gb"]).all()
