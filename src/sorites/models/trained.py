"""Models that ``sorites train run`` made, by their folder: ``trained:DIR``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from sorites.core import ImageU8, Model, add_model
from sorites.core.errors import Damaged, SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.rng import digest
from sorites.core.specs import split_spec
from sorites.core.torch_tools import beside_torchvision, one_thread
from sorites.io.files import write_bytes
from sorites.io.paths import is_dir, is_file, path_of
from sorites.io.readers import json_file
from sorites.io.tables import Arrays, tensors
from sorites.models import lite
from sorites.models import timm as timms
from sorites.models.preprocess import Input
from sorites.models.torch_module import linear_head, torch_model, weights_hash

if TYPE_CHECKING:
    import torch
    from torch import nn

# A small convolutional network for images of about 32 px that learns quickly on a CPU: 318 k parameters
# for ten classes.


PATCH = 4
PATCHES = PATCH * PATCH * 3
# The constant added to each variance before patches are divided by its root.
SHRINK = 1e-2
FEATURES = 128
# Training images that the whitening is computed from.
IMAGES = 2000


def small_input(size: int | None = None) -> Input:
    """Return the input of the network: the whole image at 32 px, or at another size."""
    return Input(size=(size or 32,) * 2, crop_pct=1.0)


def small(classes: int) -> nn.Module:
    """Return the network with random weights and no whitening yet; it gives logits and features."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        """A convolution, normalised over the batch, and ReLU."""

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


def whitening(images: Sequence[ImageU8], wanted: Input) -> NDArray[np.float32]:
    """Return the filters (48 x 3 x 4 x 4) that whiten the patches of some images at the network's
    input size.
    """
    scaled = (np.stack(images).astype(np.float32) / 255 - np.asarray(wanted.mean, np.float32)) / np.asarray(
        wanted.std, np.float32
    )
    windows = np.lib.stride_tricks.sliding_window_view(scaled, (PATCH, PATCH), axis=(1, 2))[:, ::2, ::2]
    patches = windows.reshape(-1, PATCHES).astype(np.float64)
    patches -= patches.mean(axis=0)
    variances, axes = np.linalg.eigh(patches.T @ patches / len(patches))
    filters: NDArray[Any] = axes.T / np.sqrt(variances + SHRINK)[:, None]
    return filters.reshape(PATCHES, 3, PATCH, PATCH).astype(np.float32)


# The folder of a trained model: ``model.safetensors`` with the weights, and ``model.json`` with what they
# were made from.


RECORD, WEIGHTS, UNFINISHED = "model.json", "model.safetensors", "train.json"
MAKE = 'Type: sorites train run RECIPE --out DIR, then name the model "trained:DIR"'


class Record(BaseModel):
    """The content of ``model.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = 1
    network: str
    """The layers, without weights: small, lite0, timm:resnet50."""
    classes: tuple[str, ...]
    """The ids of the classes in the order of the logits."""
    input: Input
    recipe: dict[str, Any]
    recipe_hash: str
    data_hash: str
    """A hash of the ids, labels and contents of the training and validation images."""
    images: dict[str, int] = {}
    """The number of images of each of the two parts."""
    parent: dict[str, Any]
    """The model that training began from: its spec, and a hash of its weights, null where they were
    random.
    """
    steps: int
    """Updates of the weights up to these weights."""
    validation: dict[str, Any] | None = None
    """The accuracy on the validation part, with n and a 95 % interval."""
    versions: dict[str, str] = {}
    """The libraries that trained it."""

    def version(self, weights: str) -> str:
        """Return what a run knows the model by: its weights, and what they were made from."""
        return digest(
            weights, self.recipe_hash, self.data_hash, json.dumps(self.parent, sort_keys=True)
        ).hex()


def write(folder: Path, record: Record, weights: Mapping[str, Any]) -> None:
    """Write both files; the record comes last, so that a folder that has one is whole."""
    from safetensors.torch import save

    write_bytes(
        save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}), folder / WEIGHTS
    )
    write_bytes((record.model_dump_json(indent=2) + "\n").encode(), folder / RECORD)


def read(folder: str | Path) -> tuple[Record, Arrays]:
    """Return the record and the weights of a trained model; an unfinished training says how to go on."""
    return read_record(folder), tensors(path_of(folder) / WEIGHTS)[0]


def read_record(folder: str | Path) -> Record:
    """Return the record of a trained model."""
    place = path_of(folder)
    if not is_file(place / RECORD):
        raise SoritesError(_why_not(place))
    try:
        return Record.model_validate(json_file(place / RECORD, "the record of a trained model"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Damaged(place / RECORD, f"{where}: {first['msg']}", MAKE) from error


def _why_not(place: Path) -> str:
    if not is_dir(place):
        return f"there is no folder {place} with a trained model. {MAKE}"
    if not is_file(place / UNFINISHED):
        return f"{place} holds no trained model (no {RECORD}). {MAKE}"
    return (
        f"the training in {place} is not finished. To go on, type the command that began it again:"
        f" {_command(place)}"
    )


def _command(place: Path) -> str:
    held = json_file(place / UNFINISHED)
    said = held.get("command") if isinstance(held, dict) else None
    return str(said) if said else f"sorites train run RECIPE --out {place}"


# Torch networks to be trained, by spec: where they start from, the input they want, and which of their
# layers is the head.


NAMES = ("small", "lite0", "lite1", "lite2", "timm:NAME", "timm:NAME@PATH", "trained:DIR")
RANDOM = timms.RANDOM

# Gives at most so many training images at an input's size, for layers that are computed from
# images.
Images = Callable[[Input, int], Sequence[ImageU8]]


@dataclass
class Network:
    """A network with a place for every class."""

    layers: str
    """The spec of its layers without weights: ``small``, ``lite0``, ``timm:resnet50``."""
    module: nn.Module
    """Maps normalised N x 3 x H x W to (logits, features), or to logits where features cannot be had."""
    wants: Input
    head: tuple[str, ...]
    """Names of its last layers."""
    parent: dict[str, Any] = field(default_factory=dict)
    """The origin: the spec that it starts from, and a hash of the weights, None where they are random."""


def start(
    spec: str,
    classes: Sequence[str],
    size: int | None = None,
    seed: int = 0,
    images: Images | None = None,
    *,
    keep_head: bool = False,
) -> Network:
    """Return the network that training of these classes begins with; what is random in it follows
    from the seed.

    With ``keep_head`` a network that knows all the classes, among others, keeps the rows of its
    head that stand for them.
    """
    import torch

    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        name, argument = split_spec(spec)
        plain, _, weights = (argument or name).partition("@")
        if name == "trained":
            made, known = _trained(argument)
        elif weights == RANDOM or spec == "small":
            made, known = blank(f"timm:{plain}" if argument else plain, len(classes)), tuple(classes)
            made.parent = {"spec": spec, "weights": None}
        else:
            made, known = _published(spec, name, plain, weights)
        if known != tuple(classes):
            rows = _known_rows(spec, known, classes) if keep_head else None
            _replace_head(made, len(classes), rows)
    if size is not None:
        made.wants = made.wants.model_copy(update={"size": (size, size)})
        _try(made, spec)
    if made.layers == "small" and made.parent["weights"] is None:
        _whiten(made, images)
    return made


def blank(layers: str, classes: int, wants: Input | None = None) -> Network:
    """Return a network of some layers with random weights, to be filled with weights that were trained."""
    name, argument = split_spec(layers)
    if name == "small" and argument is None:
        made = Network(layers, small(classes), small_input(), ("linear",))
    elif name in ("lite0", "lite1", "lite2") and argument is None:
        made = _lite(int(name[-1]), lite.blank(int(name[-1])))
        _replace_head(made, classes)
    elif name == "timm" and argument is not None:
        library = beside_torchvision("timm", f"the network {layers}", "timm")
        timms.check_name(library, argument)
        made = _timm(library, argument, library.create_model(argument, pretrained=False, num_classes=classes))
    else:
        raise UnknownName(
            "network to train",
            layers,
            NAMES,
            f"Wanted one of {', '.join(NAMES)}; NAME@random has random weights.",
        )
    made.wants = wants or made.wants
    return made


def _published(spec: str, name: str, plain: str, weights: str) -> tuple[Network, tuple[str, ...]]:
    if name in ("lite0", "lite1", "lite2") and spec == name:
        made = _lite(int(name[-1]), lite.load(int(name[-1])))
    elif name == "timm":
        library = beside_torchvision("timm", f"the network {spec}", "timm")
        made = _timm(library, plain, timms.load(library, plain, weights))
    else:
        return blank(spec, 0), ()
    made.parent = {"spec": spec, "weights": weights_hash(made.module, b"")}
    return made, imagenet().ids if _outputs(made) == len(imagenet()) else ()


def _trained(folder: str | None) -> tuple[Network, tuple[str, ...]]:
    import torch

    if folder is None:
        raise SoritesError("model trained: wanted the folder of a trained model. Type: trained:DIR")
    record, arrays = read(folder)
    made = blank(record.network, len(record.classes), record.input)
    fill(made.module, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, folder)
    made.parent = {"spec": f"trained:{folder}", "weights": weights_hash(made.module, b"")}
    return made, record.classes


def fill(module: nn.Module, weights: dict[str, Any], where: object) -> None:
    """Load weights by name, all of them and no others."""
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
    made = Network(f"timm:{name}", network if module is None else module, wants, ())
    made.head = _classifiers(made.module, network)
    return made


def _classifiers(module: nn.Module, network: Any) -> tuple[str, ...]:
    found = network.get_classifier()
    last = found if isinstance(found, tuple | list) else (found,)
    return tuple(name for name, layer in module.named_modules() if any(layer is one for one in last))


def _known_rows(spec: str, known: Sequence[str], classes: Sequence[str]) -> list[int]:
    place = {name: i for i, name in enumerate(known)}
    ood = [name for name in classes if name not in place]
    if ood:
        raise SoritesError(
            f"keep_head: {spec} knows {len(known)} classes, and {len(ood)} of the {len(classes)} to be"
            f" learnt are not among them, first {ood[0]}. Leave keep_head out to begin with a random"
            " head."
        )
    return [place[name] for name in classes]


def _replace_head(made: Network, classes: int, rows: Sequence[int] | None = None) -> None:
    """Put a last layer for so many classes in the place of the one that is there: random, or with
    these rows of the former.
    """
    before = [made.module.get_submodule(name).state_dict() for name in made.head] if rows is not None else []
    _new_head(made, classes)
    for name, weights in zip(made.head, before, strict=rows is not None):
        fill(
            made.module.get_submodule(name),
            {key: value[rows] for key, value in weights.items()},
            f"the head of {made.layers}",
        )


def _new_head(made: Network, classes: int) -> None:
    """Put a random last layer for so many classes in the place of the one that is there."""
    from torch import nn

    if made.layers.startswith("timm:"):
        inner: Any = getattr(made.module, "network", made.module)
        inner.reset_classifier(classes)
        made.head = _classifiers(made.module, inner)
        return
    for name in made.head:
        around, _, last = name.rpartition(".")
        before: Any = made.module.get_submodule(name)
        setattr(made.module.get_submodule(around), last, nn.Linear(before.in_features, classes))


def _outputs(made: Network) -> int:
    return int(getattr(made.module.get_submodule(made.head[0]), "out_features", 0)) if made.head else 0


def _try(made: Network, spec: str) -> None:
    """Refuse a size that the layers cannot take."""
    import torch

    try:
        with torch.inference_mode(), one_thread():
            made.module.eval()(torch.zeros(2, 3, *made.wants.size))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise SoritesError(
            f"{spec} cannot take images of {made.wants.size[0]} px ({reason}). Leave out data.size."
        ) from error


def _whiten(made: Network, images: Images | None) -> None:
    import torch

    if images is None:
        raise SoritesError("the network small is started from training images, and none were given")
    filters = whitening(images(made.wants, IMAGES), made.wants)
    made.module.get_buffer("whitening").copy_(torch.from_numpy(filters))


@add_model
def trained(argument: str | None) -> Model:
    """Run a model that was trained here (trained:DIR), with the classes of its training.

    Its version holds the weights, the recipe, the hash of the training images and the model it
    was started from.
    """
    if argument is None:
        raise SoritesError(f"model trained: wanted the folder of a trained model. {MAKE}")
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
    head = linear_head(network.module.get_submodule(network.head[0])) if len(network.head) == 1 else None
    made = torch_model(f"trained:{argument}", network.module, record.input, record.classes, head)
    return replace(made, version=record.version(made.version), cache_version=None)
