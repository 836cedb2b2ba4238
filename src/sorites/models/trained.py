"""Models trained with ``sorites train run``: ``trained:DIR``, and the networks that training starts from."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sorites.core import ImageU8, Model, add_model
from sorites.core.compute.torch_tools import import_with_torchvision, one_thread
from sorites.core.errors import Damaged, SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.core.specs import split_spec
from sorites.io.digests import digest_of, digest_of_file, read_sealed, write_sealed
from sorites.io.files import write_bytes
from sorites.io.listed import digests_of, listed_problems, read_verified, refuse
from sorites.io.paths import is_dir, is_file, path_of
from sorites.io.tables import Arrays, tensors
from sorites.io.validation import read_typed
from sorites.models import lite
from sorites.models import timm as timms
from sorites.models.detectors import fcos
from sorites.models.preprocess import Input
from sorites.models.torch_module import linear_head, torch_model, weights_hash

if TYPE_CHECKING:
    import torch
    from torch import nn

# A small convolutional network for images of about 32 px that trains quickly on a CPU (318 k parameters for
# ten classes).

# The side of a patch in px.
PATCH = 4
# The number of values of a patch, which is also the number of whitening filters.
PATCHES = PATCH * PATCH * 3
# Added to each variance before patches are divided by its square root.
SHRINK = 1e-2
FEATURES = 128
# The number of training images from which the whitening is computed.
IMAGES = 2000


def small_input(size: int | None = None) -> Input:
    """Return the input of the network: the whole image at 32 px, or at ``size``."""
    return Input(size=(size or 32,) * 2, crop_pct=1.0)


def small(classes: int) -> nn.Module:
    """Return the network with random weights and empty whitening; it gives logits and features."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        """Convolution, batch normalisation and ReLU."""

        def __init__(self, before: int, after: int, side: int = 3) -> None:
            super().__init__()
            self.conv = nn.Conv2d(before, after, side, padding=side // 2, bias=False)
            self.norm = nn.BatchNorm2d(after)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.relu(self.norm(self.conv(x)))

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whitening", torch.zeros(PATCHES, 3, PATCH, PATCH))
            self.mix = Block(2 * PATCHES, 32, 1)
            self.first = Block(32, 64)
            self.first_residual = nn.Sequential(Block(64, 64), Block(64, 64))
            self.second = Block(64, FEATURES)
            self.second_residual = Block(FEATURES, FEATURES)
            self.linear = nn.Linear(FEATURES, classes)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            white = functional.conv2d(x, self.whitening, stride=2, padding=1)  # type: ignore[arg-type]
            x = self.mix(functional.relu(torch.cat([white, -white], 1)))
            x = functional.max_pool2d(self.first(x), 2)
            x = x + self.first_residual(x)
            x = functional.max_pool2d(self.second(x), 2)
            x = x + self.second_residual(x)
            features = x.amax((2, 3))
            return self.linear(features), features

    return Small()


def whitening(images: Sequence[ImageU8], network_input: Input) -> NDArray[np.float32]:
    """Return the filters (48 x 3 x 4 x 4) that whiten the patches of images (PCA whitening)."""
    scaled = (
        np.stack(images).astype(np.float32) / 255 - np.asarray(network_input.mean, np.float32)
    ) / np.asarray(network_input.std, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(scaled, (PATCH, PATCH), axis=(1, 2))[:, ::2, ::2]
    patches = windows.reshape(-1, PATCHES).astype(np.float64)
    patches -= patches.mean(axis=0)
    variances, axes = np.linalg.eigh(patches.T @ patches / len(patches))
    filters: NDArray[Any] = axes.T / np.sqrt(variances + SHRINK)[:, None]
    return filters.reshape(PATCHES, 3, PATCH, PATCH).astype(np.float32)


# The folder of a trained model: ``model.safetensors`` (weights) and ``model.json`` (how they were made).

RECORD, WEIGHTS, UNFINISHED = "model.json", "model.safetensors", "train.json"
# The list of training and validation images.
DATA = "data.parquet"
MAKE = f'Train one with {command("train run", "RECIPE", out="DIR")}, then use the model "trained:DIR"'
TRAIN_AGAIN = "Restore it from a backup, or delete the folder and repeat the command that trained the model."


class Record(BaseModel):
    """The content of ``model.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = 1
    network: str
    """The architecture: small, lite0, timm:resnet50."""
    classes: tuple[str, ...]
    """Class ids in the order of the logits."""
    input: Input
    recipe: dict[str, Any]
    recipe_hash: str
    data_hash: str
    """A hash of the ids, labels and contents of the training and validation images."""
    images: dict[str, int] = {}
    """The number of training and validation images."""
    parent: dict[str, Any]
    """The model that training started from: its spec, and a hash of its weights (null if random)."""
    steps: int
    """The number of weight updates."""
    validation: dict[str, Any] | None = None
    """The validation accuracy with n and a 95 % interval."""
    versions: dict[str, str] = {}
    """The library versions used for training."""
    files: dict[str, str] = {}
    """The digests of the weights and of the other files of the training."""

    def version(self, weights: str) -> str:
        """Return the version of the model: a hash of its weights, recipe, data and parent."""
        return digest(
            weights, self.recipe_hash, self.data_hash, json.dumps(self.parent, sort_keys=True)
        ).hex()


def write(folder: Path, record: Record, weights: Mapping[str, Any], lists: Sequence[str] = ()) -> None:
    """Write weights and record; the record is written last, so a folder with a record is complete.

    Args:
        folder: The folder.
        record: The record, without digests.
        weights: The weights by name.
        lists: Further files of the folder that the record lists, if they exist.
    """
    from safetensors.torch import save

    data = save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()})
    write_bytes(data, folder / WEIGHTS)
    existing = [name for name in lists if (folder / name).is_file()]
    files = {WEIGHTS: digest_of(data), **{name: digest_of_file(folder / name) for name in existing}}
    write_sealed(record.model_copy(update={"files": files}).model_dump(mode="json"), folder / RECORD)


def read(folder: str | Path) -> tuple[Record, Arrays]:
    """Return the record and the weights of a trained model; the weights are compared with their digest.

    Raises:
        Damaged: The record or the weights are damaged.
    """
    record, path = read_record(folder), path_of(folder) / WEIGHTS
    if WEIGHTS not in record.files:
        raise Damaged(path, f"{RECORD} has no digest of it", TRAIN_AGAIN)
    refuse(listed_problems(path.parent, {WEIGHTS: record.files[WEIGHTS]}), TRAIN_AGAIN)
    return record, tensors(path)[0]


def training_contents(folder: str | Path) -> frozenset[str]:
    """Return the hashes of the images that a model was trained on, and those that its parents were.

    Images without a file of their own have none; nor has a model whose folder has no list of images.

    Raises:
        Damaged: The list of images is damaged.
    """
    import polars as pl

    record, path = read_record(folder), path_of(folder) / DATA
    if DATA not in record.files:
        return frozenset()
    listed = pl.read_parquet(io.BytesIO(read_verified(path, digests_of(record.files, DATA), TRAIN_AGAIN)))
    own = frozenset(listed.filter(pl.col("part") == "train")["content"].drop_nulls().to_list())
    kind, parent = split_spec(str(record.parent.get("spec") or ""))
    return own | training_contents(parent) if kind == "trained" and parent and is_dir(parent) else own


def read_record(folder: str | Path) -> Record:
    """Return the record of a trained model; if training is unfinished, the error says how to resume it."""
    path = path_of(folder)
    if not is_file(path / RECORD):
        raise SoritesError(_missing_record(path))
    return read_typed(path / RECORD, Record, TRAIN_AGAIN)


def _missing_record(path: Path) -> str:
    if not is_dir(path):
        return f"no folder {path} with a trained model. {MAKE}"
    if not is_file(path / UNFINISHED):
        return f"{path} contains no trained model (no {RECORD}). {MAKE}"
    return (
        f"the training in {path} is not finished. To resume it, run the original command again:"
        f" {_original_command(path)}"
    )


def _original_command(path: Path) -> str:
    recorded = read_sealed(path / UNFINISHED, TRAIN_AGAIN).get("command")
    return str(recorded) if recorded else command("train run", "RECIPE", out=path)


# Networks to train: their initial weights, input and head.

NAMES = ("small", "lite0", "lite1", "lite2", "timm:NAME", "timm:NAME@PATH", "trained:DIR")
RANDOM = timms.RANDOM

# Returns up to a number of training images at an input's size, for layers that are computed from images.
Images = Callable[[Input, int], Sequence[ImageU8]]


@dataclass
class Network:
    """A network to train."""

    layers: str
    """The architecture without weights: ``small``, ``lite0``, ``timm:resnet50``."""
    module: nn.Module
    """Maps normalised N x 3 x H x W to (logits, features), or to logits if features are not available."""
    wants: Input
    head: tuple[str, ...]
    """The names of its last layers."""
    parent: dict[str, Any] = field(default_factory=dict)
    """The spec that it starts from, and a hash of the weights (None if random)."""


def start(
    spec: str,
    classes: Sequence[str],
    size: int | None = None,
    seed: int = 0,
    images: Images | None = None,
    *,
    keep_head: bool = False,
) -> Network:
    """Return the network that training starts from.

    Args:
        spec: One of ``NAMES``.
        classes: The class ids to learn.
        size: The input size in px, if it differs from the default of the network.
        seed: The seed of random weights.
        images: Returns training images, needed by ``small``.
        keep_head: Keep the rows of the head for the classes, all of which the network must know.

    Raises:
        SoritesError: The spec, size or classes do not fit.
    """
    import torch

    _refuse_detector(spec, spec)
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        name, argument = split_spec(spec)
        plain, _, weights = (argument or name).partition("@")
        if name == "trained":
            network, known_classes = load_trained(argument)
            _refuse_detector(spec, network.layers)
        elif weights == RANDOM or spec == "small":
            network, known_classes = (
                blank(f"timm:{plain}" if argument else plain, len(classes)),
                tuple(classes),
            )
            network.parent = {"spec": spec, "weights": None}
        else:
            network, known_classes = _published(spec, name, plain, weights)
        if known_classes != tuple(classes):
            rows = _known_rows(spec, known_classes, classes) if keep_head else None
            _replace_head(network, len(classes), rows)
    if size is not None:
        network.wants = network.wants.model_copy(update={"size": (size, size)})
        _try(network, spec)
    if network.layers == "small" and network.parent["weights"] is None:
        _whiten(network, images)
    return network


def _refuse_detector(spec: str, layers: str) -> None:
    """Raise an error if a classifier is to start from a detector."""
    if fcos.is_detector(layers):
        raise SoritesError(f'{spec} is a detector ({layers}); set task = "boxes" to train it')


def blank(layers: str, classes: int, wants: Input | None = None) -> Network:
    """Return an architecture with random weights."""
    name, argument = split_spec(layers)
    if name == "small" and argument is None:
        network = Network(layers, small(classes), small_input(), ("linear",))
    elif name in ("lite0", "lite1", "lite2") and argument is None:
        network = _lite(int(name[-1]), lite.blank(int(name[-1])))
        _replace_head(network, classes)
    elif name == "timm" and argument is not None:
        library = import_with_torchvision("timm", f"the network {layers}", "timm")
        timms.check_name(library, argument)
        network = _timm(
            library, argument, library.create_model(argument, pretrained=False, num_classes=classes)
        )
    elif fcos.is_detector(layers):
        network = Network(layers, *fcos.blank(layers, classes), (fcos.HEAD,))
    else:
        raise UnknownName(
            "network to train",
            layers,
            NAMES,
            f"Expected one of {', '.join(NAMES)}; NAME@random has random weights.",
        )
    network.wants = wants or network.wants
    return network


def _published(spec: str, name: str, plain: str, weights: str) -> tuple[Network, tuple[str, ...]]:
    if name in ("lite0", "lite1", "lite2") and spec == name:
        network = _lite(int(name[-1]), lite.load(int(name[-1])))
    elif name == "timm":
        library = import_with_torchvision("timm", f"the network {spec}", "timm")
        network = _timm(library, plain, timms.load(library, plain, weights))
    else:
        return blank(spec, 0), ()
    network.parent = {"spec": spec, "weights": weights_hash(network.module, b"")}
    return network, imagenet().ids if _outputs(network) == len(imagenet()) else ()


def load_trained(folder: str | None) -> tuple[Network, tuple[str, ...]]:
    """Return the network of a training and its classes.

    Args:
        folder: The folder of the training.
    """
    import torch

    if folder is None:
        raise SoritesError("model trained: expected the folder of a trained model: trained:DIR")
    record, arrays = read(folder)
    network = blank(record.network, len(record.classes), record.input)
    fill(network.module, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, folder)
    network.parent = {"spec": f"trained:{folder}", "weights": weights_hash(network.module, b"")}
    return network, record.classes


def fill(module: nn.Module, weights: dict[str, Any], where: object) -> None:
    """Load weights by name; missing or additional names are an error."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise SoritesError(f"the weights in {where} do not fit their network: {reason}") from error


def _lite(which: int, network: Any) -> Network:
    return Network(f"lite{which}", lite.one_pass(network), lite.input_of(which), ("network._fc",))


def _timm(library: Any, name: str, network: Any) -> Network:
    wants = timms.input_of(library, name, network.eval())
    module = timms.one_pass(network, wants)
    trainable = Network(f"timm:{name}", network if module is None else module, wants, ())
    trainable.head = _classifiers(trainable.module, network)
    return trainable


def _classifiers(module: nn.Module, network: Any) -> tuple[str, ...]:
    classifier = network.get_classifier()
    last = classifier if isinstance(classifier, tuple | list) else (classifier,)
    return tuple(name for name, layer in module.named_modules() if any(layer is head for head in last))


def _known_rows(spec: str, known_classes: Sequence[str], classes: Sequence[str]) -> list[int]:
    index_of = {name: i for i, name in enumerate(known_classes)}
    unknown = [name for name in classes if name not in index_of]
    if unknown:
        raise SoritesError(
            f"keep_head: {spec} has {len(known_classes)} classes, and {len(unknown)} of the {len(classes)} to"
            f" learn are not among them, first {unknown[0]}. Remove keep_head to start with a random head."
        )
    return [index_of[name] for name in classes]


def _replace_head(network: Network, classes: int, rows: Sequence[int] | None = None) -> None:
    """Replace the last layer by one for ``classes`` classes: random, or with these rows of the old layer."""
    old_weights = (
        [network.module.get_submodule(name).state_dict() for name in network.head] if rows is not None else []
    )
    _new_head(network, classes)
    for name, weights in zip(network.head, old_weights, strict=rows is not None):
        fill(
            network.module.get_submodule(name),
            {key: value[rows] for key, value in weights.items()},
            f"the head of {network.layers}",
        )


def _new_head(network: Network, classes: int) -> None:
    from torch import nn

    if network.layers.startswith("timm:"):
        inner: Any = getattr(network.module, "network", network.module)
        inner.reset_classifier(classes)
        network.head = _classifiers(network.module, inner)
        return
    for name in network.head:
        parent, _, last = name.rpartition(".")
        old_layer: Any = network.module.get_submodule(name)
        setattr(network.module.get_submodule(parent), last, nn.Linear(old_layer.in_features, classes))


def _outputs(network: Network) -> int:
    return (
        int(getattr(network.module.get_submodule(network.head[0]), "out_features", 0)) if network.head else 0
    )


def _try(network: Network, spec: str) -> None:
    """Raise an error if the network does not support its input size."""
    import torch

    try:
        with torch.inference_mode(), one_thread():
            network.module.eval()(torch.zeros(2, 3, *network.wants.size))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise SoritesError(
            f"{spec} does not support images of {network.wants.size[0]} px ({reason}). Remove data.size."
        ) from error


def _whiten(network: Network, images: Images | None) -> None:
    import torch

    if images is None:
        raise SoritesError("the network small needs training images to start from, but got none")
    filters = whitening(images(network.wants, IMAGES), network.wants)
    network.module.get_buffer("whitening").copy_(torch.from_numpy(filters))


@add_model
def trained(argument: str | None) -> Model:
    """Run a model trained with Sorites (trained:DIR), with the classes of its training.

    Its version covers the weights, the recipe, the training images and the model it started from.
    """
    if argument is None:
        raise SoritesError(f"model trained: expected the folder of a trained model. {MAKE}")
    record, arrays = read(argument)
    try:
        import torch
    except ImportError as error:
        from sorites.core.errors import MissingExtra

        raise MissingExtra("model trained", "train") from error
    network = blank(record.network, len(record.classes), record.input)
    fill(
        network.module, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, argument
    )
    if fcos.is_detector(record.network):
        model = fcos.detector(f"trained:{argument}", network.module, record.input, record.classes)
        return replace(model, version=record.version(model.version))
    head = linear_head(network.module.get_submodule(network.head[0])) if len(network.head) == 1 else None
    local = [path for path in [Path(argument, WEIGHTS)] if path.is_file()]
    model = torch_model(f"trained:{argument}", network.module, record.input, record.classes, head, local)
    return replace(model, version=record.version(model.version), cache_version=None)
