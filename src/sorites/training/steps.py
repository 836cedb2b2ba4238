"""Training steps: augmentation, loss, gradients and weight updates; checkpoints; validation."""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, JsonValue

from sorites.core.errors import Damaged, SoritesError
from sorites.io.digests import Verifier, all_shards_in, named_digests, shards_in, write_shard
from sorites.models.trained import Network
from sorites.training.batches import Batch, Batches, Prepared, torch_seed
from sorites.training.data import TrainingData, category_logits
from sorites.training.history import HistoryState
from sorites.training.optim import optimiser, rate, set_mode
from sorites.training.recipe import Recipe, Stage

if TYPE_CHECKING:
    import torch
    from torch import nn

# Checkpoints: weights, optimiser state and progress in one safetensors file, written atomically. The file
# name ends with the digest of the content, and the state names the training.


CHECKPOINT, BEST = "checkpoint", "best"
SUFFIX = ".safetensors"
MODEL, OPTIMISER = "model/", "optimiser/"
REMEDY = "Delete it and repeat the command, which resumes from an earlier checkpoint or from the start."

Tensors = dict[str, "torch.Tensor"]


class Best(BaseModel):
    """The best validation so far.

    Attributes:
        accuracy: Its accuracy; -1 before the first validation.
        step: The step after which it was measured.
        since: The number of validations since then.
        last: The accuracy of the latest validation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    accuracy: float = -1.0
    step: int = 0
    since: int = 0
    last: float | None = None

    def validated(self, accuracy: float, step: int) -> Best:
        """Return the best validation after a further one."""
        if accuracy > self.accuracy:
            return Best(accuracy=accuracy, step=step, last=accuracy)
        return self.model_copy(update={"since": self.since + 1, "last": accuracy})


class State(BaseModel):
    """The progress of a training, stored in a checkpoint beside the tensors.

    Attributes:
        step: The number of steps taken.
        training: The hash of the training.
        best: The best validation so far.
        history: The history; None in a checkpoint of the best weights.
        scaler: The state of the gradient scaler of torch, where there is one.
        numbers: The state of the optimiser that is not a tensor, by parameter and key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    training: str
    best: Best = Best()
    history: HistoryState | None = None
    scaler: dict[str, float | int] | None = None
    numbers: dict[str, JsonValue] = {}


def save(
    folder: Path,
    kind: str,
    module: nn.Module,
    optimiser: torch.optim.Optimizer | None,
    state: State,
) -> None:
    """Write a checkpoint and delete the former ones of its kind.

    Args:
        folder: The training folder.
        kind: ``CHECKPOINT`` or ``BEST``. Of the best weights the former ones stay until ``drop``, because the
            last checkpoint refers to them.
        module: The network.
        optimiser: Its optimiser, if its state is needed.
        state: The progress; its ``numbers`` are taken from the optimiser.
    """
    from safetensors.torch import save as serialize

    tensors = {f"{MODEL}{name}": _plain(tensor) for name, tensor in module.state_dict().items()}
    numbers: dict[str, JsonValue] = {}
    if optimiser is not None:
        for name, parameter in module.named_parameters():
            for key, value in optimiser.state.get(parameter, {}).items():
                if hasattr(value, "detach"):
                    tensors[f"{OPTIMISER}{name}/{key}"] = _plain(value)
                else:
                    numbers[f"{name}/{key}"] = value
    stored = state.model_copy(update={"numbers": numbers}).model_dump()
    data = serialize(tensors, {"state": json.dumps(stored)})
    written = write_shard(folder, f"{kind}-{state.step:09d}", SUFFIX, data)
    if kind == CHECKPOINT:
        drop(folder, kind, written)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()


def checkpoints_in(folder: Path, kind: str) -> dict[int, Path]:
    """Return the checkpoints of a training folder by step, in order."""
    parts = {stem.partition("-"): path for stem, path in shards_in(folder, SUFFIX).items()}
    return {int(step): path for (name, _, step), path in parts.items() if name == kind and step.isdecimal()}


def drop(folder: Path, kind: str, keep: Path | None = None) -> None:
    """Delete the checkpoints of a kind except one."""
    for paths in all_shards_in(folder, SUFFIX).values():
        for path in paths:
            if path.name.startswith(f"{kind}-") and path != keep:
                path.unlink(missing_ok=True)


def read(path: Path, training: str) -> tuple[Tensors, State]:
    """Return the tensors and the state of a checkpoint.

    Args:
        path: The file.
        training: The hash of the training that it must belong to.

    Raises:
        Damaged: The file does not match its digest, or belongs to another training.
    """
    from safetensors import safe_open

    Verifier(path.parent, remember=False).require(named_digests([path]), REMEDY)
    try:
        with safe_open(str(path), framework="pt") as file:
            state = State.model_validate(json.loads((file.metadata() or {})["state"]))
            if state.training != training:
                raise Damaged(path, "it belongs to another training", REMEDY)
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except Damaged:
        raise
    except Exception as error:  # a file that is none of ours makes safetensors raise nearly anything
        raise Damaged(path, error, REMEDY) from error


def restore_module(module: nn.Module, tensors: Tensors) -> None:
    """Load weights in place, which keeps their memory format."""
    weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
    module.load_state_dict(weights)


def restore_optimiser(
    optimiser: torch.optim.Optimizer, module: nn.Module, tensors: Tensors, numbers: Mapping[str, JsonValue]
) -> None:
    """Restore the state of an optimiser from a checkpoint."""
    import torch

    for name, parameter in module.named_parameters():
        prefix = f"{OPTIMISER}{name}/"
        state: dict[str, Any] = {}
        for key, value in tensors.items():
            if key.startswith(prefix):
                like = value.shape == parameter.shape and value.dim() > 0
                state[key.removeprefix(prefix)] = torch.empty_like(parameter).copy_(value) if like else value
        state |= {
            key.removeprefix(f"{name}/"): value
            for key, value in numbers.items()
            if key.startswith(f"{name}/")
        }
        if state:
            optimiser.state[parameter] = state


class BrokenLoss(SoritesError):
    """The loss, the gradient or a weight stopped being finite at ``step``."""

    def __init__(self, what: str, step: int) -> None:
        super().__init__(what)
        self.step = step


@dataclass(frozen=True)
class Stretch:
    """A stage with its range of steps, ``first`` to ``last`` - 1."""

    stage: Stage
    first: int
    last: int


def stretches(recipe: Recipe, per_epoch: int) -> list[Stretch]:
    """Return the stages of a recipe with their steps."""
    ranges, first = [], 0
    for stage in recipe.stretches:
        last = first + (stage.steps if stage.steps is not None else (stage.epochs or 0) * per_epoch)
        ranges.append(Stretch(stage, first, last))
        first = last
    return ranges


class Steps:
    """Runs training steps. After ``enter(step)`` its state depends only on the step and the checkpoint."""

    optimiser: torch.optim.Optimizer
    rate = 0.0
    plateau = 1.0
    """Multiplier of the learning rate after plateaus of the validation loss."""

    def __init__(self, recipe: Recipe, network: Network, data: TrainingData, device: str) -> None:
        import torch

        self.recipe, self.network, self.device = recipe, network, torch.device(device)
        self.categories = data.categories
        network.module.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        prepared = Prepared(data.train, network.wants, data.framed, recipe.data.crop)
        self.batches = Batches(prepared, recipe.batch * recipe.accumulate, recipe.seed, recipe.data.flip)
        self.stretches = stretches(recipe, self.batches.per_epoch)
        self.total = self.stretches[-1].last
        self.augment = _augmentation(recipe, network.wants.size[0], self.device)
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device).view(1, 3, 1, 1)
            for values in (network.wants.mean, network.wants.std)
        )
        self._half, self._scaler = precision(recipe, self.device)

    def enter(self, step: int, checkpoint: tuple[Tensors, State] | None = None) -> None:
        """Set up the stage of a step, and restore a checkpoint if there is one."""
        if checkpoint is not None:
            restore_module(self.network.module, checkpoint[0])
        self.stretch = next((s for s in self.stretches if s.first <= step < s.last), self.stretches[-1])
        set_mode(self.network, self.stretch.stage)
        self.optimiser = optimiser(self.network, self.stretch.stage)
        if checkpoint is None:
            return
        tensors, state = checkpoint
        if step != self.stretch.first:
            restore_optimiser(self.optimiser, self.network.module, tensors, state.numbers)
        if self._scaler is not None and state.scaler:
            self._scaler.load_state_dict(state.scaler)

    def take(self, batch: Batch) -> tuple[float, int, int, float]:
        """Run one step and return its loss, the numbers of correct images and of images, and its seconds."""
        import torch

        started = time.perf_counter()
        if batch.step >= self.stretch.last:
            self.enter(batch.step)
        torch.manual_seed(torch_seed(self.recipe.seed, "torch", batch.step))
        self._set_rate(batch.step)
        self.optimiser.zero_grad(set_to_none=True)
        images, labels = self.images(batch.images), torch.from_numpy(batch.labels).to(self.device)
        loss, right = 0.0, 0
        for views, ground_truth in self._parts(self._augment(images, batch.step), labels):
            part_loss, part_right = self._loss(views, ground_truth)
            weighted = part_loss * (len(ground_truth) / len(labels))
            (weighted if self._scaler is None else self._scaler.scale(weighted)).backward()  # type: ignore[no-untyped-call]
            loss, right = loss + float(weighted.detach()), right + part_right
        if not np.isfinite(loss):
            raise BrokenLoss(f"the loss is {loss}", batch.step)
        if self._scaler is None and not np.isfinite(self._gradient_norm()):
            raise BrokenLoss("the gradient is no longer finite", batch.step)
        self._update()
        return loss, right, len(labels), time.perf_counter() - started

    def _set_rate(self, step: int) -> None:
        stretch = self.stretch
        where = step - stretch.first, stretch.last - stretch.first, self.batches.per_epoch
        for group in self.optimiser.param_groups:
            group["lr"] = rate(stretch.stage.schedule, group["highest"], *where) * self.plateau
        self.rate = max(group["lr"] for group in self.optimiser.param_groups)

    def _augment(self, images: torch.Tensor, step: int) -> tuple[torch.Tensor, ...]:
        """Return the augmented batch: one view of each image, or three with the JSD loss."""
        import torch

        if self.augment is None:
            return (images,)
        self.augment.seed(self.recipe.seed, "step", step)
        with torch.no_grad():
            return tuple(self.augment.views(images)) if self.recipe.augment.jsd else (self.augment(images),)

    def _parts(
        self, views: tuple[torch.Tensor, ...], labels: torch.Tensor
    ) -> Iterator[tuple[tuple[torch.Tensor, ...], torch.Tensor]]:
        """Split a batch into parts for gradient accumulation."""
        size = self.recipe.batch
        for first in range(0, len(labels), size):
            yield tuple(view[first : first + size] for view in views), labels[first : first + size]

    def _loss(self, views: tuple[torch.Tensor, ...], labels: torch.Tensor) -> tuple[torch.Tensor, int]:
        import torch
        from torch.nn import functional

        batch = views[0] if len(views) == 1 else torch.cat(views)
        logits = self.logits(self.normalised(batch)).float()
        right = int((logits[: len(labels)].argmax(1) == labels).sum())
        if len(views) == 1:
            return functional.cross_entropy(
                logits, labels, label_smoothing=self.recipe.label_smoothing
            ), right
        jsd_loss = importlib.import_module("sorites.training.augment").jsd_loss
        return jsd_loss(logits, labels, weight=self.recipe.augment.jsd_weight), right

    def _gradient_norm(self) -> float:
        """Return the gradient norm.

        Not needed with a gradient scaler, which skips non-finite steps itself.
        """
        from torch.nn.utils import get_total_norm

        gradients = [weight.grad for weight in self.network.module.parameters() if weight.grad is not None]
        return float(get_total_norm(gradients))

    def _update(self) -> None:
        from torch.nn.utils import clip_grad_norm_

        clip = self.stretch.stage.optimiser.clip
        if clip is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self.optimiser)
            clip_grad_norm_(self.network.module.parameters(), clip)
        if self._scaler is None:
            self.optimiser.step()
        else:
            self._scaler.step(self.optimiser)
            self._scaler.update()

    def images(self, images: NDArray[np.uint8]) -> torch.Tensor:
        """Convert uint8 N x H x W x 3 to floats in 0..1, N x 3 x H x W with channels last in memory."""
        import torch

        return torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float().div_(255)

    def normalised(self, images: torch.Tensor) -> torch.Tensor:
        """Normalize images in 0..1 by the network's mean and standard deviation."""
        import torch

        return images.sub(self._mean).div_(self._std).contiguous(memory_format=torch.channels_last)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return the network's logits, or those of categories, with autocast if mixed precision is on."""
        import torch

        autocast = (
            contextlib.nullcontext() if self._half is None else torch.autocast(self.device.type, self._half)
        )
        with autocast:
            output = self.network.module(images)
        logits: torch.Tensor = output[0] if isinstance(output, tuple | list) else output
        return logits if self.categories is None else category_logits(logits.float(), self.categories)

    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        return all(bool(value.isfinite().all()) for value in self.network.module.state_dict().values())

    def is_validation_due(self, step: int) -> bool:
        """Return whether to validate after ``step`` steps: every ``validate_every`` epochs and at the end.

        The last regular validation is skipped if the final one follows soon.
        """
        every = max(1, round(self.recipe.validate_every * self.batches.per_epoch))
        return step == self.total or (step % every == 0 and self.total - step > every // 2)

    def scaler_state(self) -> dict[str, float | int] | None:
        return None if self._scaler is None else self._scaler.state_dict()


def precision(recipe: Recipe, device: torch.device) -> tuple[torch.dtype | None, torch.amp.GradScaler | None]:
    """Return the 16-bit type for autocast (None for 32 bits), and a gradient scaler if it needs one."""
    import torch

    if device.type != "cuda" or not recipe.mixed_precision:
        return None, None
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16, None
    return torch.float16, torch.amp.GradScaler("cuda")


def _augmentation(recipe: Recipe, size: int, device: torch.device) -> Any:
    """Return the augmentation of a recipe, or None."""
    config = recipe.augment
    if config.names == "none" and not config.jsd:
        return None
    augmentation = importlib.import_module("sorites.training.augment.named").of_recipe(
        config.names, size, config.options
    )
    if config.jsd and not hasattr(augmentation, "views"):
        raise SoritesError(
            'augment.jsd needs an augmentation with several views of an image, which is "augmix"; '
            f"got {config.names!r}"
        )
    return augmentation.to(device)


# Validation.


VALIDATION_BATCH = 100


def validate(network: Network, prepared: Prepared, steps: Steps) -> tuple[float, int, int]:
    """Return the mean cross-entropy, the number of correct images, and the number of images.

    The training mode of all modules is restored afterwards.
    """
    import torch
    from torch.nn import functional

    modes = {module: module.training for module in network.module.modules()}
    network.module.eval()
    loss, right, n = 0.0, 0, len(prepared)
    try:
        with torch.inference_mode():
            for first in range(0, n, VALIDATION_BATCH):
                indices = np.arange(first, min(first + VALIDATION_BATCH, n))
                labels = torch.from_numpy(prepared.labels[indices]).to(steps.device)
                logits = steps.logits(steps.normalised(steps.images(prepared.several(indices, 0, 0))))
                loss += float(functional.cross_entropy(logits.float(), labels, reduction="sum"))
                right += int((logits.argmax(1) == labels).sum())
    finally:
        for module, mode in modes.items():
            module.training = mode
    return loss / n, right, n
