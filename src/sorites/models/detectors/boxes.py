"""Use any ONNX detector: ``boxes:PATH[?key=value&...]``.

The output layout is determined from the metadata of the graph (as written by Ultralytics), from the
shapes of its outputs, or from a JSON file ``PATH.json``; options after the ``?`` have the same keys and
take precedence. docs/models.md lists the layouts and keys. The result is printed once to stderr. Images
are run one by one, so that boxes do not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageU8, Model, Outputs, add_model
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.models import onnx as _ends
from sorites.models import session as _session
from sorites.models.detectors.config import BoxConfig, Classes, Placement, classes_of, gathered, placed
from sorites.models.detectors.layouts import EXTRA, LAYOUTS, Candidates, Graph, Layout, LayoutMatch
from sorites.models.detectors.results import (
    Found,
    input_text,
    of_each,
    refusal,
    say,
    settled,
    undeclared,
    understood,
)
from sorites.models.onnx import opened, version_of

# The version of preprocessing and decoding; increase it when boxes change.
VERSION = 1
# The default input size.
SIZE = (640, 640)
# The image used to determine the shapes of outputs.
GREY: ImageU8 = np.full((96, 128, 3), 128, np.uint8)


@add_model
def boxes(argument: str | None) -> Model:
    """Run an ONNX detector (boxes:PATH): YOLO, DETR, mmdeploy, Paddle and others."""
    path, options = _split(argument)
    return detector(path, f"boxes:{argument}", options)


def detector(
    path: Path, name: str, options: dict[str, Any], note: str = "", known: Collection[str] = ()
) -> Model:
    """Return the model of a detector file.

    Args:
        path: The ONNX file.
        name: The name of the model.
        options: Settings that override the metadata and the JSON file.
        note: Text to append to the printed description.
        known: Settings of preprocessing whose defaults are known to be those of the model.
    """
    session = opened(path)
    settings = gathered(path, session.get_modelmeta().custom_metadata_map, options)
    graph = _read(path, session, settings)
    _refuse_size(path, graph, gathered(path, {}, options))
    declared = {*settings, *known}
    say(
        understood(name, graph.layout, graph.config, graph.classes, graph.size, graph.shapes, declared) + note
    )

    def forward(images: list[NDArray[Any]]) -> Outputs:
        return graph.outputs(_session.each(graph.found, images))

    version = digest(VERSION, version_of(path), sorted(options.items())).hex()
    has_background = graph.classes.names is None and graph.match.classes is not None
    return Model(
        name,
        forward,
        labels=graph.classes.names,
        version=version,
        output="boxes",
        background=has_background,
        input=_described(graph, declared),
        backend=_session.backend(session, batch_matters=False),
    )


def _described(graph: _Detector, declared: Collection[str]) -> dict[str, Any]:
    """Return the description of the preprocessing, with the settings that nobody declared."""
    missing = undeclared(declared)
    return {"words": input_text(graph.config, graph.size), **({"assumed": missing} if missing else {})}


@dataclass(frozen=True)
class _Detector:
    """An open graph and everything needed to run it and decode its outputs."""

    session: Any
    images: str
    ends: _ends.GraphInput
    flat: bool
    """True if the input has no batch axis."""
    size: tuple[int, int]
    layout: Layout
    match: LayoutMatch
    config: BoxConfig
    classes: Classes
    shapes: dict[str, tuple[int, ...]]

    @property
    def independent(self) -> bool:
        """Whether class logits are those of sigmoids."""
        return self.match.scores != "softmax"

    def outputs(self, found: Sequence[Found]) -> Outputs:
        """Return the results of images as outputs."""
        return Outputs(
            boxes=[part.boxes for part in found],
            box_logits=of_each([part.logits for part in found]),
            box_features=of_each([part.features for part in found]),
            independent=self.independent,
        )

    def found(self, image: ImageU8) -> Found:
        """Return the boxes of an image."""
        inside, placement = placed(
            image, self.size, self.config.fit, self.config.fill, self.config.filter, self.config.antialias
        )
        outputs = self.run(inside, placement)
        arrays = {role: outputs[output] for role, output in self.match.roles.items()}
        candidates = self.layout.decode(arrays, self.match, self.size)
        features = None if self.config.features is None else _rows(outputs[self.config.features], candidates)
        return settled(candidates, self.config, self.classes, placement, self.size, features)

    def run(self, inside: ImageU8, placement: Placement) -> dict[str, NDArray[Any]]:
        """Return the outputs by name for an image of the input size; a fixed batch is filled with copies."""
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
        raise SoritesError(f"model boxes: expected a file, got {text or 'nothing'}. Use boxes:PATH.onnx")
    options: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise SoritesError(f"model boxes: expected options as PATH?key=value&key=value, got {part!r}")
        if key not in BoxConfig.model_fields:
            raise UnknownName(
                "option of boxes", key, BoxConfig.model_fields, f"It has {', '.join(BoxConfig.model_fields)}."
            )
        options[key] = value
    return Path(text), options


def _read(path: Path, session: Any, settings: dict[str, Any]) -> _Detector:
    """Determine how to run and decode a graph from its metadata, its shapes and the user's settings."""
    config = BoxConfig.read(settings, str(path))
    node = _image_node(session, path)
    flat = len(node.shape) == 3
    ends = _ends.read_images([1, *node.shape] if flat else node.shape, node.type, config.axes, path)
    size = ends.size or config.size or SIZE
    classes = classes_of(config.labels, str(path))
    trial_detector = _Detector(
        session, node.name, ends, flat, size, LAYOUTS["v8"], LayoutMatch({}), config, classes, {}
    )
    outputs = _run_trial(trial_detector, path)
    if config.features is not None:
        _refuse_features(outputs, config.features, path)
        outputs.pop(config.features)
    names = None if classes.names is None else len(classes.names)
    inputs = frozenset(node.name for node in session.get_inputs())
    layout, match = _layout(Graph(outputs, size, inputs, names, config.layout is not None), config, path)
    complete = BoxConfig.read({**layout.defaults, **match.defaults, **settings}, str(path))
    match = LayoutMatch(
        match.roles,
        match.classes,
        {},
        complete.scores or match.scores,
        match.decoded if complete.decoded is None else complete.decoded,
    )
    if complete.labels is None and match.classes in (80, 90, 91):
        complete = complete.model_copy(
            update={"labels": {80: "coco", 90: "coco90", 91: "coco91"}[match.classes]}
        )
    shapes = {output: outputs[output].shape for output in match.roles.values()}
    return _Detector(
        session,
        node.name,
        ends,
        flat,
        size,
        layout,
        match,
        complete,
        classes_of(complete.labels, str(path)),
        shapes,
    )


def _refuse_features(outputs: Mapping[str, NDArray[Any]], name: str, path: Path) -> None:
    """Raise an error if the graph has no output of features with this name."""
    if name not in outputs:
        raise UnknownName("output", name, outputs, f"{path} has {', '.join(outputs)}.")
    if outputs[name].ndim not in (2, 3, 4):
        raise SoritesError(
            f"{path}: expected features of each candidate (1 x N x D) or a map of features (1 x D x H x W),"
            f" but {name} is {' x '.join(map(str, outputs[name].shape))}"
        )


def _rows(features: NDArray[Any], candidates: Candidates) -> NDArray[Any]:
    """Return features of an image as N x D, one row per candidate, or as a map D x H x W."""
    rows = features[0] if features.ndim > 2 else features
    count = len(candidates.boxes)
    return rows.T if rows.ndim == 2 and len(rows) != count and rows.shape[1] == count else rows


def _refuse_size(path: Path, graph: _Detector, settings: dict[str, Any]) -> None:
    """Raise an error if the user sets a size that differs from the fixed size of the graph."""
    size = BoxConfig.read({"size": settings["size"]}, str(path)).size if "size" in settings else None
    if size not in (None, graph.size):
        fixed, requested = (" x ".join(map(str, shape)) for shape in (graph.size, size or ()))
        raise SoritesError(
            f"{path}: its input is fixed at {fixed} px, but size is {requested}. Remove the option size."
        )


def _image_node(session: Any, path: Path) -> Any:
    nodes = session.get_inputs()
    images = [node for node in nodes if node.name not in EXTRA and len(node.shape) in (3, 4)]
    others = [node.name for node in nodes if node.name not in EXTRA and node not in images[:1]]
    if len(images) != 1 or others:
        actual = ", ".join(f"{node.name} {node.shape}" for node in nodes)
        raise SoritesError(
            f"{path}: expected one image input and optionally {', '.join(sorted(EXTRA))}, got {actual}"
        )
    return images[0]


def _extra(node: Any, placement: Placement, size: tuple[int, int]) -> NDArray[Any]:
    """Return the value of an additional input, such as Paddle's scale factors or the image size."""
    height, width = placement.image
    integer = node.type in ("tensor(int64)", "tensor(int32)")
    dtype = np.int32 if node.type == "tensor(int32)" else np.int64 if integer else np.float32
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


def _run_trial(trial_detector: _Detector, path: Path) -> dict[str, NDArray[Any]]:
    """Return the outputs for a grey image, so that a broken graph fails before the run starts."""
    try:
        return trial_detector.run(*placed(GREY, trial_detector.size, "squash", 0, "bilinear", False))
    except Exception as error:  # ONNX Runtime raises many kinds of errors
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(
            f"model boxes:{path} does not run on images of {trial_detector.size}: {reason}"
        ) from error


def _layout(graph: Graph, config: BoxConfig, path: Path) -> tuple[Layout, LayoutMatch]:
    if config.layout is not None and config.layout not in LAYOUTS:
        raise UnknownName("layout of boxes", config.layout, LAYOUTS, f"There are {', '.join(LAYOUTS)}.")
    for layout in LAYOUTS.values() if config.layout is None else (LAYOUTS[config.layout],):
        match = layout.find(graph)
        if match is not None:
            return layout, match
    raise SoritesError(refusal(path, graph, config, LAYOUTS))
