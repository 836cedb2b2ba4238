"""Torch networks to be trained, by spec: where they start from, the input they want, and which of their layers is the head.

``small``, ``lite0`` to ``lite2``, ``timm:NAME`` (published weights), ``timm:NAME@PATH`` (weights of a file) and ``trained:DIR``;
``@random`` after a name (``lite0@random``, ``timm:resnet50@random``) starts from random weights. ``small`` always does. The head
is replaced by a random one where the classes are not those that the weights were trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sorites.core import Picture
from sorites.errors import SoritesError, UnknownName
from sorites.labels import imagenet
from sorites.models import _small, lite
from sorites.models import timm as timms
from sorites.models._fingerprint import weights_hash
from sorites.models._preprocess import Input
from sorites.models._trained_folder import read
from sorites.torch_tools import beside_torchvision, one_thread
from sorites.types.specs import split_spec

if TYPE_CHECKING:
    from torch import nn

NAMES = ("small", "lite0", "lite1", "lite2", "timm:NAME", "timm:NAME@PATH", "trained:DIR")
RANDOM = timms.RANDOM

Pictures = Callable[[Input, int], Sequence[Picture]]
"""Gives at most so many training pictures at an input's size, for layers that are computed from pictures."""


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
    pictures: Pictures | None = None,
    *,
    keep_head: bool = False,
) -> Network:
    """Return the network that training of these classes begins with; what is random in it follows from the seed.

    With ``keep_head`` a network that knows all the classes, among others, keeps the rows of its head that stand for them.
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
        _whiten(made, pictures)
    return made


def blank(layers: str, classes: int, wants: Input | None = None) -> Network:
    """Return a network of some layers with random weights, to be filled with weights that were trained."""
    name, argument = split_spec(layers)
    if name == "small" and argument is None:
        made = Network(layers, _small.small(classes), _small.wants(), ("linear",))
    elif name in ("lite0", "lite1", "lite2") and argument is None:
        made = _lite(int(name[-1]), lite.blank(int(name[-1])))
        _replace_head(made, classes)
    elif name == "timm" and argument is not None:
        library = beside_torchvision("timm", f"the network {layers}", "timm")
        timms.check_name(library, argument)
        made = _timm(library, argument, library.create_model(argument, pretrained=False, num_classes=classes))
    else:
        raise UnknownName("network to train", layers, NAMES, f"Wanted one of {', '.join(NAMES)}; NAME@random has random weights.")
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
    strange = [name for name in classes if name not in place]
    if strange:
        raise SoritesError(
            f"keep_head: {spec} knows {len(known)} classes, and {len(strange)} of the {len(classes)} to be learnt are not among "
            f"them, first {strange[0]}. Leave keep_head out to begin with a random head."
        )
    return [place[name] for name in classes]


def _replace_head(made: Network, classes: int, rows: Sequence[int] | None = None) -> None:
    """Put a last layer for so many classes in the place of the one that is there: random, or with these rows of the former."""
    before = [made.module.get_submodule(name).state_dict() for name in made.head] if rows is not None else []
    _new_head(made, classes)
    for name, weights in zip(made.head, before, strict=rows is not None):
        fill(made.module.get_submodule(name), {key: value[rows] for key, value in weights.items()}, f"the head of {made.layers}")


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
        raise SoritesError(f"{spec} cannot take pictures of {made.wants.size[0]} px ({reason}). Leave out data.size.") from error


def _whiten(made: Network, pictures: Pictures | None) -> None:
    import torch

    if pictures is None:
        raise SoritesError("the network small is started from training pictures, and none were given")
    filters = _small.whitening(pictures(made.wants, _small.PICTURES), made.wants)
    made.module.get_buffer("whitening").copy_(torch.from_numpy(filters))
