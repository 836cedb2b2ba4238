"""Read CNS-Bench as published: images of a class generated from one seed, with a nuisance turned
up in steps.

    ROOT/<shift>/<class number>_<class name>/seed_0034_scale_1000.jpg        scale 1.0
    ROOT/annotations_cns.json                                                if it is there, it says
        which images count;
                                                                             ?annotations=FILE where
                                                                                 it lies elsewhere
    ROOT/classes.tsv                                                         number, tab and class,
        where these are not
                                                                             ImageNet's;
                                                                                 ?classes=FILE where
                                                                                 it lies elsewhere

A sample is one trajectory, shift / class / seed: its image at scale 0 is the clean one, and the
scale of the others is their severity. Images made with the published scripts
(``seed_0034_startnoise_0750_scale_1000m.png``) are read too. Dünkel et al., "CNS-Bench:
Benchmarking Image Classifier Robustness Under Continuous Nuisance Shifts", ICCV 2025.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from sorites.core import CLEAN, Sample, Setting, add_source
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels, imagenet, labels
from sorites.core.specs import split_options
from sorites.io.paths import entries, is_dir, is_file, leads_inside, path_of, subfolders
from sorites.io.readers import json_file, lines, whole
from sorites.sources.decode import SUFFIXES
from sorites.sources.sidecar import load

# Read the class numbers of a CNS-Bench folder: ImageNet's, or those of a file of its own.


OWN_CLASSES = "classes.tsv"
_NUMBERED = re.compile(r"(\d+)[_ -]")
_WANTED = "one class per line, or a number, a tab and a class"


@functools.cache
def classes() -> dict[int, str]:
    """Return the hundred classes of the benchmark: ImageNet's number to the name it has there."""
    rows = files("sorites.sources").joinpath("cns_classes.tsv").read_text(encoding="utf-8").splitlines()
    return {int(number): name for number, _, name in (row.split("\t") for row in rows[1:])}


@dataclass(frozen=True)
class ClassNumbers:
    """The classes of a folder by number: ``names`` are what labels are found by, ``file`` says
    where they come from.
    """

    names: dict[int, str]
    file: Path | None = None
    found: Labels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hundred = {number: name for number, name in classes().items() if self.file is None}
        object.__setattr__(
            self, "found", labels([hundred.get(number, name) for number, name in self.names.items()])
        )

    @property
    def allowed(self) -> str:
        """Return the numbers that an image's class may have, in words."""
        ordered = sorted(self.names)
        if ordered == list(range(len(ordered))):
            return f"a class from 0 to {len(ordered) - 1}"
        return f"a class that {self.file} numbers"

    def of_folder(self, name: str, folder: Path | PurePosixPath) -> int:
        """Return the class of a folder, by the number its name starts with or by its name; both
        must be one class of a file.
        """
        numbered = _NUMBERED.match(name + "_")
        first = whole(numbered[1]) if numbered else None
        place = self.found.get(name, _NUMBERED.sub("", name, count=1))
        named = None if place is None else list(self.names)[place]
        if first in self.names and (self.file is None or named in (first, None)):
            return int(first or 0)
        if named is not None and first is None:
            return named
        raise SoritesError(f"{folder}: wanted a class folder like {self._example(named)}")

    def _example(self, named: int | None) -> str:
        if self.file is None:
            return "'022_bald eagle': a class number below 1000 and a name"
        number = next(iter(self.names)) if named is None else named
        return f"'{number:03d}_{self.names[number]}': the number of {self.allowed}, then its name"

    def label(self, number: int, space: Labels, image: Path) -> int:
        """Return the label that a class has in the label space of a run."""
        name = self.names.get(number)
        label = None if name is None else space.get(name)
        if label is None:
            called = str(number) if self.file is None else f"{number} ({name})"
            why = (
                "CNS-Bench has ImageNet's classes."
                if self.file is None
                else "Add --labels FILE, a file that has its name."
            )
            raise SoritesError(f"{image}: class {called} is not among the labels. {why}")
        return label


def class_numbers(root: Path, option: str | None) -> ClassNumbers:
    """Return how the classes of a folder are numbered: by the file of the option, by its own file,
    or as in ImageNet.
    """
    own = root / OWN_CLASSES
    if option is None and not is_file(own):
        return as_imagenet()
    file = own if option is None else path_of(option)
    if not is_file(file):
        raise SoritesError(
            f"cns_bench: wanted classes=FILE, a text file with {_WANTED}; got {option}, which does not exist"
        )
    names: dict[int, str] = {}
    for place, line in enumerate(text for text in lines(file, _WANTED) if text.strip()):
        number, tab, name = line.partition("\t")
        first, called = (whole(number), name.strip()) if tab else (place, line.strip())
        if first is None or not called or first in names:
            raise SoritesError(f"{file}: wanted {_WANTED}, each number once; got {line[:80]!r}")
        names[first] = called
    if not names:
        raise SoritesError(f"{file}: wanted {_WANTED}; got an empty file")
    return ClassNumbers(names, file)


@functools.cache
def as_imagenet() -> ClassNumbers:
    """Return the numbers of the published set: ImageNet's."""
    return ClassNumbers(dict(enumerate(imagenet().ids)))


ANNOTATIONS = "annotations_cns.json"
RULES = ("whole", "completed", "all")
_NAME = re.compile(r"seed_(\d+)(?:_startnoise_\d+)?_scale_(-?\d+)m?")
_FIELDS: dict[str, tuple[type, ...]] = {
    "image": (str,),
    "seed": (int,),
    "scale": (int, float),
    "shift": (str,),
    "class": (int,),
}


@dataclass(frozen=True)
class CnsImage:
    """One image of a trajectory: where it lies below the root, and which step of which trajectory it is."""

    path: str
    shift: str
    number: int
    seed: int
    scale: float

    @property
    def trajectory(self) -> str:
        """Return the id of the trajectory: shift / class / seed."""
        return f"{self.shift}/{self.number:03d}/seed_{self.seed:04d}"


@add_source
def cns_bench(path: str | None, labels: Labels) -> list[Sample]:
    """Read CNS-Bench from its folder or its annotation file, shift / class / seed / scale.

    ``PATH?trajectories=whole`` (the default) leaves out, with a warning, trajectories that lack a
    scale that others have, as the published set does; ``completed`` first takes a missing scale 0
    from the same class and seed under another shift, which is the same image; ``all`` keeps every
    image. ``PATH?annotations=FILE`` takes the images that an annotation file names, wherever
    that file lies; their paths in it are below PATH. ``PATH?classes=FILE`` numbers the classes
    where images were generated for others than ImageNet's: number, tab and class, or the classes
    alone, numbered from 0. A file ``classes.tsv`` in the folder does the same.
    """
    where, options = split_options(
        "cns_bench", path, {"trajectories": RULES, "annotations": (), "classes": ()}
    )
    place = path_of(where)
    space = class_numbers(place.parent if is_file(place) else place, options.get("classes"))
    root, found = _found(place, options.get("annotations"), space)
    kept = _trajectories(found, options.get("trajectories", "whole"), root)
    steps = sorted({image.scale for image in kept} - {0.0})
    return [
        _sample(root, image, steps, space.label(image.number, labels, root / image.path)) for image in kept
    ]


def _found(path: Path, apart: str | None, space: ClassNumbers) -> tuple[Path, list[CnsImage]]:
    """Return the root of the images and which of them count; ``apart`` is an annotation file that
    lies elsewhere.
    """
    if is_file(path):
        if apart is not None:
            raise SoritesError(
                f"cns_bench: with annotations=FILE, wanted the folder of the images, got the file {path}"
            )
        return path.parent, list(_annotated(path, space))
    if not is_dir(path):
        raise SoritesError(
            f"wanted the folder of CNS-Bench or its annotation file, got {path}, which does not exist"
        )
    annotations = path / ANNOTATIONS if apart is None else path_of(apart)
    read = apart is not None or is_file(annotations)
    images = list(_annotated(annotations, space) if read else _walked(path, space))
    if not images:
        raise SoritesError(
            f"there are no images shift/class/seed_SSSS_scale_MMMM.jpg in {annotations if read else path}"
        )
    return path, images


def _annotated(file: Path, space: ClassNumbers) -> Iterator[CnsImage]:
    data = json_file(file, "JSON with a list of images")
    images = data.get("images") if isinstance(data, dict) else None
    if not isinstance(images, list):
        raise SoritesError(
            f"{file}: wanted JSON with a list of images, got"
            f" {type(data if images is None else images).__name__}"
        )
    for row, image in enumerate(images):
        where = f"{file}, image {row}"
        if not isinstance(image, dict) or any(not _is(image.get(key), kind) for key, kind in _FIELDS.items()):
            raise SoritesError(f"{where}: wanted {', '.join(_FIELDS)}; got {repr(image)[:200]}")
        if not leads_inside(image["image"]):
            raise SoritesError(
                f"{where}: wanted image as a path below the images' folder, got {image['image']!r}"
            )
        image_u8 = CnsImage(
            image["image"], image["shift"], image["class"], image["seed"], float(image["scale"])
        )
        yield _checked(image_u8, where, space)


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether a value of an annotation is of the kind wanted: a number of a size that a
    table can hold, or text.
    """
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, int | float) or -(2**31) < value < 2**31


def _checked(image: CnsImage, where: object, space: ClassNumbers) -> CnsImage:
    """Return the same image if it can be a step of a trajectory."""
    if image.number not in space.names:
        raise SoritesError(f"{where}: wanted {space.allowed}, got {image.number}")
    if image.seed < 0:
        raise SoritesError(f"{where}: wanted a seed from 0 up, got {image.seed}")
    if image.shift in ("", CLEAN):
        raise SoritesError(
            f"{where}: wanted the name of a shift, got {image.shift!r}, as images at scale 0 are called"
        )
    return image


def _walked(root: Path, space: ClassNumbers) -> Iterator[CnsImage]:
    for shift in subfolders(root):
        for folder in subfolders(shift):
            number = space.of_folder(folder.name, folder)
            for file in entries(folder):
                if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."):
                    yield _named(Path(file.path), root, as_utf8(shift.name), number, space)


def _named(file: Path, root: Path, shift: str, number: int, space: ClassNumbers) -> CnsImage:
    seed, scale = _seed_and_scale(file)
    return _checked(
        CnsImage(file.relative_to(root).as_posix(), shift, number, seed, scale), file.parent.parent, space
    )


def _seed_and_scale(file: Path | PurePosixPath) -> tuple[int, float]:
    found = _NAME.fullmatch(file.stem)
    if not found or len(found[1]) > 9 or len(found[2]) > 9:
        raise SoritesError(f"{file}: wanted a name like seed_0034_scale_1000.jpg")
    return int(found[1]), int(found[2]) / 1000


def named_image(path: str) -> CnsImage:
    """Return what a path ``…/shift/class/seed_0034_scale_1000.jpg`` says of its image, which need
    not exist.
    """
    file = PurePosixPath(path.replace("\\", "/"))
    if len(file.parts) < 3:
        raise SoritesError(f"{path}: wanted a path that ends in shift/class/seed_0034_scale_1000.jpg")
    seed, scale = _seed_and_scale(file)
    space = as_imagenet()
    return _checked(
        CnsImage(path, file.parts[-3], space.of_folder(file.parts[-2], file.parent), seed, scale),
        path,
        space,
    )


def _trajectories(images: Iterable[CnsImage], rule: str, root: Path) -> list[CnsImage]:
    """Return the images that the rule keeps, trajectory by trajectory; two images at one scale
    are an error.
    """
    trajectories: dict[str, dict[float, CnsImage]] = {}
    for image in sorted(images, key=lambda s: (s.trajectory, s.scale, s.path)):
        steps = trajectories.setdefault(image.trajectory, {})
        if image.scale in steps:
            twice = f"{steps[image.scale].path} and {image.path}"
            raise SoritesError(
                f"{root}: two images of {image.trajectory} at scale {image.scale:g}: {twice}. Remove one."
            )
        steps[image.scale] = image
    if rule == "completed":
        _complete(trajectories)
    if rule != "all":
        trajectories = _whole(trajectories, root)
    return [image for steps in trajectories.values() for _, image in sorted(steps.items())]


def _complete(trajectories: dict[str, dict[float, CnsImage]]) -> None:
    """Give trajectories without a scale 0 the one of the same class and seed under another shift."""
    starts = {
        (s.number, s.seed): s for steps in trajectories.values() for s in steps.values() if s.scale == 0
    }
    for steps in trajectories.values():
        any_ = next(iter(steps.values()))
        if 0.0 not in steps and (any_.number, any_.seed) in starts:
            steps[0.0] = replace(starts[any_.number, any_.seed], shift=any_.shift)


def _whole(trajectories: dict[str, dict[float, CnsImage]], root: Path) -> dict[str, dict[float, CnsImage]]:
    """Return the trajectories that have every scale; warn about the others."""
    scales = {scale for steps in trajectories.values() for scale in steps}
    whole = {name: steps for name, steps in trajectories.items() if steps.keys() == scales}
    if not whole:
        raise SoritesError(
            f"no trajectory in {root} has all of the scales {sorted(scales)}. Add ?trajectories=all to keep"
            " parts."
        )
    if len(whole) < len(trajectories):
        first = next(name for name in trajectories if name not in whole)
        lost = len(trajectories) - len(whole)
        warnings.warn(
            f"{lost} of {len(trajectories)} trajectories lack a scale and are left out, first {first}",
            stacklevel=4,
        )
    return whole


def _sample(root: Path, image: CnsImage, steps: list[float], label: int) -> Sample:
    clean = Sample(image.trajectory, functools.partial(load, root, image.path), label)
    if image.scale == 0:
        return clean
    return replace(clean, shift=image.shift, setting=Setting(image.scale, level=steps.index(image.scale) + 1))
