"""OpenVINO against ONNX Runtime; ``test_openvino`` runs this file in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.models.test_onnx import build

import sorites
from sorites.core.errors import SoritesError

IMAGES = [np.random.default_rng(i).integers(0, 256, (60 + i, 80, 3), np.uint8) for i in range(5)]


@pytest.mark.filterwarnings("ignore")  # those of the library
def test_openvino_gives_the_logits_of_onnx_runtime(tmp_path: Path) -> None:
    library = pytest.importorskip("openvino")
    path = build(tmp_path / "m.onnx")
    Path(f"{path}.json").write_text(json.dumps({"crop_pct": 1.0}))
    expected = sorites.model(f"onnx:{path}")(IMAGES).logits
    assert expected is not None
    library.save_model(library.Core().read_model(str(path)), str(tmp_path / "m.xml"), compress_to_fp16=False)
    (tmp_path / "m.xml.json").write_text(json.dumps({"crop_pct": 1.0}))
    for file in (path, tmp_path / "m.xml"):
        model = sorites.model(f"openvino:{file}")
        logits = model(IMAGES).logits
        assert logits is not None
        assert np.allclose(logits, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert model.backend.library == "openvino"
    (tmp_path / "bad.xml").write_text("<net/>")
    with pytest.raises(SoritesError, match="OpenVINO can run"):
        sorites.model(f"openvino:{tmp_path / 'bad.xml'}")
