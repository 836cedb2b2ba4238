"""A detector that can be trained here: FCOS (Tian et al. 2019), on a small network or on a timm backbone.

Every location of three feature maps (strides 8, 16 and 32) predicts the logits of the classes, the distances
to the four sides of the object that it is in, and its centre-ness. The head is shared by the maps. Images are
letterboxed into a square input; the score of a box is the geometric mean of class probability and
centre-ness, followed by class-wise non-maximum suppression.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Backend, ImageU8, Model, Outputs
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.torch_tools import compute_options, device_of, import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.specs import split_spec
from sorites.io.hub import download_error, hub
from sorites.models import timm as timms
from sorites.models.detectors.config import BoxConfig, Classes, Fit, Placement, classes_of, placed
from sorites.models.detectors.layouts import Candidates
from sorites.models.detectors.results import Found, input_text, of_each, say, settled
from sorites.models.preprocess import Input
from sorites.models.torch_module import weights_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import nn

PREFIX = "fcos:"
# The name of the layers that are shared by the feature maps.
HEAD = "head"
# The version of preprocessing and decoding; increase it when boxes change.
VERSION = 1
# Input px per cell of the feature maps.
STRIDES = (8, 16, 32)
# Channels of the feature pyramid and of the head, convolutions of each branch of the head, and groups of its
# group normalisation.
CHANNELS, DEPTH, GROUPS = 64, 2, 8
# Channels of the small backbone at the strides 2, 4, 8, 16 and 32.
SMALL = (16, 32, 64, 96, 128)
# The class probability of every location at the start (Lin et al. 2017, section 3.3).
PRIOR = 0.01
# The largest exponent of a distance.
MAX_EXPONENT = 8.0
# Confidences from this on are kept; IoU of the suppression; boxes of an image.
SCORE, SUPPRESSION, MOST = 0.01, 0.6, 100
SIDE = 128
# How images are placed in the input.
FIT: Fit = "letterbox"


def is_detector(layers: str) -> bool:
    """Return whether an architecture of a record is a detector."""
    return layers.startswith(PREFIX)


# Input and locations.


def place(image: ImageU8, size: tuple[int, int]) -> tuple[ImageU8, Placement]:
    """Letterbox an image into an input of ``size`` (height, width), antialiased."""
    return placed(image, size, FIT, 114, "bilinear", antialias=True)


def locations(size: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the centres of the cells of all maps, P x 2 as x, y in px of the input, and their strides, P."""
    centres, strides = [], []
    for stride in STRIDES:
        rows, columns = (np.arange(side // stride) * stride + stride / 2 for side in size)
        y, x = np.meshgrid(rows, columns, indexing="ij")
        centres.append(np.stack([x.ravel(), y.ravel()], 1))
        strides.append(np.full(x.size, stride))
    return np.concatenate(centres).astype(np.float32), np.concatenate(strides).astype(np.float32)


def check_size(size: tuple[int, int], what: str) -> None:
    """Raise an error if the sides of an input are not multiples of the largest stride."""
    if any(side % STRIDES[-1] for side in size):
        raise SoritesError(
            f"{what}: the input of a detector must be a multiple of {STRIDES[-1]} px, got {size[0]}; set"
            f" data.size = {max(1, round(size[0] / STRIDES[-1])) * STRIDES[-1]}"
        )


# The network.


def blank(layers: str, classes: int) -> tuple[nn.Module, Input]:
    """Return a detector with random weights, and its input.

    Args:
        layers: ``fcos:small`` or ``fcos:timm:NAME``.
        classes: The number of classes.
    """
    backbone, channels, wants = _backbone(layers.removeprefix(PREFIX), None)
    return assembled(backbone, channels, classes), wants


def with_backbone(spec: str, classes: int) -> tuple[str, nn.Module, Input]:
    """Return a detector on a backbone: its architecture, the module, and its input.

    Args:
        spec: ``small`` (random weights), ``timm:NAME`` (published weights), ``timm:NAME@PATH`` or
            ``timm:NAME@random``.
        classes: The number of classes.
    """
    plain, _, weights = spec.partition("@")
    backbone, channels, wants = _backbone(plain, None if plain == "small" else weights)
    return f"{PREFIX}{plain}", assembled(backbone, channels, classes), wants


def _backbone(spec: str, weights: str | None) -> tuple[nn.Module, Sequence[int], Input]:
    """Return a network with maps of the three strides, their channels, and its input.

    Args:
        spec: ``small`` or ``timm:NAME``.
        weights: A file, ``random``, or empty for the published weights; None for random ones.
    """
    name, argument = split_spec(spec)
    if name == "small" and argument is None:
        return _small(), SMALL[-len(STRIDES) :], Input(size=(SIDE, SIDE), crop_pct=1.0, filter="bilinear")
    if name != "timm" or argument is None:
        raise SoritesError(
            f"a detector is trained on small, timm:NAME, timm:NAME@PATH or timm:NAME@random, or goes on from"
            f" trained:DIR; got {spec}"
        )
    library = import_with_torchvision("timm", f"the backbone {spec}", "timm")
    timms.check_name(library, argument)
    random = weights in (None, timms.RANDOM)
    chosen = _levels(library, argument)
    network = _created(library, argument, chosen, "" if random else weights or "", random)
    wants = timms.input_of(library, argument, network).model_copy(
        update={"crop_pct": 1.0, "filter": "bilinear", "mode": "center"}
    )
    return network, network.feature_info.channels(), wants


def _levels(library: Any, name: str) -> list[int]:
    """Return the indices of a timm network's maps with the three strides."""
    try:
        info = library.create_model(name, pretrained=False, features_only=True).feature_info
    except (RuntimeError, AttributeError, TypeError, ValueError, KeyError) as error:
        raise SoritesError(f"timm:{name} gives no feature maps, which a detector needs: {error}") from error
    strides = list(info.reduction())
    if not set(STRIDES) <= set(strides):
        raise SoritesError(f"timm:{name} has maps of strides {strides}; a detector needs {list(STRIDES)}")
    return [len(strides) - 1 - strides[::-1].index(stride) for stride in STRIDES]


def _created(library: Any, name: str, levels: list[int], path: str, random: bool) -> Any:
    options: dict[str, Any] = {"features_only": True, "out_indices": levels}
    if random:
        return library.create_model(name, pretrained=False, **options)
    if path:
        return library.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": path}, **options)
    try:
        with hub():
            return library.create_model(name, pretrained=True, **options)
    except Exception as error:  # a missing network and a refusing hub raise different errors
        instead = f"Use a file: timm:{name}@weights.safetensors, or random weights: timm:{name}@random"
        raise download_error(f"the published weights of timm:{name}", error, instead) from error


def _small() -> nn.Module:
    """Return a small backbone for inputs of about 128 px."""
    from torch import nn

    def block(before: int, after: int, stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
        )

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, second, third, fourth, fifth = SMALL
            self.stem = nn.Sequential(block(3, first, 2), block(first, second, 2), block(second, second, 1))
            self.third = nn.Sequential(block(second, third, 2), block(third, third, 1))
            self.fourth = nn.Sequential(block(third, fourth, 2), block(fourth, fourth, 1))
            self.fifth = nn.Sequential(block(fourth, fifth, 2), block(fifth, fifth, 1))

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            maps = [self.third(self.stem(x))]
            for stage in (self.fourth, self.fifth):
                maps.append(stage(maps[-1]))
            return maps

    return Small()


def assembled(backbone: nn.Module, channels: Sequence[int], classes: int) -> nn.Module:
    """Return a detector on a backbone.

    It maps normalised N x 3 x H x W to class logits (N x P x C), distances to the left, top, right and bottom
    side in px of the input (N x P x 4), and logits of the centre-ness (N x P).
    """
    import torch
    from torch import nn
    from torch.nn import functional

    def branch() -> nn.Sequential:
        layers = [
            (nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1, bias=False), nn.GroupNorm(GROUPS, CHANNELS), nn.ReLU())
            for _ in range(DEPTH)
        ]
        return nn.Sequential(*(layer for part in layers for layer in part))

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.class_branch, self.box_branch = branch(), branch()
            self.logits = nn.Conv2d(CHANNELS, classes, 3, 1, 1)
            self.distances = nn.Conv2d(CHANNELS, 4, 3, 1, 1)
            self.centreness = nn.Conv2d(CHANNELS, 1, 3, 1, 1)
            self.scales = nn.Parameter(torch.ones(len(STRIDES)))
            for layer in (self.logits, self.distances, self.centreness):
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
            nn.init.constant_(self.logits.bias, -math.log((1 - PRIOR) / PRIOR))  # type: ignore[arg-type]
            nn.init.constant_(self.distances.bias, 1.0)  # type: ignore[arg-type]

        def forward(self, x: torch.Tensor, level: int) -> tuple[torch.Tensor, ...]:
            boxes = self.box_branch(x)
            exponents = (self.distances(boxes) * self.scales[level]).float().clamp(max=MAX_EXPONENT)
            parts = (
                self.logits(self.class_branch(x)),
                exponents.exp() * STRIDES[level],
                self.centreness(boxes),
            )
            return tuple(part.flatten(2).transpose(1, 2) for part in parts)

    class Fcos(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone
            self.laterals = nn.ModuleList(nn.Conv2d(count, CHANNELS, 1) for count in channels)
            self.smooth = nn.ModuleList(nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1) for _ in channels)
            self.head = Head()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            maps = [lateral(one) for lateral, one in zip(self.laterals, self.backbone(x), strict=True)]
            for finer, coarser in ((1, 2), (0, 1)):
                above = functional.interpolate(maps[coarser], size=maps[finer].shape[-2:], mode="nearest")
                maps[finer] = maps[finer] + above
            maps = [smooth(one) for smooth, one in zip(self.smooth, maps, strict=True)]
            levels = [self.head(one, level) for level, one in enumerate(maps)]
            logits, distances, centreness = (torch.cat(parts, 1) for parts in zip(*levels, strict=True))
            return logits, distances, centreness[..., 0]

    return Fcos()


# The trained detector as a model.


def decoded(
    logits: NDArray[np.float32],
    distances: NDArray[np.float32],
    centreness: NDArray[np.float32],
    size: tuple[int, int],
) -> Candidates:
    """Return the boxes of all locations of an image, with the scores of all classes.

    Args:
        logits: Class logits, P x C.
        distances: Distances to the four sides, P x 4.
        centreness: Logits of the centre-ness, P.
        size: Height and width of the input.
    """
    centres, _ = locations(size)
    boxes = np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], 1)
    scores = np.sqrt(_sigmoid(logits) * _sigmoid(centreness)[:, None])
    return Candidates(boxes, scores, logits=logits)


def _sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    half: NDArray[np.float64] = np.tanh(np.asarray(logits, np.float64) / 2) / 2
    return half + 0.5


def detector(name: str, module: nn.Module, wants: Input, labels: Sequence[str]) -> Model:
    """Return the model of a trained detector; its boxes are those of single images, whatever the batch.

    Args:
        name: The name of the model.
        module: The network.
        wants: Its input.
        labels: Its classes.
    """
    import torch

    module = module.eval().float()
    device = device_of(compute_options().device)
    module.to(device)
    config = BoxConfig(
        fit=FIT,
        antialias=True,
        mean=wants.mean,
        std=wants.std,
        score=SCORE,
        nms=SUPPRESSION,
        most=MOST,
        order="xyxy",
        unit="input",
    )
    words = input_text(config, wants.size)
    say(f"{name}: {words}")
    classes = classes_of(list(labels), name)
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (wants.mean, wants.std))

    def found(image: ImageU8) -> Found:
        inside, placement = place(image, wants.size)
        pixels = torch.from_numpy(np.array(inside.transpose(2, 0, 1), order="C"))[None].to(device).float()
        with torch.inference_mode(), reproducible(device):
            outputs = module((pixels / 255 - mean) / std)
        logits, distances, centreness = (part[0].float().cpu().numpy() for part in outputs)
        return _settled(decoded(logits, distances, centreness, wants.size), config, classes, placement, wants)

    def forward(images: list[NDArray[Any]]) -> Outputs:
        results = [found(image) for image in images]
        return Outputs(
            boxes=[part.boxes for part in results],
            box_logits=of_each([part.logits for part in results]),
            independent=True,
        )

    version = weights_hash(module, digest(VERSION, wants.model_dump_json(), *labels))
    return Model(
        name,
        forward,
        labels=tuple(labels),
        version=version,
        parameters=sum(weight.numel() for weight in module.parameters()),
        output="boxes",
        backend=Backend("torch", device),
        input={"words": words},
    )


def _settled(
    candidates: Candidates, config: BoxConfig, classes: Classes, placement: Placement, wants: Input
) -> Found:
    return settled(candidates, config, classes, placement, wants.size)
