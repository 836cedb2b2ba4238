"""Words as the network takes them: what the text encoders make of a prompt, and what Stable Diffusion XL wants beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.requests import Drawing


@dataclass(frozen=True, eq=False)
class Words:
    """A prompt and what it is steered away from, encoded; ``pooled`` and ``sizes`` only for Stable Diffusion XL."""

    prompt: Any
    negative: Any
    pooled: Any = None
    negative_pooled: Any = None
    sizes: Any = None

    @staticmethod
    def batch(words: Sequence[Words], guided: bool) -> tuple[Any, dict[str, Any] | None]:
        """Return the hidden states of a batch, those steered away from first, and the added conditions where there are some."""
        import torch

        hidden = [one.negative for one in words] * guided + [one.prompt for one in words]
        if words[0].pooled is None:
            return torch.cat(hidden), None
        pooled = [one.negative_pooled for one in words] * guided + [one.pooled for one in words]
        sizes = [one.sizes for one in words] * (1 + guided)
        return torch.cat(hidden), {"text_embeds": torch.cat(pooled), "time_ids": torch.cat(sizes)}


def words_for(pipe: Pipe, prompt: str, drawing: Drawing, side: int) -> Words:
    """Encode one prompt by itself, so that nothing depends on the others of a batch."""
    return encoded(pipe, prompt, drawing.negative, side)


def encoded(pipe: Pipe, prompt: str, negative: str, side: int) -> Words:
    """Encode a prompt with the pipeline's own encoders."""
    import torch

    with torch.no_grad():
        return followed(pipe, prompt, negative, side)


def followed(pipe: Pipe, prompt: str, negative: str, side: int) -> Words:
    """Encode a prompt so that gradients can go back to what the encoders read."""
    import torch

    if pipe.kind == "sd":
        found = pipe.parts.encode_prompt(prompt, pipe.device, 1, True, negative)
        return Words(found[0], found[1])
    found = pipe.parts.encode_prompt(
        prompt=prompt, device=pipe.device, num_images_per_prompt=1, do_classifier_free_guidance=True,
        negative_prompt=negative or None,
    )  # fmt: skip
    sizes = torch.tensor([[side, side, 0, 0, side, side]], dtype=found[0].dtype, device=pipe.device)
    prompt_, negative_, pooled, negative_pooled = found
    return Words(prompt_, negative_, pooled, negative_pooled, sizes)
