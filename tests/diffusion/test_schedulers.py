"""Every kind of pipeline folder and scheduler, sampled as diffusers samples it."""

from __future__ import annotations

import json
import random
import re
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diffusion.conftest import random_slider
from tests.diffusion.folders import FAMILIES, SCHEDULERS, with_scheduler, write_folder

from sorites.core.errors import SoritesError, UnknownName
from sorites.diffusion.pipeline import load, silence_libraries
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample
from sorites.diffusion.schedulers import OF_THE_FILE, allowed_classes, refuse_unknown_keys

PREDICTION = {"sd1": "epsilon", "sd2": "v_prediction", "sdxl": "epsilon", "sd3": ""}
PROMPT, SEED = "a picture of a bald eagle", 7
FOURTEEN = [
    *((family, name) for family in ("sd1", "sd2", "sdxl") for name in ("ddim", "euler", "dpm++", "unipc")),
    ("sdxl", "turbo"),
    ("sd3", "flow"),
]
FAST = [("sd3", "flow")]
OTHERS = ("pndm", "heun", "lms", "ddpm", "euler_ancestral", "sde")
slow = pytest.mark.slow
# The schedulers of diffusers convert tensors in a way that NumPy deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),
]


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root, made = tmp_path_factory.mktemp("families"), {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = write_folder(family, root / family)
        return made[family]

    return folder


@pytest.fixture
def folder_of(families: Any, tmp_path: Path) -> Any:
    def make(family: str, name: str) -> Path:
        copy = tmp_path / f"{family}_{name}"
        return copy if copy.exists() else with_scheduler(families(family), name, PREDICTION[family], copy)

    return make


def theirs(folder: Path, drawing: SamplerOptions, scheduler: Any = None) -> Any:
    """Sample with the call of diffusers, and with another scheduler if one is given."""
    import diffusers
    import torch

    with silence_libraries():
        absent = {"text_encoder_3": None, "tokenizer_3": None} if "sd3" in folder.name else {}
        pipe = diffusers.DiffusionPipeline.from_pretrained(folder, **absent)
    pipe.set_progress_bar_config(disable=True)
    if scheduler is not None:
        pipe.scheduler = scheduler(pipe.scheduler.config)
    return pipe(
        PROMPT,
        num_inference_steps=drawing.steps,
        guidance_scale=drawing.guidance,
        negative_prompt=drawing.negative or None,
        generator=torch.Generator().manual_seed(SEED),
        output_type="np",
    ).images[0]


def ours(folder: Path, drawing: SamplerOptions) -> Any:
    return sample(load(folder, fresh=True), [Request(PROMPT, SEED)], drawing)[0][0]


def options(name: str, scheduler: str = "own") -> SamplerOptions:
    if name == "turbo":
        return SamplerOptions(2, 0.0, negative="", scheduler=scheduler, seeding="plain")
    return SamplerOptions(6, 3.0, negative="blurry", scheduler=scheduler, seeding="plain")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"),
    [pytest.param(*case, marks=[] if case in FAST else [slow]) for case in FOURTEEN]
    + [pytest.param("sd1", name, marks=[slow]) for name in OTHERS]
    + [pytest.param("sd3", "dynamic", marks=[slow])],
)
def test_the_pipelines_own_scheduler_samples_as_in_diffusers(folder_of: Any, family: str, name: str) -> None:
    folder = folder_of(family, name)
    wanted = theirs(folder, options(name))
    assert np.ptp(wanted) > 0.01, "an image with contrast"
    np.testing.assert_allclose(ours(folder, options(name)), wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"),
    [
        pytest.param(*case, marks=[] if case == ("sdxl", "euler") else [slow])
        for case in FOURTEEN
        if case in (("sdxl", "euler"), ("sdxl", "turbo"))
    ],
)
def test_ddim_made_from_another_scheduler_clips_nothing(folder_of: Any, family: str, name: str) -> None:
    """The configurations of these folders have no ``clip_sample``, which DDIM takes for yes."""
    import diffusers

    def unclipped(config: Any) -> Any:
        return diffusers.DDIMScheduler.from_config(config, clip_sample=False, thresholding=False)

    folder, drawing = folder_of(family, name), options(name, "ddim")
    written = json.loads((folder / "scheduler" / "scheduler_config.json").read_text())
    assert "clip_sample" not in written
    drawn = ours(folder, drawing)
    np.testing.assert_allclose(drawn, theirs(folder, drawing, unclipped), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["unipc", *(pytest.param(name, marks=[slow]) for name in ("dpm++", "pndm", "heun", "lms"))],
)
def test_a_scheduler_with_memory_shares_early_steps(folder_of: Any, name: str) -> None:
    """Severities that share their early steps are those that were sampled alone."""
    pipe = load(folder_of("sd1", "ddim"))
    how = SamplerOptions(6, 3.0, start=600, negative="", scheduler=name)
    slider, severities = random_slider(pipe), (0.0, 1.0, 2.5)
    requests = [along(PROMPT, seed, slider, severities) for seed in (1, 2)]
    together = sample(pipe, requests, how)
    for request, images in zip(requests, together, strict=True):
        for severity, image in zip(severities, images, strict=True):
            alone = sample(pipe, [along(PROMPT, request.seed, slider, (severity,))], how)[0][0]
            np.testing.assert_allclose(image, alone, atol=1e-4)
    assert np.abs(together[0][0] - together[0][2]).max() > 0.005


def _edit(folder: Path, **values: Any) -> None:
    file = folder / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.slow
def test_a_key_that_no_scheduler_knows_is_refused(folder_of: Any) -> None:
    folder = folder_of("sd1", "ddim")
    _edit(folder, clip_smaple=False)
    with pytest.raises(UnknownName) as caught:
        load(folder)
    assert "clip_sample" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(allowed_classes()))
def test_every_mutated_key_is_refused(name: str, tmp_path: Path) -> None:
    """The configuration that diffusers writes is read; each of its keys misspelt in eight ways is not."""
    import diffusers

    file = tmp_path / "scheduler" / "scheduler_config.json"
    with silence_libraries():
        getattr(diffusers, name)().save_pretrained(file.parent)
    written = json.loads(file.read_text())
    refuse_unknown_keys(tmp_path)
    known = {key for other in allowed_classes() for key in signature(getattr(diffusers, other)).parameters}
    tried = 0
    for key in written:
        for wrong in sorted(_misspelt(key, random.Random(key)) - known - OF_THE_FILE):
            mutated = {wrong if each == key else each: value for each, value in written.items()}
            file.write_text(json.dumps(mutated))
            with pytest.raises(UnknownName, match=re.escape(repr(wrong))):
                refuse_unknown_keys(tmp_path)
            tried += 1
    assert tried >= 7 * len(written)


def _misspelt(key: str, draw: random.Random) -> set[str]:
    place = draw.randrange(len(key) - 1)
    swapped = key[:place] + key[place + 1] + key[place] + key[place + 2 :]
    letter = draw.choice("abcdefghijklmnopqrstuvwxyz")
    return {
        swapped, key[:place] + key[place + 1 :], key[:place] + letter + key[place:], f"_{key}", f"{key}_",
        key.upper(), key.replace("_", "-"), f"{key}s",
    } - {key}  # fmt: skip


@slow
def test_keys_of_other_schedulers_are_usual(folder_of: Any) -> None:
    """Public folders of Stable Diffusion XL have DDIM's and PNDM's keys beside those of Euler."""
    folder = folder_of("sd1", "euler")
    before = ours(folder, options("euler"))
    _edit(folder, clip_sample=False, sample_max_value=1.0, set_alpha_to_one=False, skip_prk_steps=True)
    np.testing.assert_array_equal(ours(folder, options("euler")), before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pndm"])
def test_a_scheduler_that_does_not_know_how_the_network_was_trained_is_refused(
    folder_of: Any, name: str
) -> None:
    folder = folder_of("sd2", "ddim")
    _edit(folder, rescale_betas_zero_snr=True)
    with pytest.raises(SoritesError, match="rescale_betas_zero_snr"):
        ours(folder, options(name, name))


@pytest.mark.slow
def test_a_flow_is_sampled_by_its_own_scheduler_only(families: Any) -> None:
    with pytest.raises(SoritesError, match="FlowMatchEulerDiscreteScheduler"):
        ours(families("sd3"), options("ddim", "ddim"))


def test_every_family_is_tried() -> None:
    assert {family for family, _ in FOURTEEN} == set(FAMILIES)
    assert len(FOURTEEN) == 14
    assert {*OTHERS, *(name for _, name in FOURTEEN), "dynamic"} == set(SCHEDULERS)
