"""Training steps: augmentation, loss, gradients and weight updates; validation."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.models.trained import Network
from sorites.training.batches import Batch, Batches, Prepared, torch_seed
from sorites.training.checkpoints import State, Tensors, restore_module, restore_optimiser
from sorites.training.data import TrainingData, category_logits
from sorites.training.images import Images
from sorites.training.loader import LoaderAugment
from sorites.training.optim import optimiser, rate, set_mode
from sorites.training.processes import ALONE, Processes
from sorites.training.recipe import Recipe, Stage

if TYPE_CHECKING:
    import torch
    from torch import nn


class BrokenLoss(SoritesError):
    """The loss, the gradient or a weight stopped being finite at ``step``."""

    def __init__(self, what: str, step: int) -> None:
        super().__init__(what)
        self.step = step


@dataclass(frozen=True)
class Taken:
    """A step that was taken.

    Attributes:
        step: The step.
        numbers: The losses of its parts, the number of correct images and the norm of the gradient, on the
            device; None if they were read.
        seen: The number of images.
        seconds: The time it took; on devices other than a CPU, the time to submit it.
        rate: The learning rate.
        loss: The loss.
        right: The number of correct images.
    """

    step: int
    numbers: torch.Tensor | None
    seen: int
    seconds: float
    rate: float
    loss: float = float("nan")
    right: int = 0


@dataclass(frozen=True)
class Validated:
    """A validation: the mean loss, the number of correct images (None of detectors), and of all images."""

    loss: float
    right: int | None
    n: int


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

    has_accuracy = True
    """Whether an image is predicted right or wrong."""
    optimiser: torch.optim.Optimizer
    rate = 0.0
    plateau = 1.0
    """Multiplier of the learning rate after plateaus of the validation loss."""

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        data: TrainingData,
        device: str,
        processes: Processes = ALONE,
    ) -> None:
        import torch

        self.recipe, self.network, self.device = recipe, network, torch.device(device)
        self.processes = processes
        self.categories = data.categories
        network.module.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.batches = Batches(
            self.prepared(data, data.train, recipe.data.crop),
            recipe.batch * recipe.accumulate,
            recipe.seed,
            recipe.data.flip,
            processes,
        )
        self.stretches = stretches(recipe, self.batches.per_epoch)
        self.total = self.stretches[-1].last
        self.batches.augment, self.augment = _augmentations(
            recipe, network.wants.size[0], self.batches.count, self.device
        )
        self.module: nn.Module = network.module
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device).view(1, 3, 1, 1)
            for values in (network.wants.mean, network.wants.std)
        )
        self._half, self._scaler = precision(recipe, self.device)

    def prepared(self, data: TrainingData, part: Images, crop: tuple[float, float] | None = None) -> Prepared:
        """Return images of the training or of its validation as the network takes them."""
        return Prepared(part, self.network.wants, data.framed, crop)

    def ground_truth(self, batch: Batch) -> torch.Tensor:
        """Return what the network is to predict of each image of a batch: its label."""
        import torch

        return torch.from_numpy(batch.labels)

    def validate(self, prepared: Prepared) -> Validated:
        """Return how the network does on the validation images."""
        return Validated(*validate(self.network, prepared, self))

    def enter(self, step: int, checkpoint: tuple[Tensors, State] | None = None) -> None:
        """Set up the stage of a step, and restore a checkpoint if there is one."""
        if checkpoint is not None:
            restore_module(self.network.module, checkpoint[0])
        self.stretch = next((s for s in self.stretches if s.first <= step < s.last), self.stretches[-1])
        set_mode(self.network, self.stretch.stage)
        self.optimiser = optimiser(self.network, self.stretch.stage)
        self.module = self.processes.parallel(self.network.module, self.device)
        if checkpoint is None:
            return
        tensors, state = checkpoint
        if step != self.stretch.first:
            restore_optimiser(self.optimiser, self.network.module, tensors, state.numbers)
        if self._scaler is not None and state.scaler:
            self._scaler.load_state_dict(state.scaler)

    def take(self, batch: Batch) -> Taken:
        """Run one step.

        On a CPU its numbers are read at once, and a step that is not finite raises ``BrokenLoss`` before the
        weights change. On other devices reading would wait for the device; the numbers stay there until
        ``read`` is called.
        """
        import torch

        started = time.perf_counter()
        if batch.step >= self.stretch.last:
            self.enter(batch.step)
        torch.manual_seed(torch_seed(self.recipe.seed, "torch", batch.step, *self._rank()))
        self._set_rate(batch.step)
        self.optimiser.zero_grad(set_to_none=True)
        labels = self._moved(self.ground_truth(batch))
        losses, right = [], torch.zeros((), device=self.device)
        parts = list(self._parts(self._views(batch), labels))
        for number, (views, ground_truth) in enumerate(parts):
            with self._gradients_of(number == len(parts) - 1):
                part_loss, part_right = self._loss(views, ground_truth)
                weighted = part_loss * (len(ground_truth) / len(labels))
                (weighted if self._scaler is None else self._scaler.scale(weighted)).backward()  # type: ignore[no-untyped-call]
            losses.append(weighted.detach().float())
            right = right + part_right
        numbers = torch.stack([*losses, right, self._gradient_norm()])
        taken = Taken(batch.step, numbers, len(labels), time.perf_counter() - started, self.rate)
        if self.device.type == "cpu":
            taken = self.read([taken])[0]
        self._update()
        return replace(taken, seconds=time.perf_counter() - started)

    def read(self, steps: Sequence[Taken]) -> list[Taken]:
        """Read the numbers of steps from the device, all at once.

        Raises:
            BrokenLoss: The loss or the gradient of one of them was not finite.
        """
        import torch

        waiting = [taken for taken in steps if taken.numbers is not None]
        if not waiting:
            return list(steps)
        together = torch.cat([taken.numbers for taken in waiting if taken.numbers is not None])
        rows = iter(self.processes.summed(together).tolist())
        return [taken if taken.numbers is None else self._read_one(taken, rows) for taken in steps]

    def _read_one(self, taken: Taken, rows: Iterator[float]) -> Taken:
        assert taken.numbers is not None
        *losses, right, norm = [next(rows) for _ in range(len(taken.numbers))]
        world = self.processes.world
        loss = 0.0
        for part in losses:
            loss += part
        if not np.isfinite(loss):
            raise BrokenLoss(f"the loss is {loss}", taken.step)
        if self._scaler is None and not np.isfinite(norm):
            raise BrokenLoss("the gradient is no longer finite", taken.step)
        return replace(taken, numbers=None, loss=loss / world, right=round(right), seen=taken.seen * world)

    def _rank(self) -> tuple[int, ...]:
        """Return what distinguishes the dropout of this process from that of others."""
        return () if self.processes.is_first else (self.processes.rank,)

    def _gradients_of(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return a block in which gradients are averaged over the processes if it is the last of a step."""
        if last or self.module is self.network.module:
            return contextlib.nullcontext()
        blocked: contextlib.AbstractContextManager[Any] = self.module.no_sync()  # type: ignore[operator]
        return blocked

    def _set_rate(self, step: int) -> None:
        stretch = self.stretch
        where = step - stretch.first, stretch.last - stretch.first, self.batches.per_epoch
        for group in self.optimiser.param_groups:
            group["lr"] = rate(stretch.stage.schedule, group["highest"], *where) * self.plateau
        self.rate = max(group["lr"] for group in self.optimiser.param_groups)

    def _views(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Return the augmented batch on the device: one view of each image, or three with the JSD loss."""
        images = self.images(batch.images)
        views = (images,) if images.dim() == 4 else tuple(images.unbind(1))
        if self.augment is None:
            return views
        self.augment.seed(self.recipe.seed, "step", batch.step)
        first: torch.Tensor = views[0]
        return tuple(self.augment.of_rows(first, self.batches.rows.start, self.batches.count))

    def _parts(
        self, views: tuple[torch.Tensor, ...], labels: torch.Tensor
    ) -> Iterator[tuple[tuple[torch.Tensor, ...], torch.Tensor]]:
        """Split a batch into parts for gradient accumulation."""
        size = max(1, self.recipe.batch // self.processes.world)
        for first in range(0, len(labels), size):
            yield tuple(view[first : first + size] for view in views), labels[first : first + size]

    def _loss(
        self, views: tuple[torch.Tensor, ...], labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch
        from torch.nn import functional

        batch = views[0] if len(views) == 1 else torch.cat(views)
        logits = self.logits(self.normalised(batch), self.module).float()
        right = (logits[: len(labels)].argmax(1) == labels).sum()
        if len(views) == 1:
            return functional.cross_entropy(
                logits, labels, label_smoothing=self.recipe.label_smoothing
            ), right
        jsd_loss = importlib.import_module("sorites.training.augment").jsd_loss
        return jsd_loss(logits, labels, weight=self.recipe.augment.jsd_weight), right

    def _gradient_norm(self) -> torch.Tensor:
        """Return the gradient norm on the device, to see whether it is finite.

        Not needed with a gradient scaler, which skips non-finite steps itself.
        """
        import torch
        from torch.nn.utils import get_total_norm

        gradients = [weight.grad for weight in self.network.module.parameters() if weight.grad is not None]
        if self._scaler is not None or not gradients:
            return torch.zeros((), device=self.device)
        return get_total_norm(gradients).to(self.device).float()

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

    def images(self, images: NDArray[Any]) -> torch.Tensor:
        """Convert N x H x W x 3 to floats in 0..1 on the device, N x 3 x H x W with channels last in memory.

        Images are uint8 or floats in 0..1, which may have further dimensions after the first one.
        """
        import torch

        moved = self._moved(torch.from_numpy(images)).movedim(-1, -3)
        return moved.float().div_(255) if moved.dtype == torch.uint8 else moved

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device; the copy to a GPU begins without waiting for it."""
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def normalised(self, images: torch.Tensor) -> torch.Tensor:
        """Normalize images in 0..1 by the network's mean and standard deviation."""
        import torch

        return images.sub(self._mean).div_(self._std).contiguous(memory_format=torch.channels_last)

    def logits(self, images: torch.Tensor, module: nn.Module | None = None) -> torch.Tensor:
        """Return the network's logits, or those of categories, with autocast if mixed precision is on.

        Args:
            images: The normalised images.
            module: The module to run; default the network without the other processes.
        """
        import torch

        autocast = (
            contextlib.nullcontext() if self._half is None else torch.autocast(self.device.type, self._half)
        )
        with autocast:
            output = (module or self.network.module)(images)
        logits: torch.Tensor = output[0] if isinstance(output, tuple | list) else output
        return logits if self.categories is None else category_logits(logits.float(), self.categories)

    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        import torch

        values = self.network.module.state_dict().values()
        return bool(torch.stack([value.isfinite().all() for value in values]).all())

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


def _augmentations(
    recipe: Recipe, size: int, count: int, device: torch.device
) -> tuple[LoaderAugment | None, Any]:
    """Return what the loader does to images and what is done on the device, or None.

    Args:
        recipe: The recipe.
        size: Side of the images in px.
        count: The number of images of a step.
        device: The device.
    """
    config = recipe.augment
    if config.names == "none" and not config.jsd:
        return None, None
    augmentation = importlib.import_module("sorites.training.augment.named").of_recipe(
        config.names, size, config.options
    )
    if config.jsd and not hasattr(augmentation, "views"):
        raise SoritesError(
            'augment.jsd needs an augmentation with several views of an image, which is "augmix"; '
            f"got {config.names!r}"
        )
    in_loader, on_device = importlib.import_module("sorites.training.augment.base").split(augmentation)
    loader = None if in_loader is None else LoaderAugment(in_loader, recipe.seed, count, config.jsd)
    return loader, None if on_device is None else on_device.to(device)


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
    processes, n = steps.processes, len(prepared)
    starts = range(0, n, VALIDATION_BATCH)[processes.rank :: processes.world]
    numbers = [torch.zeros(2, device=steps.device)]
    try:
        with torch.inference_mode():
            for first in starts:
                indices = np.arange(first, min(first + VALIDATION_BATCH, n))
                labels = torch.from_numpy(prepared.labels[indices]).to(steps.device)
                logits = steps.logits(steps.normalised(steps.images(prepared.several(indices, 0, 0))))
                loss = functional.cross_entropy(logits.float(), labels, reduction="sum")
                numbers.append(torch.stack([loss, (logits.argmax(1) == labels).sum().float()]))
        losses, right = (sum(column) for column in zip(*torch.stack(numbers).tolist(), strict=True))
    finally:
        for module, mode in modes.items():
            module.training = mode
    if processes.world > 1:
        # NCCL needs a tensor of the GPU; others sum on the CPU, since not every device has 64-bit floats.
        place = steps.device if steps.device.type == "cuda" else "cpu"
        sums = torch.tensor([losses, right], dtype=torch.float64, device=place)
        losses, right = processes.summed(sums).tolist()
    return losses / n, round(right), n
