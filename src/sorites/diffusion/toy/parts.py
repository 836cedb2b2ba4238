"""The parts of the toy pipeline, as diffusers and transformers make them: small, complete, and not yet trained."""

from __future__ import annotations

from typing import Any

from sorites.diffusion.toy.pictures import SHAPES, SIDE, STYLES
from sorites.torch_tools import beside_torchvision

WORDS = ("a", "picture", "photo", "of", "in", ",", *SHAPES, *STYLES)
LENGTH = 12
"""Tokens of a prompt, with its first and last."""
WIDTH = 48
"""Numbers per token."""
LATENT = 2.0
"""The factor from a pixel in -1..1 to the space in which noise is added, so that it varies about as much as the noise."""
_SMALL = 0.1
"""Pixels are this small inside the autoencoder, where its soft limit at 3 bends nothing."""


def pipeline(seed: int = 0, width: int = 32) -> Any:
    """Return an untrained ``StableDiffusionPipeline`` of the toy world."""
    import torch

    diffusers = beside_torchvision("diffusers", "the toy world", "generate")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return diffusers.StableDiffusionPipeline(
            vae=autoencoder(), text_encoder=text_encoder(), tokenizer=tokenizer(), unet=unet(width), scheduler=scheduler(),
            safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        )  # fmt: skip


def unet(width: int = 32) -> Any:
    """Return the network that predicts velocities: two sizes, 16 and 8 pixels, with attention to the text at the smaller."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=SIDE, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(width, 2 * width),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH, norm_num_groups=8, attention_head_dim=4,
    )  # fmt: skip


def scheduler() -> Any:
    """Return Stable Diffusion's noise schedule, with predicted velocities as in its second version."""
    from diffusers import DDIMScheduler

    return DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", prediction_type="v_prediction",
        clip_sample=False, set_alpha_to_one=False, steps_offset=1,
    )  # fmt: skip


def text_encoder() -> Any:
    """Return a small CLIP text model; its embeddings start far apart, or the few words would look alike to it."""
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel

    model = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(WORDS) + 4, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=1,
            num_attention_heads=4, max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        )
    )  # fmt: skip
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=1.0)
    return model


def tokenizer() -> Any:
    """Return a tokenizer that knows the words of the toy world; any other is unknown."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {word: number for number, word in enumerate(("<start>", "<end>", "<unknown>", "<none>", *WORDS))}
    made = Tokenizer(models.WordLevel(known, unk_token="<unknown>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="<start> $A <end>", special_tokens=[("<start>", 0), ("<end>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<start>", eos_token="<end>", pad_token="<end>", unk_token="<unknown>",
        model_max_length=LENGTH,
    )  # fmt: skip


def autoencoder() -> Any:
    """Return an autoencoder that changes nothing but the range: the toy world is drawn in pixels."""
    import torch
    from diffusers import AutoencoderTiny

    model = AutoencoderTiny(
        encoder_block_out_channels=(4,), decoder_block_out_channels=(4,), latent_channels=3, num_encoder_blocks=(1,),
        num_decoder_blocks=(1,), scaling_factor=LATENT / _SMALL,
    )  # fmt: skip
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        into, out = model.encoder.layers, model.decoder.layers
        _pass_on(into[0], 1.0, 0.0)
        _pass_on(into[-1], 2 * _SMALL, -_SMALL)
        _pass_on(out[0], 0.5 / _SMALL, 0.5)
        _pass_on(out[-1], 1.0, 0.0)
    return model


def _pass_on(layer: Any, gain: float, offset: float) -> None:
    """Make a convolution hand its first three channels on, times a gain and plus an offset."""
    for channel in range(3):
        layer.weight[channel, channel, 1, 1] = gain
        if layer.bias is not None:
            layer.bias[channel] = offset
