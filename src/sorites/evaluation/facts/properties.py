"""Properties of the clean images of a run (brightness, sharpness and others), stored as facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, ImageU8
from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.table import RunLike, read, run_folder, write_facts
from sorites.evaluation.images import captured_shot
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.run import Run

NAME = "properties"
# Weights of red, green and blue in the luma of an image (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114])
Plane = NDArray[np.float64]


def luma(image: ImageU8) -> Plane:
    """Return the luma of an image, from 0 to 1."""
    return np.asarray(image.astype(np.float64) @ LUMA / 255)


def brightness(image: ImageU8) -> float:
    """Return the mean luma, from 0 to 1."""
    return float(luma(image).mean())


def contrast(image: ImageU8) -> float:
    """Return the standard deviation of the luma (RMS contrast)."""
    return float(luma(image).std())


def sharpness(image: ImageU8) -> float:
    """Return the standard deviation of the Laplacian of the luma; blurred images have little."""
    plane = luma(image)
    if min(plane.shape) < 3:
        return 0.0
    inner = plane[1:-1, 1:-1]
    around = plane[:-2, 1:-1] + plane[2:, 1:-1] + plane[1:-1, :-2] + plane[1:-1, 2:]
    return float((around - 4 * inner).std())


def colourfulness(image: ImageU8) -> float:
    """Return the colourfulness of Hasler & Süsstrunk (2003): 0 for grey images, about 100 for vivid ones."""
    red, green, blue = np.moveaxis(image.astype(np.float64), -1, 0)
    opponents = (red - green, (red + green) / 2 - blue)
    spread = np.hypot(*(plane.std() for plane in opponents))
    centre = np.hypot(*(plane.mean() for plane in opponents))
    return float(spread + 0.3 * centre)


def size(image: ImageU8) -> float:
    """Return the square root of the number of pixels."""
    return float(np.sqrt(image.shape[0] * image.shape[1]))


PROPERTIES: Mapping[str, Callable[[ImageU8], float]] = {
    "brightness": brightness,
    "contrast": contrast,
    "sharpness": sharpness,
    "colourfulness": colourfulness,
    "size": size,
}


def measure_properties(run: str | Path | RunLike, bar: Bar | None = None) -> Path:
    """Measure the clean images of a run and store the values in the table's column ``degrees``.

    Images are read from the source of the run; those that were measured before are not read again.

    Returns:
        The file of facts.

    Raises:
        SoritesError: The run has no clean images, or none can be read.
    """
    folder = run_folder(run)
    known = _known(folder)
    missing = known.filter(~pl.col("measured"))
    values = {row["image_id"]: row["degrees"] for row in known.filter("measured").to_dicts()}
    if missing.height:
        values |= _measured(run.plan if isinstance(run, Run) else plan_of(folder), missing, bar)
    if not values:
        raise SoritesError(f"No clean image of {folder} could be read, so no property can be measured.")
    rows = [{"image_id": image, "degrees": degrees} for image, degrees in sorted(values.items())]
    return write_facts(folder, NAME, pl.DataFrame(rows, infer_schema_length=None))


def _known(folder: Path) -> pl.DataFrame:
    """Return the clean images of a run with the properties that were measured before."""
    clean = read(folder).lazy().filter(pl.col("shift") == CLEAN)
    images = clean.select("source", "sample_id", "image_id", "degrees").unique("image_id").collect()
    if not images.height:
        raise SoritesError(f"{folder} has no clean images, so that their properties cannot be measured.")
    own = pl.col("degrees").list.filter(pl.element().struct.field("measure").is_in([*PROPERTIES]))
    return images.with_columns(degrees=own).with_columns(
        measured=(pl.col("degrees").list.len() == len(PROPERTIES)).fill_null(False)
    )


def _measured(plan: Plan, missing: pl.DataFrame, bar: Bar | None) -> dict[str, list[dict[str, object]]]:
    ids = dict(missing.select("sample_id", "image_id").iter_rows())
    samples = [sample for sample in plan.groups.get(CLEAN, ()) if sample.id in ids]
    tick = bar("properties", len(samples)) if bar else lambda n: None
    found = {}
    for sample in samples:
        image = captured_shot(plan, sample).image
        if image is not None:
            found[ids[sample.id]] = [
                {"measure": name, "value": compute(image)} for name, compute in PROPERTIES.items()
            ]
        tick(1)
    return found
