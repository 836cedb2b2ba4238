"""Learn the word of one class from its pictures, step by step; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sorites.diffusion.noising import NOISE_STEPS, latents_of, noised, predicted
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.prompts import followed
from sorites.diffusion.words import ENCODERS, Word, taught
from sorites.errors import SoritesError
from sorites.generation.learning import Lesson, learn
from sorites.generation.word_recipe import WordRecipe
from sorites.rng import digest
from sorites.torch_tools import one_thread
from sorites.types import Picture

KEPT = 50
"""Steps between two states that are written to disk."""
ENCODED = 16
"""Pictures that go through the autoencoder at once."""


def learnt(
    pipe: Pipe, name: str, pictures: Sequence[Picture], recipe: WordRecipe, state: Path,
    tick: Callable[[int], None] = lambda _: None,
) -> Word:  # fmt: skip
    """Learn the word of a class from pictures of the pipeline's width; ``state`` keeps what is learnt so far."""
    import torch

    start = Word(name, first_vectors(pipe, name, recipe.vectors))
    key = digest(
        pipe.version, name, json.dumps(dict(recipe.facts()), sort_keys=True), [p.tobytes().hex() for p in pictures]
    ).hex()
    made = taught(pipe, [start])
    with made.busy, one_thread(), torch.enable_grad():
        vectors = [part.to(made.device).clone().requires_grad_() for part in start.vectors]
        optimizer = torch.optim.AdamW(vectors, lr=recipe.rate, weight_decay=0.0)
        latents = torch.cat([latents_of(made, pictures[i : i + ENCODED]) for i in range(0, len(pictures), ENCODED)])
        with _read_from(made, start, vectors):
            lesson = Lesson("word", {str(place): part for place, part in enumerate(vectors)}, optimizer, state, key, KEPT)
            last = learn(lesson, recipe, lambda _, draw: _loss(made, start, latents, recipe, draw), tick)
    facts = {"recipe": dict(recipe.facts()), "pictures": len(pictures), "last_loss": last}
    return Word(name, tuple(part.detach().cpu() for part in vectors), facts)


def first_vectors(pipe: Pipe, name: str, count: int) -> tuple[Any, ...]:
    """Return the mean vector of the class's name in each text encoder, as often as a word has vectors."""
    found = []
    for encoder in ENCODERS[pipe.kind]:
        tokenizer = getattr(pipe.parts, encoder.replace("text_encoder", "tokenizer"))
        table = getattr(pipe.parts, encoder).get_input_embeddings().weight.detach().float()
        ids = tokenizer(name, add_special_tokens=False).input_ids
        if not ids:
            raise SoritesError(f"the pipeline's tokenizer makes nothing of the class {name!r}")
        found.append(table[ids].mean(0, keepdim=True).repeat(count, 1))
    return tuple(found)


@contextlib.contextmanager
def _read_from(pipe: Pipe, word: Word, vectors: Sequence[Any]) -> Iterator[None]:
    """Let the text encoders read the word from these vectors, through which gradients go back."""
    handles = []
    for encoder, part in zip(ENCODERS[pipe.kind], vectors, strict=True):
        tokenizer = getattr(pipe.parts, encoder.replace("text_encoder", "tokenizer"))
        names = [word.token, *(f"{word.token}_{i}" for i in range(1, len(part)))]
        ids = tokenizer.convert_tokens_to_ids(names)
        table = getattr(pipe.parts, encoder).get_input_embeddings()
        handles.append(table.register_forward_hook(_replacing(ids, part)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _replacing(ids: Sequence[int], vectors: Any) -> Any:
    import torch

    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        for number, vector in zip(ids, vectors, strict=True):
            output = torch.where((inputs[0] == number)[..., None], vector.to(output.dtype), output)
        return output

    return hook


def _loss(pipe: Pipe, word: Word, latents: Any, recipe: WordRecipe, draw: Any) -> Any:
    """Return the error of the predicted noise for some pictures under a sentence with the word."""
    import torch

    chosen = torch.randint(len(latents), (recipe.batch,), generator=draw)
    spread = (torch.arange(recipe.batch) + torch.rand(recipe.batch, generator=draw)) / recipe.batch
    times = (spread * NOISE_STEPS).long().clamp(0, NOISE_STEPS - 1).to(pipe.device)
    template = recipe.templates[int(torch.randint(len(recipe.templates), (1,), generator=draw))]
    some = latents[chosen]
    noise = torch.randn(some.shape, generator=draw).to(some)
    noisy, aim = noised(pipe, some, noise, times)
    words = followed(pipe, template.replace("{class}", word.token), "", pipe.side)
    return torch.nn.functional.mse_loss(predicted(pipe, noisy, times, [words] * recipe.batch).float(), aim.float())
