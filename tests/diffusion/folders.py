"""Pipeline folders as diffusers writes them: the structure of each public kind, small and untrained.

The tokenizer is CLIP's own: the byte-pair vocabulary that open_clip ships, written as ``vocab.json`` and ``merges.txt``.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.diffusion.pipeline import silence_libraries

FAMILIES = ("sd1", "sd2", "sdxl", "sd3")
LENGTH, WIDTH = 77, 32
BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
# Scheduler configurations of public folders, by name and family.
SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddim": (
        "DDIMScheduler",
        {"set_alpha_to_one": False, "clip_sample": False},
    ),
    "euler": ("EulerDiscreteScheduler", {"timestep_spacing": "leading"}),
    "dpm++": ("DPMSolverMultistepScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
    "pndm": ("PNDMScheduler", {"set_alpha_to_one": False, "skip_prk_steps": True}),
    "turbo": ("EulerDiscreteScheduler", {"timestep_spacing": "trailing"}),
    "flow": ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}),
    "dynamic": ("FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True, "max_shift": 1.16}),
    "heun": ("HeunDiscreteScheduler", {}),
    "lms": ("LMSDiscreteScheduler", {}),
    "ddpm": ("DDPMScheduler", {"clip_sample": False}),
    "euler_ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "sde": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
}


def write_folder(family: str, folder: Path) -> Path:
    """Write a pipeline of a family with DDIM, or its flow scheduler."""
    import torch

    diffusers = import_with_torchvision("diffusers", "a diffusion pipeline", "generate")
    with silence_libraries(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        make = {"sd1": _sd, "sd2": _sd, "sdxl": _sdxl, "sd3": _sd3, "flux": _flux, "flux_schnell": _schnell}
        pipe = make[family](diffusers, folder)
        pipe.save_pretrained(folder)
    return folder


def with_scheduler(folder: Path, name: str, prediction: str, copy: Path) -> Path:
    """Copy a folder and let diffusers write another scheduler into it."""
    import diffusers

    shutil.copytree(folder, copy, copy_function=_link_weights)
    class_name, options = SCHEDULERS[name]
    is_flow = class_name.startswith("Flow")
    options = options if is_flow else {**BETAS, "prediction_type": prediction, **options}
    shutil.rmtree(copy / "scheduler")
    getattr(diffusers, class_name)(**options).save_pretrained(copy / "scheduler")
    index = json.loads((copy / "model_index.json").read_text())
    (copy / "model_index.json").write_text(json.dumps({**index, "scheduler": ["diffusers", class_name]}))
    return copy


def _link_weights(source: str, target: str) -> None:
    """Copy a file; weights, which nothing changes, are linked."""
    (os.link if source.endswith(".safetensors") else shutil.copy2)(source, target)


def clip_tokenizer(folder: Path) -> Any:
    """Return CLIP's tokenizer, read from the files of a folder."""
    from transformers import CLIPTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(str(files("open_clip") / "bpe_simple_vocab_16e6.txt.gz"), "rt", encoding="utf-8") as file:
        merges = file.read().split("\n")[1 : 49152 - 256 - 2 + 1]
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = [chr(byte) for byte in visible] + [chr(256 + n) for n in range(256 - len(visible))]
    names = symbols + [f"{symbol}</w>" for symbol in symbols] + [merge.replace(" ", "") for merge in merges]
    vocabulary = {name: number for number, name in enumerate([*names, "<|startoftext|>", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": LENGTH, "tokenizer_class": "CLIPTokenizer"})
    )
    return CLIPTokenizer.from_pretrained(folder)


def _tokenizer(folder: Path) -> Any:
    return clip_tokenizer(folder.with_name(f"{folder.name}_words"))


def _text_encoder(projected: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=49408,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        projection_dim=16,
        bos_token_id=49406,
        eos_token_id=49407,
        pad_token_id=1,
    )
    return CLIPTextModelWithProjection(config) if projected else CLIPTextModel(config)


def _vae(diffusers: Any, channels: int = 4, **options: Any) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels,
        norm_num_groups=4,
        sample_size=16,
        **options,
    )


def _unet(diffusers: Any, wide: int, **options: Any) -> Any:
    return diffusers.UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=wide,
        norm_num_groups=8,
        attention_head_dim=4,
        **options,
    )


def _ddim(diffusers: Any) -> Any:
    return diffusers.DDIMScheduler(**BETAS, clip_sample=False, set_alpha_to_one=False)


def _sd(diffusers: Any, folder: Path) -> Any:
    return diffusers.StableDiffusionPipeline(
        vae=_vae(diffusers),
        text_encoder=_text_encoder(),
        tokenizer=_tokenizer(folder),
        unet=_unet(diffusers, WIDTH),
        scheduler=_ddim(diffusers),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def _sdxl(diffusers: Any, folder: Path) -> Any:
    words = _tokenizer(folder)
    return diffusers.StableDiffusionXLPipeline(
        vae=_vae(diffusers, scaling_factor=0.13025),
        text_encoder=_text_encoder(),
        text_encoder_2=_text_encoder(projected=True),
        tokenizer=words,
        tokenizer_2=words,
        unet=_unet(
            diffusers,
            2 * WIDTH,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=16 + 6 * 8,
            use_linear_projection=True,
        ),
        scheduler=_ddim(diffusers),
        add_watermarker=False,
    )


def _sd3(diffusers: Any, folder: Path) -> Any:
    words = _tokenizer(folder)
    return diffusers.StableDiffusion3Pipeline(
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=8,
            patch_size=1,
            in_channels=16,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            joint_attention_dim=2 * WIDTH,
            caption_projection_dim=32,
            pooled_projection_dim=32,
            out_channels=16,
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_vae(
            diffusers,
            16,
            scaling_factor=1.5305,
            shift_factor=0.0609,
            use_quant_conv=False,
            use_post_quant_conv=False,
        ),
        text_encoder=_text_encoder(projected=True),
        tokenizer=words,
        text_encoder_2=_text_encoder(projected=True),
        tokenizer_2=words,
        text_encoder_3=None,
        tokenizer_3=None,
    )


def _flux(diffusers: Any, folder: Path, embedded: bool = True) -> Any:
    """FLUX.1 dev, whose network takes the guidance as a number."""
    from transformers import T5Config, T5EncoderModel

    shift = {"shift": 3.0, "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15}
    return diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=WIDTH,
            pooled_projection_dim=WIDTH,
            guidance_embeds=embedded,
            axes_dims_rope=(4, 6, 6),
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(**(shift if embedded else {"shift": 1.0})),
        vae=_vae(
            diffusers,
            4,
            scaling_factor=0.3611,
            shift_factor=0.1159,
            use_quant_conv=False,
            use_post_quant_conv=False,
        ),
        text_encoder=_text_encoder(),
        tokenizer=_tokenizer(folder),
        text_encoder_2=T5EncoderModel(
            T5Config(vocab_size=64, d_model=WIDTH, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
        ),
        tokenizer_2=_t5_tokenizer(),
    )


def _schnell(diffusers: Any, folder: Path) -> Any:
    """FLUX.1 schnell, whose network does not know of guidance."""
    return _flux(diffusers, folder, embedded=False)


def _t5_tokenizer() -> Any:
    """Return a tokenizer that ends and pads texts as T5's does, with a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ("<pad>", "</s>", "<unk>", "a", "picture", "of", "in", "bald", "eagle", "snow", "blurry")
    known = {word: number for number, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=512
    )
