"""Turn a shift by hand: the image under the dial, the answers of the models, and where they fail."""

from __future__ import annotations

import base64
import io
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sorites.apps.workbench.explore import answer_of
from sorites.apps.workbench.library import Library
from sorites.core import SHIFTS, BytesRef, ImageF32, ImageU8, Sample, SettingValue, Shift
from sorites.core.errors import SoritesError
from sorites.core.labels import class_name
from sorites.core.rng import digest, rng_for
from sorites.evaluation.live import Dial, FailureSeverity, Turned, dial
from sorites.evaluation.plan import Plan
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.reports.components.severities import reading_of_shift

# Dropped images that are kept, and their largest size in bytes.
MAX_DROPPED, MAX_DROPPED_BYTES = 20, 20 << 20
HISTOGRAM_BINS = 64
# Side of the image of a point, px; how much of it is shown: the least side that has this share of the light.
POINT_SIDE, SHOWN_SIDES, SHOWN_LIGHT = 129, (17, 33, 65, 129), 0.97
MAX_MAP_CELLS = 15
# The name of images that belong to no source.
DROPPED = "dropped"


def shifts_of(plan: Plan) -> list[dict[str, Any]]:
    """Return the shifts that can be turned: those of the plan first, then all registered ones."""
    own = [shift for name, shift in plan.shifts.items() if shift.levels and name not in plan.own]
    names = {shift.name for shift in own}
    others = [shift for name in SHIFTS.names() if name not in names and (shift := SHIFTS.get(name)).levels]
    return [_described(shift, shift.name in names) for shift in (*own, *others)]


def _described(shift: Shift, in_run: bool) -> dict[str, Any]:
    about = {"name": shift.name, "unit": shift.unit, "family": shift.family, "stage": shift.stage}
    return {**about, "levels": list(shift.levels), "top": shift.top, "about": shift.about, "in_run": in_run}


@dataclass
class Bench:
    """Images under a dial: samples of runs, samples of a suite, and images that were dropped on the page."""

    library: Library
    _dropped: OrderedDict[str, Sample] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drop(self, data: bytes) -> str:
        """Keep an image for turning, and return its id.

        Raises:
            BadImage: It cannot be decoded.
            SoritesError: It is too large.
        """
        if len(data) > MAX_DROPPED_BYTES:
            raise SoritesError(f"the image is larger than {MAX_DROPPED_BYTES >> 20} MB")
        name = digest(data, size=8).hex()
        sample = Sample(f"{DROPPED}/{name}", BytesRef(data, "the image"))
        sample.load()
        with self._lock:
            self._dropped[name] = sample
            while len(self._dropped) > MAX_DROPPED:
                self._dropped.popitem(last=False)
        return f"{DROPPED}/{name}"

    def samples(self, run: str, limit: int = 60) -> list[dict[str, Any]]:
        """Return the first samples of a plan, with the names of their classes."""
        plan = self.library.plan(run)
        first = list(plan.groups["clean"][:limit])
        return [{"id": sample.id, "class": _class_of(plan, sample)} for sample in first]

    def dial(self, run: str, image: str) -> Dial:
        """Return the dial for an image: a sample of the plan by id, or a dropped one.

        Raises:
            SoritesError: There is no such image.
        """
        plan = self.library.plan(run)
        if not image.startswith(f"{DROPPED}/"):
            return dial(plan, image)
        with self._lock:
            sample = self._dropped.get(image.removeprefix(f"{DROPPED}/"))
        if sample is None:
            raise SoritesError("this image is no longer here; drop it again")
        return dial(plan, sample)


def _class_of(plan: Plan, sample: Sample) -> str | None:
    return None if sample.label is None else plan.labels.names[sample.label]


def turned(of: Dial, severities: Mapping[str, float], models: Sequence[str] = ()) -> dict[str, Any]:
    """Return the image under the dial as a PNG, the answers, the histogram, and the image of a point."""
    about = {"severities": dict(severities), **described(of, of.turn(severities, models))}
    about["words"] = {
        name: reading_of_shift(of.shift(name)).text(severity) for name, severity in severities.items()
    }
    if about["error"] is None:
        optical = [(of.shift(name), severity) for name, severity in severities.items() if severity]
        optical = [(shift, severity) for shift, severity in optical if shift.stage == "optics"]
        about["point"] = shown_point(impulse(of, optical)) if optical else None
    return about


def failed(of: Dial, model: str, shift: str, found: FailureSeverity) -> dict[str, Any]:
    """Return where a model begins to fail, also in words."""
    words = reading_of_shift(of.shift(shift)).text
    return {
        "model": model,
        "shift": shift,
        "holds": found.holds,
        "fails": found.fails,
        "holds_words": None if found.holds is None else words(found.holds),
        "fails_words": None if found.fails is None else words(found.fails),
    }


def described(of: Dial, made: Turned) -> dict[str, Any]:
    """Return an image as a PNG, with its histogram, ground truth and the answers of the models."""
    image = made.shot.image
    about: dict[str, Any] = {"error": made.shot.error, "label": _class_of(of.plan, of.sample)}
    if image is not None:
        about |= {"image": png_uri(image), "width": image.shape[1], "height": image.shape[0]}
        about["histogram"] = _histogram(image)
    return {**about, "truth": _objects(of.plan, made), "models": answers(of.plan, made), "from": CONFIDENCE}


def _objects(plan: Plan, made: Turned) -> list[dict[str, Any]] | None:
    """Return the ground-truth boxes, and whether each model finds them from ``CONFIDENCE`` on."""
    if made.shot.ground_truth is None:
        return None
    seen = {model: made.found(model) for model in plan.models if made.is_detector(model)}
    return [
        {
            "xyxy": list(box.xyxy),
            "name": class_name(plan.labels, box.label),
            "found": {model: place in places for model, places in seen.items() if places is not None},
        }
        for place, box in enumerate(made.shot.ground_truth)
    ]


def answers(plan: Plan, made: Turned) -> dict[str, Any]:
    """Return the answer and OOD scores of each model."""
    found: dict[str, dict[str, Any]] = {}
    total = len(made.shot.ground_truth or ())
    for line in made.rows.iter_rows(named=True):
        answer = found.setdefault(line["model"], {"scores": {}})
        if line["output"] == "ood":
            answer["scores"][line["scorer"]] = line["score"]
        else:
            answer.update(answer_of(line, plan.labels))
        if (seen := made.found(line["model"])) is not None:
            answer["objects"] = [len(seen), total]
    return found


def map_row(of: Dial, fixed: Mapping[str, float], shift: str, cells: int) -> list[dict[str, Any]]:
    """Return the answers along one shift while another is held: a row of the map of two dials.

    Args:
        of: The image.
        fixed: The severity of the other shift.
        shift: The shift to turn, in ``cells`` equal steps from 0 to its highest level.
        cells: The number of points.
    """
    if not 2 <= cells <= MAX_MAP_CELLS:
        raise SoritesError(f"expected 2 to {MAX_MAP_CELLS} cells, got {cells}")
    steps = np.linspace(0, of.shift(shift).top, cells)
    points = [{**fixed, shift: float(step)} for step in steps]
    return [
        {"severities": point, "models": answers(of.plan, made)}
        for point, made in zip(points, of.sweep(points), strict=True)
    ]


def png_uri(image: ImageU8) -> str:
    """Return an image as a PNG data URI; a PNG has exactly the pixels that the models see."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def png(image: ImageU8) -> bytes:
    """Return an image as a PNG, compressed for speed."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def thumbnail(image: ImageU8, side: int) -> bytes:
    """Return a small image as WebP; it is never enlarged."""
    from PIL import Image

    small = Image.fromarray(np.ascontiguousarray(image))
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=80, method=2)
    return buffer.getvalue()


def _histogram(image: ImageU8) -> list[list[int]]:
    """Return the counts of red, green and blue in equal bins."""
    bins = image.reshape(-1, 3) // (256 // HISTOGRAM_BINS)
    return [np.bincount(bins[:, c], minlength=HISTOGRAM_BINS).tolist() for c in range(3)]


def impulse(of: Dial, optical: Sequence[tuple[Shift, SettingValue]]) -> ImageF32:
    """Return the image of a white point on black under shifts, with the draw of the sample."""
    point = np.zeros((POINT_SIDE, POINT_SIDE, 3), np.float32)
    point[POINT_SIDE // 2, POINT_SIDE // 2] = 1
    for shift, setting in optical:
        point = shift(point, setting, rng_for(of.plan.suite.seed, of.sample.id, shift.name))
    return point


def shown_point(point: ImageF32) -> str:
    """Return the middle of the image of a point as a PNG, brightened so that faint light can be seen."""
    sides = (side for side in SHOWN_SIDES if float(_middle(point, side).sum()) >= SHOWN_LIGHT * point.sum())
    shown = _middle(point, next(sides, SHOWN_SIDES[-1]))
    shown = np.sqrt(np.clip(shown, 0, None) / max(float(point.max()), 1e-9))
    return png_uri(np.rint(255 * shown).astype(np.uint8))


def _middle(image: ImageF32, side: int) -> ImageF32:
    """Return the middle of an image of an odd side."""
    edge = (len(image) - side) // 2
    return image[edge : edge + side, edge : edge + side]
