"""Use any ONNX detector: ``boxes:PATH[?key=value&...]``.

What the graph gives is told by its metadata (Ultralytics'), by the shapes of its outputs, or by a
JSON file beside it called ``PATH.json``; options after the ``?`` have the same keys and go first.
The layouts and keys stand in docs/models.md. What was understood is said once, on stderr. Every
image is a call of its own, so that boxes do not depend on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, ImageU8, Model, Outputs, add_model
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.models import onnx as _ends
from sorites.models import session as _session
from sorites.models.detectors.config import BoxConfig, Classes, Placement, classes_of, gathered, placed
from sorites.models.detectors.layouts import EXTRA, LAYOUTS, Found, Graph, Layout
from sorites.models.detectors.results import refusal, say, settled, understood
from sorites.models.onnx import opened, version_of

# The version of how graphs are fed and read; raise it when boxes change.
VERSION = 1
# The input of a graph that leaves its size open and does not say another.
SIZE = (640, 640)
# The image on which a graph shows the shapes of its outputs.
GREY: ImageU8 = np.full((96, 128, 3), 128, np.uint8)


@add_model
def boxes(argument: str | None) -> Model:
    """Run an ONNX detector (boxes:PATH): YOLO, DETR, mmdeploy, Paddle and others; it says how it
    read the graph.
    """
    path, options = _split(argument)
    return detector(path, f"boxes:{argument}", options)


def detector(path: Path, name: str, options: dict[str, Any], note: str = "") -> Model:
    """Return the model of a detector in a file; ``options`` go before its metadata and the file beside it."""
    session = opened(path)
    said = gathered(path, session.get_modelmeta().custom_metadata_map, options)
    read = _read(path, session, said)
    _refuse_size(path, read, gathered(path, {}, options))
    say(understood(name, read.layout, read.config, read.classes, read.ends, read.size, read.shapes) + note)

    def forward(images: list[NDArray[Any]]) -> Outputs:
        return Outputs(boxes=_session.each(read.boxes, images))

    version = digest(VERSION, version_of(path), sorted(options.items())).hex()
    spare = read.classes.names is None and read.found.classes is not None
    return Model(name, forward, labels=read.classes.names, version=version, output="boxes", background=spare)


@dataclass(frozen=True)
class _Detector:
    """An open graph and all that is needed to feed and to read it."""

    session: Any
    images: str
    ends: _ends.GraphInput
    flat: bool
    """Its input has no axis for a batch."""
    size: tuple[int, int]
    layout: Layout
    found: Found
    config: BoxConfig
    classes: Classes
    shapes: dict[str, tuple[int, ...]]

    def boxes(self, image: ImageU8) -> tuple[Box, ...]:
        """Return the boxes of one image."""
        inside, placement = placed(
            image, self.size, self.config.fit, self.config.fill, self.config.filter, self.config.antialias
        )
        given = self.run(inside, placement)
        arrays = {role: given[output] for role, output in self.found.roles.items()}
        return settled(
            self.layout.decode(arrays, self.found, self.size), self.config, self.classes, placement, self.size
        )

    def run(self, inside: ImageU8, placement: Placement) -> dict[str, NDArray[Any]]:
        """Return the outputs for an image that has the size of the input, by name; a batch that
        the graph fixes is filled up.
        """
        colours = inside[..., ::-1] if self.config.channels == "bgr" else inside
        batch = self.ends.shaped(np.repeat(colours[None], self.ends.batch or 1, axis=0), self.config)
        feed: dict[str, NDArray[Any]] = {self.images: batch[0] if self.flat else batch}
        for node in self.session.get_inputs():
            if node.name != self.images:
                feed[node.name] = _extra(node, placement, self.size)
        names = [node.name for node in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, feed), strict=True))


def _split(argument: str | None) -> tuple[Path, dict[str, Any]]:
    text, _, query = (argument or "").partition("?")
    if not text or not Path(text).is_file():
        raise SoritesError(f"model boxes: wanted a file, got {text or 'nothing'}. Type: boxes:PATH.onnx")
    options: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise SoritesError(f"model boxes: wanted options as PATH?key=value&key=value, got {part!r}")
        if key not in BoxConfig.model_fields:
            raise UnknownName(
                "option of boxes", key, BoxConfig.model_fields, f"It has {', '.join(BoxConfig.model_fields)}."
            )
        options[key] = value
    return Path(text), options


def _read(path: Path, session: Any, said: dict[str, Any]) -> _Detector:
    """Return a graph with all that its metadata, its shapes and the user say of it."""
    config = BoxConfig.read(said, str(path))
    node = _image_node(session, path)
    flat = len(node.shape) == 3
    ends = _ends.read_images([1, *node.shape] if flat else node.shape, node.type, config.axes, path)
    size = ends.size or config.size or SIZE
    classes = classes_of(config.labels, str(path))
    seen = _Detector(session, node.name, ends, flat, size, LAYOUTS["v8"], Found({}), config, classes, {})
    outputs = _tried(seen, path)
    names = None if classes.names is None else len(classes.names)
    inputs = frozenset(node.name for node in session.get_inputs())
    layout, found = _layout(Graph(outputs, size, inputs, names, config.layout is not None), config, path)
    whole = BoxConfig.read({**layout.defaults, **found.defaults, **said}, str(path))
    found = Found(
        found.roles,
        found.classes,
        {},
        whole.scores or found.scores,
        found.decoded if whole.decoded is None else whole.decoded,
    )
    if whole.labels is None and found.classes in (80, 90, 91):
        whole = whole.model_copy(update={"labels": {80: "coco", 90: "coco90", 91: "coco91"}[found.classes]})
    shapes = {output: outputs[output].shape for output in found.roles.values()}
    return _Detector(
        session,
        node.name,
        ends,
        flat,
        size,
        layout,
        found,
        whole,
        classes_of(whole.labels, str(path)),
        shapes,
    )


def _refuse_size(path: Path, read: _Detector, asked: dict[str, Any]) -> None:
    """Refuse a size that the user asks of a graph that has another and cannot change it."""
    wanted = BoxConfig.read({"size": asked["size"]}, str(path)).size if "size" in asked else None
    if wanted not in (None, read.size):
        ours, theirs = (" x ".join(map(str, size)) for size in (read.size, wanted or ()))
        raise SoritesError(
            f"{path}: its input is {ours} px and cannot be another; wanted size {theirs}. Leave size out."
        )


def _image_node(session: Any, path: Path) -> Any:
    nodes = session.get_inputs()
    images = [node for node in nodes if node.name not in EXTRA and len(node.shape) in (3, 4)]
    others = [node.name for node in nodes if node.name not in EXTRA and node not in images[:1]]
    if len(images) != 1 or others:
        came = ", ".join(f"{node.name} {node.shape}" for node in nodes)
        raise SoritesError(
            f"{path}: wanted one input for images and beside it {', '.join(sorted(EXTRA))} at most, got"
            f" {came}"
        )
    return images[0]


def _extra(node: Any, placement: Placement, size: tuple[int, int]) -> NDArray[Any]:
    """Return the value of an input beside the image: Paddle's scale factors and input size, the
    size of the image.
    """
    height, width = placement.image
    whole = node.type in ("tensor(int64)", "tensor(int32)")
    dtype = np.int32 if node.type == "tensor(int32)" else np.int64 if whole else np.float32
    if node.name == "pixel_mask":
        shape = [
            side if isinstance(side, int) else free for side, free in zip(node.shape, (1, *size), strict=True)
        ]
        return np.ones(shape, dtype)
    value = {
        "scale_factor": (placement.down, placement.across),
        "im_shape": size,
        "orig_target_sizes": (width, height),
    }[node.name]
    return np.array([value], dtype)


def _tried(seen: _Detector, path: Path) -> dict[str, NDArray[Any]]:
    """Return the outputs of a grey image, so that a graph that cannot run says so before any work
    is done.
    """
    try:
        return seen.run(*placed(GREY, seen.size, "squash", 0, "bilinear", False))
    except Exception as error:  # ONNX Runtime has many exceptions for this
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"model boxes:{path} does not run on images of {seen.size}: {reason}") from error


def _layout(graph: Graph, config: BoxConfig, path: Path) -> tuple[Layout, Found]:
    if config.layout is not None and config.layout not in LAYOUTS:
        raise UnknownName("layout of boxes", config.layout, LAYOUTS, f"There are {', '.join(LAYOUTS)}.")
    for layout in LAYOUTS.values() if config.layout is None else (LAYOUTS[config.layout],):
        found = layout.find(graph)
        if found is not None:
            return layout, found
    raise SoritesError(refusal(path, graph, config, LAYOUTS))
