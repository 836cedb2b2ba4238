"""Callbacks of the ``Trainer`` of transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sorites.training.callbacks.battery import Normalised, SmallBattery, library, network_logits

# The argument of image models.
PIXELS = "pixel_values"


def _callback() -> type[Any]:
    found: type[Any] = library("transformers", "a callback of Trainer", "generate").TrainerCallback
    return found


def trainer_battery(
    trainer: Any,
    battery: SmallBattery,
    *,
    prepare: Callable[[Any], Any] | None = None,
    every: int = 1,
) -> Any:
    """Add a callback to a ``Trainer`` that measures a battery after every N epochs and logs its numbers.

    They go through ``trainer.log``, to the history and to all trackers. With several processes, the first
    measures and logs.

    Args:
        trainer: The ``Trainer`` of an image classification model.
        battery: What is evaluated.
        prepare: Turns a Pillow image into ``pixel_values`` of one image; default: the image processor that
            the trainer has as its ``processing_class``.
        every: Measure after every N epochs.

    Returns:
        The callback.

    Raises:
        MissingExtra: transformers is not installed.
    """
    chosen = prepare if prepare is not None else _processed(trainer.processing_class)

    class BatteryCallback(_callback()):  # type: ignore[misc]
        """Measures a small battery at the end of epochs."""

        def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if round(state.epoch or 0) % every or not state.is_world_process_zero:
                return
            model = more["model"]
            numbers = battery.measure(
                network_logits(model, lambda batch: model(**{PIXELS: batch}).logits), chosen
            )
            trainer.log(numbers)

    made = BatteryCallback()
    trainer.add_callback(made)
    return made


def _processed(processor: Any) -> Callable[[Any], Any]:
    def prepare(image: Any) -> Any:
        return processor(images=image, return_tensors="np")[PIXELS][0]

    return prepare


def trainer_augment(
    trainer: Any,
    augment: Any,
    *,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    seed: int = 0,
) -> Any:
    """Add a callback to a ``Trainer`` that augments ``pixel_values`` in training, not in evaluation.

    A hook of the model does it, on the device of the batch, while the model is in training mode.

    Args:
        trainer: The ``Trainer`` of an image classification model.
        augment: The augmentation, such as ``OpticsAugment()``.
        mean: The mean by which the image processor normalises.
        std: The standard deviation by which it does.
        seed: The seed of the draws, which also depend on the step and the process.

    Returns:
        The callback.

    Raises:
        MissingExtra: transformers is not installed.
    """
    moved = Normalised(augment, mean, std)

    class AugmentCallback(_callback()):  # type: ignore[misc]
        """Augments training batches."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            passes = 0

            def hook(model: Any, positional: Any, named: dict[str, Any]) -> Any:
                nonlocal passes
                if not model.training or PIXELS not in named:
                    return None
                augment.seed(seed, state.global_step, passes, args.process_index)
                passes += 1
                return positional, {**named, PIXELS: moved(named[PIXELS])}

            self.hook = more["model"].register_forward_pre_hook(hook, with_kwargs=True)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.hook.remove()

    made = AugmentCallback()
    trainer.add_callback(made)
    return made
