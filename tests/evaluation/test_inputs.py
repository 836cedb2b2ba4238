from __future__ import annotations

from pathlib import Path

import polars as pl

from sorites.evaluation import plan as plans
from sorites.evaluation.estimate import input_words, note_unlabelled
from sorites.models.preprocess import Input
from sorites.suites.suite import parse


def test_an_input_is_said_as_it_is_prepared() -> None:
    told = Input(size=(224, 224), crop_pct=0.875).described
    assert input_words(told) == (
        "224 x 224 px: the shorter side scaled to 256 and the centre cropped (bicubic); "
        "mean 0.485 0.456 0.406, std 0.229 0.224 0.225"
    )
    squashed = Input(size=(240, 320), crop_pct=1.0, mode="squash", filter="bilinear").described
    assert input_words(squashed).startswith(
        "320 x 240 px: both sides scaled to 240 and 320 and the centre cropped (bilinear)"
    )
    assert input_words(told, framed=True).startswith("224 x 224 px: the frame scaled (bicubic)")
    assert input_words({}) == "images as they are; its preprocessing is unknown"


def test_a_source_without_labels_is_told(photos: Path, tmp_path: Path) -> None:
    suite = {"name": "s", "shifts": ["jpeg"], "source": f"folder:{photos}", "models": []}
    assert note_unlabelled(plans.make(parse(suite, "test"))) == ""
    frame = pl.DataFrame({"img": [next(photos.rglob("*.png")).read_bytes()], "y": [3]})
    frame.write_parquet(tmp_path / "p.parquet")
    unlabelled = plans.make(parse({**suite, "source": f"parquet:{tmp_path / 'p.parquet'}"}, "test"))
    assert note_unlabelled(unlabelled).startswith(f"no image of parquet:{tmp_path / 'p.parquet'} has a label")
