"""Learn a word (text embedding) for a class from its images; an interrupted training resumes."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sorites.apps.generation.recipes import WordRecipe
from sorites.apps.generation.sliders import LIBRARIES, Lesson, learn
from sorites.apps.generation.spread import Spread
from sorites.core import Sample
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest, hashed_order
from sorites.core.samples import ImageU8
from sorites.diffusion.conditions import encode_with_gradients
from sorites.diffusion.latents import NOISE_STEPS, add_noise, latents_of, predict_noise
from sorites.diffusion.pipeline import TOY, Pipe, toy_folder
from sorites.diffusion.records import WordRecord
from sorites.diffusion.shelves import Concept
from sorites.diffusion.words import RECORD, Word, encoders_of, read_record, save, with_learnt_words
from sorites.evaluation.images import LeftOut, readable
from sorites.io.files import locked, sweep_temporaries
from sorites.io.resizing import fit

# Steps between two checkpoints.
STEPS_PER_CHECKPOINT = 50
# Images per call of the autoencoder.
IMAGES_PER_ENCODING = 16


def learn_word(
    pipe: Pipe, name: str, images: Sequence[ImageU8], recipe: WordRecipe, state: Path,
    tick: Callable[[int], None] = lambda _: None,
) -> Word:  # fmt: skip
    """Learn the word of a class from images of the pipeline's width; ``state`` is the checkpoint file."""
    import torch

    start = Word(name, first_vectors(pipe, name, recipe.vectors))
    key = digest(
        pipe.version,
        name,
        json.dumps(dict(recipe.facts()), sort_keys=True),
        [p.tobytes().hex() for p in images],
    ).hex()
    trained_pipe = with_learnt_words(pipe, [start])
    with trained_pipe.busy, one_thread(), torch.enable_grad():
        vectors = [part.to(trained_pipe.device).clone().requires_grad_() for part in start.vectors]
        optimizer = torch.optim.AdamW(vectors, lr=recipe.rate, weight_decay=0.0)
        latents = torch.cat(
            [
                latents_of(trained_pipe, images[i : i + IMAGES_PER_ENCODING])
                for i in range(0, len(images), IMAGES_PER_ENCODING)
            ]
        )
        with _use_vectors(trained_pipe, start, vectors):
            lesson = Lesson(
                "word",
                {str(index): part for index, part in enumerate(vectors)},
                optimizer,
                state,
                key,
                STEPS_PER_CHECKPOINT,
            )
            last = learn(
                lesson, recipe, lambda _, draw: (_loss(trained_pipe, start, latents, recipe, draw),), tick
            )
    record = WordRecord(recipe=dict(recipe.facts()), images=len(images), last_loss=last)
    return Word(name, tuple(part.detach().cpu() for part in vectors), record)


def first_vectors(pipe: Pipe, name: str, count: int) -> tuple[Any, ...]:
    """Return initial vectors: the mean embedding of the class's name, repeated ``count`` times."""
    vectors = []
    for encoder in encoders_of(pipe):
        tokenizer = getattr(pipe.parts, encoder.replace("text_encoder", "tokenizer"))
        table = getattr(pipe.parts, encoder).get_input_embeddings().weight.detach().float()
        ids = tokenizer(name, add_special_tokens=False).input_ids
        if not ids:
            raise SoritesError(f"the pipeline's tokenizer returns no tokens for the class {name!r}")
        vectors.append(table[ids].mean(0, keepdim=True).repeat(count, 1))
    return tuple(vectors)


@contextlib.contextmanager
def _use_vectors(pipe: Pipe, word: Word, vectors: Sequence[Any]) -> Iterator[None]:
    """Make the text encoders read the word from these vectors, so that gradients reach them."""
    handles = []
    for encoder, part in zip(encoders_of(pipe), vectors, strict=True):
        tokenizer = getattr(pipe.parts, encoder.replace("text_encoder", "tokenizer"))
        names = [word.token, *(f"{word.token}_{i}" for i in range(1, len(part)))]
        ids = tokenizer.convert_tokens_to_ids(names)
        table = getattr(pipe.parts, encoder).get_input_embeddings()
        handles.append(table.register_forward_hook(_replacement_hook(ids, part)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _replacement_hook(ids: Sequence[int], vectors: Any) -> Any:
    import torch

    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        for number, vector in zip(ids, vectors, strict=True):
            output = torch.where((inputs[0] == number)[..., None], vector.to(output.dtype), output)
        return output

    return hook


def _loss(pipe: Pipe, word: Word, latents: Any, recipe: WordRecipe, draw: Any) -> Any:
    """Return the noise prediction error for some images under a sentence with the word."""
    import torch

    indices = torch.randint(len(latents), (recipe.batch,), generator=draw)
    # One noise step from each of ``batch`` equal intervals, which lowers the variance.
    spread = (torch.arange(recipe.batch) + torch.rand(recipe.batch, generator=draw)) / recipe.batch
    times = (spread * NOISE_STEPS).long().clamp(0, NOISE_STEPS - 1).to(pipe.device)
    template = recipe.templates[int(torch.randint(len(recipe.templates), (1,), generator=draw))]
    batch = latents[indices]
    noise = torch.randn(batch.shape, generator=draw).to(batch)
    noisy, target = add_noise(pipe, batch, noise, times)
    words = encode_with_gradients(pipe, template.replace("{class}", word.token), "", pipe.side)
    return torch.nn.functional.mse_loss(
        predict_noise(pipe, noisy, times, [words] * recipe.batch).float(), target.float()
    )


# Words of many classes from a source of images (IN* of CNS-Bench).


UNFINISHED = "learning.safetensors"


# A class and the images it is learnt from.
WordUnit = tuple[Concept, tuple[Sample, ...]]


def learn_words(
    pipe: Pipe,
    concepts: Sequence[Concept],
    source: Sequence[Sample],
    labels: Mapping[Concept, int],
    recipe: WordRecipe,
    out: Path,
    limit: int | None = None,
    bar: Bar | None = None,
    spread: Spread | None = None,
) -> list[Path]:
    """Learn one word per class, and return their folders. Finished ones are kept.

    Args:
        pipe: The diffusion pipeline.
        concepts: The classes.
        source: Labelled images.
        labels: The label of each class in the source. Images of other classes are not used.
        recipe: Training parameters.
        out: Output folder.
        limit: Number of images per class.
        bar: Creates a progress bar.
        spread: Learn in other processes, one word each at a time. The files are the same.
    """
    if not concepts:
        raise SoritesError("need one or more classes")
    require_images(concepts, source, labels)
    by_label: dict[int | None, list[Sample]] = {}
    for sample in source:
        by_label.setdefault(sample.label, []).append(sample)
    units = [
        (concept, tuple(hashed_order(by_label.get(labels[concept], []), lambda sample: [sample.id])[:limit]))
        for concept in concepts
    ]
    with locked(out, "word", ".sorites.lock"):
        sweep_temporaries(out)
        if spread is None:
            for unit in units:
                _learn_unit(recipe, out, pipe, unit, bar)
        else:
            tick = bar("words", len(units)) if bar else (lambda _: None)
            work = functools.partial(learn_elsewhere, recipe, out, spread.open)
            for _ in spread.engine(units, work, spread.workers):
                tick(1)
    return [out / concept.folder for concept in concepts]


def require_images(
    concepts: Sequence[Concept], source: Sequence[Sample], labels: Mapping[Concept, int]
) -> None:
    """Raise an error if a source has no image of a class.

    Args:
        concepts: The classes.
        source: Labelled images.
        labels: The label of each class in the source.
    """
    there = {sample.label for sample in source}
    if missing := [concept.name for concept in concepts if labels[concept] not in there]:
        raise SoritesError(_without_images(missing[0]))


def _without_images(name: str) -> str:
    return (
        f"the source has no image of the class {name}. Class folders are named by class, WordNet id or"
        f" number; for other names pass {option('labels', 'FILE')}"
    )


def learn_elsewhere(recipe: WordRecipe, out: Path, open_: Callable[[], Pipe], unit: WordUnit) -> int:
    """Learn one word in this process, which opens the pipeline once."""
    _learn_unit(recipe, out, open_(), unit)
    return 1


def _learn_unit(recipe: WordRecipe, out: Path, pipe: Pipe, unit: WordUnit, bar: Bar | None = None) -> None:
    concept, samples = unit
    folder = out / concept.folder
    if not _is_finished(folder, pipe, recipe):
        images = _images(pipe, samples, concept.name)
        tick = bar(concept.name[:28], recipe.steps) if bar else (lambda _: None)
        word = learn_word(pipe, concept.name, images, recipe, folder / UNFINISHED, tick)
        save(_with_metadata(word, concept, pipe), folder)
    (folder / UNFINISHED).unlink(missing_ok=True)


def _images(pipe: Pipe, samples: Sequence[Sample], name: str) -> list[ImageU8]:
    left_out = LeftOut("images of a class")
    images = [
        fit(image, sample.framed, (pipe.side, pipe.side), 1.0)
        for sample, image in readable(samples, left_out)
    ]
    if not images:
        raise SoritesError(_without_images(name))
    return [np.ascontiguousarray(image) for image in images]


def _is_finished(folder: Path, pipe: Pipe, recipe: WordRecipe) -> bool:
    """Return whether a finished word exists; one learnt with other parameters is refused."""
    if not (folder / RECORD).is_file():
        return False
    before = read_record(folder).training()
    now = {**recipe.facts(), "pipeline_version": pipe.version}
    for key in (key for key in now if before.get(key) != now[key]):
        raise SoritesError(
            f"{folder} has a word learnt with {key} {before.get(key)!r}, not {now[key]!r}; use "
            f"another {option('out', 'DIR')}"
        )
    return True


def _with_metadata(word: Word, concept: Concept, pipe: Pipe) -> Word:
    where = TOY if pipe.path == toy_folder().resolve() else str(pipe.path)
    libraries = {name: version(name) for name in LIBRARIES}
    record = word.record.having(
        number=concept.number, pipeline=where, pipeline_version=pipe.version, libraries=libraries
    )
    return Word(word.name, word.vectors, record)
