"""Flow-matching transformers like Stable Diffusion 3 and FLUX: sampling, sliders and their training, against
diffusers and peft.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.generation.conftest import QUICK
from tests.diffusion.folders import write_folder

from sorites.apps.generation.recipes import suited
from sorites.apps.generation.sliders import loss, noise_schedule, train_sliders, trained
from sorites.core.errors import SoritesError
from sorites.diffusion import sliders
from sorites.diffusion.conditions import encode_prompt
from sorites.diffusion.pipeline import Pipe, kind_of, load, silence_libraries
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample
from sorites.diffusion.shelves import Concept, shelf
from sorites.diffusion.sliders import Slider, attach_sliders, make_slider, shapes, targets

PROMPT, SHIFTED, SEED, SIDE = "a picture of a bald eagle", "a picture of a bald eagle in snow", 7, 16
HOW = SamplerOptions(4, 3.0, start=1000, negative="blurry", side=SIDE, scheduler="own", seeding="plain")
FLOWS = ("sd3", "flux")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
slow = pytest.mark.slow
Folders = Callable[[str], Path]


@pytest.fixture(scope="session")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root, made = tmp_path_factory.mktemp("flows"), {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = write_folder(family, root / family)
        return made[family]

    return folder


def theirs(folder: Path) -> Any:
    import diffusers

    with silence_libraries():
        absent = {"text_encoder_3": None, "tokenizer_3": None} if folder.name == "sd3" else {}
        pipe = diffusers.DiffusionPipeline.from_pretrained(folder, **absent)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def drawn(pipe: Any, how: SamplerOptions, **options: Any) -> Any:
    import torch

    with silence_libraries():
        return pipe(
            PROMPT, num_inference_steps=how.steps, height=SIDE, width=SIDE,
            generator=torch.Generator().manual_seed(SEED), output_type="np", **options,
        ).images[0]  # fmt: skip


def a_slider(pipe: Pipe, method: str = "joint") -> Slider:
    import torch

    draw, layers = torch.Generator().manual_seed(0), dict(pipe.network.named_modules())
    lows = {
        name: tuple(0.2 * torch.randn(shape, generator=draw) for shape in shapes(layers[name], 4))
        for name in targets(pipe.network, method)
    }
    return make_slider("snow", lows, SliderRecord(concept="disc"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "options"),
    [
        pytest.param("flux", {"guidance_scale": 3.0}, marks=slow),
        pytest.param("flux_schnell", {"true_cfg_scale": 3.0, "negative_prompt": HOW.negative}, marks=slow),
    ],
)
def test_flux_is_sampled_as_in_diffusers(flows: Folders, family: str, options: dict[str, Any]) -> None:
    """The guidance is a number for the network of dev, and a second pass for that of schnell."""
    folder = flows(family)
    wanted = drawn(theirs(folder), HOW, **options)
    assert np.ptp(wanted) > 0.01, "an image with contrast"
    pipe = load(folder, fresh=True)
    assert (pipe.kind, pipe.is_flow, pipe.has_embedded_guidance) == ("flux", True, family == "flux")
    found = sample(pipe, [Request(PROMPT, SEED)], HOW)[0][0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    other = sample(pipe, [Request(PROMPT, SEED)], replace(HOW, guidance=6.0))[0][0]
    assert np.abs(other - wanted).max() > 1e-5, "guidance matters"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sd3", "flux"])
def test_a_slider_draws_as_diffusers_draws_with_it(flows: Folders, tmp_path: Path, family: str) -> None:
    folder = flows(family)
    pipe = load(folder)
    slider = a_slider(pipe)
    sliders.save(slider, tmp_path / "snow")
    again = sliders.load(tmp_path / "snow", pipe.network)
    assert again.version == slider.version
    guidance = {"guidance_scale": 3.0}
    if family == "sd3":
        guidance["negative_prompt"] = HOW.negative  # type: ignore[assignment]
    other = theirs(folder)
    other.load_lora_weights(tmp_path / "snow", adapter_name="snow")
    other.set_adapters(["snow"], [1.5])
    plain, found = sample(pipe, [along(PROMPT, SEED, again, (0.0, 1.5))], HOW)[0]
    assert np.abs(found - plain).max() > 0.005
    np.testing.assert_allclose(found, drawn(other, HOW, **guidance), atol=1e-5)


def test_layers_of_transformers(flows: Folders) -> None:
    """The projections of attention, of the image and with ``joint`` also of the text; others have none."""
    pipe = load(flows("flux"))
    image = {f"transformer_blocks.0.attn.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")}
    single = {f"single_transformer_blocks.0.attn.{name}" for name in ("to_q", "to_k", "to_v")}
    text = {
        f"transformer_blocks.0.attn.{name}"
        for name in ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
    }
    assert set(targets(pipe.network, "attention")) == image | single
    assert set(targets(pipe.network, "joint")) == image | single | text
    with pytest.raises(SoritesError, match=r"attention\|joint"):
        targets(pipe.network, "noxattn")
    assert suited(QUICK, kind_of(flows("flux")) == "flux").layers == "attention"
    assert suited(QUICK, kind_of("toy") == "flux") == QUICK


@pytest.mark.parametrize("family", [pytest.param("sd3", marks=slow), "flux"])
def test_the_loss_is_that_of_velocities(flows: Folders, family: str, tmp_path: Path) -> None:
    """Against the transformer of diffusers with an adapter of peft, called by its pipeline's own packing."""
    import torch

    pipe, recipe = load(flows(family)), replace(QUICK, eta=3.0, alpha=4.0, rank=4, layers="attention")
    slider = a_slider(pipe, "attention")
    latents = torch.randn(2, pipe.channels, 8, 8, generator=torch.Generator().manual_seed(1))
    time = noise_schedule(pipe, replace(recipe, side=SIDE)).timesteps[1]
    words = tuple(encode_prompt(pipe, text, "", SIDE) for text in (PROMPT, SHIFTED))
    with attach_sliders(pipe.network, [slider.lows]) as dial, torch.no_grad():
        found = loss(pipe, latents, time, words, dial, recipe)  # type: ignore[arg-type]
    sliders.save(slider, tmp_path / "snow")
    other = theirs(flows(family))
    other.load_lora_weights(tmp_path / "snow", adapter_name="snow")

    def velocity(index: int) -> Any:
        options = {
            "timestep": time.expand(2),
            "encoder_hidden_states": words[index].prompt.expand(2, -1, -1),
            "pooled_projections": words[index].pooled.expand(2, -1),
            "return_dict": False,
        }
        if family == "sd3":
            return other.transformer(hidden_states=latents, **options)[0]
        packed = other._pack_latents(latents, 2, pipe.channels, 8, 8)
        places = other._prepare_latent_image_ids(2, 4, 4, "cpu", torch.float32)
        options["timestep"] = time.expand(2) / 1000
        options |= {"guidance": torch.tensor([3.5]).expand(2), "img_ids": places}
        out = other.transformer(hidden_states=packed, txt_ids=torch.zeros(512, 3), **options)[0]
        return other._unpack_latents(out, SIDE, SIDE, other.vae_scale_factor)

    with torch.no_grad():
        moved = velocity(0)
        other.disable_lora()
        neutral, positive = velocity(0), velocity(1)
    wanted = torch.nn.functional.mse_loss(moved, neutral + 3.0 * (positive - neutral))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-9)


@slow
@pytest.mark.parametrize("family", FLOWS)
def test_training_lowers_the_loss(flows: Folders, family: str, tmp_path: Path) -> None:
    """On latents of training, severity 1 predicts the target better than severity 0 does."""
    import torch

    pipe = load(flows(family))
    recipe = replace(suited(QUICK, True), steps=30, batch=4, side=SIDE, rate=1e-2, alpha=4.0, decay=True)
    recipe = replace(recipe, neutral="a picture of {class}", positive="a picture of {class} in {shift}")
    slider = trained(pipe, "a bald eagle", "snow", recipe, tmp_path / "state")
    words = tuple(encode_prompt(pipe, text, "", SIDE) for text in (PROMPT, SHIFTED))
    latents = torch.randn(8, pipe.channels, 8, 8, generator=torch.Generator().manual_seed(5))
    time = noise_schedule(pipe, recipe).timesteps[1]
    still = {name: (down, torch.zeros_like(up)) for name, (down, up) in slider.lows.items()}
    losses = []
    for lows in (still, slider.lows):
        with attach_sliders(pipe.network, [lows]) as dial, torch.no_grad():
            losses.append(float(loss(pipe, latents, time, words, dial, recipe)))  # type: ignore[arg-type]
    assert losses[1] < 0.7 * losses[0]


@slow
def test_a_flow_slider_is_trained_listed_and_drawn(flows: Folders, tmp_path: Path) -> None:
    pipe = load(flows("flux"))
    recipe, how = replace(suited(QUICK, True), side=SIDE), replace(HOW, negative="")
    train_sliders(pipe, [Concept(22, "bald eagle")], ["snow"], recipe, tmp_path, how)
    found = shelf(tmp_path)
    record = json.loads((tmp_path / "snow" / "022_bald eagle" / "slider.json").read_text())
    assert record["recipe"]["layers"] == "attention"
    slider = found.slider(pipe, "snow", Concept(22, "bald eagle"))
    images = sample(pipe, [along(PROMPT, SEED, slider, (0.0, 1.0))], how)[0]
    assert np.abs(images[0] - images[1]).max() > 0
