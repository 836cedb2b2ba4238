"""Small untrained pipelines: what they draw means nothing, but every part of the way to it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sliders import Slider, make_slider, shapes, targets
from tools import toy_world as world


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines") / "tiny"
    world.pipeline(width=16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Pipe:
    return load(tiny_folder)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    """A pipeline with two text encoders and the added conditions of Stable Diffusion XL."""
    folder = tmp_path_factory.mktemp("pipelines") / "large"
    xl().save_pretrained(folder)
    return load(folder)


def xl() -> Any:
    """Return an untrained pipeline whose encoders name 2 as their end, as the public ones do: they
    take the highest number.
    """
    import_with_torchvision("diffusers", "a diffusion pipeline", "generate")
    import torch
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    torch.manual_seed(0)
    config = CLIPTextConfig(
        vocab_size=len(world.WORDS) + 4,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=world.LENGTH,
        projection_dim=16,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
    )
    unet = UNet2DConditionModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=64,
        norm_num_groups=8,
        attention_head_dim=4,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=16 + 6 * 8,
        use_linear_projection=True,
    )
    scheduler = EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1
    )
    return StableDiffusionXLPipeline(
        vae=world.autoencoder(),
        text_encoder=CLIPTextModel(config),
        text_encoder_2=CLIPTextModelWithProjection(config),
        tokenizer=_ends_highest(),
        tokenizer_2=_ends_highest(),
        unet=unet,
        scheduler=scheduler,
        add_watermarker=False,
    )


def _ends_highest() -> Any:
    """Return a tokenizer for the words of the toy world whose end token has the highest number, as CLIP's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {
        word: number for number, word in enumerate(("<start>", "<unknown>", "<none>", *world.WORDS, "<end>"))
    }
    made = Tokenizer(models.WordLevel(known, unk_token="<unknown>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("<start>", known["<start>"]), ("<end>", known["<end>"])]
    made.post_processor = processors.TemplateProcessing(single="<start> $A <end>", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<start>",
        eos_token="<end>",
        pad_token="<end>",
        unk_token="<unknown>",
        model_max_length=world.LENGTH,
    )


def random_slider(pipe: Pipe, shift: str = "snow", seed: int = 0, size: float = 0.1) -> Slider:
    import torch

    draw = torch.Generator().manual_seed(seed)
    layers = dict(pipe.network.named_modules())
    lows = {
        name: tuple(size * torch.randn(shape, generator=draw) for shape in shapes(layers[name], 4))
        for name in targets(pipe.network, "noxattn")
    }
    return make_slider(shift, lows, SliderRecord(concept="disc"))  # type: ignore[arg-type]
