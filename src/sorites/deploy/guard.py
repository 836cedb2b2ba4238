"""Score images and raise alarms with the files that ``sorites guard`` wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sorites.core.errors import BadImage, SoritesError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image as Pillow

    from sorites.deploy.record import Frame, GuardRecord, Preparation

    ImageInput = str | Path | bytes | NDArray[np.uint8] | Pillow.Image

# Names of the outputs of the graph.
SCORE, LOGITS, FEATURES = "guard_score", "guard_logits", "guard_features"


@dataclass(frozen=True)
class Verdict:
    """What the guard says about an image.

    Attributes:
        score: The OOD score; higher is more OOD.
        alarm: Whether the score is above the threshold, or is not a number.
        label: The predicted class id.
        confidence: Its probability.
        set: Class ids of the prediction set, most probable first; None if the guard has no sets.
    """

    score: float
    alarm: bool
    label: str
    confidence: float
    set: tuple[str, ...] | None


@dataclass(frozen=True)
class Scores:
    """Raw outputs for N images: scores, logits, and features if the graph gives them."""

    scores: NDArray[np.float64]
    logits: NDArray[np.float32]
    features: NDArray[np.float32] | None


class Guard:
    """A model with its scorer and threshold.

    Args:
        path: ``guard.json``, or its folder; ``guard.onnx`` must be beside it.
        threads: Threads of ONNX Runtime. With 1, as in the run, scores do not depend on the machine's cores.

    Raises:
        Damaged: A file is missing or was changed.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        from sorites.deploy.record import GRAPH, NAME, read, read_bytes  # takes half of the import

        self.path = Path(path) / NAME if Path(path).is_dir() else Path(path)
        self.record: GuardRecord = read(self.path)
        graph = read_bytes(self.path.parent / GRAPH, self.record.files.get(GRAPH))
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._inputs = [given.name for given in self._session.get_inputs()]

    def __call__(self, image: ImageInput) -> Verdict:
        """Judge one image: a path, the bytes of a file, an 8-bit array H x W x 3, or a Pillow image."""
        return self.judge([image])[0]

    def judge(self, images: Sequence[ImageInput]) -> list[Verdict]:
        """Judge several images."""
        return self.verdicts(self.score(images))

    def score(self, images: Sequence[ImageInput]) -> Scores:
        """Return the raw outputs for images.

        Raises:
            BadImage: An image cannot be read.
            SoritesError: The guard starts at the outputs of its model and takes no images.
        """
        how = self.record.preparation
        if how is None:
            raise SoritesError(
                f"{self.path}: the model {self.record.model} has no ONNX graph, so the guard takes its"
                " outputs: guard.score_outputs(logits, features)"
            )
        batch = shaped(np.stack([prepared(image, how) for image in images]), how)
        size = how.batch or len(batch)
        padded = np.concatenate([batch, np.repeat(batch[-1:], -len(batch) % size, axis=0)])
        parts = [self._run({self._inputs[0]: padded[i : i + size]}) for i in range(0, len(padded), size)]
        return Scores(
            np.concatenate([part.scores for part in parts])[: len(batch)],
            np.concatenate([part.logits for part in parts])[: len(batch)],
            None
            if parts[0].features is None
            else np.concatenate([part.features for part in parts if part.features is not None])[: len(batch)],
        )

    def score_outputs(self, logits: NDArray[Any], features: NDArray[Any] | None = None) -> Scores:
        """Score the outputs of a model that has no ONNX graph: logits N x C, and features N x D if needed."""
        given = {"logits": np.asarray(logits, np.float32)}
        if features is not None:
            given["features"] = np.asarray(features, np.float32)
        if missing := [name for name in self._inputs if name not in given]:
            raise SoritesError(f"{self.path}: expected {', '.join(missing)} of the model, got none")
        return self._run({name: given[name] for name in self._inputs})

    def _run(self, feed: dict[str, NDArray[Any]]) -> Scores:
        values = dict(zip(self._outputs, self._session.run(self._outputs, feed), strict=True))
        return Scores(values[SCORE], values[LOGITS], values.get(FEATURES))

    def verdicts(self, scores: Scores) -> list[Verdict]:
        """Compare scores with the threshold."""
        record = self.record
        logits = scores.logits.astype(np.float64)
        likely = np.exp(logits - logits.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        return [
            Verdict(
                float(score),
                bool(not score <= record.threshold),
                record.classes[int(row.argmax())],
                float(row.max()),
                self._set(row),
            )
            for score, row in zip(scores.scores, likely, strict=True)
        ]

    def _set(self, likely: NDArray[np.float64]) -> tuple[str, ...] | None:
        if self.record.set_threshold is None:
            return None
        order = np.argsort(-likely, kind="stable")
        return tuple(self.record.classes[i] for i in order if likely[i] >= self.record.set_threshold)


def prepared(image: ImageInput, how: Preparation) -> NDArray[np.uint8]:
    """Return an image at the size of the model's input, exactly as the run prepared it.

    Raises:
        BadImage: It cannot be read.
    """
    from sorites.io.resizing import fit  # Pillow takes half of the time of the import

    pixels = _pixels(image)
    if how.frame is not None:
        pixels = _framed(pixels, how.frame)
    return fit(pixels, how.frame is not None, how.size, how.crop_pct, how.filter, how.mode)  # type: ignore[arg-type]


def _framed(pixels: NDArray[np.uint8], how: Frame) -> NDArray[np.uint8]:
    from sorites.io.resizing import frame

    return frame(pixels, how.resize, how.crop, how.filter)  # type: ignore[arg-type]


def _pixels(image: ImageInput) -> NDArray[np.uint8]:
    if isinstance(image, (str, Path, bytes)):
        # Pillow's readers take half of the time of the import, and arrays need none.
        from sorites.io.decode import decode

        return decode(image)
    pixels = np.asarray(image if isinstance(image, np.ndarray) else image.convert("RGB"))
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise BadImage(f"expected an 8-bit array H x W x 3, got {pixels.dtype} {pixels.shape}")
    return pixels


def shaped(images: NDArray[np.uint8], how: Preparation) -> NDArray[Any]:
    """Convert 8-bit images N x H x W x 3 to the input of the graph."""
    batch: NDArray[Any] = images
    if how.dtype != "uint8":
        mean, std = (np.float32(np.multiply(part, 255.0)) for part in (how.mean, how.std))
        batch = ((images - mean) / std).astype(how.dtype)
    return np.ascontiguousarray(batch.transpose(0, 3, 1, 2)) if how.layout == "NCHW" else batch
