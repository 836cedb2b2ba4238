"""Prompts: encode them with the text encoders of a pipeline, and ask its network for a prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sorites.core.errors import UnknownName
from sorites.diffusion.pipeline import Pipe

# Guidance of networks that take it as a number, unless another is asked for: the default of their pipelines.
EMBEDDED_GUIDANCE = 3.5


@dataclass(frozen=True, eq=False)
class Words:
    """An encoded prompt and negative prompt; ``pooled`` is used by Stable Diffusion XL, 3 and FLUX, ``sizes``
    only by XL.
    """

    prompt: Any
    negative: Any
    pooled: Any = None
    negative_pooled: Any = None
    sizes: Any = None

    @staticmethod
    def batch(words: Sequence[Words], guided: bool) -> tuple[Any, dict[str, Any] | None]:
        """Return the hidden states of a batch, negative prompts first if guided, and the added conditions
        if any.
        """
        import torch

        hidden = [encoding.negative for encoding in words] * guided + [encoding.prompt for encoding in words]
        if words[0].pooled is None:
            return torch.cat(hidden), None
        pooled = [encoding.negative_pooled for encoding in words] * guided + [
            encoding.pooled for encoding in words
        ]
        added = {"text_embeds": torch.cat(pooled)}
        if words[0].sizes is not None:
            added["time_ids"] = torch.cat([encoding.sizes for encoding in words] * (1 + guided))
        return torch.cat(hidden), added


def refuse_unknown_words(tokenizer: Any, prompts: Iterable[str]) -> None:
    """Raise an error for a word that a tokenizer does not know, and that would mean nothing in a prompt.

    The tokenizers of public pipelines spell any word; those of a small vocabulary do not.
    """
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown in (tokenizer.eos_token_id, tokenizer.pad_token_id):
        return
    vocabulary = sorted(tokenizer.get_vocab())
    for word in dict.fromkeys(word for prompt in prompts for word in prompt.replace(",", " ").split()):
        if unknown in tokenizer(word, add_special_tokens=False).input_ids:
            raise UnknownName("word in the pipeline's vocabulary", word, vocabulary)


def encode_prompt(pipe: Pipe, prompt: str, negative: str, side: int) -> Words:
    """Encode one prompt separately, so that the result does not depend on the rest of a batch."""
    import torch

    with torch.no_grad():
        return encode_with_gradients(pipe, prompt, negative, side)


def encode_with_gradients(pipe: Pipe, prompt: str, negative: str, side: int) -> Words:
    """Encode a prompt with gradients to the embeddings."""
    import torch

    if pipe.kind == "sd":
        encodings = pipe.parts.encode_prompt(prompt, pipe.device, 1, True, negative)
        return Words(encodings[0], encodings[1])
    if pipe.kind == "flux":
        hidden, pooled, _ = pipe.parts.encode_prompt(prompt=prompt, device=pipe.device)
        without, pooled_without, _ = pipe.parts.encode_prompt(prompt=negative, device=pipe.device)
        return Words(hidden, without, pooled, pooled_without)
    others = {"prompt_2": None, "prompt_3": None} if pipe.kind == "sd3" else {}
    prompt_, negative_, pooled, negative_pooled = pipe.parts.encode_prompt(
        prompt=prompt, device=pipe.device, num_images_per_prompt=1, do_classifier_free_guidance=True,
        negative_prompt=negative or None, **others,
    )  # fmt: skip
    sizes = None
    if pipe.kind == "sdxl":
        sizes = torch.tensor([[side, side, 0, 0, side, side]], dtype=prompt_.dtype, device=pipe.device)
    return Words(prompt_, negative_, pooled, negative_pooled, sizes)


def predict(
    pipe: Pipe, latents: Any, time: Any, hidden: Any, added: dict[str, Any] | None,
    guidance: float = EMBEDDED_GUIDANCE, held: Any = None,
) -> Any:  # fmt: skip
    """Return the network's prediction for latents at a noise step, with the conditions of ``Words.batch``.

    Args:
        pipe: The pipeline.
        latents: Noisy latents.
        time: One noise step, or one per image.
        hidden: Hidden states of the prompts.
        added: Added conditions, None if the network has none.
        guidance: The guidance, for networks that take it as a number.
        held: Maps of images that the pipeline's ControlNet holds, None for none.
    """
    if pipe.kind == "flux":
        return _predict_packed(pipe, latents, time, hidden, added or {}, guidance)
    if pipe.kind == "sd3":
        return pipe.network(
            hidden_states=latents, timestep=time.expand(len(latents)), encoder_hidden_states=hidden,
            pooled_projections=(added or {})["text_embeds"], return_dict=False,
        )[0]  # fmt: skip
    more = {} if held is None else pipe.control.residuals(latents, time, hidden, added, held)
    return pipe.network(
        latents, time, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False, **more
    )[0]


def _predict_packed(
    pipe: Pipe, latents: Any, time: Any, hidden: Any, added: dict[str, Any], guidance: float
) -> Any:
    """Return the prediction of a FLUX network, which sees squares of 2 x 2 latents in a row."""
    import torch

    images, channels, height, width = latents.shape
    rows, columns = height // 2, width // 2
    packed = latents.view(images, channels, rows, 2, columns, 2).permute(0, 2, 4, 1, 3, 5)
    packed = packed.reshape(images, rows * columns, channels * 4)
    places = torch.zeros(rows, columns, 3)
    places[..., 1], places[..., 2] = torch.arange(rows)[:, None], torch.arange(columns)[None]
    scale = None
    if pipe.has_embedded_guidance:
        scale = torch.full((images,), guidance, dtype=torch.float32, device=latents.device)
    out = pipe.network(
        hidden_states=packed, timestep=time.expand(images).to(latents.dtype) / 1000, guidance=scale,
        pooled_projections=added["text_embeds"], encoder_hidden_states=hidden,
        txt_ids=torch.zeros(hidden.shape[1], 3).to(hidden), img_ids=places.view(-1, 3).to(hidden),
        return_dict=False,
    )[0]  # fmt: skip
    unpacked = out.view(images, rows, columns, channels, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return unpacked.reshape(images, channels, height, width)
