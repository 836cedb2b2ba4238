"""Callbacks of Lightning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from sorites.core.errors import SoritesError
from sorites.training.callbacks.battery import Normalised, SmallBattery, library, network_logits


@functools.cache
def _callback() -> type[Any]:
    found: type[Any] = library("lightning.pytorch", "a callback of Lightning", "peers").Callback
    return found


def lightning_battery(
    battery: SmallBattery,
    *,
    prepare: Callable[[Any], Any],
    every: int = 1,
    forward: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Return a callback that measures a battery after every N epochs and logs its numbers.

    They are logged with ``log_dict``, so that loggers receive them and other callbacks can monitor them
    (``sorites/shifted``). With several processes, the first measures and logs.

    Args:
        battery: What is evaluated.
        prepare: Turns a Pillow image into the input of the module: resizing, ``ToTensor``, normalisation.
        every: Measure after every N epochs.
        forward: ``forward(module, batch)`` returns logits; default: calling the module.

    Raises:
        MissingExtra: Lightning is not installed.
    """

    class BatteryCallback(_callback()):  # type: ignore[misc]
        """Measures a small battery at the end of epochs."""

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if (trainer.current_epoch + 1) % every or not trainer.is_global_zero:
                return
            call = (lambda batch: forward(pl_module, batch)) if forward else pl_module
            numbers = battery.measure(network_logits(pl_module, call), prepare)
            pl_module.log_dict(numbers, rank_zero_only=True, batch_size=battery.limit)

    return BatteryCallback()


def lightning_augment(
    augment: Any,
    *,
    key: int | str = 0,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    seed: int = 0,
) -> Any:
    """Return a callback that augments the images of every training batch in place, on their device.

    Args:
        augment: The augmentation, such as ``OpticsAugment()``.
        key: Where the images (N x 3 x H x W) are in a batch: a place in a tuple, or a key of a dictionary.
        mean: The mean of each channel, if images are normalised already.
        std: The standard deviation of each channel, if they are.
        seed: The seed of the draws, which also depend on the epoch, the batch and the process.

    Raises:
        MissingExtra: Lightning is not installed.
    """
    moved = Normalised(augment, mean, std)

    class AugmentCallback(_callback()):  # type: ignore[misc]
        """Augments training batches."""

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            images = batch[key]
            if getattr(images, "ndim", 0) != 4:
                raise SoritesError(
                    f"expected images (N, 3, height, width) at {key!r} of a batch, got {images!r}"
                )
            augment.seed(seed, trainer.current_epoch, batch_idx, trainer.global_rank)
            images.copy_(moved(images))

    return AugmentCallback()
