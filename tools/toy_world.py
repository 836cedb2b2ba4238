"""Make what the toy world of ``sorites.diffusion.toy`` consists of: an untrained pipeline and the classifiers.

The trained pipeline and the weights of the classifiers are part of the package; ``proof`` trains them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.torch_tools import import_with_torchvision, one_thread
from sorites.core.samples import ImageF32
from sorites.diffusion.toy.world import SHAPES, SIDE, STYLES, draw, load_classifier, network


def caption(shape: str, style: str = "plain") -> str:
    """Return the prompt of an image."""
    # The toy tokenizer knows the words "a picture of", not "an image of".
    return f"a picture of a {shape}" if style == "plain" else f"a picture of a {shape} in {style}"


# Components of the toy pipeline, untrained

# The vocabulary of the trained toy tokenizer (toy/pipeline/tokenizer), in its order.
WORDS = ("a", "picture", "photo", "of", "in", ",", *SHAPES, *STYLES)
# Tokens of a prompt, including start and end.
LENGTH = 12
# Embedding width.
WIDTH = 48
# Factor from pixels in -1..1 to latents, chosen so that latents and noise have similar variance.
LATENT = 2.0
# Factor of pixels inside the autoencoder, small enough for its soft limit at 3 to be linear.
_SMALL = 0.1


def pipeline(seed: int = 0, width: int = 32) -> Any:
    """Return an untrained ``StableDiffusionPipeline`` of the toy world."""
    import torch

    diffusers = import_with_torchvision("diffusers", "the toy world", "generate")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return diffusers.StableDiffusionPipeline(
            vae=autoencoder(),
            text_encoder=text_encoder(),
            tokenizer=tokenizer(),
            unet=unet(width),
            scheduler=scheduler(),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )


def unet(width: int = 32) -> Any:
    """Return a network that predicts velocities at two resolutions, 16 and 8 px, with cross-attention at
    the smaller.
    """
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=SIDE,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(width, 2 * width),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH,
        norm_num_groups=8,
        attention_head_dim=4,
    )


def scheduler() -> Any:
    """Return Stable Diffusion's noise schedule with velocity prediction, as in version 2."""
    from diffusers import DDIMScheduler

    return DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", prediction_type="v_prediction",
        clip_sample=False, set_alpha_to_one=False, steps_offset=1,
    )  # fmt: skip


def text_encoder() -> Any:
    """Return a small CLIP text model with widely spread embeddings, so that it can tell the few words
    apart.
    """
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel

    model = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(WORDS) + 4,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    )
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=1.0)
    return model


def tokenizer() -> Any:
    """Return a tokenizer of the toy world's vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {
        word: number for number, word in enumerate(("<start>", "<end>", "<unknown>", "<none>", *WORDS))
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 0), ("<end>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token="<start>",
        eos_token="<end>",
        pad_token="<end>",
        unk_token="<unknown>",
        model_max_length=LENGTH,
    )


def autoencoder() -> Any:
    """Return an autoencoder that only rescales: the toy world is diffused in pixel space."""
    import torch
    from diffusers import AutoencoderTiny

    model = AutoencoderTiny(
        encoder_block_out_channels=(4,),
        decoder_block_out_channels=(4,),
        latent_channels=3,
        num_encoder_blocks=(1,),
        num_decoder_blocks=(1,),
        scaling_factor=LATENT / _SMALL,
    )
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
    """Make a convolution pass its first three channels on, times a gain plus an offset."""
    for channel in range(3):
        layer.weight[channel, channel, 1, 1] = gain
        if layer.bias is not None:
            layer.bias[channel] = offset


# Classifiers


def opinions(
    images: Sequence[ImageF32], kind: str = "all"
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return P(shape), N x 4, and P(style), N x 3, of images (H x W x 3 in 0..1)."""
    import torch

    with one_thread(), torch.no_grad():
        out = load_classifier(kind)(torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() - 0.5)
        shape, style = (part.softmax(1).numpy() for part in (out[:, : len(SHAPES)], out[:, len(SHAPES) :]))
    return shape, style


def train(kind: str, seed: int = 0, steps: int = 700, batch: int = 64) -> Any:
    """Train a classifier on slightly disturbed images drawn for every step; takes about 15 s."""
    import torch
    from torch.nn import functional as F

    rng, styles = np.random.default_rng(seed), STYLES if kind == "all" else STYLES[:1]
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classifier = network()
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=2e-3, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            shape, style = rng.integers(len(SHAPES), size=batch), rng.integers(len(styles), size=batch)
            images = np.stack([draw(SHAPES[a], styles[b], rng) for a, b in zip(shape, style, strict=True)])
            images += rng.normal(0, 0.04, images.shape) + rng.normal(0, 0.03, (batch, 1, 1, 3))
            out = classifier(torch.from_numpy(images.astype(np.float32)).permute(0, 3, 1, 2) - 0.5)
            loss = F.cross_entropy(out[:, : len(SHAPES)], torch.from_numpy(shape))
            if len(styles) > 1:
                loss = loss + F.cross_entropy(out[:, len(SHAPES) :], torch.from_numpy(style))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return classifier.eval().requires_grad_(False)


def draw_samples(count: int, style: str, seed: int = 1) -> tuple[list[ImageF32], NDArray[np.int64]]:
    """Return drawn images of one style and their shapes."""
    rng = np.random.default_rng(seed)
    shape = np.arange(count) % len(SHAPES)
    return [draw(SHAPES[a], style, rng) for a in shape], shape
