"""Learn the word of one class from its images, step by step; stopped anywhere, it goes on as if
it had not been.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sorites.apps.generation.recipes import WordRecipe
from sorites.apps.generation.sliders import LIBRARIES, Lesson, learn
from sorites.core import Sample
from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.rng import digest, fair_order
from sorites.core.samples import ImageU8
from sorites.core.torch_tools import one_thread
from sorites.diffusion.pipeline import TOY, Pipe, toy_folder
from sorites.diffusion.sampler import NOISE_STEPS, followed, latents_of, noised, predicted
from sorites.diffusion.sliders import Concept
from sorites.diffusion.words import ENCODERS, FACTS, Word, save, taught
from sorites.evaluation.images import LeftOut, readable
from sorites.io.files import locked, sweep_temporaries
from sorites.io.readers import json_file
from sorites.models.preprocess import fit

# Steps between two states that are written to disk.
KEPT = 50
# Images that go through the autoencoder at once.
ENCODED = 16


def learnt(
    pipe: Pipe, name: str, images: Sequence[ImageU8], recipe: WordRecipe, state: Path,
    tick: Callable[[int], None] = lambda _: None,
) -> Word:  # fmt: skip
    """Learn the word of a class from images of the pipeline's width; ``state`` keeps what is
    learnt so far.
    """
    import torch

    start = Word(name, first_vectors(pipe, name, recipe.vectors))
    key = digest(
        pipe.version,
        name,
        json.dumps(dict(recipe.facts()), sort_keys=True),
        [p.tobytes().hex() for p in images],
    ).hex()
    made = taught(pipe, [start])
    with made.busy, one_thread(), torch.enable_grad():
        vectors = [part.to(made.device).clone().requires_grad_() for part in start.vectors]
        optimizer = torch.optim.AdamW(vectors, lr=recipe.rate, weight_decay=0.0)
        latents = torch.cat(
            [latents_of(made, images[i : i + ENCODED]) for i in range(0, len(images), ENCODED)]
        )
        with _read_from(made, start, vectors):
            lesson = Lesson(
                "word", {str(place): part for place, part in enumerate(vectors)}, optimizer, state, key, KEPT
            )
            last = learn(lesson, recipe, lambda _, draw: _loss(made, start, latents, recipe, draw), tick)
    facts = {"recipe": dict(recipe.facts()), "images": len(images), "last_loss": last}
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
    """Return the error of the predicted noise for some images under a sentence with the word."""
    import torch

    chosen = torch.randint(len(latents), (recipe.batch,), generator=draw)
    spread = (torch.arange(recipe.batch) + torch.rand(recipe.batch, generator=draw)) / recipe.batch
    times = (spread * NOISE_STEPS).long().clamp(0, NOISE_STEPS - 1).to(pipe.device)
    template = recipe.templates[int(torch.randint(len(recipe.templates), (1,), generator=draw))]
    some = latents[chosen]
    noise = torch.randn(some.shape, generator=draw).to(some)
    noisy, aim = noised(pipe, some, noise, times)
    words = followed(pipe, template.replace("{class}", word.token), "", pipe.side)
    return torch.nn.functional.mse_loss(
        predicted(pipe, noisy, times, [words] * recipe.batch).float(), aim.float()
    )


# Learn the words of classes from a source of images into a folder, each resumable (IN* of CNS-Bench).


UNFINISHED = "learning.safetensors"


def learn_words(
    pipe: Pipe, concepts: Sequence[Concept], source: Sequence[Sample], names: Sequence[str], recipe: WordRecipe, out: Path,
    limit: int | None = None, bar: Bar | None = None,
) -> list[Path]:  # fmt: skip
    """Learn one word per class and return their folders; ``names`` are the labels of the source, by place.

    Those that are finished are left as they are.
    """
    if not concepts:
        raise SoritesError("wanted one or more classes")
    with locked(out, "word", ".sorites.lock"):
        sweep_temporaries(out)
        for concept in concepts:
            folder = out / concept.folder
            if _finished(folder, pipe, recipe):
                continue
            mine = fair_order(
                [one for one in source if one.label == names.index(concept.name)], lambda one: [one.id]
            )[:limit]
            images = _images(pipe, mine, concept.name)
            tick = bar(concept.name[:28], recipe.steps) if bar else (lambda _: None)
            word = learnt(pipe, concept.name, images, recipe, folder / UNFINISHED, tick)
            save(_described(word, concept, pipe), folder)
            (folder / UNFINISHED).unlink(missing_ok=True)
    return [out / concept.folder for concept in concepts]


def _images(pipe: Pipe, samples: Sequence[Sample], name: str) -> list[ImageU8]:
    left = LeftOut("images of a class")
    found = [
        fit(image, sample.framed, (pipe.side, pipe.side), 1.0) for sample, image in readable(samples, left)
    ]
    if not found:
        raise SoritesError(
            f"the source has no image of the class {name}. Wanted class folders that are named like the"
            " classes"
        )
    return [np.ascontiguousarray(image) for image in found]


def _finished(folder: Path, pipe: Pipe, recipe: WordRecipe) -> bool:
    """Return whether a word is there; one that was learnt otherwise is refused, naming what differs."""
    if not (folder / FACTS).is_file():
        return False
    facts = json_file(folder / FACTS, "the facts of a word")
    had = facts if isinstance(facts, dict) else {}
    before = {**had.get("recipe", {}), "pipeline_version": had.get("pipeline_version")}
    now = {**recipe.facts(), "pipeline_version": pipe.version}
    for key in (key for key in now if before.get(key) != now[key]):
        raise SoritesError(
            f"{folder} holds a word that was learnt with {key} {before.get(key)!r}, not {now[key]!r}; choose"
            " another --out DIR"
        )
    return True


def _described(word: Word, concept: Concept, pipe: Pipe) -> Word:
    where = TOY if pipe.path == toy_folder().resolve() else str(pipe.path)
    libraries = {name: version(name) for name in LIBRARIES}
    more = {
        "number": concept.number,
        "pipeline": where,
        "pipeline_version": pipe.version,
        "libraries": libraries,
    }
    return Word(word.name, word.vectors, {**word.facts, **more})
