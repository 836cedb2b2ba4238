"""Use a transformers model: ``hf:DIR`` with a folder of ``save_pretrained``, or ``hf:ORG/NAME@REVISION``.

Image classification and object detection are supported. Images are prepared by the processor that is stored
with the model and the network runs on torch, so that pixel values and logits equal those of transformers' own
pipeline, bit for bit. The features of a classifier are the inputs of its last linear layer.

Only safetensors are read, and no code of a folder or of the hub is run. A folder needs no network; a name
with a revision (``@main``, a tag or a commit) is downloaded from the hub.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites.core import MODELS, Backend, Head, ImageU8, Model, Outputs, add_model
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.torch_tools import compute_options, device_of, import_with_torchvision, one_thread
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.rng import digest
from sorites.io.hub import download_error, hub, is_unreachable, offline
from sorites.io.paths import is_dir, is_file, path_of
from sorites.io.resizing import fit
from sorites.models.detectors.config import classes_of
from sorites.models.detectors.forms import boxes_of
from sorites.models.detectors.results import clipped, say
from sorites.models.export import checked
from sorites.models.torch_module import linear_head, weights_hash
from sorites.models.trial import trial_images

SCORE_THRESHOLD = 0.001
KEYS = ("boxes", "scores", "labels")
# The tasks by the end of the class name that config.json lists as architecture.
TASKS = {
    "ForImageClassification": "AutoModelForImageClassification",
    "ForObjectDetection": "AutoModelForObjectDetection",
}
# The number formats that torch can compute in without another copy of the weights.
PRECISIONS = ("float32", "bfloat16", "float16")
# The names that transformers gives to classes without names.
UNNAMED = "LABEL_"
# A name on the hub: owner and model, without the suffix of a file.
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,11}$")


@dataclass(frozen=True)
class Loaded:
    """A network in eval mode and float32, its processor, and the name of its task."""

    network: Any
    processor: Any
    task: str


@add_model
def hf(argument: str | None) -> Model:
    """Run a transformers classifier or detector (hf:DIR or hf:ORG/NAME@REVISION) with its own processor."""
    name = f"hf:{argument}"
    library = import_with_torchvision("transformers", "model hf", "hf")
    loaded = _load(library, argument)
    version = weights_hash(
        loaded.network,
        digest(
            loaded.network.config.to_json_string(), loaded.processor.to_json_string(), library.__version__
        ),
    )
    device, precision = device_of(compute_options().device), compute_options().precision or "float32"
    if precision not in PRECISIONS:
        raise SoritesError(f"{name}: precision is one of {', '.join(PRECISIONS)}, got {precision}")
    backend = Backend("torch", device, precision, batch_matters=True)
    loaded.network.to(device)
    make = _classifier if loaded.task == "ForImageClassification" else _detector
    return make(name, loaded, version, backend)


def _guess(name: str) -> str | None:
    """Return the spec of a bare name of the hub: ``google/vit`` is ``hf:google/vit@main``."""
    if not _ON_HUB.fullmatch(name) or _SUFFIX.search(name):
        return None
    return f"hf:{name}@main for a model of the hub"


MODELS.add_guess(_guess)


def _load(library: Any, argument: str | None) -> Loaded:
    text = argument or ""
    folder = path_of(text) if text else None
    if folder is not None and is_dir(folder):
        if not is_file(folder / "config.json"):
            raise SoritesError(f"model hf: {folder} has no config.json; expected a folder of save_pretrained")
        with offline():
            return _from(library, text, str(folder), {"local_files_only": True})
    place, _, revision = text.partition("@")
    if not place or not revision:
        raise SoritesError(
            f"model hf: there is no folder {text or 'given'}. Pass hf:DIR with a folder of save_pretrained,"
            f" or hf:{place or 'ORG/NAME'}@main to download a model from the hub."
        )
    with hub():
        return _from(library, text, place, {"revision": revision})


def _from(library: Any, text: str, place: str, how: dict[str, Any]) -> Loaded:
    """Load the network and its processor; nothing but safetensors, and no code that comes with them."""
    safe = {**how, "trust_remote_code": False}
    try:
        config = library.AutoConfig.from_pretrained(place, **safe)
        task = _task(text, config)
        automatic = getattr(library, TASKS[task])
        with _silent(library), one_thread():
            network, problems = automatic.from_pretrained(
                place, config=config, use_safetensors=True, output_loading_info=True, **safe
            )
            processor = library.AutoImageProcessor.from_pretrained(place, **safe)
    except SoritesError:
        raise
    except Exception as error:  # the library, the hub and file readers raise nearly anything
        if is_unreachable(error):
            instead = "Pass hf:DIR with a folder of save_pretrained."
            raise download_error(f"the model hf:{text}", error, instead) from error
        reason = str(error).strip().split("\n")[0]
        raise SoritesError(f"model hf:{text} did not load (only safetensors are read): {reason}") from error
    missing = sorted(problems.get("missing_keys", ()))
    if missing:
        raise SoritesError(f"model hf:{text}: {len(missing)} weights are missing, such as {missing[0]}")
    return Loaded(network.eval().float(), processor, task)


def _task(text: str, config: Any) -> str:
    architectures = getattr(config, "architectures", None) or ["no architecture"]
    task = next((task for task in TASKS if task in architectures[0]), None)
    if task is None:
        raise SoritesError(
            f"model hf:{text} is a {architectures[0]}; expected a model for image classification or object"
            " detection"
        )
    return task


@contextlib.contextmanager
def _silent(library: Any) -> Iterator[None]:
    """Load without the library's reports; what they would say is checked by the caller."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextlib.contextmanager
def _passes(backend: Backend) -> Iterator[None]:
    """Compute without gradients, with deterministic kernels and in the precision of the backend."""
    import torch

    autocast = (
        contextlib.nullcontext()
        if backend.precision == "float32"
        else torch.autocast(backend.kind, getattr(torch, backend.precision))
    )
    with torch.inference_mode(), reproducible(backend.device), autocast:
        yield


# Classifiers.


class Prepared:
    """Turns an image into pixel values (3 x H x W) with the processor of the model.

    A framed image is resized to the size of these values and only rescaled and normalised by the processor.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.size: tuple[int, int] = self._pixels(np.zeros((375, 500, 3), np.uint8)).shape[1:]

    def __call__(self, image: ImageU8, framed: bool) -> NDArray[np.float32]:
        if framed:
            return self._pixels(fit(image, True, self.size), do_resize=False, do_center_crop=False)
        return self._pixels(image)

    def _pixels(self, image: ImageU8, **options: Any) -> NDArray[np.float32]:
        values = self._processor(images=Pillow.fromarray(image), return_tensors="pt", **options)
        pixels: NDArray[np.float32] = values["pixel_values"][0].numpy()
        return pixels


def _classifier(name: str, loaded: Loaded, version: str, backend: Backend) -> Model:
    prepare = Prepared(loaded.processor)
    trial = [prepare(image, False) for image in trial_images()]
    layer = _last_layer(loaded.network, trial)
    size = sum(weights.numel() for weights in loaded.network.parameters())
    return Model(
        name,
        checked(name, _forward(loaded.network, layer, backend)),
        prepare,
        _labels(loaded.network.config),
        _head(layer),
        version,
        size,
        input={"size": list(prepare.size), "processor": type(loaded.processor).__name__},
        scale="logits",
        backend=backend,
    )


def _head(layer: Any) -> Head | None:
    return None if layer is None else linear_head(layer)


def _labels(config: Any) -> tuple[str, ...] | None:
    """Return the class names in the order of the logits; None if nobody named them."""
    names = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    if all(name.startswith(UNNAMED) for name in names):
        return None
    known = imagenet()
    if (
        len(names) == len(known)
        and sum(known.get(*name.split(", ")) == i for i, name in enumerate(names)) > 900
    ):
        return known.ids
    return names


def _last_layer(network: Any, trial: list[NDArray[np.float32]]) -> Any:
    """Return the linear layer whose outputs are the logits, or None if it does not have one row per image."""
    import torch
    from torch import nn

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    seen: list[tuple[Any, Any, Any]] = []
    hooks = [layer.register_forward_hook(lambda *passed: seen.append(passed)) for layer in layers]
    device = next(network.parameters()).device
    try:
        with torch.inference_mode():
            logits = network(pixel_values=torch.from_numpy(np.stack(trial)).to(device)).logits
    finally:
        for hook in hooks:
            hook.remove()
    found = [
        layer
        for layer, (given, *_), made in seen
        if given.ndim == 2 and made.shape == logits.shape and torch.equal(made, logits)
    ]
    return found[-1] if found else None


def _forward(network: Any, layer: Any, backend: Backend) -> Callable[[list[NDArray[Any]]], Outputs]:
    import torch

    # Several threads may run the network at once.
    kept = threading.local()
    if layer is not None:
        layer.register_forward_pre_hook(lambda _, given: setattr(kept, "features", given[0]))

    def forward(images: list[NDArray[Any]]) -> Outputs:
        batch = torch.from_numpy(np.stack(images)).to(backend.device)
        with _passes(backend):
            logits = network(pixel_values=batch).logits
        features = None if layer is None else kept.features.float().cpu().numpy()
        return Outputs(logits.float().cpu().numpy(), features)

    return forward


# Detectors.


def _inside(found: dict[str, NDArray[Any]], image: ImageU8) -> dict[str, NDArray[Any]]:
    """Return boxes by descending score, clipped at the edges of the image; those outside are dropped."""
    boxes = clipped(found["boxes"].astype(np.float64), (image.shape[0], image.shape[1]))
    order = np.argsort(-found["scores"], kind="stable")
    order = order[(boxes[order, 2:] > boxes[order, :2]).all(axis=1)]
    return {**{key: found[key][order] for key in KEYS}, "boxes": boxes[order]}


def _detector(name: str, loaded: Loaded, version: str, backend: Backend) -> Model:
    classes = classes_of(dict(loaded.network.config.id2label), f"model {name}")
    say(f"{name} prepares images itself; classes: {classes.about}; scores from {SCORE_THRESHOLD:g}")

    def found(image: ImageU8) -> dict[str, Any]:
        import torch

        inputs = loaded.processor(images=Pillow.fromarray(image), return_tensors="pt").to(backend.device)
        with _passes(backend):
            outputs = loaded.network(**inputs)
        sizes = torch.tensor([image.shape[:2]])
        result = loaded.processor.post_process_object_detection(outputs, SCORE_THRESHOLD, sizes)[0]
        return _inside({key: result[key].float().cpu().numpy() for key in KEYS}, image)

    def forward(images: list[NDArray[Any]]) -> Outputs:
        return Outputs(boxes=boxes_of(name, [found(image) for image in images], len(images), classes))

    size = sum(weights.numel() for weights in loaded.network.parameters())
    return Model(
        name,
        forward,
        labels=classes.names,
        version=version,
        parameters=size,
        output="boxes",
        # Each image is a pass of its own.
        backend=Backend("torch", backend.device, backend.precision),
    )
