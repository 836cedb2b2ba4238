"""Labels in styles on the toy world, in 4 x 4 cells: images measured again must lie where their
prompts were put.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image
from scipy.stats import spearmanr

from proof._lines import Line
from sorites import core
from sorites import run as run_suite
from sorites.apps.generation.styles import Order, Style, draw_styles, pair_prompts
from sorites.core import to_uint8
from sorites.core.labels import open_labels
from sorites.diffusion.pipeline import load
from sorites.diffusion.sampler import TOY_DRAWING
from sorites.diffusion.toy.world import SHAPES, draw
from sorites.evaluation.facts.distance import distance_of_source
from sorites.suites.suite import Distance

STYLES = [
    Style(f"{name} {place}", wording.replace("STYLE", name).replace(" in plain", "").replace(", plain", ""))
    for name in ("plain", "snow", "night")
    for place, wording in enumerate(
        ("a picture of a {label} in STYLE", "{label} in STYLE", "a photo of a {label} in STYLE")
    )
]
IN_DISTRIBUTION = SHAPES[:2]
"""Plain discs and squares are in-distribution: other shapes are far in meaning, snow and night in appearance."""
PER_CELL = 6


def run() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as scratch:
        real, out, rng = Path(scratch) / "real", Path(scratch) / "out", np.random.default_rng(0)
        real.mkdir()
        for place in range(60):
            Image.fromarray(to_uint8(draw(IN_DISTRIBUTION[place % 2], "plain", rng))).save(
                real / f"{place:02d}.png"
            )
        how = Distance(encoder="toy", against=f"folder:{real}", k=5, levels=4)
        order = Order(per_cell=PER_CELL, kind="png", in_distribution=40)
        counts = draw_styles(load("toy"), pair_prompts(SHAPES, STYLES, ()), how, out, TOY_DRAWING, order)
        yield Line("cells with prompts, of 16", float(counts["cells"]), f"{counts['prompts']} prompts")
        yield Line(
            "images over cells x number per cell",
            counts["images"] / (counts["cells"] * PER_CELL),
            least=1,
        )
        yield from _correlated(out, how)
        table = run_suite(
            "is_ood",
            source=f"is_ood:{out}",
            models=["toy:all"],
            only_scorers=["msp"],
            labels=list(SHAPES),
            out=out / "run",
        )
        from sorites.metrics import level_map

        found = level_map(table)
        yield Line("cells of the map of is_ood", float(found.height), least=counts["cells"])


def _correlated(out: Path, how: Distance) -> Iterator[Line]:
    drawn = [one for one in core.source(f"is_ood:{out}", open_labels()) if one.shift == "syn_is"]
    found = distance_of_source(drawn, how).rows
    attrs = pl.DataFrame(
        [{"sample_id": one.id, **{attr.key: int(attr.value) for attr in one.attrs}} for one in drawn]
    )
    both = found.join(attrs, on="sample_id", suffix="_asked")
    for half, level in (("semantic", "sem_level_asked"), ("covariate", "cov_level_asked")):
        yield Line(
            f"rank correlation, {half} axis",
            float(spearmanr(both[half], both[level]).statistic),
            f"n {both.height}",
            0.6,
        )
