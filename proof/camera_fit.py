"""The fit of the simulated camera by cross-validation over photographs, against EfficientNet-B0's table.

``SORITES_PHOTOS=DIR`` names labelled photographs (class folders, or WordNet ids in the names), which cannot be
shipped; ``SORITES_CAMERA_OUT=FILE.npz`` keeps the answers of the model. 100 photographs take about six
minutes of one core.

Fitted are the luminance of the screen and of its veil together (one factor), which is the same as a factor on
all shutter times, the weight of the image in the meter (from automatic shots with the lamp off), and the
luminance of the surround (lamp on). The model answers at three factors and seven ISOs; between these, accuracies are
interpolated. Each fold is predicted with the constants that fit the other folds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proof._lines import Line
from sorites import core
from sorites.core import camera_grid, to_float, to_uint8
from sorites.core.rng import rng_for
from sorites.evaluation.samples import hashed_samples
from sorites.optics.camera import EOS_RP
from sorites.optics.develop import HANDHELD_S, METER_CONSTANT
from sorites.shifts.camera import ES_STUDIO, LUMINANCE, put_on_screen
from sorites.suites.suite import Frame

TABLES = Path(__file__).parent.parent / "tests" / "metrics"
NUMBER, CLEAN = 10, 0.882
"""EfficientNet-B0's table, and its accuracy on the references themselves."""
LIGHTS = tuple(camera_grid.LIGHTS)
STOPS = (0.0, 0.4, 0.8)
"""Less light of the screen, in stops."""
ISOS = tuple(2000.0 * 2 ** (2 * k / 3) for k in range(7))
PHOTOS, FOLDS, RESAMPLES = 100, 5, 2000
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """Correct answers of the model by photograph: clean; at light, stops and setting; at light and ISO.

    ``bright`` is the mean luminance of each photograph on the screen, white = 1.
    """

    clean: Numbers
    manual: Numbers
    auto: Numbers
    bright: Numbers

    def __len__(self) -> int:
        return len(self.clean)

    def at(self, photos: NDArray[np.int64]) -> Answers:
        return Answers(self.clean[photos], self.manual[photos], self.auto[photos], self.bright[photos])


def answers(photos: str, count: int) -> Answers:
    """Photograph the first images of the fair order in the simulated studio, and show them to lite0."""
    lite, shift, frame = core.model("lite0"), core.shift("camera"), Frame(resize=256, crop=224)
    settings = [
        {**params, "shutter": params["shutter"] * 2**-stops}
        for light in LIGHTS
        for stops in STOPS
        for params in camera_grid.manual("test", light)
    ]
    metered = [
        {"iso": iso, "shutter": HANDHELD_S, "aperture": ES_STUDIO.widest, "light": light, "mode": "manual"}
        for light in LIGHTS
        for iso in ISOS
    ]
    rows: list[tuple[float, list[bool], float]] = []
    for sample in list(hashed_samples(core.source(f"folder:{photos}")))[:count]:
        image = frame(sample.load())
        rng = rng_for(0, sample.id, shift.name)
        scene = put_on_screen(to_float(image), rng, ES_STUDIO, EOS_RP)
        made = shift.sweep(to_float(image), [*settings, *metered], rng_for(0, sample.id, shift.name))
        said = right(lite, [image, *(to_uint8(shot) for shot in made)], sample.label)
        bright = float(scene.light.reshape(-1, 3).mean(0, dtype=np.float64) @ LUMINANCE)
        rows.append((float(said[0]), said[1:], bright))
    verdicts = np.array([row[1] for row in rows], np.float64)
    manual, auto = verdicts[:, : len(settings)], verdicts[:, len(settings) :]
    return Answers(
        np.array([row[0] for row in rows]),
        manual.reshape(len(rows), len(LIGHTS), len(STOPS), 27),
        auto.reshape(len(rows), len(LIGHTS), len(ISOS)),
        np.array([row[2] for row in rows]),
    )


def right(lite: core.Model, images: list[core.ImageU8], label: int | None) -> list[bool]:
    said: list[int] = []
    for start in range(0, len(images), 8):
        logits = lite(images[start : start + 8], framed=True).logits
        assert logits is not None
        said += logits.argmax(1).tolist()
    return [one == label for one in said]


def published() -> tuple[Numbers, Numbers]:
    """Return accuracies relative to clean: by light and setting, and of automatic shots by light."""
    mine = pl.col("table") == NUMBER
    table = pl.read_csv(TABLES / "imagenet_es_tables.tsv", separator="\t").filter(mine).sort("number")
    cells = pl.read_csv(TABLES / "imagenet_es_cells.tsv", separator="\t").filter(
        mine, pl.col("what") == "auto"
    )
    auto = [cells.filter(pl.col("light") == light)["value"].item() for light in LIGHTS]
    grid = [table[light].to_numpy() for light in LIGHTS]
    return np.array(grid) / 100 / CLEAN, np.array(auto) / 100 / CLEAN


@dataclass(frozen=True)
class Constants:
    """Fitted constants: stops less light of the screen, the meter's weight, and the surround with the lamp on."""

    stops: float
    weight: float
    surround_on: float


def manual_accuracy(data: Answers, stops: float) -> Numbers:
    """Return the answers at each light and setting, interpolated between the factors."""
    place = np.interp(stops, STOPS, range(len(STOPS)))
    low = int(min(place, len(STOPS) - 2))
    share = place - low
    return (1 - share) * data.manual[:, :, low] + share * data.manual[:, :, low + 1]


def auto_accuracy(data: Answers, constants: Constants) -> Numbers:
    """Return the answers of an automatic shot under each light, at the ISO that the meter chooses."""
    factor = 2**-constants.stops
    surround = {"on": constants.surround_on, "off": ES_STUDIO.surround["off"]}
    columns = []
    for number, light in enumerate(LIGHTS):
        veil = factor * float(np.array(ES_STUDIO.veil[light]) @ LUMINANCE)
        image = data.bright * factor * ES_STUDIO.white[light] + veil
        frame = constants.weight * image + (1 - constants.weight) * surround[light]
        iso = np.minimum(METER_CONSTANT / frame * ES_STUDIO.widest**2 / HANDHELD_S, EOS_RP.iso[1])
        # Less light at a higher ISO is about the same image.
        place = np.interp(np.log2(iso * factor), np.log2(ISOS), range(len(ISOS)))
        low = np.minimum(place.astype(int), len(ISOS) - 2)
        rows, share = np.arange(len(data)), place - low
        columns.append((1 - share) * data.auto[rows, number, low] + share * data.auto[rows, number, low + 1])
    return np.stack(columns, axis=1)


def fit(data: Answers) -> Constants:
    """Return the constants with which the photographs differ least from the published table."""
    grid, auto = published()
    clean = data.clean.mean()
    stops = min(
        np.arange(0, 0.81, 0.05),
        key=lambda s: float(np.abs(manual_accuracy(data, s).mean(0) / clean - grid).mean()),
    )
    weights, surrounds = np.geomspace(0.01, 0.2, 60), np.geomspace(0.05, 8, 60)

    def apart(constants: Constants, light: int) -> float:
        return float(abs(auto_accuracy(data, constants)[:, light].mean() / clean - auto[light]))

    off, on = LIGHTS.index("off"), LIGHTS.index("on")
    weight = min(weights, key=lambda w: apart(Constants(stops, w, 1.0), off))
    surround = min(surrounds, key=lambda s: apart(Constants(stops, weight, s), on))
    return Constants(float(stops), float(weight), float(surround))


def held_out(data: Answers) -> tuple[Numbers, Numbers, list[Constants]]:
    """Return the answers at settings and of automatic shots, each fold with the constants of the others."""
    fold = np.arange(len(data)) % FOLDS
    manual, auto = np.empty((len(data), len(LIGHTS), 27)), np.empty((len(data), len(LIGHTS)))
    found = []
    for number in range(FOLDS):
        here, others = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        found.append(constants := fit(data.at(others)))
        manual[here] = manual_accuracy(data.at(here), constants.stops)
        auto[here] = auto_accuracy(data.at(here), constants)
    return manual, auto, found


def summary(clean: Numbers, manual: Numbers, auto: Numbers) -> dict[str, float]:
    """Return the differences from the published table in points of the clean accuracy."""
    grid, published_auto = published()
    whole = clean.mean()
    cells = 100 * (manual.mean(0) / whole - grid)
    of_auto = 100 * (auto.mean(0) / whole - published_auto)
    made = {}
    for number, light in enumerate(LIGHTS):
        made[f"lamp {light}: Pearson"] = float(
            np.corrcoef(cells[number] / 100 + grid[number], grid[number])[0, 1]
        )
        made[f"lamp {light}: mean absolute difference of the 27 settings"] = float(
            np.abs(cells[number]).mean()
        )
        made[f"lamp {light}: mean difference of the 27 settings"] = float(cells[number].mean())
        made[f"lamp {light}: largest difference of a setting"] = float(np.abs(cells[number]).max())
        made[f"lamp {light}: automatic less published"] = float(of_auto[number])
    return made


def lines(title: str, clean: Numbers, manual: Numbers, auto: Numbers) -> Iterator[Line]:
    """Yield the differences with bootstrap intervals over photographs."""
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, len(clean), len(clean)) for _ in range(RESAMPLES)]
    resampled = [summary(clean[rows], manual[rows], auto[rows]) for rows in drawn]
    for name, value in summary(clean, manual, auto).items():
        low, high = np.percentile([one[name] for one in resampled], (2.5, 97.5))
        yield Line(f"{title}, {name}", value, f"95 %: {low:.3g} to {high:.3g}")


def run() -> Iterator[Line]:
    photos, kept = os.environ.get("SORITES_PHOTOS"), os.environ.get("SORITES_CAMERA_OUT")
    if not photos:
        yield Line("SORITES_PHOTOS is not set", 0.0, "nothing was measured")
        return
    count = int(os.environ.get("SORITES_CAMERA_PHOTOS", PHOTOS))
    if kept and Path(kept).exists():
        data = Answers(**np.load(kept))
    else:
        data = answers(photos, count)
        if kept:
            np.savez(kept, **vars(data))
    now = Constants(0.0, ES_STUDIO.weight, ES_STUDIO.surround["on"])
    yield Line("photographs", float(len(data)), f"clean accuracy {100 * data.clean.mean():.1f} %")
    yield from lines("as it is", data.clean, manual_accuracy(data, 0.0), auto_accuracy(data, now))
    manual, auto, found = held_out(data)
    yield from lines("held out", data.clean, manual, auto)
    for number, constants in enumerate([*found, fit(data)]):
        name = "all" if number == FOLDS else f"without fold {number + 1}"
        yield Line(f"{name}: stops less light", constants.stops)
        yield Line(f"{name}: weight", 1000 * constants.weight, "thousandths")
        yield Line(f"{name}: surround with the lamp on", constants.surround_on, "cd/m2")
