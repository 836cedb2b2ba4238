"""Learn sliders from pairs of images, before and after a shift: a physical or photographed shift becomes one
that a diffusion model draws.

Pairs know how strong their shift is: a pair at some share of the highest severity trains the slider at that
share, so that its severity is the physical one, as a share. Noisy latents between before and after must lead
to the image after, so that the slider also moves images that are on the way already (the sliders from image
pairs of Gandikota et al., "Concept Sliders", ECCV 2024, learn both ends separately).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sorites.apps.generation.concepts import shift_folder
from sorites.apps.generation.recipes import PairRecipe
from sorites.apps.generation.sliders import (
    STEPS_PER_CHECKPOINT,
    UNFINISHED,
    Losses,
    Progress,
    fit_slider,
    is_finished,
    with_metadata,
)
from sorites.core import CLEAN, Sample
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest, hashed_order
from sorites.core.samples import ImageU8
from sorites.diffusion.conditions import Words, encode_prompt
from sorites.diffusion.latents import add_noise, image_error, latents_of, predict_noise
from sorites.diffusion.memory import MemorySettings
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sampler import SamplerOptions
from sorites.diffusion.shelves import Concept
from sorites.diffusion.sliders import Slider, SliderScales, make_slider, save
from sorites.io.files import locked, sweep_temporaries
from sorites.io.resizing import fit

# The version of what training computes; a checkpoint of another version is not continued.
TRAINER = 1
# Images per call of the autoencoder.
IMAGES_PER_ENCODING = 16


@dataclass(frozen=True, eq=False)
class Pair:
    """An image before and after a shift, and the strength of the shift as a share of the highest."""

    before: ImageU8
    after: ImageU8
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.before.shape != self.after.shape:
            raise SoritesError(f"a pair has images of sizes {self.before.shape} and {self.after.shape}")
        if not 0 < self.strength <= 1:
            raise SoritesError(f"the strength of a pair must be above 0, at most 1; got {self.strength}")


def pairs_of(samples: Sequence[Sample], shift: str, side: int) -> list[Pair]:
    """Return the pairs of a source that has clean images and shifted ones of the same samples.

    Args:
        samples: The samples, such as those of a folder that ``build`` wrote.
        shift: The shift. Its highest severity becomes severity 1 of the slider.
        side: The width to which images are cropped and scaled, in pixels.
    """
    clean = {sample.id: sample for sample in samples if sample.shift == CLEAN}
    shifted = [sample for sample in samples if sample.shift == shift and sample.id in clean]
    top = max((sample.setting.severity or 0.0 for sample in shifted), default=0.0)

    @functools.lru_cache(maxsize=64)
    def before(name: str) -> ImageU8:
        return _square(clean[name], side)

    return [
        Pair(before(sample.id), _square(sample, side), (sample.setting.severity or top) / top if top else 1.0)
        for sample in hashed_order(shifted, lambda sample: [sample.id, sample.setting.canonical])
    ]


def _square(sample: Sample, side: int) -> ImageU8:
    return np.ascontiguousarray(fit(sample.load(), sample.framed, (side, side), 1.0))


def learn_slider(
    pipe: Pipe,
    concept: str,
    shift: str,
    pairs: Sequence[Pair],
    recipe: PairRecipe,
    state: Path,
    tick: Callable[[int], None] = lambda _: None,
    memory: MemorySettings | None = None,
) -> Slider:
    """Learn the slider of a class from pairs.

    Args:
        pipe: The pipeline.
        concept: The class in the prompt.
        shift: The name of the shift.
        pairs: The pairs, of the pipeline's width.
        recipe: Training parameters.
        state: The checkpoint file.
        tick: Is called with a number of finished steps.
        memory: How to save memory.
    """
    if not pairs:
        raise SoritesError(f"need one or more pairs of images of {concept} before and after {shift}")
    saving = memory or MemorySettings()
    content = [digest(p.before.tobytes().hex(), p.after.tobytes().hex(), p.strength).hex() for p in pairs]
    facts = json.dumps(dict(recipe.facts()), sort_keys=True)
    key = digest(TRAINER, pipe.version, concept, shift, facts, content).hex()
    prompt = recipe.prompt.replace("{class}", concept)

    def losses(dial: SliderScales) -> Losses:
        words = encode_prompt(pipe, prompt, "", pairs[0].before.shape[1])
        return _Losses(pipe, words, dial, recipe, pairs, saving.per_pass or recipe.batch)

    progress = Progress(state, key, STEPS_PER_CHECKPOINT, tick)
    lows, last = fit_slider(pipe, recipe, losses, progress, saving.checkpointing)
    record = SliderRecord(
        concept=concept,
        neutral=prompt,
        recipe=dict(recipe.facts()),
        last_loss=last,
        pairs=len(pairs),
        pairs_version=digest(content, size=8).hex(),
    )
    return make_slider(shift, lows, record)


class _Losses:
    """The loss of a step: the error of the predicted image, at random pairs and noise steps."""

    def __init__(
        self, pipe: Pipe, words: Words, dial: SliderScales, recipe: PairRecipe, pairs: Sequence[Pair],
        per_pass: int,
    ) -> None:  # fmt: skip
        import torch

        self.pipe, self.words, self.dial, self.recipe, self.per_pass = pipe, words, dial, recipe, per_pass
        with torch.no_grad():
            self.before, self.after = (
                _encoded(pipe, [getattr(pair, end) for pair in pairs]) for end in ("before", "after")
            )
        self.strengths = torch.tensor([pair.strength for pair in pairs])

    def __call__(self, step: int, draw: Any) -> Iterator[Any]:
        import torch

        batch = self.recipe.batch
        chosen = torch.randint(len(self.strengths), (batch,), generator=draw)
        # One noise step from each of ``batch`` equal intervals, which lowers the variance.
        spread = (torch.arange(batch) + torch.rand(batch, generator=draw)) / batch
        times = (spread * self.recipe.start).long()
        moved = torch.rand(batch, generator=draw)
        noise = torch.randn((batch, *self.before.shape[1:]), generator=draw)
        for part in torch.split(torch.arange(batch), self.per_pass):
            yield self._part(chosen[part], times[part], moved[part], noise[part]) * (len(part) / batch)

    def _part(self, chosen: Any, times: Any, moved: Any, noise: Any) -> Any:
        import torch

        before, after = self.before[chosen], self.after[chosen]
        share = moved.to(before).view(-1, *(1,) * (before.ndim - 1))
        times = times.to(self.pipe.device)
        noisy, _ = add_noise(self.pipe, torch.lerp(before, after, share), noise.to(before), times)
        scale = self.recipe.alpha / self.recipe.rank
        self.dial.scales = (self.strengths[chosen] * scale)[:, None].to(self.pipe.device)
        out = predict_noise(self.pipe, noisy, times, [self.words] * len(noisy))
        return image_error(self.pipe, noisy, out, after, times).square().mean()


def _encoded(pipe: Pipe, images: Sequence[ImageU8]) -> Any:
    import torch

    chunks = (images[i : i + IMAGES_PER_ENCODING] for i in range(0, len(images), IMAGES_PER_ENCODING))
    return torch.cat([latents_of(pipe, chunk) for chunk in chunks])


# Sliders of many classes from a source.


def learn_sliders(
    pipe: Pipe,
    concepts: Sequence[Concept],
    source: Sequence[Sample],
    labels: Mapping[Concept, int],
    shifts: Sequence[str],
    recipe: PairRecipe,
    out: Path,
    drawing: SamplerOptions | None = None,
    bar: Bar | None = None,
    memory: MemorySettings | None = None,
) -> list[Path]:
    """Learn one slider per class and shift from pairs, and return their folders. Finished ones are kept.

    Args:
        pipe: The diffusion pipeline.
        concepts: The classes.
        source: Labelled images, clean and shifted, of the same samples.
        labels: The label of each class in the source.
        shifts: The shifts of the source to learn.
        recipe: Training parameters.
        out: Output folder.
        drawing: Sampler settings that are recorded for drawing.
        bar: Creates a progress bar.
        memory: How to save memory.
    """
    require_pairs(concepts, source, labels, shifts)
    made = []
    with locked(out, "slider", ".sorites.lock"):
        sweep_temporaries(out)
        for shift in shifts:
            for concept in concepts:
                folder = out / shift_folder(shift) / concept.folder
                samples = [sample for sample in source if sample.label == labels[concept]]
                _learn_unit(pipe, concept, shift, samples, recipe, folder, drawing, bar, memory)
                made.append(folder)
    return made


def require_pairs(
    concepts: Sequence[Concept],
    source: Sequence[Sample],
    labels: Mapping[Concept, int],
    shifts: Sequence[str],
) -> None:
    """Raise an error if a source lacks a shift, or pairs of it for one of the classes.

    Args:
        concepts: The classes.
        source: Labelled images, clean and shifted, of the same samples.
        labels: The label of each class in the source.
        shifts: The shifts of the source to learn.
    """
    if not concepts or not shifts:
        raise SoritesError("need one or more classes and one or more shifts")
    known = sorted({sample.shift for sample in source} - {CLEAN})
    clean = {sample.id for sample in source if sample.shift == CLEAN}
    paired = {(sample.shift, sample.label) for sample in source if sample.id in clean}
    for shift in shifts:
        if shift not in known:
            raise SoritesError(
                f"the source has no shift {shift}; it has {', '.join(known) or 'clean images only'}. Write"
                f" pairs with the verb build, and pass {option('shift', 'NAME')}"
            )
        if missing := [c.name for c in concepts if (shift, labels[c]) not in paired]:
            raise SoritesError(
                f"the source has no pair of images of {missing[0]} before and after {shift}; add some, or"
                " leave that class out"
            )


def _learn_unit(
    pipe: Pipe, concept: Concept, shift: str, samples: Sequence[Sample], recipe: PairRecipe, folder: Path,
    drawing: SamplerOptions | None, bar: Bar | None, memory: MemorySettings | None,
) -> None:  # fmt: skip
    if not is_finished(folder, pipe, recipe):
        pairs = pairs_of(samples, shift, pipe.side)
        tick = bar(f"{shift}, {concept.name}"[:28], recipe.steps) if bar else (lambda _: None)
        word, state = pipe.word(concept.name), folder / UNFINISHED
        slider = learn_slider(pipe, word, shift, pairs, recipe, state, tick, memory)
        save(with_metadata(slider, concept, pipe, drawing or SamplerOptions()), folder)
    (folder / UNFINISHED).unlink(missing_ok=True)
