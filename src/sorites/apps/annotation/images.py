"""The images of a labelling: those of a source, or the images of a run made again; found by name,
shown as small files.
"""

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
from sorites.evaluation.images import captured, turned
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import class_names, plan_of
from sorites.evaluation.samples import in_order, unique
from sorites.io.tables import sheet

# The longer side in px to which larger images are made smaller for the page; boxes are in pixels
# of the image itself.
WIDEST = 2048
# Up to so many pixels an image is shown without loss.
LOSSLESS = 512 * 512
QUALITY = 95
# The most bytes of encoded images that are kept in memory.
KEPT = 96 << 20


@dataclass(frozen=True)
class Entry:
    """One image to be shown: its name, what is known of it, and how it is made."""

    name: str
    sample_id: str
    load: Callable[[], ImageU8]
    shown_class: str | None = None
    image_id: str | None = None
    shift: str | None = None
    severity: float | None = None


def from_source(spec: str, label_file: str | None = None) -> list[Entry]:
    """Return the images of a source in a fair order; any class is accepted unless ``label_file``
    lists them.
    """
    space = labels(label_file) if label_file else open_labels()
    samples = in_order(core.source(spec, space))
    unique(samples)
    return [_entry(sample, space) for sample in samples]


def _entry(sample: Sample, space: Labels) -> Entry:
    moved = sample.shift != CLEAN
    name = f"{sample.id} {sample.shift} {sample.setting.canonical}" if moved else sample.id
    severity = sample.setting.severity if moved else None
    return Entry(
        name,
        sample.id,
        sample.load,
        _class(sample, space),
        sample.image_id,
        sample.shift if moved else None,
        severity,
    )


def _class(sample: Sample, space: Labels | None) -> str | None:
    """Return the name of a sample's class for readers, None where it has none."""
    named = next((attr.value for attr in sample.attrs if attr.key == "class"), None)
    if named is not None or sample.label is None or space is None:
        return named
    if sample.label < len(space):
        return space.names[sample.label]
    own = {label: name for name, label in space.aliases.items()} if isinstance(space, OpenLabels) else {}
    return own.get(sample.label)


def from_run(run: Path, only: Collection[str] | None = None) -> list[Entry]:
    """Return the images of a run in a fair order, those of the given ids, or all but the clean ones."""
    plan = plan_of(run)
    space = class_names(_info(run))
    found = [
        entry
        for entry in _images(plan, space)
        if (entry.shift != CLEAN if only is None else entry.image_id in only)
    ]
    return sorted(found, key=lambda entry: digest(entry.name))


def _info(run: Path) -> dict[str, object]:
    from sorites.evaluation.storage.folder import read_info

    return dict(read_info(run))


def _images(plan: Plan, space: Labels | None) -> Iterator[Entry]:
    seen = set()
    for unit in plan.units():
        shift = plan.shifts.get(unit.shift)
        for sample in plan.groups[unit.shift][unit.start : unit.stop]:
            for value in plan.settings[unit.shift] if shift else (None,):
                setting = shift.setting(value) if shift and value is not None else sample.setting
                key = plan.image_id(sample, unit.shift, setting)
                if key not in seen:
                    seen.add(key)
                    load = functools.partial(_made, plan, sample, unit.shift, value)
                    yield Entry(
                        key, sample.id, load, _class(sample, space), key, unit.shift, setting.severity
                    )


def _made(plan: Plan, sample: Sample, shift: str, setting: SettingValue | None) -> ImageU8:
    shot = captured(plan, sample) if setting is None else next(turned(plan, sample, shift, [setting]))
    if shot.image is None:
        raise BadImage(shot.error or "the image cannot be made")
    return shot.image


def read_list(path: Path) -> frozenset[str]:
    """Return the names of images in a CSV or parquet file: its column ``image_id`` or ``image``."""
    frame = sheet(path, "a CSV or parquet file with the column image_id or image")
    column = next((name for name in ("image_id", "image") if name in frame.columns), None)
    if column is None:
        raise SoritesError(f"{path}: wanted the column image_id or image, got {', '.join(frame.columns)}")
    return frozenset(str(name) for name in frame[column].drop_nulls())


@dataclass(frozen=True)
class Shown:
    """An image as the page gets it, and the size that it really has."""

    data: bytes
    kind: str
    width: int
    height: int


class Album:
    """The images by name, encoded when they are asked for; those asked for last are kept."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self._kept: OrderedDict[str, Shown] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def shown(self, name: str) -> Shown:
        """Return an image as a file for the page; one that cannot be made raises ``BadImage``."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        made = encoded(self._image(name))
        with self._lock:
            if name not in self._kept:
                self._kept[name] = made
                self._bytes += len(made.data)
            while self._bytes > KEPT and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1].data)
        return made

    def _image(self, name: str) -> ImageU8:
        if name not in self.entries:
            raise BadImage(f"the source has no image {name}")
        return self.entries[name].load()


def encoded(image_u8: ImageU8) -> Shown:
    """Return an image as PNG, or where it is large as JPEG of high quality, at most ``WIDEST`` px
    wide or high.
    """
    height, width = image_u8.shape[:2]
    image, buffer = Pillow.fromarray(image_u8), io.BytesIO()
    if width * height <= LOSSLESS:
        image.save(buffer, "PNG", compress_level=1)
        return Shown(buffer.getvalue(), "image/png", width, height)
    image.thumbnail((WIDEST, WIDEST), Pillow.Resampling.LANCZOS)
    image.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return Shown(buffer.getvalue(), "image/jpeg", width, height)
