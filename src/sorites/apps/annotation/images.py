"""Images of a labelling: those of a source, or recreated images of a run; encoded for display by name."""

from __future__ import annotations

import functools
import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image as Pillow

from sorites import core
from sorites.core import CLEAN, ImageU8, Sample, SettingValue
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels, OpenLabels, labels, open_labels
from sorites.core.rng import digest
from sorites.evaluation.images import captured_shot, shifted_shots
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import class_names, plan_of
from sorites.evaluation.samples import check_unique, hashed_samples
from sorites.evaluation.storage.record import read_record
from sorites.io.tables import sheet

# Larger images are downscaled to this longer side (px) for display; boxes are in original pixels.
MAX_DISPLAY_SIDE = 2048
# Images up to this many pixels are encoded without loss.
MAX_LOSSLESS_PIXELS = 512 * 512
JPEG_QUALITY = 95
# Maximum bytes of encoded images cached in memory.
MAX_CACHE_BYTES = 96 << 20


@dataclass(frozen=True)
class Entry:
    """An image to display: its name, metadata, and loader."""

    name: str
    sample_id: str
    load: Callable[[], ImageU8]
    shown_class: str | None = None
    image_id: str | None = None
    shift: str | None = None
    severity: float | None = None


def from_source(spec: str, label_file: str | None = None) -> list[Entry]:
    """Return the images of a source in a fixed shuffled order.

    Args:
        spec: The source.
        label_file: List of accepted classes; by default any class is accepted.
    """
    space = labels(label_file) if label_file else open_labels()
    samples = hashed_samples(core.source(spec, space))
    check_unique(samples)
    return [_entry(sample, space) for sample in samples]


def _entry(sample: Sample, space: Labels) -> Entry:
    is_shifted = sample.shift != CLEAN
    name = f"{sample.id} {sample.shift} {sample.setting.canonical}" if is_shifted else sample.id
    severity = sample.setting.severity if is_shifted else None
    return Entry(
        name,
        sample.id,
        sample.load,
        _class(sample, space),
        sample.image_id,
        sample.shift if is_shifted else None,
        severity,
    )


def _class(sample: Sample, space: Labels | None) -> str | None:
    """Return the display name of a sample's class, or None."""
    named = next((attr.value for attr in sample.attrs if attr.key == "class"), None)
    if named is not None or sample.label is None or space is None:
        return named
    if sample.label < len(space):
        return space.names[sample.label]
    names = {label: name for name, label in space.aliases.items()} if isinstance(space, OpenLabels) else {}
    return names.get(sample.label)


def from_run(run: Path, only: Collection[str] | None = None) -> list[Entry]:
    """Return images of a run in a fixed shuffled order: those with the given ids, or all shifted ones."""
    plan = plan_of(run)
    space = class_names(read_record(run))
    entries = [
        entry
        for entry in _images(plan, space)
        if (entry.shift != CLEAN if only is None else entry.image_id in only)
    ]
    return sorted(entries, key=lambda entry: digest(entry.name))


def origin_of(run: Path) -> str:
    """Return the description of the images of a run that an annotation file stores."""
    return f"run {run.resolve()}"


def _images(plan: Plan, space: Labels | None) -> Iterator[Entry]:
    yielded = set()
    for unit in plan.units():
        shift = plan.shifts.get(unit.shift)
        for sample in plan.groups[unit.shift][unit.start : unit.stop]:
            for value in plan.settings[unit.shift] if shift else (None,):
                setting = shift.setting(value) if shift and value is not None else sample.setting
                key = plan.image_id(sample, unit.shift, setting)
                if key not in yielded:
                    yielded.add(key)
                    load = functools.partial(_render, plan, sample, unit.shift, value)
                    yield Entry(
                        key, sample.id, load, _class(sample, space), key, unit.shift, setting.severity
                    )


def _render(plan: Plan, sample: Sample, shift: str, setting: SettingValue | None) -> ImageU8:
    shot = (
        captured_shot(plan, sample)
        if setting is None
        else next(shifted_shots(plan, sample, shift, [setting]))
    )
    if shot.image is None:
        raise BadImage(shot.error or "the image cannot be recreated")
    return shot.image


def read_list(path: Path) -> frozenset[str]:
    """Read image names from the column ``image_id`` or ``image`` of a CSV or parquet file."""
    frame = sheet(path, "a CSV or parquet file with the column image_id or image")
    column = next((name for name in ("image_id", "image") if name in frame.columns), None)
    if column is None:
        raise SoritesError(f"{path}: expected the column image_id or image, found {', '.join(frame.columns)}")
    return frozenset(str(name) for name in frame[column].drop_nulls())


@dataclass(frozen=True)
class Shown:
    """An encoded image for the page, with its original size."""

    data: bytes
    kind: str
    width: int
    height: int


class Album:
    """Images by name, encoded on demand, with a least-recently-used cache."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self._cache: OrderedDict[str, Shown] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def shown(self, name: str) -> Shown:
        """Return an encoded image. Raises ``BadImage`` if it cannot be loaded."""
        with self._lock:
            if name in self._cache:
                self._cache.move_to_end(name)
                return self._cache[name]
        encoded_image = encoded(self._image(name))
        with self._lock:
            if name not in self._cache:
                self._cache[name] = encoded_image
                self._bytes += len(encoded_image.data)
            while self._bytes > MAX_CACHE_BYTES and len(self._cache) > 1:
                self._bytes -= len(self._cache.popitem(last=False)[1].data)
        return encoded_image

    def _image(self, name: str) -> ImageU8:
        if name not in self.entries:
            raise BadImage(f"the source has no image {name}")
        return self.entries[name].load()


def encoded(image_u8: ImageU8) -> Shown:
    """Encode an image as PNG, or if it is large as high-quality JPEG of at most ``MAX_DISPLAY_SIDE`` px."""
    height, width = image_u8.shape[:2]
    image, buffer = Pillow.fromarray(image_u8), io.BytesIO()
    if width * height <= MAX_LOSSLESS_PIXELS:
        image.save(buffer, "PNG", compress_level=1)
        return Shown(buffer.getvalue(), "image/png", width, height)
    image.thumbnail((MAX_DISPLAY_SIDE, MAX_DISPLAY_SIDE), Pillow.Resampling.LANCZOS)
    image.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return Shown(buffer.getvalue(), "image/jpeg", width, height)
