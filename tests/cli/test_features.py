from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import Command

SUITE = """about = "small"
source = "folder:{photos}"
models = ["python:seen:one", "python:seen:two"]
shifts = ["jpeg"]
limit = 12
[frame]
resize = 32
"""
MODELS = """import numpy as np
from sorites.core import Outputs
def _made(images, step):
    means = np.stack([np.resize(p[::step, ::step].reshape(-1), 24) for p in images]).astype(np.float32) / 255
    return Outputs(np.pad(means * 9, ((0, 0), (0, 976))), means)
def one(images):
    return _made(images, 4)
def two(images):
    return _made(images, 7)
"""


@pytest.mark.slow
def test_features_prints_the_cluster_numbers_and_sheet_draws(
    command: Command, home: Path, photos: Path
) -> None:
    (home / "seen.py").write_text(MODELS)
    (home / "f.toml").write_text(SUITE.format(photos=photos))
    assert command("run", "f.toml", "--keep-features", "--out", "kept", "--workers", "1")[0] == 0
    code, out, err = command("features", "kept", "--format", "csv")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(
        "model,shift,what,light,severity,iso,shutter,aperture,number,value,n,low,high,classes"
    )
    assert sum("silhouette" in line for line in out.splitlines()) == 2 * 6
    assert command("features", "kept", "--distance", "euclidean")[0] == 0
    code, out, err = command("sheet", "kept", "--out", "s.png")
    assert (code, out, err) == (0, "wrote s.png\n", "")
    with Image.open(home / "s.png") as drawn:
        assert drawn.width > 6 * 140
        assert drawn.height > 2 * 140
    code, _, err = command("sheet", "kept", "--sample", "none")
    assert code == 2
    assert "no sample named 'none'" in err
    code, _, err = command("sheet", "kept", "--out", "s.gif")
    assert code == 2
    assert "got s.gif" in err
