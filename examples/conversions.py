"""Export a model to ONNX and quantise it to int8 in two ways, for a comparison under shift.

    python examples/conversions.py lite0 folder:calibration conversions

writes ``net.onnx``, ``dynamic.onnx`` (ranges of activations are measured per batch, all layers) and
``static.onnx`` (ranges from the images of the source), each with its ``.json``. The calibration images
should not be those of the comparison.
"""

import json
import logging
import sys
from pathlib import Path

import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

import sorites
from sorites.core import Model, Source


class Images(CalibrationDataReader):
    """The images of a source, prepared as the model prepares them, one per pass."""

    def __init__(self, model: Model, source: Source, limit: int) -> None:
        samples = list(source)[:limit]
        self._batches = ({"images": model.prepare(s.image.load(), False)[None]} for s in samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch."""
        return next(self._batches, None)


def convert(spec: str, source: str, folder: Path, limit: int = 100) -> list[Path]:
    """Write the three graphs of a model and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    model = sorites.model(spec)
    plain, folded = folder / "net.onnx", folder / "folded.onnx"
    plain.write_bytes(model.graph().data)
    logging.disable(
        logging.WARNING
    )  # the graph takes 8-bit images, and the quantiser says that it leaves them
    quant_pre_process(plain, folded)  # folds batch normalisation into convolutions
    dynamic, static = folder / "dynamic.onnx", folder / "static.onnx"
    quantize_dynamic(folded, dynamic, weight_type=QuantType.QUInt8)
    images = Images(model, sorites.source(source), limit)
    quantize_static(folded, static, images, QuantFormat.QDQ, per_channel=True)
    folded.unlink()
    settings = {key: model.input[key] for key in ("crop_pct", "filter", "mode")}
    for path in (plain, dynamic, static):
        Path(f"{path}.json").write_text(json.dumps({**settings, "labels": model.labels}))
    return [plain, dynamic, static]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/conversions.py MODEL SOURCE FOLDER")
    for written in convert(*sys.argv[1:3], Path(sys.argv[3])):
        print(f"{written} {written.stat().st_size / 1e6:.1f} MB")
