"""CLIP and similar models of the open_clip library: ``open_clip:ViT-B-32@openai``,
``open_clip:ViT-B-32@FILE``.

After the @ comes a pretrained tag of open_clip, whose weights are downloaded, or a file with weights.
Preprocessing and tokenizer are those of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from sorites.core import Encoder, Features, ImageU8, add_encoder
from sorites.encoders.features import checked
from sorites.io.open_clip import load


@add_encoder
def open_clip(argument: str | None) -> Encoder:
    """open_clip:NAME@WEIGHTS: a model of the open_clip library; NAME may be a .json config, WEIGHTS a tag
    or a file.
    """
    encoders = load("encoder", argument)

    def images(images_u8: Sequence[ImageU8], framed: bool = False) -> Features:
        return checked("open_clip", encoders.images(images_u8), len(images_u8))

    def texts(sentences: Sequence[str]) -> Features:
        return checked("open_clip", encoders.texts(sentences), len(sentences))

    return Encoder(f"open_clip:{argument}", images, texts, encoders.version)
