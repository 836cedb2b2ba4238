"""Models of transformers give the pixel values, logits and boxes of transformers' own pipelines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.models import hugging_face

import sorites
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError

IMAGES = [
    np.random.default_rng(i).integers(0, 256, size, np.uint8)
    for i, size in enumerate([(50, 70, 3), (224, 224, 3)])
]


@pytest.mark.slow
def test_pixel_values_and_logits_equal_those_of_the_pipeline(tmp_path: Path) -> None:
    folder = hugging_face.classifier(tmp_path / "vit")
    model = sorites.model(f"hf:{folder}")
    pipeline = hugging_face.library().pipeline("image-classification", model=str(folder))
    for image in IMAGES:
        inputs = pipeline.preprocess(Image.fromarray(image))
        pixels = model.prepare(image, False)
        assert np.array_equal(inputs["pixel_values"][0].numpy(), pixels)
        with one_thread():
            expected = pipeline.forward(inputs)["logits"].numpy()
            outputs = model([image])
        assert outputs.logits is not None
        assert np.array_equal(outputs.logits, expected)
        # Features and head give the same logits.
        assert outputs.features is not None
        assert model.head is not None
        assert np.allclose(outputs.features @ model.head[0].T + model.head[1], expected, atol=1e-5)
    assert model.labels == hugging_face.NAMES
    assert model.prepare(IMAGES[1], True).shape == (3, 32, 32)

    run = sorites.run(
        "demo",
        models=[f"hf:{folder}"],
        source=_photos(tmp_path / "photos"),
        labels=list(hugging_face.NAMES),
        shifts=["defocus_disk"],
        scorers=["energy"],
        out=tmp_path / "run",
    )
    assert run.table.collect()["error"].is_null().all()


def _photos(folder: Path) -> str:
    for name in hugging_face.NAMES:
        (folder / name).mkdir(parents=True)
        Image.fromarray(IMAGES[0]).save(folder / name / "0.png")
    return f"folder:{folder}"


@pytest.mark.slow
def test_boxes_equal_those_of_the_pipeline(tmp_path: Path) -> None:
    folder = hugging_face.detector(tmp_path / "yolos")
    model = sorites.model(f"hf:{folder}")
    pipeline = hugging_face.library().pipeline("object-detection", model=str(folder))
    with one_thread():
        expected = pipeline(Image.fromarray(IMAGES[0]), threshold=0.001)
        found = (model([IMAGES[0]]).boxes or [()])[0]
    assert model.output == "boxes"
    assert 0 < len(found) <= len(expected) == 5
    assert [box.conf for box in found] == sorted((box.conf for box in found), reverse=True)
    keyed = {round(row["score"], 6): row for row in expected}
    for box in found:
        row = keyed[round(box.conf or 0, 6)]
        assert hugging_face.NAMES[box.label] == row["label"]
        corners = [row["box"][key] for key in ("xmin", "ymin", "xmax", "ymax")]
        # The pipeline cuts off decimals and does not clip at the edges of the image.
        limits = (70, 50, 70, 50)
        assert all(
            abs(ours - min(max(theirs, 0), limit)) <= 1
            for ours, theirs, limit in zip(box.xyxy, corners, limits, strict=True)
        )


@pytest.mark.slow
def test_pickles_code_and_other_tasks_are_refused(tmp_path: Path) -> None:
    import torch

    folder = hugging_face.classifier(tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text())
    weights = folder / "model.safetensors"

    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["ViTModel"]}))
    with pytest.raises(SoritesError, match="image classification or object detection"):
        sorites.model(f"hf:{folder}")

    # A folder that brings its own code for a type of model that transformers does not know.
    own = {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config"}}
    (folder / "config.json").write_text(json.dumps({**config, **own}))
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(SoritesError):
        sorites.model(f"hf:{folder}")
    assert not (tmp_path / "ran").exists()

    (folder / "config.json").write_text(json.dumps(config))
    torch.save({}, folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(SoritesError, match="safetensors"):
        sorites.model(f"hf:{folder}")


def test_a_name_without_a_revision_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sorites.models.adapters import hf

    monkeypatch.setattr(hf, "hub", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(SoritesError, match="@main"):
        hf._load(None, "google/vit-base-patch16-224")
    with pytest.raises(SoritesError, match="config"):
        hf._load(None, str(tmp_path))
