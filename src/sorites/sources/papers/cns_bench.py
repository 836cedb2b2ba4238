"""Read CNS-Bench as published: images generated from one class and seed, with a nuisance shift of increasing
scale.

    ROOT/<shift>/<class number>_<class name>/seed_0034_scale_1000.jpg    scale 1.0
    ROOT/annotations_cns.json    optional, selects the images; ?annotations=FILE if it is elsewhere
    ROOT/classes.tsv             number, tab and class, for classes other than ImageNet's;
                                 ?classes=FILE if it is elsewhere

Folders of two sliders at once (``snow x night/002_cup/seed_0034_snow_0500_night_1000.png``), which Sorites
writes, are grids: such images have both severities as params.

A sample is one trajectory (shift / class / seed): its image at scale 0 is the clean one, and the scale
of the others is their severity. Images made with the published scripts
(``seed_0034_startnoise_0750_scale_1000m.png``) are read too. Dünkel et al., "CNS-Bench: Benchmarking
Image Classifier Robustness Under Continuous Nuisance Shifts", ICCV 2025.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from sorites.core import CLEAN, FileRef, Sample, Setting, add_source
from sorites.core.compositions import TIMES
from sorites.core.errors import Notice, SoritesError, as_utf8
from sorites.core.labels import Labels, imagenet, labels
from sorites.core.messages import option as cli_option
from sorites.core.specs import split_options
from sorites.io.decode import SUFFIXES
from sorites.io.paths import entries, is_dir, is_file, is_relative_inside, path_of, subfolders
from sorites.io.readers import json_file, lines, parse_integer
from sorites.sources.sidecar import file_in
from sorites.sources.written import GENERATED

# Class numbers: ImageNet's, or those of a file.


OWN_CLASSES = "classes.tsv"
_NUMBERED = re.compile(r"(\d+)[_ -]")
_CLASS_FORMAT = "one class per line, or a number, a tab and a class"


@functools.cache
def classes() -> dict[int, str]:
    """Map the ImageNet numbers of the benchmark's hundred classes to their names in the benchmark."""
    rows = files("sorites.sources").joinpath("cns_classes.tsv").read_text(encoding="utf-8").splitlines()
    return {int(number): name for number, _, name in (row.split("\t") for row in rows[1:])}


@dataclass(frozen=True)
class ClassNumbers:
    """The classes of a folder by number.

    Attributes:
        names: The class ids or names by number.
        file: The file that defines them; None for ImageNet.
        folder_labels: The class names that folders may have.
    """

    names: dict[int, str]
    file: Path | None = None
    folder_labels: Labels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hundred = {number: name for number, name in classes().items() if self.file is None}
        object.__setattr__(
            self, "folder_labels", labels([hundred.get(number, name) for number, name in self.names.items()])
        )

    @property
    def allowed(self) -> str:
        """A description of the allowed class numbers, for messages."""
        ordered = sorted(self.names)
        if ordered == list(range(len(ordered))):
            return f"a class from 0 to {len(ordered) - 1}"
        return f"a class that {self.file} numbers"

    def of_folder(self, name: str, folder: Path | PurePosixPath) -> int:
        """Return the class of a folder by its leading number or its name; if a file defines the classes,
        both must agree.
        """
        numbered = _NUMBERED.match(name + "_")
        first = parse_integer(numbered[1]) if numbered else None
        index = self.folder_labels.get(name, _NUMBERED.sub("", name, count=1))
        named = None if index is None else list(self.names)[index]
        if first in self.names and (self.file is None or named in (first, None)):
            return int(first or 0)
        if named is not None and first is None:
            return named
        raise SoritesError(f"{folder}: expected a class folder like {self._example(named)}")

    def _example(self, named: int | None) -> str:
        if self.file is None:
            return "'022_bald eagle': a class number below 1000 and a name"
        number = next(iter(self.names)) if named is None else named
        return f"'{number:03d}_{self.names[number]}': the number of {self.allowed}, then its name"

    def label(self, number: int, space: Labels, image: Path) -> int:
        """Return the label of a class in the label space of a run."""
        name = self.names.get(number)
        label = None if name is None else space.get(name)
        if label is None:
            description = str(number) if self.file is None else f"{number} ({name})"
            hint = (
                "CNS-Bench has ImageNet's classes."
                if self.file is None
                else f"Pass {cli_option('labels', 'FILE')}, a file that contains its name."
            )
            raise SoritesError(f"{image}: class {description} is not among the labels. {hint}")
        return label


def class_numbers(root: Path, option: str | None) -> ClassNumbers:
    """Return the class numbers of a folder: from the file of the option, from its own file, or ImageNet's."""
    own = root / OWN_CLASSES
    if option is None and not is_file(own):
        return as_imagenet()
    file = own if option is None else path_of(option)
    if not is_file(file):
        raise SoritesError(
            f"cns_bench: expected classes=FILE, a text file with {_CLASS_FORMAT}; {option} does not exist"
        )
    GENERATED.verify(file)
    names: dict[int, str] = {}
    for i, line in enumerate(text for text in lines(file, _CLASS_FORMAT) if text.strip()):
        number, tab, name = line.partition("\t")
        first, class_name = (parse_integer(number), name.strip()) if tab else (i, line.strip())
        if first is None or not class_name or first in names:
            raise SoritesError(f"{file}: expected {_CLASS_FORMAT}, each number once; got {line[:80]!r}")
        names[first] = class_name
    if not names:
        raise SoritesError(f"{file}: expected {_CLASS_FORMAT}; got an empty file")
    return ClassNumbers(names, file)


@functools.cache
def as_imagenet() -> ClassNumbers:
    """Return ImageNet's class numbers, which the published dataset uses."""
    return ClassNumbers(dict(enumerate(imagenet().ids)))


ANNOTATIONS = "annotations_cns.json"
RULES = ("whole", "completed", "all")
_SCALE = r"(-?\d+(?:\.\d+)?)"
_NAME = re.compile(rf"seed_(\d+)(?:_startnoise_\d+)?_scale_{_SCALE}m?")
# Characters of a number in a file name, at most.
_MAX_DIGITS = 30
_FIELDS: dict[str, tuple[type, ...]] = {
    "image": (str,),
    "seed": (int,),
    "scale": (int, float),
    "shift": (str,),
    "class": (int,),
}


# A folder of figures among those of shifts.
SHEETS = "sheets"
# The severities of the sliders of an image.
Point = tuple[float, ...]


@dataclass(frozen=True)
class CnsImage:
    """An image of a trajectory: its path below the root, and its shift, class number, seed and scale.

    ``pair`` has the severities of two sliders at once, in the order of the shift's name ``a x b``; then the
    scale is not used.
    """

    path: str
    shift: str
    number: int
    seed: int
    scale: float
    pair: tuple[float, ...] = ()

    @property
    def trajectory(self) -> str:
        """The id of the trajectory: shift / class / seed."""
        return f"{self.shift}/{self.number:03d}/seed_{self.seed:04d}"

    @property
    def at(self) -> tuple[float, ...]:
        """The severities of its sliders."""
        return self.pair or (self.scale,)


@add_source
def cns_bench(path: str | None, labels: Labels) -> list[Sample]:
    """Read CNS-Bench from its folder or its annotation file, shift / class / seed / scale.

    ``PATH?trajectories=whole`` (the default) drops, with a warning, trajectories that lack a scale that
    others have, as in the published set; ``completed`` first copies a missing scale 0 from the same
    class and seed under another shift, which is the same image; ``all`` keeps every image.
    ``PATH?annotations=FILE`` reads the images listed in an annotation file, with paths relative to PATH.
    ``PATH?classes=FILE`` defines classes other than ImageNet's: number, tab and class, or only classes,
    numbered from 0. A file ``classes.tsv`` in the folder does the same.
    """
    where, options = split_options(
        "cns_bench", path, {"trajectories": RULES, "annotations": (), "classes": ()}
    )
    location = path_of(where)
    space = class_numbers(location.parent if is_file(location) else location, options.get("classes"))
    root, images = _list_images(location, options.get("annotations"), space)
    digests = GENERATED.digests(root)
    selected = _trajectories(images, options.get("trajectories", "whole"), root)
    steps = sorted({image.scale for image in selected if not image.pair} - {0.0})
    return [
        _sample(
            file_in(root, image.path, digests.get(image.path, "")),
            image,
            steps,
            space.label(image.number, labels, root / image.path),
        )
        for image in selected
    ]


def _list_images(path: Path, annotation_file: str | None, space: ClassNumbers) -> tuple[Path, list[CnsImage]]:
    """Return the root and the images, from annotations if there are any, otherwise from folders."""
    if is_file(path):
        if annotation_file is not None:
            raise SoritesError(
                f"cns_bench: with annotations=FILE, expected the folder of the images, got the file {path}"
            )
        return path.parent, list(_read_annotations(path, space))
    if not is_dir(path):
        raise SoritesError(
            f"expected the folder of CNS-Bench or its annotation file, but {path} does not exist"
        )
    annotations = path / ANNOTATIONS if annotation_file is None else path_of(annotation_file)
    has_annotations = annotation_file is not None or is_file(annotations)
    if has_annotations and is_file(annotations):
        GENERATED.verify(annotations)
    images = list(_read_annotations(annotations, space) if has_annotations else _walk(path, space))
    if not images:
        raise SoritesError(
            f"no images shift/class/seed_SSSS_scale_MMMM.jpg in {annotations if has_annotations else path}"
        )
    return path, images


def _read_annotations(file: Path, space: ClassNumbers) -> Iterator[CnsImage]:
    data = json_file(file, "JSON with a list of images")
    images = data.get("images") if isinstance(data, dict) else None
    if not isinstance(images, list):
        actual = type(data if images is None else images).__name__
        raise SoritesError(f"{file}: expected JSON with a list of images, got {actual}")
    for row, image in enumerate(images):
        where = f"{file}, image {row}"
        if not isinstance(image, dict) or any(not _is(image.get(key), kind) for key, kind in _FIELDS.items()):
            raise SoritesError(f"{where}: expected {', '.join(_FIELDS)}; got {repr(image)[:200]}")
        if not is_relative_inside(image["image"]):
            raise SoritesError(
                f"{where}: expected image as a path below the folder of images, got {image['image']!r}"
            )
        cns_image = CnsImage(
            image["image"], image["shift"], image["class"], image["seed"], float(image["scale"])
        )
        yield _check(cns_image, where, space)


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether an annotation value has one of the types; numbers must fit into 32 bits."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, int | float) or -(2**31) < value < 2**31


def _check(image: CnsImage, where: object, space: ClassNumbers) -> CnsImage:
    """Return the image if its class, seed and shift are valid."""
    if image.number not in space.names:
        raise SoritesError(f"{where}: expected {space.allowed}, got {image.number}")
    if image.seed < 0:
        raise SoritesError(f"{where}: expected a seed from 0 up, got {image.seed}")
    if image.shift in ("", CLEAN):
        raise SoritesError(
            f"{where}: expected the name of a shift, got {image.shift!r}, which is reserved for scale 0"
        )
    return image


def _walk(root: Path, space: ClassNumbers) -> Iterator[CnsImage]:
    for shift in subfolders(root):
        if shift.name == SHEETS:
            continue
        for folder in subfolders(shift):
            number = space.of_folder(folder.name, folder)
            for file in entries(folder):
                if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."):
                    yield _from_file(Path(file.path), root, as_utf8(shift.name), number, space)


def _from_file(file: Path, root: Path, shift: str, number: int, space: ClassNumbers) -> CnsImage:
    path = file.relative_to(root).as_posix()
    if TIMES in shift:
        seed, pair = _seed_and_pair(file, shift)
        image = CnsImage(path, shift, number, seed, 0.0, pair)
    else:
        seed, scale = _seed_and_scale(file)
        image = CnsImage(path, shift, number, seed, scale)
    return _check(image, file.parent.parent, space)


def scale_name(scale: float) -> str:
    """Return a scale as in file names: in thousandths, with four digits and decimals where it has more.

    ``_scale_of`` gives the same float back.
    """
    thousandths = Decimal(repr(float(scale))).scaleb(3)
    if thousandths == thousandths.to_integral_value():
        return f"{int(thousandths):04d}"
    whole, _, decimals = format(abs(thousandths).normalize(), "f").partition(".")
    return f"{'-' * (scale < 0)}{int(whole):04d}.{decimals}"


def _scale_of(text: str) -> float:
    return float(Decimal(text).scaleb(-3))


def pair_name(shift: str, seed: int, pair: Sequence[float]) -> str:
    """Return the file name, without its suffix, of an image with several sliders at once."""
    parts = (
        f"_{name}_{scale_name(severity)}" for name, severity in zip(shift.split(TIMES), pair, strict=True)
    )
    return f"seed_{seed:04d}{''.join(parts)}"


def _seed_and_pair(file: Path, shift: str) -> tuple[int, tuple[float, ...]]:
    names = shift.split(TIMES)
    match = re.fullmatch(rf"seed_(\d+){''.join(f'_{re.escape(name)}_{_SCALE}' for name in names)}", file.stem)
    if not match or max(map(len, match.groups())) > _MAX_DIGITS:
        example = pair_name(shift, 34, [0.5] * len(names))
        raise SoritesError(f"{file}: expected a name like {example}.jpg")
    return int(match[1]), tuple(_scale_of(text) for text in match.groups()[1:])


def _seed_and_scale(file: Path | PurePosixPath) -> tuple[int, float]:
    match = _NAME.fullmatch(file.stem)
    if not match or len(match[1]) > 9 or len(match[2]) > _MAX_DIGITS or abs(_scale_of(match[2])) >= 10**6:
        raise SoritesError(f"{file}: expected a name like seed_0034_scale_1000.jpg")
    return int(match[1]), _scale_of(match[2])


def named_image(path: str) -> CnsImage:
    """Parse a path ``…/shift/class/seed_0034_scale_1000.jpg``; the file need not exist."""
    file = PurePosixPath(path.replace("\\", "/"))
    if len(file.parts) < 3:
        raise SoritesError(f"{path}: expected a path that ends in shift/class/seed_0034_scale_1000.jpg")
    seed, scale = _seed_and_scale(file)
    space = as_imagenet()
    return _check(
        CnsImage(path, file.parts[-3], space.of_folder(file.parts[-2], file.parent), seed, scale),
        path,
        space,
    )


def _trajectories(images: Iterable[CnsImage], rule: str, root: Path) -> list[CnsImage]:
    """Return the images selected by the rule, grouped by trajectory; two images at one scale are an error."""
    trajectories: dict[str, dict[Point, CnsImage]] = {}
    for image in sorted(images, key=lambda s: (s.trajectory, s.at, s.path)):
        steps = trajectories.setdefault(image.trajectory, {})
        if image.at in steps:
            duplicates = f"{steps[image.at].path} and {image.path}"
            scale = " x ".join(f"{scale:g}" for scale in image.at)
            raise SoritesError(
                f"{root}: two images of {image.trajectory} at scale {scale}: {duplicates}. Remove one."
            )
        steps[image.at] = image
    if rule == "completed":
        _add_clean_images(trajectories)
    if rule != "all":
        trajectories = _complete_only(trajectories, root)
    return [image for steps in trajectories.values() for _, image in sorted(steps.items())]


def _add_clean_images(trajectories: dict[str, dict[Point, CnsImage]]) -> None:
    """Copy missing images of scale 0 from the same class and seed under another shift."""
    starts = {
        (s.number, s.seed): s for steps in trajectories.values() for s in steps.values() if not any(s.at)
    }
    for steps in trajectories.values():
        any_ = next(iter(steps.values()))
        zero = (0.0,) * len(any_.at)
        if zero not in steps and (any_.number, any_.seed) in starts:
            start = starts[any_.number, any_.seed]
            steps[zero] = replace(start, shift=any_.shift, pair=zero if any_.pair else ())


def _complete_only(
    trajectories: dict[str, dict[Point, CnsImage]], root: Path
) -> dict[str, dict[Point, CnsImage]]:
    """Return the trajectories that have every scale; warn about the others."""
    scales = {scale for steps in trajectories.values() for scale in steps}
    complete = {name: steps for name, steps in trajectories.items() if steps.keys() == scales}
    if not complete:
        listed = [scale[0] if len(scale) == 1 else scale for scale in sorted(scales)]
        raise SoritesError(
            f"no trajectory in {root} has all of the scales {listed}. Add ?trajectories=all to keep"
            " incomplete ones."
        )
    if len(complete) < len(trajectories):
        first = next(name for name in trajectories if name not in complete)
        dropped = len(trajectories) - len(complete)
        text = f"{dropped} of {len(trajectories)} trajectories lack a scale and are left out, first {first}"
        warnings.warn(Notice(text, code="incomplete_trajectories", count=dropped), stacklevel=4)
    return complete


def _sample(file: FileRef, image: CnsImage, steps: list[float], label: int) -> Sample:
    clean = Sample(image.trajectory, file, label)
    if not any(image.at):
        return clean
    if image.pair:
        params = dict(zip(image.shift.split(TIMES), image.pair, strict=True))
        return replace(clean, shift=image.shift, setting=Setting(None, params))
    return replace(clean, shift=image.shift, setting=Setting(image.scale, level=steps.index(image.scale) + 1))
