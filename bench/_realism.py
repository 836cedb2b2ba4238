"""How the simulated camera follows the paper: lite0 on a folder of labelled photographs against
EfficientNet-B0's table.

Needs photographs that cannot be shipped: name their folder in ``SORITES_PHOTOS`` (class folders, or
WordNet ids in the names).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import pearsonr, spearmanr

from sorites import core
from sorites.core import camera_grid, to_float, to_uint8
from sorites.core.rng import rng_for
from sorites.suites.suite import Frame

TABLES = Path(__file__).parent.parent / "tests" / "metrics"
NUMBER = 10
"""The paper's table of EfficientNet-B0."""
CLEAN = 88.2
"""Its accuracy in % on the references themselves."""

Row = tuple[str, float, str]


def shares(photos: str) -> tuple[float, dict[str, np.ndarray]]:
    """Accuracy of lite0 on the clean images, and by light at the 27 settings and then the
    automatic shots together.
    """
    lite, shift, frame = core.model("lite0"), core.shift("camera"), Frame(resize=256, crop=224)
    settings = {
        light: [*camera_grid.manual("test", light), *camera_grid.auto(light)] for light in camera_grid.LIGHTS
    }
    right: dict[str, list[list[bool]]] = {light: [] for light in settings}
    clean = []
    for sample in core.source(f"folder:{photos}"):
        image_u8 = frame(sample.load())
        clean.append(_right(lite, [image_u8], sample.label)[0])
        for light, stops in settings.items():
            made = shift.sweep(to_float(image_u8), stops, rng_for(0, sample.id, shift.name))
            right[light].append(_right(lite, [to_uint8(image) for image in made], sample.label))
    means = {light: np.mean(verdicts, axis=0) for light, verdicts in right.items()}
    return float(np.mean(clean)), {
        light: np.append(mean[:27], mean[27:].mean()) for light, mean in means.items()
    }


def _right(lite: core.Model, images: list[core.ImageU8], label: int | None) -> list[bool]:
    said = []
    for start in range(0, len(images), 8):
        logits = lite(images[start : start + 8], framed=True).logits
        assert logits is not None
        said += logits.argmax(1).tolist()
    return [one == label for one in said]


def rows(photos: str) -> list[Row]:
    clean, found = shares(photos)
    of_model = pl.col("table") == NUMBER
    settings = pl.read_csv(TABLES / "imagenet_es_tables.tsv", separator="\t").filter(of_model).sort("number")
    cells = pl.read_csv(TABLES / "imagenet_es_cells.tsv", separator="\t").filter(
        of_model, pl.col("what") == "auto"
    )
    made: list[Row] = []
    for light, mine in found.items():
        theirs, auto = settings[light].to_numpy(), cells.filter(pl.col("light") == light)["value"].item()
        apart = 100 * np.abs(mine[:27] / clean - theirs / CLEAN)
        made += [
            (
                f"realism, lamp {light}: Pearson with table {NUMBER}",
                pearsonr(mine[:27], theirs)[0],
                "aim 0.97",
            ),
            (f"realism, lamp {light}: Spearman", spearmanr(mine[:27], theirs)[0], "aim 0.93"),
            (
                f"realism, lamp {light}: mean difference relative to clean",
                apart.mean(),
                "points, aim under 6",
            ),
            (
                f"realism, lamp {light}: automatic less published",
                100 * (mine[27] / clean - auto / CLEAN),
                "points, aim within 6",
            ),
        ]
    return made
