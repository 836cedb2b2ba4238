"""Files of TensorFlow Lite, run by LiteRT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.peers import peer

import sorites
from sorites.core.errors import SoritesError, UnknownName

IMAGES = [np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8) for i in range(5)]
SETTINGS = {"mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 1.0, "labels": list("abcde")}


def graphs() -> Any:
    """Return the module that writes files, which needs the library."""
    peer("ai_edge_litert")
    from tests.models import lite_graphs

    return lite_graphs


def file(path: Path, quantised: bool = False) -> Path:
    graphs().build(path, quantised)
    Path(f"{path}.json").write_text(json.dumps(SETTINGS))
    return path


def expected() -> NDArray[np.float64]:
    pixels = (np.stack(IMAGES).astype(np.float64) / 255 - 0.5) / 0.25
    logits: NDArray[np.float64] = pixels.reshape(len(IMAGES), -1) @ graphs().weights().T.astype(float)
    return logits


def test_a_file_of_keras_is_answered_with_its_exports() -> None:
    with pytest.raises(UnknownName, match=r"onnx:nets/net\.onnx"):
        sorites.model("nets/net.keras")


@pytest.mark.slow
@pytest.mark.parametrize(("quantised", "tolerance"), [(False, 1e-5), (True, 0.15)])
def test_logits_are_those_of_the_layer(tmp_path: Path, quantised: bool, tolerance: float) -> None:
    model = sorites.model(f"tflite:{file(tmp_path / 'm.tflite', quantised)}")
    logits = model(IMAGES).logits
    assert logits is not None
    assert np.abs(logits - expected()).max() < tolerance
    assert np.array_equal(logits.argmax(1), expected().argmax(1))
    assert (model.labels, model.backend.library) == (tuple("abcde"), "litert")
    assert np.allclose(model(IMAGES[:2]).logits, logits[:2], atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_library_prints_nothing_to_stdout_and_bad_files_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path / "m.tflite")
    first = sorites.model(f"tflite:{path}").version
    assert capfd.readouterr().out == ""
    Path(f"{path}.json").write_text(json.dumps({**SETTINGS, "crop_pct": 0.9}))
    assert sorites.model(f"tflite:{path}").version != first
    path.write_bytes(b"text")
    with pytest.raises(SoritesError, match="LiteRT can run"):
        sorites.model(f"tflite:{path}")
    with pytest.raises(SoritesError, match="Use tflite:PATH"):
        sorites.model(f"tflite:{tmp_path / 'nowhere.tflite'}")
