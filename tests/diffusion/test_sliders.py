"""Sliders on disk: ours in plain diffusers, those of the public trainers here, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diffusion.conftest import random_slider

from sorites.core.errors import SoritesError
from sorites.diffusion import sliders
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample

ALL = SamplerOptions(steps=4, guidance=1.0, negative="", start=1000, seeding="plain")


def _image(pipe: Pipe, slider: sliders.Slider, severity: float = 1.0) -> Any:
    return sample(pipe, [along("a disc", 3, slider, (severity,))], ALL)[0][0]


def test_ours_load_in_plain_diffusers(tiny: Pipe, tiny_folder: Path, tmp_path: Path) -> None:
    import diffusers
    import torch

    slider = random_slider(tiny)
    sliders.save(slider, tmp_path / "snow")
    theirs = diffusers.StableDiffusionPipeline.from_pretrained(tiny_folder, safety_checker=None)
    theirs.set_progress_bar_config(disable=True)
    theirs.load_lora_weights(tmp_path / "snow", adapter_name="snow")
    theirs.set_adapters(["snow"], [1.5])
    drawn = theirs(
        "a disc",
        num_inference_steps=4,
        guidance_scale=1.0,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    ).images[0]
    assert np.abs(drawn - _image(tiny, slider, 0.0)).max() > 0.02
    np.testing.assert_allclose(_image(tiny, slider, 1.5), drawn, atol=1e-4)


def test_ours_come_back_as_they_were(tiny: Pipe, tmp_path: Path) -> None:
    slider = random_slider(tiny)
    sliders.save(slider, tmp_path / "snow")
    again = sliders.load(tmp_path / "snow", tiny.parts.unet)
    assert (again.shift, again.concept, again.version) == ("snow", "disc", slider.version)
    assert np.array_equal(_image(tiny, again), _image(tiny, slider))


def test_what_peft_saves_is_read_with_its_alpha(tiny: Pipe, tiny_folder: Path, tmp_path: Path) -> None:
    import diffusers
    import torch
    from peft import LoraConfig

    theirs = diffusers.StableDiffusionPipeline.from_pretrained(tiny_folder, safety_checker=None)
    theirs.set_progress_bar_config(disable=True)
    torch.manual_seed(0)
    theirs.unet.add_adapter(
        LoraConfig(
            r=4, lora_alpha=1, target_modules=r".*attn1\.(to_q|to_out\.0)|.*conv1", init_lora_weights=False
        )
    )
    theirs.unet.save_lora_adapter(tmp_path / "theirs")
    slider = sliders.load(tmp_path / "theirs" / sliders.WEIGHTS, tiny.parts.unet, "snow")
    drawn = theirs(
        "a disc",
        num_inference_steps=4,
        guidance_scale=1.0,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    ).images[0]
    assert np.abs(drawn - _image(tiny, slider, 0.0)).max() > 0.005
    np.testing.assert_allclose(_image(tiny, slider), drawn, atol=1e-4)


def _concept_layout(slider: sliders.Slider, alpha: float) -> dict[str, Any]:
    """Write a slider as the public trainer of concept sliders does."""
    import torch

    found = {}
    for name, (down, up) in slider.lows.items():
        flat = "lora_unet_" + name.replace(".", "_")
        found[f"{flat}.lora_down.weight"], found[f"{flat}.lora_up.weight"] = (
            down,
            up * (down.shape[0] / alpha),
        )
        found[f"{flat}.alpha"] = torch.tensor(alpha)
    return found


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_the_layout_of_concept_sliders_is_read(tiny: Pipe, tmp_path: Path, ending: str) -> None:
    import torch
    from safetensors.torch import save_file

    slider, file = random_slider(tiny), tmp_path / f"snow.{ending}"
    (save_file if ending == "safetensors" else torch.save)(_concept_layout(slider, 1.0), file)
    again = sliders.load(file, tiny.parts.unet)
    assert again.shift == "snow"
    np.testing.assert_allclose(_image(tiny, again), _image(tiny, slider), atol=1e-5)


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def test_a_pickle_that_holds_more_than_weights_is_refused(
    tiny: Pipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    torch.save({"a": Hostile()}, tmp_path / "bad.pt")
    with pytest.raises(SoritesError, match="more than weights"):
        sliders.load(tmp_path / "bad.pt", tiny.parts.unet)
    assert "run" not in capsys.readouterr().out


def test_a_slider_of_another_architecture_is_refused_with_the_layer(
    tiny: Pipe, large: Pipe, tmp_path: Path
) -> None:
    sliders.save(random_slider(tiny), tmp_path / "small")
    lows = dict(random_slider(tiny).lows)
    name, (down, up) = next(iter(lows.items()))
    lows[name] = (down[:, :-1], up)
    sliders.save(sliders.make_slider("snow", lows, SliderRecord()), tmp_path / "other")
    with pytest.raises(SoritesError, match=f"layer {name}"):
        sliders.load(tmp_path / "other", tiny.parts.unet)
    sliders.save(
        sliders.make_slider("snow", {"blocks.7.to_q": (down, up)}, SliderRecord()), tmp_path / "third"
    )
    with pytest.raises(SoritesError, match="no layer blocks.7.to_q"):
        sliders.load(tmp_path / "third", tiny.parts.unet)


def test_weights_that_changed_since_are_refused(tiny: Pipe, tmp_path: Path) -> None:
    sliders.save(random_slider(tiny), tmp_path / "snow")
    facts = json.loads((tmp_path / "snow" / sliders.RECORD).read_text())
    (tmp_path / "snow" / sliders.RECORD).write_text(json.dumps({**facts, "version": "0" * 16}))
    with pytest.raises(SoritesError, match="slider.json"):
        sliders.load(tmp_path / "snow", tiny.parts.unet)


def test_a_file_of_something_else_is_refused(tiny: Pipe, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {"conv_in.weight": tiny.parts.unet.conv_in.weight.detach().clone()}
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(SoritesError, match="expected low-rank adapters"):
        sliders.load(tmp_path / "model.safetensors", tiny.parts.unet)
    with pytest.raises(SoritesError, match="no slider"):
        sliders.load(tmp_path / "nothing", tiny.parts.unet)


def test_a_file_of_sliders_without_any_place_is_the_image(tiny: Pipe) -> None:
    assert np.array_equal(
        sample(tiny, [Request("a disc", 3)], ALL)[0][0], _image(tiny, random_slider(tiny), 0.0)
    )
