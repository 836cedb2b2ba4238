"""Images as a camera took them, among the originals: what ImageNet-ES trains on in its experiments 4 to 6.

Each time an image is asked for, with a probability of one half one of its captures stands in its
place, drawn evenly from the settings that were kept (``cuts``). A capture is a file of the dataset,
or the original through the simulated camera. Baek et al., "Unexplored Faces of Robustness and
Out-of-Distribution", CVPR 2024, supplement 4.1 and its released code.
"""

from __future__ import annotations

import json
import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

import numpy as np
from PIL import Image as Pillow

from sorites import core
from sorites.core import CLEAN, ImageU8, Sample, Setting, SettingValue, Shift, measure, to_float, to_uint8
from sorites.core import camera_grid as es_grid
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.rng import digest, rng_for
from sorites.io.files import cache, cached
from sorites.io.paths import entries, is_dir, path_of, subfolders
from sorites.sources.decode import SUFFIXES, decode
from sorites.training.images import Images

# Images of several kinds trained on together: one after the other, or a fixed share of made images
# among real ones.


@dataclass(frozen=True)
class Joined:
    """The images of all parts, one part after the other."""

    parts: Sequence[Images]
    _ends: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(accumulate(map(len, self.parts))))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _at(self, place: int) -> tuple[Images, int]:
        part = bisect_right(self._ends, place)
        return self.parts[part], place - (self._ends[part - 1] if part else 0)

    def id(self, place: int) -> str:
        part, inside = self._at(place)
        return part.id(inside)

    def label(self, place: int) -> int:
        part, inside = self._at(place)
        return part.label(inside)

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        part, inside = self._at(place)
        return part.image(inside, rng)


@dataclass(frozen=True)
class Chosen:
    """Some images of others, in the order of ``places``; a place may stand there more than once."""

    base: Images
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def id(self, place: int) -> str:
        return self.base.id(self.places[place])

    def label(self, place: int) -> int:
        return self.base.label(self.places[place])

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        return self.base.image(self.places[place], rng)


def mixed(real: Images, made: Images, share: float = 0.5, seed: int = 0) -> Joined:
    """Return every made image once, and as many real ones that made images are ``share`` of the whole.

    CNS-Bench fine-tunes on one half made images and one half ImageNet's (appendix C). The real
    ones are chosen by the hash of their ids with the seed; where there are too few, all are taken,
    and those first in that order once more, until there are enough.
    """
    if not 0 < share < 1:
        raise SoritesError(f"wanted the share of made images between 0 and 1, got {share}.")
    for kind, some in (("real", real), ("made", made)):
        if not len(some):
            raise SoritesError(f"wanted real and made images to train on together; there are no {kind} ones.")
    wanted = max(1, round(len(made) * (1 - share) / share))
    order = sorted(range(len(real)), key=lambda place: digest("mixed", seed, real.id(place)))
    return Joined((Chosen(real, [order[i % len(order)] for i in range(wanted)]), made))


# The published probability that a capture stands in for the original.
SHARE = 0.5


class Shots(Protocol):
    """The captures of images by their place, one per kept setting."""

    def __len__(self) -> int: ...

    def shot(self, place: int, number: int, rng: np.random.Generator) -> ImageU8:
        """Return the capture of the image at ``place`` at the kept setting ``number``."""
        ...


@dataclass(frozen=True)
class Captured:
    """Images, each replaced with a probability of ``share`` by one of its captures."""

    base: Images
    shots: Shots
    share: float = SHARE

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise SoritesError(f"wanted the share of captures between 0 and 1, got {self.share}.")
        if not len(self.shots):
            raise SoritesError(
                "no setting is kept to take captures from. Raise the cut: 0.6, 0.8 and 1.0 are the published"
                " ones."
            )

    def __len__(self) -> int:
        return len(self.base)

    def id(self, place: int) -> str:
        return self.base.id(place)

    def label(self, place: int) -> int:
        return self.base.label(place)

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        if rng.random() >= self.share:
            return self.base.image(place, rng)
        return self.shots.shot(place, int(rng.integers(len(self.shots))), rng)


@dataclass(frozen=True)
class Simulated:
    """Captures made when they are asked for: the image through a shift, at one of its settings."""

    base: Images
    settings: Sequence[SettingValue]
    shift: Shift

    def __len__(self) -> int:
        return len(self.settings)

    def shot(self, place: int, number: int, rng: np.random.Generator) -> ImageU8:
        clean = to_float(self.base.image(place, rng))
        return to_uint8(self.shift(clean, self.settings[number], rng))


@dataclass(frozen=True)
class Files:
    """Captures that a dataset brings: for each image one per kept setting."""

    loads: Sequence[Sequence[Callable[[], ImageU8]]]

    def __len__(self) -> int:
        return min(map(len, self.loads), default=0)

    def shot(self, place: int, number: int, rng: np.random.Generator) -> ImageU8:
        return self.loads[place][number]()


def settings(split: str = "val") -> list[es_grid.Params]:
    """Return the manual settings of a published split with the lamp on and off; automatic exposure
    is not trained on.
    """
    return [params for light in es_grid.LIGHTS for params in es_grid.manual(split, light)]


def simulated(base: Images, kept: Sequence[SettingValue], shift: str = "camera") -> Simulated:
    """Return the captures of images by a simulated camera at the kept settings."""
    return Simulated(base, tuple(kept), core.shift(shift))


def originals(samples: Sequence[Sample]) -> list[Sample]:
    """Return those samples that came unshifted: of ImageNet-ES, the reference images."""
    return [sample for sample in samples if sample.shift == CLEAN]


def captured_files(base: Images, samples: Sequence[Sample], kept: Sequence[Mapping[str, object]]) -> Files:
    """Return the captures among the samples of a source (``imagenet_es:PATH/es-val``) at the kept
    settings, matched by id.

    Every image must be there at every kept setting.
    """
    wanted = {Setting(None, params).canonical: number for number, params in enumerate(kept)}
    found: dict[str, dict[int, Callable[[], ImageU8]]] = {}
    for sample in samples:
        number = wanted.get(sample.setting.canonical) if sample.shift != CLEAN else None
        if number is not None:
            found.setdefault(sample.id, {})[number] = sample.load
    lost = [base.id(place) for place in range(len(base)) if len(found.get(base.id(place), ())) < len(wanted)]
    if lost:
        raise SoritesError(
            f"{len(lost)} of {len(base)} images were not captured at all of the {len(wanted)} kept"
            f" settings, first {lost[0]} (at {len(found.get(lost[0], ()))}). Wanted a part of ImageNet-ES"
            " with captures, such as imagenet_es:PATH/es-val."
        )
    return Files(
        [[found[base.id(place)][number] for number in range(len(wanted))] for place in range(len(base))]
    )


# Choose the camera settings to train on: those whose captures stay near their originals by mean LPIPS.


# The validation settings, 1 to 64, that each published cut leaves out by light; the paper's results
# are with 0.8.
LEFT_OUT: Mapping[float, Mapping[str, frozenset[int]]] = {
    0.6: {
        "on": frozenset((1, 2, 3, 4, 7, 8, 12, 13, 18, 19, 20, 24, 29, 30, 35, 36, 40, 41, 45, 46, 47, 51, 52, 57, 58, 61, 62, 63,
                         64)),
        "off": frozenset((2, 3, 4, 7, 8, 13, 14, 19, 20, 24, 25, 29, 30, 31, 35, 36, 41, 42, 45, 46, 47, 48, 52, 53, 57, 58, 59,
                          61, 62, 63, 64)),
    },
    0.8: {
        "on": frozenset((3, 4, 8, 19, 20, 29, 36, 45, 46, 57, 61, 62, 63)),
        "off": frozenset((3, 4, 13, 20, 29, 30, 41, 45, 46, 47, 57, 58, 61, 62, 63, 64)),
    },
    1.0: {"on": frozenset((45, 61, 62)), "off": frozenset((29, 45, 46, 57, 61, 62, 63))},
}  # fmt: skip

# The px of the shorter side that images are enlarged to before LPIPS: the size that its weights
# were fitted at.
SIDE = 64

T = TypeVar("T")


def kept(settings: Sequence[T], means: Sequence[float], cut: float) -> list[T]:
    """Return the settings whose mean LPIPS is below the cut."""
    if len(settings) != len(means):
        raise SoritesError(f"wanted a mean LPIPS for each of {len(settings)} settings, got {len(means)}.")
    if not cut > 0:
        raise SoritesError(f"wanted a cut of LPIPS above 0, such as 0.8, got {cut}.")
    near = [setting for setting, mean in zip(settings, means, strict=True) if mean < cut]
    if not near:
        raise SoritesError(f"no setting has a mean LPIPS below {cut}; the lowest has {min(means):.2f}.")
    return near


def mean_lpips(base: Images, shots: Shots, count: int, seed: int = 0) -> list[float]:
    """Return the mean LPIPS per setting over ``count`` images, which are chosen by the hash of
    their ids with the seed.

    Means of simulated captures follow from the images and the shift alone; they are kept in the
    user's cache, so that a training that goes on does not measure them again.
    """
    order = sorted(range(len(base)), key=lambda place: digest("lpips", seed, base.id(place)))[:count]
    if not order:
        raise SoritesError("wanted at least one image to measure LPIPS on.")

    def measured() -> list[float]:
        values = np.array([_lpips(base, shots, place, seed) for place in order])
        return [float(mean) for mean in values.mean(axis=0)]

    if not isinstance(shots, Simulated):
        return measured()
    shift, spelled = shots.shift, json.dumps(list(map(str, shots.settings)))
    contents = [base.image(place, rng_for(seed, base.id(place), "lpips")).tobytes() for place in order]
    key = digest(
        measure("lpips").version, SIDE, seed, shift.name, shift.version, shift.options, spelled, *contents
    )
    return cached(cache("lpips", f"{key.hex()}.json"), lambda: json.dumps(measured()).encode(), _read)


def _read(path: Path) -> list[float]:
    return [float(mean) for mean in json.loads(path.read_bytes())]


def _lpips(base: Images, shots: Shots, place: int, seed: int) -> list[float]:
    """Return the LPIPS of an image's captures; every capture gets the same draws, as in a sweep."""
    lpips, id_ = measure("lpips_linear"), base.id(place)
    clean = enlarged(base.image(place, rng_for(seed, id_, "lpips")))
    taken = (shots.shot(place, number, rng_for(seed, id_, "lpips")) for number in range(len(shots)))
    return [lpips(clean, enlarged(shot)) for shot in taken]


def enlarged(image: ImageU8, side: int = SIDE) -> ImageU8:
    """Return an image whose shorter side has at least ``side`` px: bicubic if it was smaller, else
    the image itself.
    """
    height, width = image.shape[:2]
    if min(height, width) >= side:
        return image
    scale = side / min(height, width)
    larger = Pillow.fromarray(image).resize(
        (round(width * scale), round(height * scale)), Pillow.Resampling.BICUBIC
    )
    return np.asarray(larger)


def published_settings(cut: float) -> list[es_grid.Params]:
    """Return the manual validation settings that the authors keep at one of their cuts, with the
    lamp on and off.
    """
    if cut not in LEFT_OUT:
        told = ", ".join(map(str, LEFT_OUT))
        raise SoritesError(
            f"the settings of a cut are published for {told}, not for {cut}. For another cut, say on how many"
            " images to measure LPIPS: captures.measured_on = 50"
        )
    return [
        params
        for light in es_grid.LIGHTS
        for number, params in enumerate(es_grid.manual("val", light), start=1)
        if number not in LEFT_OUT[cut][light]
    ]


# DeepAugment's images beside the originals: folders that the user made with the published scripts, one
# per network.


# The published folders, in the order in which they follow the originals.
FOLDERS = ("EDSR", "CAE")


@dataclass(frozen=True)
class Distorted:
    """The images of one folder that belong to originals, each with the id of its original after
    the folder's name.
    """

    name: str
    files: Sequence[Path]
    originals: Sequence[str]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.files)

    def id(self, place: int) -> str:
        return f"{self.name}/{self.originals[place]}"

    def label(self, place: int) -> int:
        return self.labels[place]

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        return decode(self.files[place])


def deep_augmented(base: Images, root: str | Path, folders: Sequence[str] = FOLDERS) -> Joined:
    """Return the images followed by what the folders below ``root`` hold for them, matched by
    class folder and name.

    The suffix of a file may differ from the original's. Originals without a distorted image are
    counted and reported in one warning per folder; a folder that has none of them is refused.
    """
    return Joined((base, *(_distorted(base, path_of(root) / folder) for folder in folders)))


def _distorted(base: Images, folder: Path) -> Distorted:
    if not is_dir(folder):
        raise SoritesError(
            f"wanted DeepAugment's images in {folder}, which is not there. Make them with its script "
            f"{folder.name}_distort_imagenet.py, in class folders, under the names of the originals."
        )
    known = _files(folder)
    found = [
        (place, known[_key(base.id(place))]) for place in range(len(base)) if _key(base.id(place)) in known
    ]
    missing = len(base) - len(found)
    if not found:
        raise SoritesError(
            f"{folder} holds no image of the {len(base)} originals. Wanted class folder / name, such as"
            f" {base.id(0)}; it has {min(known, default='no images in class folders')}."
        )
    if missing:
        lost = next(base.id(place) for place in range(len(base)) if _key(base.id(place)) not in known)
        warnings.warn(
            f"{folder.name}: {missing} of {len(base)} originals have no distorted image, first {lost}",
            stacklevel=3,
        )
    places = [place for place, _ in found]
    return Distorted(
        folder.name,
        [file for _, file in found],
        [base.id(p) for p in places],
        [base.label(p) for p in places],
    )


def _key(id_: str) -> str:
    """Return the class folder and the name without its suffix: what an original and its distorted
    image share.
    """
    path = PurePosixPath(id_)
    return f"{path.parent.name}/{path.stem}"


def _files(folder: Path) -> dict[str, Path]:
    files = (Path(entry.path) for inside in subfolders(folder) for entry in entries(inside))
    kept = (file for file in files if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."))
    return {_key(as_utf8(f"{file.parent.name}/{file.name}")): file for file in kept}
