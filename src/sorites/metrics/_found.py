"""Tell which things of a picture a detector finds: by COCO's matching at IoU .5, in the right class."""

from __future__ import annotations

import numpy as np
import polars as pl

from sorites.metrics._coco import AREAS
from sorites.metrics._matching import TAKEN, best, match
from sorites.metrics._scenes import scene

FINDS = 0.5
"""A box finds a thing from this overlap on."""

SIZES = ("small", "medium", "large")
VERDICTS = {"row": pl.Int64, "thing": pl.Int64, "class": pl.Int32, "size": pl.String, "correct": pl.Boolean}


def found_things(rows: pl.DataFrame, conf: float = 0.0) -> pl.DataFrame:
    """Return a row per thing of each judged picture: the place of its row, its place in ``truth``, class, size and verdict.

    Only boxes of at least this confidence count. Crowds are no things; a picture with an error, or whose true boxes are not
    known, has no verdicts.
    """
    judged = rows.select("image_id", "error", "truth", "boxes").with_row_index("row").with_columns(sample=0, start=0)
    judged = judged.filter(pl.col("error").is_null() & pl.col("boxes").is_not_null() & pl.col("truth").is_not_null())
    seen = scene(judged, {})
    found = best(seen.found[seen.found.conf >= conf])
    matched = match(found, seen.things, [FINDS], seen.things.crowd[:, None])
    hit = np.zeros(len(seen.things), bool)
    hit[matched.thing[matched.state == TAKEN]] = True
    things, hit = seen.things[~seen.things.crowd], hit[~seen.things.crowd]
    size = np.searchsorted([high for _, high in AREAS[1:3]], things.area, side="left")
    return pl.DataFrame(
        {
            "row": judged["row"].to_numpy()[things.picture],
            "thing": things.place,
            "class": things.label,
            "size": np.array(SIZES)[size],
            "correct": hit,
        },
        schema=VERDICTS,
    )
