"""Sorites inside the training loops of others: a small battery every N epochs, and augmentations.

``lightning_battery`` and ``lightning_augment`` make callbacks of Lightning; ``trainer_battery`` and
``trainer_augment`` add callbacks to a ``Trainer`` of transformers.
"""

from sorites.training.callbacks.battery import SmallBattery
from sorites.training.callbacks.lightning import lightning_augment, lightning_battery
from sorites.training.callbacks.transformers import trainer_augment, trainer_battery

__all__ = ["SmallBattery", "lightning_augment", "lightning_battery", "trainer_augment", "trainer_battery"]
