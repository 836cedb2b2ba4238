"""Training images from captures, generated images and DeepAugment, mixed with the originals.

``Captured`` replaces an image with probability one half by a capture at a random camera setting, either a
file of the dataset or the original through the simulated camera. This is how ImageNet-ES trains in its
experiments 4 to 6 (Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024,
supplement 4.1 and released code).
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
from sorites.core.errors import Notice, SoritesError, as_utf8
from sorites.core.rng import digest, rng_for
from sorites.io.decode import SUFFIXES, decode
from sorites.io.files import cache, cached
from sorites.io.paths import entries, is_dir, path_of, subfolders
from sorites.training.images import Images


@dataclass(frozen=True)
class Joined:
    """The images of several parts, one part after the other."""

    parts: Sequence[Images]
    _ends: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(accumulate(map(len, self.parts))))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _at(self, index: int) -> tuple[Images, int]:
        part = bisect_right(self._ends, index)
        return self.parts[part], index - (self._ends[part - 1] if part else 0)

    def id(self, index: int) -> str:
        part, inside = self._at(index)
        return part.id(inside)

    def label(self, index: int) -> int:
        part, inside = self._at(index)
        return part.label(inside)

    def image(self, index: int, rng: np.random.Generator) -> ImageU8:
        part, inside = self._at(index)
        return part.image(inside, rng)


@dataclass(frozen=True)
class Chosen:
    """A selection of images by ``indices``, which may repeat."""

    base: Images
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def id(self, index: int) -> str:
        return self.base.id(self.indices[index])

    def label(self, index: int) -> int:
        return self.base.label(self.indices[index])

    def image(self, index: int, rng: np.random.Generator) -> ImageU8:
        return self.base.image(self.indices[index], rng)


def mixed(real: Images, generated: Images, share: float = 0.5, seed: int = 0) -> Joined:
    """Return all generated images and enough real ones that the generated share is ``share``.

    CNS-Bench fine-tunes on half generated and half ImageNet images (appendix C). Real images are chosen by
    the hash of their ids with the seed. If there are too few, they are repeated in that order.
    """
    if not 0 < share < 1:
        raise SoritesError(f"The share of generated images must be between 0 and 1, got {share}.")
    for kind, part in (("real", real), ("generated", generated)):
        if not len(part):
            raise SoritesError(
                f"Training on a mixture needs real and generated images; there are no {kind} ones."
            )
    count = max(1, round(len(generated) * (1 - share) / share))
    order = sorted(range(len(real)), key=lambda index: digest("mixed", seed, real.id(index)))
    return Joined((Chosen(real, [order[i % len(order)] for i in range(count)]), generated))


# Published probability of replacing an original by a capture.
CAPTURE_SHARE = 0.5


class Shots(Protocol):
    """Captures of images, addressed by image index and setting number."""

    def __len__(self) -> int: ...

    def shot(self, index: int, number: int, rng: np.random.Generator) -> ImageU8:
        """Return the capture of image ``index`` at setting ``number``."""
        ...


@dataclass(frozen=True)
class Captured:
    """Images that are replaced by a random capture with probability ``share``."""

    base: Images
    shots: Shots
    share: float = CAPTURE_SHARE

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise SoritesError(f"The share of captures must be between 0 and 1, got {self.share}.")
        if not len(self.shots):
            raise SoritesError(
                "No camera setting is left to take captures from. Raise the LPIPS threshold "
                "captures.cut; the published values are 0.6, 0.8 and 1.0."
            )

    def __len__(self) -> int:
        return len(self.base)

    def id(self, index: int) -> str:
        return self.base.id(index)

    def label(self, index: int) -> int:
        return self.base.label(index)

    def image(self, index: int, rng: np.random.Generator) -> ImageU8:
        if rng.random() >= self.share:
            return self.base.image(index, rng)
        return self.shots.shot(index, int(rng.integers(len(self.shots))), rng)


@dataclass(frozen=True)
class Simulated:
    """Captures computed on demand by applying a shift at one of several settings."""

    base: Images
    settings: Sequence[SettingValue]
    shift: Shift

    def __len__(self) -> int:
        return len(self.settings)

    def shot(self, index: int, number: int, rng: np.random.Generator) -> ImageU8:
        clean = to_float(self.base.image(index, rng))
        return to_uint8(self.shift(clean, self.settings[number], rng))


@dataclass(frozen=True)
class Files:
    """Captures that ship with a dataset: for each image one loader per setting."""

    loads: Sequence[Sequence[Callable[[], ImageU8]]]

    def __len__(self) -> int:
        return min(map(len, self.loads), default=0)

    def shot(self, index: int, number: int, rng: np.random.Generator) -> ImageU8:
        return self.loads[index][number]()


def settings(split: str = "val") -> list[es_grid.Params]:
    """Return the manual camera settings of a published split, for both lights, without auto exposure."""
    return [params for light in es_grid.LIGHTS for params in es_grid.manual(split, light)]


def simulated(base: Images, settings: Sequence[SettingValue], shift: str = "camera") -> Simulated:
    """Return captures of ``base`` by the simulated camera at the given settings."""
    return Simulated(base, tuple(settings), core.shift(shift))


def originals(samples: Sequence[Sample]) -> list[Sample]:
    """Return the unshifted samples: in ImageNet-ES, the reference images."""
    return [sample for sample in samples if sample.shift == CLEAN]


def captured_files(
    base: Images, samples: Sequence[Sample], settings: Sequence[Mapping[str, object]]
) -> Files:
    """Return the captures of ``base`` among the samples of a source such as ``imagenet_es:PATH/es-val``.

    Captures are matched by id and must exist for every image at every setting in ``kept``.
    """
    numbers = {Setting(None, params).canonical: number for number, params in enumerate(settings)}
    loaders: dict[str, dict[int, Callable[[], ImageU8]]] = {}
    for sample in samples:
        number = numbers.get(sample.setting.canonical) if sample.shift != CLEAN else None
        if number is not None:
            loaders.setdefault(sample.id, {})[number] = sample.load
    incomplete = [
        base.id(index) for index in range(len(base)) if len(loaders.get(base.id(index), ())) < len(numbers)
    ]
    if incomplete:
        raise SoritesError(
            f"{len(incomplete)} of {len(base)} images lack captures at some of the {len(numbers)} "
            f"selected settings, first {incomplete[0]} (has {len(loaders.get(incomplete[0], ()))}). "
            "Use a part of ImageNet-ES with captures, such as imagenet_es:PATH/es-val."
        )
    return Files(
        [[loaders[base.id(index)][number] for number in range(len(numbers))] for index in range(len(base))]
    )


# Selection of camera settings by mean LPIPS between captures and originals.


# For each published LPIPS threshold, the validation settings (1 to 64) that are excluded, by light. The paper
# reports results for 0.8.
EXCLUDED_SETTINGS: Mapping[float, Mapping[str, frozenset[int]]] = {
    0.6: {
        "on": frozenset((1, 2, 3, 4, 7, 8, 12, 13, 18, 19, 20, 24, 29, 30, 35, 36, 40, 41, 45, 46, 47, 51, 52,
                         57, 58, 61, 62, 63, 64)),
        "off": frozenset((2, 3, 4, 7, 8, 13, 14, 19, 20, 24, 25, 29, 30, 31, 35, 36, 41, 42, 45, 46, 47, 48,
                          52, 53, 57, 58, 59, 61, 62, 63, 64)),
    },
    0.8: {
        "on": frozenset((3, 4, 8, 19, 20, 29, 36, 45, 46, 57, 61, 62, 63)),
        "off": frozenset((3, 4, 13, 20, 29, 30, 41, 45, 46, 47, 57, 58, 61, 62, 63, 64)),
    },
    1.0: {"on": frozenset((45, 61, 62)), "off": frozenset((29, 45, 46, 57, 61, 62, 63))},
}  # fmt: skip

# Images are enlarged to this shorter side before LPIPS, the size its weights were fitted at.
LPIPS_SIDE_PX = 64

T = TypeVar("T")


def near_settings(settings: Sequence[T], means: Sequence[float], cut: float) -> list[T]:
    """Return the settings whose mean LPIPS is below ``cut``."""
    if len(settings) != len(means):
        raise SoritesError(f"Expected one mean LPIPS for each of {len(settings)} settings, got {len(means)}.")
    if not cut > 0:
        raise SoritesError(f"The LPIPS threshold must be above 0, such as 0.8; got {cut}.")
    near = [setting for setting, mean in zip(settings, means, strict=True) if mean < cut]
    if not near:
        raise SoritesError(f"No setting has a mean LPIPS below {cut}; the lowest is {min(means):.2f}.")
    return near


def mean_lpips(base: Images, shots: Shots, count: int, seed: int = 0) -> list[float]:
    """Return the mean LPIPS of each setting over ``count`` images.

    The images are chosen by the hash of their ids with the seed.

    Results for simulated captures depend only on the images and the shift; they are cached so that a resumed
    training does not measure them again.
    """
    order = sorted(range(len(base)), key=lambda index: digest("lpips", seed, base.id(index)))[:count]
    if not order:
        raise SoritesError("Need at least one image to measure LPIPS on.")

    def compute() -> list[float]:
        values = np.array([_lpips(base, shots, index, seed) for index in order])
        return [float(mean) for mean in values.mean(axis=0)]

    if not isinstance(shots, Simulated):
        return compute()
    shift, settings_key = shots.shift, json.dumps(list(map(str, shots.settings)))
    contents = [base.image(index, rng_for(seed, base.id(index), "lpips")).tobytes() for index in order]
    key = digest(
        measure("lpips").version,
        LPIPS_SIDE_PX,
        seed,
        shift.name,
        shift.version,
        shift.options,
        settings_key,
        *contents,
    )
    return cached(cache("lpips", f"{key.hex()}.json"), lambda: json.dumps(compute()).encode(), _read)


def _read(path: Path) -> list[float]:
    return [float(mean) for mean in json.loads(path.read_bytes())]


def _lpips(base: Images, shots: Shots, index: int, seed: int) -> list[float]:
    """Return the LPIPS of all captures of one image. All captures share the same random draws."""
    lpips, id_ = measure("lpips_linear"), base.id(index)
    clean = enlarged(base.image(index, rng_for(seed, id_, "lpips")))
    captures = (shots.shot(index, number, rng_for(seed, id_, "lpips")) for number in range(len(shots)))
    return [lpips(clean, enlarged(shot)) for shot in captures]


def enlarged(image: ImageU8, side: int = LPIPS_SIDE_PX) -> ImageU8:
    """Enlarge an image (bicubic) to at least ``side`` px on its shorter side.

    Larger images are returned as they are.
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
    """Return the manual validation settings that the authors use at a published threshold, both lights."""
    if cut not in EXCLUDED_SETTINGS:
        published = ", ".join(map(str, EXCLUDED_SETTINGS))
        raise SoritesError(
            f"Settings are published for the thresholds {published}, not for {cut}. For another "
            "threshold, set captures.measured_on = 50 to measure LPIPS on 50 images."
        )
    return [
        params
        for light in es_grid.LIGHTS
        for number, params in enumerate(es_grid.manual("val", light), start=1)
        if number not in EXCLUDED_SETTINGS[cut][light]
    ]


# DeepAugment: images that users generate with the published scripts, one folder per network.


# The published folders, in the order in which they follow the originals.
DEEP_AUGMENT_FOLDERS = ("EDSR", "CAE")


@dataclass(frozen=True)
class Distorted:
    """The distorted images of one folder; ids are the folder name followed by the id of the original."""

    name: str
    files: Sequence[Path]
    originals: Sequence[str]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.files)

    def id(self, index: int) -> str:
        return f"{self.name}/{self.originals[index]}"

    def label(self, index: int) -> int:
        return self.labels[index]

    def image(self, index: int, rng: np.random.Generator) -> ImageU8:
        return decode(self.files[index])


def deep_augmented(base: Images, root: str | Path, folders: Sequence[str] = DEEP_AUGMENT_FOLDERS) -> Joined:
    """Return ``base`` followed by the distorted images in each folder below ``root``.

    Images are matched by class folder and file name; suffixes may differ. Originals without a distorted image
    are reported in one notice per folder.

    Raises:
        SoritesError: If a folder is missing or matches no original.
    """
    return Joined((base, *(_distorted(base, path_of(root) / folder) for folder in folders)))


def _distorted(base: Images, folder: Path) -> Distorted:
    if not is_dir(folder):
        raise SoritesError(
            f"DeepAugment folder {folder} not found. Generate the images with "
            f"{folder.name}_distort_imagenet.py, in class folders, under the file names of the "
            "originals."
        )
    file_of = _files(folder)
    matches = [
        (index, file_of[_key(base.id(index))])
        for index in range(len(base))
        if _key(base.id(index)) in file_of
    ]
    missing = len(base) - len(matches)
    if not matches:
        raise SoritesError(
            f"{folder} has none of the {len(base)} originals. Expected CLASS_FOLDER/NAME such as "
            f"{base.id(0)}, found {min(file_of, default='no images in class folders')}."
        )
    if missing:
        example = next(base.id(index) for index in range(len(base)) if _key(base.id(index)) not in file_of)
        warnings.warn(
            Notice(
                f"{folder.name}: {missing} of {len(base)} originals have no distorted image, first {example}",
                code="deep_augment_incomplete",
            ),
            stacklevel=3,
        )
    indices = [index for index, _ in matches]
    return Distorted(
        folder.name,
        [file for _, file in matches],
        [base.id(p) for p in indices],
        [base.label(p) for p in indices],
    )


def _key(id_: str) -> str:
    """Return class folder and file stem, which an original and its distorted image share."""
    path = PurePosixPath(id_)
    return f"{path.parent.name}/{path.stem}"


def _files(folder: Path) -> dict[str, Path]:
    files = (Path(entry.path) for inside in subfolders(folder) for entry in entries(inside))
    images = (
        file for file in files if file.name.lower().endswith(SUFFIXES) and not file.name.startswith(".")
    )
    return {_key(as_utf8(f"{file.parent.name}/{file.name}")): file for file in images}
