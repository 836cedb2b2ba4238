"""What CNS-Bench released: sliders as folders and as an archive, and its text encoder with added tokens."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diffusion.conftest import random_slider
from typer.testing import CliRunner

from sorites.core.errors import SoritesError
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.published import find_sliders
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample
from sorites.diffusion.shelves import Concept, refuse_other_pipeline, shelf
from sorites.diffusion.sliders import Slider
from sorites.diffusion.words import with_words
from sorites.io.decode import decode

NAME = "heavy_snow_class_022_alpha1.0_rank4_noxattn"
EAGLE = Concept(22, "bald eagle")
PLAIN = SamplerOptions(4, 3.0, negative="", seeding="plain")


def released(slider: Slider, alpha: float = 1.0) -> dict[str, Any]:
    """Return a slider in the layout of the released trainer, in bfloat16: rank 4, alpha beside the matrices."""
    import torch

    table = {}
    for name, (down, up) in slider.lows.items():
        flat = f"lora_unet_{name.replace('.', '_')}"
        table[f"{flat}.lora_down.weight"] = down.to(torch.bfloat16)
        table[f"{flat}.lora_up.weight"] = (up * 4 / alpha).to(torch.bfloat16)
        table[f"{flat}.alpha"] = torch.tensor(alpha)
    return table


@pytest.fixture
def folder(tiny: Pipe, tmp_path: Path) -> Path:
    import torch

    place = tmp_path / "sliders" / NAME
    place.mkdir(parents=True)
    torch.save(released(random_slider(tiny, seed=1)), place / f"{NAME}_100steps.pt")
    torch.save(released(random_slider(tiny)), place / f"{NAME}_last.pt")
    return tmp_path / "sliders"


def archive_of(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as made:
        for path in sorted(folder.rglob("*.*")):
            made.write(path, f"lora_adapters/{path.relative_to(folder)}")
    return archive


def test_a_released_slider_is_the_slider(
    tiny: Pipe, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder and in an archive: the last file by name, with its alpha, up to the rounding of bfloat16."""
    from safetensors.torch import save_file

    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    wanted = sample(tiny, [along("a disc", 1, random_slider(tiny), (1.0,))], PLAIN)[0][0]
    unshifted = sample(tiny, [Request("a disc", 1)], PLAIN)[0][0]
    images = []
    for place in (folder, archive_of(folder, tmp_path / "lora_adapters.zip")):
        sliders = shelf(place, {22: EAGLE.name})
        assert (sliders.shifts, sliders.concepts) == (("heavy_snow",), (EAGLE,))
        slider = sliders.slider(tiny, "heavy_snow", EAGLE)
        images.append(sample(tiny, [along("a disc", 1, slider, (1.0,))], PLAIN)[0][0])
    np.testing.assert_array_equal(images[0], images[1])
    assert np.abs(images[0] - wanted).max() < 0.1 * np.abs(unshifted - wanted).max()
    table = {key: value.contiguous() for key, value in released(random_slider(tiny)).items()}
    save_file(table, folder / NAME / f"{NAME}_last.safetensors")
    again = shelf(folder, {22: EAGLE.name}).slider(tiny, "heavy_snow", EAGLE)
    np.testing.assert_array_equal(sample(tiny, [along("a disc", 1, again, (1.0,))], PLAIN)[0][0], images[0])


def test_released_sliders_have_names_of_imagenet_by_default(folder: Path) -> None:
    assert [concept.number for concept in shelf(folder).concepts] == [22]
    assert shelf(folder).record.pipeline == ""


def test_two_sliders_of_one_class_are_refused(folder: Path) -> None:
    twin = folder / "other" / NAME.replace("rank4", "rank8")
    twin.mkdir(parents=True)
    (twin / "x_last.pt").write_bytes(b"")
    with pytest.raises(SoritesError, match="two sliders heavy_snow"):
        find_sliders(folder)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sliders.zip").write_bytes(b"nothing")
    with pytest.raises(SoritesError, match=r"sliders\.zip"):
        shelf(tmp_path / "sliders.zip")


@pytest.fixture
def star(tiny: Pipe, tmp_path: Path) -> Path:
    """A text encoder with one added token per class, as IN* was released."""
    import copy

    import torch
    from tests.diffusion.folders import clip_tokenizer
    from transformers import CLIPTextConfig, CLIPTextModel

    folder = tmp_path / "star"
    tokenizer = clip_tokenizer(folder / "tokenizer")
    tokens = [f"<class-{number}>" for number in range(23)]
    tokenizer.add_tokens(tokens)
    config = CLIPTextConfig(
        **{**copy.deepcopy(tiny.parts.text_encoder.config.to_dict()), "vocab_size": 49408}
    )
    torch.manual_seed(0)
    encoder = CLIPTextModel(config)
    encoder.resize_token_embeddings(len(tokenizer))
    torch.nn.init.normal_(encoder.get_input_embeddings().weight, std=1.0)
    encoder.save_pretrained(folder / "text_encoder")
    tokenizer.model_max_length = int(config.max_position_embeddings)
    tokenizer.save_pretrained(folder / "tokenizer")
    torch.save({"tokens": tokens, "initializer_words": ["thing"] * 23}, folder / "tokens.pt")
    return folder


@pytest.mark.slow
def test_a_released_encoder_draws_as_in_diffusers(tiny: Pipe, star: Path) -> None:
    import diffusers
    import torch
    from transformers import CLIPTextModel, CLIPTokenizer

    from sorites.diffusion.pipeline import silence_libraries

    taught = with_words(tiny, star, {22: EAGLE.name})
    assert taught.word(EAGLE.name) == "<class-22>"
    assert taught.word("tench") == "<class-0>"
    assert taught.version != tiny.version
    assert taught.base_version == tiny.version
    ours = sample(taught, [Request("a picture of a <class-22>", 5)], PLAIN)[0][0]
    with silence_libraries():
        theirs = diffusers.StableDiffusionPipeline.from_pretrained(tiny.path, safety_checker=None)
        theirs.text_encoder = CLIPTextModel.from_pretrained(star / "text_encoder")
        theirs.tokenizer = CLIPTokenizer.from_pretrained(star / "tokenizer")
    theirs.set_progress_bar_config(disable=True)
    image = theirs(
        "a picture of a <class-22>",
        num_inference_steps=4,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(5),
        output_type="np",
    ).images[0]
    np.testing.assert_allclose(ours, image, atol=1e-5)


def test_tokens_that_hold_more_than_weights_are_refused(tiny: Pipe, star: Path) -> None:
    (star / "tokens.pt").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(SoritesError, match=r"tokens\.pt"):
        with_words(tiny, star)


@pytest.mark.slow
def test_tokens_that_the_tokenizer_does_not_know_are_refused(tiny: Pipe, star: Path) -> None:
    import torch

    torch.save({"tokens": ["<nothing-here>"]}, star / "tokens.pt")
    with pytest.raises(SoritesError, match="nothing-here"):
        with_words(tiny, star)


def test_a_slider_of_another_pipeline_or_other_words_is_refused(tiny: Pipe) -> None:
    from dataclasses import replace

    refuse_other_pipeline(SliderRecord(), tiny, "released")
    refuse_other_pipeline(SliderRecord(pipeline_version=tiny.version), tiny, "own")
    with pytest.raises(SoritesError) as caught:
        refuse_other_pipeline(SliderRecord(pipeline_version="other"), tiny, "own")
    assert caught.value.fields == {"differs": "pipeline"}
    record = SliderRecord(
        pipeline_version="taught", base_version=tiny.version, word_version="a", concept="disc"
    )
    with pytest.raises(SoritesError) as caught:
        refuse_other_pipeline(record, tiny, "own")
    assert caught.value.fields == {"differs": "words"}
    grown = replace(tiny, version="more words", base=tiny.version, word_versions={"disc": "a", "cross": "b"})
    refuse_other_pipeline(record, grown, "own")


@pytest.mark.slow
def test_released_material_runs_from_the_command_line(
    tiny: Pipe, folder: Path, star: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive of sliders and a text encoder as released: generate images, then evaluate a model on them."""
    from sorites.cli import app
    from sorites.core import table, to_uint8

    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "means_of_released.py").write_text(
        "import numpy as np\n"
        "def logits(images):\n"
        "    return np.stack([np.resize(p.mean((0, 1)), 1000) for p in images]).astype(np.float32)\n"
    )
    archive, out = archive_of(folder, tmp_path / "lora_adapters.zip"), tmp_path / "images"

    def typed(*words: str | Path) -> None:
        done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    typed(
        "generate", "images", "--sliders", archive, "--pipeline", tiny.path, "--words", star, "--seeding", "plain",
        "--scheduler", "own", "--shift", "heavy_snow", "--class", "bald eagle", "--seeds", "1..2",
        "--severity", "0,1", "--noise-steps", "4", "--guidance", "3", "--negative", "", "--size", "16",
        "--format", "png", "--out", out,
    )  # fmt: skip
    drawing = SamplerOptions(4, 3.0, negative="", seeding="plain", scheduler="own")
    taught = with_words(tiny, star, {22: EAGLE.name})
    slider = shelf(archive, {22: EAGLE.name}).slider(taught, "heavy_snow", EAGLE)
    wanted = sample(taught, [along("a picture of a <class-22>", 2, slider, (0.0, 1.0))], drawing)[0]
    for scale, image in zip(("0000", "1000"), wanted, strict=True):
        found = decode(out / "heavy_snow" / "022_bald eagle" / f"seed_0002_scale_{scale}.png")
        assert np.abs(found.astype(int) - to_uint8(image)).max() <= 1
    typed(
        "run", "cns_bench", "--source", f"cns_bench:{out}", "--model", "python:means_of_released:logits",
        "--out", tmp_path / "run",
    )  # fmt: skip
    rows = table.read(tmp_path / "run").select("shift", "severity", "label").unique().collect()
    assert sorted(rows.rows()) == [("clean", 0.0, 22), ("heavy_snow", 1.0, 22)]
