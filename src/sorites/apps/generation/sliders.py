"""Train sliders: low-rank weights that move a diffusion model's images of a class towards a shift.

An interrupted training resumes with the same result.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sorites.apps.generation.concepts import shift_folder
from sorites.apps.generation.recipes import PairRecipe, SliderRecipe, WordRecipe
from sorites.apps.generation.spread import Spread
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.core.samples import ImageU8, to_uint8
from sorites.diffusion import sliders
from sorites.diffusion.conditions import Words, encode_prompt, predict, refuse_unknown_words
from sorites.diffusion.memory import MemorySettings
from sorites.diffusion.pipeline import TOY, Pipe, toy_folder
from sorites.diffusion.records import SliderRecord
from sorites.diffusion.sampler import SamplerOptions, along, sample
from sorites.diffusion.schedulers import OWN, make_scheduler, set_steps
from sorites.diffusion.shelves import Concept
from sorites.diffusion.sliders import (
    RECORD,
    LowRank,
    Slider,
    SliderScales,
    attach_sliders,
    make_slider,
    read_record,
    save,
    shapes,
    targets,
)
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.sealed_tensors import NO_DIGEST, require_tensors, seal_tensors


@dataclass(frozen=True, eq=False)
class Lesson:
    """A resumable optimization: weights by name, the checkpoint file, and a key of all inputs."""

    called: str
    """The kind of thing that is learnt, for error messages: slider or word."""
    weights: Mapping[str, Any]
    optimizer: Any
    state: Path
    key: str
    every: int
    """Steps between two checkpoints."""


def generator(key: str, *parts: object) -> Any:
    """Return a torch generator derived from a key and further parts, such as the step."""
    import torch

    return torch.Generator().manual_seed(int.from_bytes(digest(key, *parts, size=8), "little") >> 1)


def learn(
    lesson: Lesson,
    recipe: SliderRecipe | PairRecipe | WordRecipe,
    losses: Callable[[int, Any], Iterable[Any]],
    tick: Callable[[int], None],
) -> float:
    """Run the remaining steps, and return the last loss.

    ``losses(step, generator)`` yields the parts of a step's loss, whose gradients are added up one by one.
    """
    done, last = _resume(lesson), math.nan
    tick(done)
    for step in range(done, recipe.steps):
        for group in lesson.optimizer.param_groups:
            group["lr"] = recipe.rate * (
                0.5 + 0.5 * math.cos(math.pi * step / recipe.steps) if recipe.decay else 1.0
            )
        last = 0.0
        lesson.optimizer.zero_grad()
        for part in losses(step, generator(lesson.key, step)):
            last += float(part.detach())
            part.backward()
        if not math.isfinite(last):
            raise SoritesError(
                f"training the {lesson.called} failed at step {step + 1}: the loss is {last}. Try a "
                "smaller rate" + (" or eta" if isinstance(recipe, SliderRecipe) else "")
            )
        lesson.optimizer.step()
        tick(1)
        if (step + 1) % lesson.every == 0 and step + 1 < recipe.steps:
            _save_checkpoint(lesson, step + 1)
    return last


def _save_checkpoint(lesson: Lesson, done: int) -> None:
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    for name, part in lesson.weights.items():
        state = lesson.optimizer.state[part]
        entries = {
            "weight": part.detach(),
            "mean": state["exp_avg"],
            "square": state["exp_avg_sq"],
            "step": state["step"],
        }
        tensors |= {f"{name}.{what}": value.cpu().contiguous() for what, value in entries.items()}
    data = save(tensors, metadata={"key": lesson.key, "done": str(done), **NO_DIGEST})
    write_bytes(seal_tensors(data), lesson.state)


def _resume(lesson: Lesson) -> int:
    """Restore a checkpoint of this lesson if there is one, and return the number of steps done."""
    import torch
    from safetensors import safe_open

    if not lesson.state.is_file():
        return 0
    require_tensors(lesson.state, f"Delete it to train that {lesson.called} from the start.")
    try:
        with safe_open(str(lesson.state), framework="pt") as file, torch.no_grad():
            header = file.metadata() or {}
            if header.get("key") != lesson.key:
                return 0
            for name, part in lesson.weights.items():
                part.copy_(file.get_tensor(f"{name}.weight"))
                lesson.optimizer.state[part] = {
                    "step": file.get_tensor(f"{name}.step"),
                    "exp_avg": file.get_tensor(f"{name}.mean").to(part.device),
                    "exp_avg_sq": file.get_tensor(f"{name}.square").to(part.device),
                }
            return int(header["done"])
    except Exception as error:  # a damaged file makes the reader raise nearly anything
        raise SoritesError(
            f"cannot resume from {lesson.state}: {error}. Delete it to train that {lesson.called} "
            "from the start"
        ) from error


# The slider loss: with the slider on, the prediction for the class should lie eta times further towards the
# shift.


def trajectories(
    pipe: Pipe, words: Words, dial: SliderScales, recipe: SliderRecipe, side: int, last: int, draw: Any,
    per_pass: int | None = None,
) -> list[Any]:  # fmt: skip
    """Return latents at each noise step up to ``last``, drawn with the slider at severity 1."""
    import torch

    scheduler = noise_schedule(pipe, recipe)
    shape = (recipe.batch, pipe.channels, side, side)
    latents = torch.randn(shape, generator=draw).to(pipe.device, pipe.network.dtype) * getattr(
        scheduler, "init_noise_sigma", 1.0
    )
    path = [latents]
    with torch.no_grad():
        for time in scheduler.timesteps[:last]:
            parts = torch.split(latents, per_pass or len(latents))
            out = torch.cat([predicted(pipe, part, time, words, dial, recipe) for part in parts])
            latents = scheduler.step(out, time, latents, return_dict=False)[0]
            path.append(latents)
    return path


def noise_schedule(pipe: Pipe, recipe: SliderRecipe) -> Any:
    """Return the scheduler of training with the recipe's number of steps: DDIM, or the pipeline's own for
    flows.
    """
    scheduler = make_scheduler(pipe.parts.scheduler, OWN if pipe.is_flow else "ddim")
    positions = pipe.positions(training_side(pipe, recipe))
    return set_steps(scheduler, recipe.noise_steps, pipe.device, positions, pipe.kind == "flux")


def training_side(pipe: Pipe, recipe: SliderRecipe) -> int:
    """Return the width of training images in pixels: the recipe's, at most the pipeline's."""
    return min(recipe.side or pipe.side, pipe.side)


def predicted(
    pipe: Pipe, latents: Any, time: Any, words: Words, dial: SliderScales, recipe: SliderRecipe | None
) -> Any:
    """Return the network's prediction.

    With a recipe the slider is on at severity 1, without one it is off.
    """
    import torch

    scale = None if recipe is None else recipe.alpha / recipe.rank
    dial.scales = None if scale is None else torch.full((len(latents), 1), scale, device=latents.device)
    hidden, added = Words.batch([words] * len(latents), False)
    out = predict(pipe, latents, time, hidden, added)
    # With gradients the slider stays on, because activations may be computed again in the backward pass.
    if not torch.is_grad_enabled():
        dial.scales = None
    return out


def loss(
    pipe: Pipe, latents: Any, time: Any, words: tuple[Words, Words], dial: SliderScales, recipe: SliderRecipe
) -> Any:
    """Return the mean squared error of the slider's prediction against its target."""
    import torch

    with torch.no_grad():
        neutral, positive = (predicted(pipe, latents, time, prompt, dial, None) for prompt in words)
        target = neutral + recipe.eta * (positive - neutral)
    return torch.nn.functional.mse_loss(
        predicted(pipe, latents, time, words[0], dial, recipe).float(), target.float()
    )


# Training of one slider.


UNFINISHED = "training.safetensors"
# The version of what training computes; a checkpoint of another version is not continued.
TRAINER = 2
# Approximate number of steps between two checkpoints.
STEPS_PER_CHECKPOINT = 40


def trained(
    pipe: Pipe,
    concept: str,
    shift: str,
    recipe: SliderRecipe,
    state: Path,
    tick: Callable[[int], None] = lambda _: None,
    memory: MemorySettings | None = None,
) -> Slider:
    """Train the slider of a class and a shift; ``state`` is the checkpoint file."""
    saving = memory or MemorySettings()
    side = pipe.latent_side(training_side(pipe, recipe))
    prompts = recipe.words(concept, shift)
    key = digest(TRAINER, pipe.version, concept, shift, json.dumps(recipe.facts(), sort_keys=True)).hex()

    def losses(dial: SliderScales) -> Losses:
        pixels = side * int(pipe.parts.vae_scale_factor)
        neutral, positive = (encode_prompt(pipe, prompt, "", pixels) for prompt in prompts)
        return _losses(pipe, (neutral, positive), dial, recipe, side, saving.per_pass)

    every = recipe.refresh * max(1, round(STEPS_PER_CHECKPOINT / recipe.refresh))
    lows, last = fit_slider(pipe, recipe, losses, Progress(state, key, every, tick), saving.checkpointing)
    record = SliderRecord(
        concept=concept,
        neutral=prompts[0],
        positive=prompts[1],
        recipe=dict(recipe.facts()),
        last_loss=last,
    )
    return make_slider(shift, lows, record)


# Yields the parts of the loss of a step, given its number and a generator.
Losses = Callable[[int, Any], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a training keeps its checkpoint, and whom it tells about its steps.

    Attributes:
        state: The checkpoint file.
        key: A hash of all inputs; a checkpoint with another one is not continued.
        every: Steps between two checkpoints.
        tick: Is called with a number of finished steps.
    """

    state: Path
    key: str
    every: int
    tick: Callable[[int], None]


def fit_slider(
    pipe: Pipe,
    recipe: SliderRecipe | PairRecipe,
    losses: Callable[[SliderScales], Losses],
    progress: Progress,
    checkpointing: bool = False,
) -> tuple[dict[str, LowRank], float]:
    """Optimize the matrices of a slider, and return them with the last loss.

    Args:
        pipe: The pipeline.
        recipe: Training parameters.
        losses: Makes the loss, given the severities of the slider that is trained.
        progress: Checkpoint and progress.
        checkpointing: Compute activations again in the backward pass instead of keeping them.
    """
    import torch

    if pipe.saving.offload == "sequential":
        raise SoritesError(
            "layers that wait on the CPU cannot be trained through; use"
            f" {option('offload', 'model')}, {option('checkpointing')} or {option('per_pass', 'N')}"
        )
    with pipe.busy, one_thread(), torch.enable_grad():
        lows = _start(pipe, recipe, progress.key)
        weights = {
            f"{name}.{half}": part
            for name, low in lows.items()
            for half, part in zip(("down", "up"), low, strict=True)
        }
        optimizer = torch.optim.AdamW(list(weights.values()), lr=recipe.rate)
        with (
            attach_sliders(pipe.network, [lows], pipe.device) as dial,
            _checkpointed(pipe.network, checkpointing),
        ):
            lesson = Lesson("slider", weights, optimizer, progress.state, progress.key, progress.every)
            last = learn(lesson, recipe, losses(dial), progress.tick)
    scale = recipe.alpha / recipe.rank
    folded = {name: (down.detach().cpu(), (up.detach() * scale).cpu()) for name, (down, up) in lows.items()}
    return folded, last


def _start(pipe: Pipe, recipe: SliderRecipe | PairRecipe, key: str) -> dict[str, LowRank]:
    """Return initial matrices: down random, up zero, so that the slider has no effect yet."""
    import torch

    modules, draw = dict(pipe.network.named_modules()), generator(key, "start")
    lows = {}
    for name in targets(pipe.network, recipe.layers):
        shape, other = shapes(modules[name], recipe.rank)
        bound = math.sqrt(3 / math.prod(shape[1:]))
        down = (torch.rand(shape, generator=draw) * 2 - 1) * bound
        lows[name] = (
            down.to(pipe.device).requires_grad_(),
            torch.zeros(other, device=pipe.device).requires_grad_(),
        )
    return lows


@contextlib.contextmanager
def _checkpointed(network: Any, wanted: bool) -> Iterator[None]:
    """Use gradient checkpointing within the context: activations are computed again in the backward pass."""
    if wanted:
        network.enable_gradient_checkpointing()
    try:
        yield
    finally:
        if wanted:
            network.disable_gradient_checkpointing()


def _losses(
    pipe: Pipe, words: tuple[Words, Words], dial: SliderScales, recipe: SliderRecipe, side: int,
    per_pass: int | None,
) -> Callable[[int, Any], Iterator[Any]]:  # fmt: skip
    """Return a function that yields the parts of the loss of a step, at a random noise step.

    Several consecutive steps may share trajectories (``recipe.refresh``).
    """
    import torch

    times, path = noise_schedule(pipe, recipe).timesteps, []

    def at(step: int, draw: Any) -> Iterator[Any]:
        nonlocal path
        index = int(torch.randint(1, recipe.noise_steps, (1,), generator=draw))
        if step % recipe.refresh == 0:
            last = index if recipe.refresh == 1 else recipe.noise_steps - 1
            path = trajectories(pipe, words[0], dial, recipe, side, last, draw, per_pass)
        for part in torch.split(path[index], per_pass or recipe.batch):
            yield loss(pipe, part, times[index], words, dial, recipe) * (len(part) / recipe.batch)

    return at


# Training of many sliders into a folder.


# Draws rows of images with captions under a title, and returns a Pillow image.
Sheet = Callable[[Sequence[Sequence[tuple[ImageU8, str]]], str], Any]
LIBRARIES = ("torch", "diffusers", "transformers")
STRIP_SEVERITIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
PROMPT = "a picture of a {class}"
# Minimum width of an image in a strip, in px.
MIN_STRIP_PX = 96


# A shift in words and a class.
SliderUnit = tuple[str, Concept]


@dataclass(frozen=True)
class SliderOrder:
    """How to train sliders into a folder: the recipe, and how strips of examples are drawn if they are."""

    recipe: SliderRecipe
    out: Path
    drawing: SamplerOptions
    draw: Sheet | None
    memory: MemorySettings

    def folder(self, unit: SliderUnit) -> Path:
        """Return the folder of one slider."""
        return self.out / shift_folder(unit[0]) / unit[1].folder


def train_sliders(
    pipe: Pipe, concepts: Sequence[Concept], shifts: Sequence[str], recipe: SliderRecipe, out: Path,
    drawing: SamplerOptions | None = None, draw: Sheet | None = None, bar: Bar | None = None,
    spread: Spread | None = None, memory: MemorySettings | None = None,
) -> list[Path]:  # fmt: skip
    """Train one slider per class and shift, and return their folders. Finished ones are kept.

    Args:
        pipe: The diffusion pipeline.
        concepts: The classes.
        shifts: The shifts in words.
        recipe: Training parameters.
        out: Output folder.
        drawing: Sampler settings of the strips.
        draw: Draws a strip of images for each slider.
        bar: Creates a progress bar.
        spread: Train in other processes, one slider each at a time. The files are the same.
        memory: How to save memory.
    """
    order = SliderOrder(recipe, out, drawing or SamplerOptions(), draw, memory or MemorySettings())
    units = [(words, concept) for words in shifts for concept in concepts]
    if not units:
        raise SoritesError("need one or more classes and one or more shifts")
    named = [recipe.words(pipe.word(concept.name), words) for words, concept in units]
    refuse_unknown_words(pipe.parts.tokenizer, (prompt for prompts in named for prompt in prompts))
    with locked(out, "slider", ".sorites.lock"):
        sweep_temporaries(out)
        if spread is None:
            for unit in units:
                _train_unit(order, pipe, unit, bar)
        else:
            tick = bar("sliders", len(units)) if bar else (lambda _: None)
            work = functools.partial(train_elsewhere, order, spread.open)
            for _ in spread.engine(units, work, spread.workers):
                tick(1)
    return [order.folder(unit) for unit in units]


def train_elsewhere(order: SliderOrder, open_: Callable[[], Pipe], unit: SliderUnit) -> int:
    """Train one slider in this process, which opens the pipeline once."""
    _train_unit(order, open_(), unit)
    return 1


def _train_unit(order: SliderOrder, pipe: Pipe, unit: SliderUnit, bar: Bar | None = None) -> None:
    (words, concept), folder, recipe = unit, order.folder(unit), order.recipe
    if not is_finished(folder, pipe, recipe):
        tick = bar(f"{words}, {concept.name}"[:28], recipe.steps) if bar else (lambda _: None)
        slider = trained(
            pipe, pipe.word(concept.name), words, recipe, folder / UNFINISHED, tick, order.memory
        )
        save(with_metadata(slider, concept, pipe, order.drawing), folder)
    (folder / UNFINISHED).unlink(missing_ok=True)
    if order.draw is not None and not (folder / "strip.png").exists():
        _strip(pipe, folder, concept, order.drawing, order.draw)


def is_finished(folder: Path, pipe: Pipe, recipe: SliderRecipe | PairRecipe) -> bool:
    """Return whether a finished slider exists; one trained with other parameters is refused."""
    if not (folder / RECORD).is_file():
        return False
    now = {**recipe.facts(), "pipeline_version": pipe.version}
    before = read_record(folder).training()
    differs = [key for key in now if before.get(key) != now[key]]
    if differs:
        key = differs[0]
        raise SoritesError(
            f"{folder} has a slider trained with {key} {before.get(key)!r}, not {now[key]!r}; use "
            f"another {option('out', 'DIR')}"
        )
    return True


def with_metadata(slider: Slider, concept: Concept, pipe: Pipe, drawing: SamplerOptions) -> Slider:
    where = TOY if pipe.path == toy_folder().resolve() else str(pipe.path)
    libraries = {name: version(name) for name in LIBRARIES}
    words = {}
    if pipe.words:
        word = pipe.word_versions.get(concept.name)
        words = {"base_version": pipe.base_version, **({"word_version": word} if word else {})}
    record = slider.record.having(
        concept=concept.name,
        number=concept.number,
        pipeline=where,
        pipeline_version=pipe.version,
        drawing=dict(drawing.facts()),
        libraries=libraries,
        **words,
    )
    return Slider(slider.shift, slider.lows, record, slider.version)


def _strip(pipe: Pipe, folder: Path, concept: Concept, drawing: SamplerOptions, draw: Sheet) -> None:
    slider = sliders.load(folder, pipe.network)
    prompt, noise = (PROMPT.replace("{class}", name) for name in (pipe.word(concept.name), concept.name))
    images = sample(pipe, [along(prompt, seed, slider, STRIP_SEVERITIES, noise) for seed in (1, 2)], drawing)
    rows = [
        [(enlarged(to_uint8(image)), f"{s:g}") for image, s in zip(row, STRIP_SEVERITIES, strict=True)]
        for row in images
    ]
    write_bytes(as_png(draw(rows, f"{concept.name}, {slider.shift} (severity)")), folder / "strip.png")


def enlarged(image: ImageU8) -> ImageU8:
    """Enlarge a small image by repeating pixels, so that it is visible in a strip."""
    times = max(1, -(-MIN_STRIP_PX // image.shape[0]))
    return np.repeat(np.repeat(image, times, 0), times, 1)


def as_png(page: Any) -> bytes:
    """Encode a Pillow image as PNG."""
    buffer = io.BytesIO()
    page.save(buffer, format="PNG")
    return buffer.getvalue()
