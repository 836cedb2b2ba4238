"""RAW files of cameras, developed on demand; dials expose them again before the development or change it.

    raw:DIR     RAW files in class folders, or without labels directly in DIR

``raw_exposure`` and ``raw_exposure_down`` multiply the light of the sensor values, before saturation, white
balance and tone curve: a change of the sensor. ``isp_tone`` and ``isp_warmth`` develop the same sensor values
differently. ``exposure_stops`` on the same samples brightens the developed image instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sorites.core import FileRef, Generated, ImageF32, ImageU8, OwnDial, Sample, add_source, to_uint8
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io.paths import is_dir, path_of
from sorites.io.raw_files import RAW_SUFFIXES, read_raw
from sorites.optics.negative import Isp, Negative, negative_of

# Changes whenever pixels change.
VERSION = 1
Change = Callable[[Negative, float], ImageF32]


def _brighter(negative: Negative, severity: float) -> ImageF32:
    return Isp().develop(negative.exposed(severity))


def _darker(negative: Negative, severity: float) -> ImageF32:
    return Isp().develop(negative.exposed(-severity))


def _without_tone(negative: Negative, severity: float) -> ImageF32:
    return Isp(tone_share=1 - min(severity, 1.0)).develop(negative)


def _warmer(negative: Negative, severity: float) -> ImageF32:
    return Isp(warmth=severity).develop(negative)


# Name, levels, unit, description, and how a negative is changed and developed.
DIALS: tuple[tuple[str, tuple[float, ...], str, str, Change], ...] = (
    (
        "raw_exposure",
        (1, 2, 3, 4, 5, 6),
        "stops",
        "More light on the sensor values, saturated again.",
        _brighter,
    ),
    ("raw_exposure_down", (1, 2, 3, 4, 5, 6), "stops", "Less light on the sensor values.", _darker),
    ("isp_tone", (0.25, 0.5, 0.75, 1), "share", "Share of the camera's tone curve left out.", _without_tone),
    ("isp_warmth", (0.5, 1, 1.5, 2), "stops", "Red against blue in the white balance.", _warmer),
)


@add_source
def raw(path: str | None, labels: Labels) -> list[Sample]:
    """Read RAW files (raw:DIR) in class folders or without labels, with dials of exposure and development."""
    if path is None:
        raise SoritesError(f"the raw source needs a folder. Pass {option('source', 'raw:DIR')}")
    root = path_of(path)
    if not is_dir(root):
        raise SoritesError(f"expected a folder of RAW files, but {root} is none")
    files = sorted(
        file
        for file in root.rglob("*")
        if file.suffix.lower() in RAW_SUFFIXES and not file.name.startswith(".")
    )
    if not files:
        raise SoritesError(f"no RAW files ({' '.join(RAW_SUFFIXES)}) in {root}")
    return [_sample(file, root, labels) for file in files]


def _sample(file: Path, root: Path, labels: Labels) -> Sample:
    parts = file.relative_to(root).parts
    image = FileRef(file, within=root.resolve())
    return Sample(
        as_utf8("/".join(parts)),
        Generated(developed, (image,), VERSION),
        labels.find(parts[0]) if len(parts) > 1 else None,
        dials=tuple(
            OwnDial(name, levels, Sweep(image, change), unit, "camera", VERSION, about, (image,))
            for name, levels, unit, about, change in DIALS
        ),
    )


def developed(file: FileRef) -> ImageU8:
    """Return the developed image of a RAW file."""
    return to_uint8(Isp().develop(_negative(file)))


def _negative(file: FileRef) -> Negative:
    return negative_of(read_raw(file.read(), file.name or str(file.path)))


class Sweep:
    """The images of one RAW file along a dial; the file is read once per sweep."""

    def __init__(self, file: FileRef, change: Change) -> None:
        self.file, self.change = file, change

    def __call__(self, severities: Sequence[float]) -> Iterator[ImageF32]:
        """Yield one image per severity."""
        negative = _negative(self.file)
        return (self.change(negative, severity) for severity in severities)
