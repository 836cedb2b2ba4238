"""The detector that a training starts from."""

from __future__ import annotations

from collections.abc import Sequence

from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.specs import split_spec
from sorites.models.detectors import fcos
from sorites.models.torch_module import weights_hash
from sorites.models.trained import Network, load_trained


def start_detector(spec: str, classes: Sequence[str], size: int | None = None, seed: int = 0) -> Network:
    """Return the detector that training starts from.

    Args:
        spec: The backbone (``small``, ``timm:NAME``, ``timm:NAME@PATH``, ``timm:NAME@random``), or
            ``trained:DIR`` to go on from a trained detector of the same classes.
        classes: The class ids to learn.
        size: The input size in px, if it differs from the default.
        seed: The seed of random weights.

    Raises:
        SoritesError: The spec, size or classes do not fit.
    """
    import torch

    name, folder = split_spec(spec)
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        if name == "trained":
            network, known = load_trained(folder)
            _check_known(spec, network, known, classes)
        else:
            layers, module, wants = fcos.with_backbone(spec, len(classes))
            network = Network(layers, module, wants, (fcos.HEAD,))
            pretrained = name == "timm" and not spec.endswith("@random")
            weights = weights_hash(module.get_submodule("backbone"), b"") if pretrained else None
            network.parent = {"spec": spec, "weights": weights}
    if size is not None:
        network.wants = network.wants.model_copy(update={"size": (size, size)})
    fcos.check_size(network.wants.size, spec)
    return network


def _check_known(spec: str, network: Network, known: Sequence[str], classes: Sequence[str]) -> None:
    if not fcos.is_detector(network.layers):
        raise SoritesError(f"{spec} is a classifier ({network.layers}); a detector was expected")
    if tuple(known) != tuple(classes):
        raise SoritesError(
            f"{spec} detects {len(known)} classes and the images have {len(classes)} or others; a detector"
            " goes on with its own classes only. Set data.labels to them."
        )
