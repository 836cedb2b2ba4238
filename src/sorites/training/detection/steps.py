"""Training steps and validation of detectors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.models.detectors.fcos import locations
from sorites.models.trained import Network
from sorites.training.batches import Batch, Prepared
from sorites.training.data import TrainingData
from sorites.training.detection.images import BoxImages, BoxPrepared
from sorites.training.detection.losses import detection_loss
from sorites.training.detection.targets import targets_of
from sorites.training.images import Images
from sorites.training.processes import ALONE, Processes
from sorites.training.recipe import Recipe
from sorites.training.steps import VALIDATION_BATCH, Steps, Validated

if TYPE_CHECKING:
    import torch
    from torch import nn

    from sorites.training.augment.base import Augmentation


def refuse_moves(augmentation: Augmentation | None, names: str) -> None:
    """Raise an error if an augmentation moves objects."""
    if augmentation is not None and augmentation.moves_objects:
        raise SoritesError(
            f"augment: {names} moves objects, and boxes would not follow. Use data.flip and data.crop, with"
            " which they do; for AugMix set augment.options.augmix.geometric = false."
        )


class DetectorSteps(Steps):
    """Runs training steps of a detector. Augmentations must leave objects where they are."""

    has_accuracy = False

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        data: TrainingData,
        device: str,
        processes: Processes = ALONE,
    ) -> None:
        self._locations = locations(network.wants.size)
        super().__init__(recipe, network, data, device, processes)
        loader = self.batches.augment
        for augmentation in (None if loader is None else loader.augmentation, self.augment):
            refuse_moves(augmentation, recipe.augment.names)

    def prepared(
        self, data: TrainingData, part: Images, crop: tuple[float, float] | None = None
    ) -> BoxPrepared:
        assert isinstance(part, BoxImages)
        return BoxPrepared(part, self.network.wants, crop)

    def ground_truth(self, batch: Batch) -> torch.Tensor:
        """Return the classes and distances that all locations are to predict, N x P x 5."""
        import torch

        epoch = batch.step // self.batches.per_epoch
        return torch.from_numpy(
            self._targets(self.batches.prepared, batch.indices, epoch, self.batches.mirrored(batch.step))
        )

    def _targets(
        self, prepared: Prepared, indices: NDArray[np.int64], epoch: int, mirrored: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        assert isinstance(prepared, BoxPrepared)
        seed = self.recipe.seed
        boxes = (
            prepared.boxes(int(index), seed, epoch, bool(mirror))
            for index, mirror in zip(indices, mirrored, strict=True)
        )
        return np.stack([targets_of(own, *self._locations) for own in boxes])

    def _loss(
        self, views: tuple[torch.Tensor, ...], labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        outputs = self.outputs(self.normalised(views[0]), self.module)
        return detection_loss(outputs, labels), torch.zeros((), device=self.device)

    def outputs(self, images: torch.Tensor, module: nn.Module) -> tuple[torch.Tensor, Any, Any]:
        """Return class logits, distances and centre-ness of normalised images, in 32 bits."""
        import torch

        half: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self._half is not None:
            half = torch.autocast(self.device.type, self._half)
        with half:
            logits, distances, centreness = module(images)
        return logits.float(), distances.float(), centreness.float()

    def validate(self, prepared: Prepared) -> Validated:
        """Return the mean loss of the validation images; mAP is that of an ordinary run."""
        import torch

        module, n = self.network.module, len(prepared)
        modes = {part: part.training for part in module.modules()}
        module.eval()
        starts = range(0, n, VALIDATION_BATCH)[self.processes.rank :: self.processes.world]
        total = torch.zeros((), device=self.device)
        try:
            with torch.inference_mode():
                for first in starts:
                    indices = np.arange(first, min(first + VALIDATION_BATCH, n))
                    images = self.images(prepared.several(indices, 0, 0))
                    targets = self._targets(prepared, indices, 0, np.zeros(len(indices), bool))
                    outputs = self.outputs(self.normalised(images), module)
                    loss = detection_loss(outputs, torch.from_numpy(targets).to(self.device))
                    total = total + loss * len(indices)
        finally:
            for part, mode in modes.items():
                part.training = mode
        return Validated(float(self.processes.summed(total)) / n, None, n)
