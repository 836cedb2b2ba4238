"""Read CNS-Bench as published: pictures of a class generated from one seed, with a nuisance turned up in steps.

    ROOT/<shift>/<class number>_<class name>/seed_0034_scale_1000.jpg        scale 1.0
    ROOT/annotations_cns.json                                                if it is there, it says which pictures count;
                                                                             ?annotations=FILE where it lies elsewhere
    ?classes=FILE                                                            the classes, one per line and numbered from 0,
                                                                             where they are not ImageNet's

A sample is one trajectory, shift / class / seed: its picture at scale 0 is the clean one, and the scale of the others is their
severity.
Pictures made with the published scripts (``seed_0034_startnoise_0750_scale_1000m.png``) are read too.
Dünkel et al., "CNS-Bench: Benchmarking Image Classifier Robustness Under Continuous Nuisance Shifts", ICCV 2025.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from sorites.core import CLEAN, Sample, Setting, add_source
from sorites.errors import SoritesError, as_utf8
from sorites.labels import Labels, imagenet
from sorites.labels import labels as classes_of
from sorites.reading.places import entries, is_dir, is_file, leads_inside, path_of, subfolders
from sorites.reading.texts import json_file, whole
from sorites.sources._decode import SUFFIXES
from sorites.sources._options import split_options
from sorites.sources._sidecar import load

ANNOTATIONS = "annotations_cns.json"
RULES = ("whole", "completed", "all")
_NAME = re.compile(r"seed_(\d+)(?:_startnoise_\d+)?_scale_(-?\d+)m?")
_NUMBERED = re.compile(r"(\d+)[_ -]")
_FIELDS: dict[str, tuple[type, ...]] = {"image": (str,), "seed": (int,), "scale": (int, float), "shift": (str,), "class": (int,)}


@dataclass(frozen=True)
class CnsPicture:
    """One picture of a trajectory: where it lies below the root, and which step of which trajectory it is."""

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

    ``PATH?trajectories=whole`` (the default) leaves out, with a warning, trajectories that lack a scale that others have, as
    the published set does; ``completed`` first takes a missing scale 0 from the same class and seed under another shift, which
    is the same picture; ``all`` keeps every picture. ``PATH?annotations=FILE`` takes the pictures that an annotation file names,
    wherever that file lies; their paths in it are below PATH. ``PATH?classes=FILE`` numbers classes by the lines of a text file,
    from 0, where pictures were generated for others than ImageNet's.
    """
    where, options = split_options("cns_bench", path, {"trajectories": RULES, "annotations": (), "classes": ()})
    file = options.get("classes")
    space = imagenet() if file is None else _class_file(file)
    root, found = _found(path_of(where), options.get("annotations"), space)
    kept = _trajectories(found, options.get("trajectories", "whole"), root)
    place = {id_: i for i, id_ in enumerate(labels.ids)} if file is None else _places(space, labels)
    steps = sorted({picture.scale for picture in kept} - {0.0})
    return [_sample(root, picture, steps, _label(picture, place, root, space, file)) for picture in kept]


def _class_file(file: str) -> Labels:
    if not is_file(path_of(file)):
        raise SoritesError(f"cns_bench: wanted classes=FILE, a text file with a class per line, got {file}, which does not exist")
    return classes_of(str(path_of(file)))


def _places(space: Labels, labels: Labels) -> dict[str, int]:
    """Return the label of each class of a class file that the labels have by that name."""
    found = {id_: labels.get(id_) for id_ in space.ids}
    return {id_: label for id_, label in found.items() if label is not None}


@functools.cache
def classes() -> dict[int, str]:
    """Return the hundred classes of the benchmark: ImageNet's number to the name it has there."""
    lines = files("sorites.sources").joinpath("cns_classes.tsv").read_text(encoding="utf-8").splitlines()
    return {int(number): name for number, _, name in (line.split("\t") for line in lines[1:])}


def _found(path: Path, apart: str | None, space: Labels) -> tuple[Path, list[CnsPicture]]:
    """Return the root of the pictures and which of them count; ``apart`` is an annotation file that lies elsewhere."""
    if is_file(path):
        if apart is not None:
            raise SoritesError(f"cns_bench: with annotations=FILE, wanted the folder of the pictures, got the file {path}")
        return path.parent, list(_annotated(path, space))
    if not is_dir(path):
        raise SoritesError(f"wanted the folder of CNS-Bench or its annotation file, got {path}, which does not exist")
    annotations = path / ANNOTATIONS if apart is None else path_of(apart)
    read = apart is not None or is_file(annotations)
    pictures = list(_annotated(annotations, space) if read else _walked(path, space))
    if not pictures:
        raise SoritesError(f"there are no pictures shift/class/seed_SSSS_scale_MMMM.jpg in {annotations if read else path}")
    return path, pictures


def _annotated(file: Path, space: Labels) -> Iterator[CnsPicture]:
    data = json_file(file, "JSON with a list of images")
    images = data.get("images") if isinstance(data, dict) else None
    if not isinstance(images, list):
        raise SoritesError(f"{file}: wanted JSON with a list of images, got {type(data if images is None else images).__name__}")
    for row, image in enumerate(images):
        where = f"{file}, image {row}"
        if not isinstance(image, dict) or any(not _is(image.get(key), kind) for key, kind in _FIELDS.items()):
            raise SoritesError(f"{where}: wanted {', '.join(_FIELDS)}; got {repr(image)[:200]}")
        if not leads_inside(image["image"]):
            raise SoritesError(f"{where}: wanted image as a path below the pictures' folder, got {image['image']!r}")
        picture = CnsPicture(image["image"], image["shift"], image["class"], image["seed"], float(image["scale"]))
        yield _checked(picture, where, space)


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether a value of an annotation is of the kind wanted: a number of a size that a table can hold, or text."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, int | float) or -(2**31) < value < 2**31


def _checked(picture: CnsPicture, where: object, space: Labels) -> CnsPicture:
    """Return the same picture if it can be a step of a trajectory."""
    if not 0 <= picture.number < len(space):
        raise SoritesError(f"{where}: wanted a class from 0 to {len(space) - 1}, got {picture.number}")
    if picture.seed < 0:
        raise SoritesError(f"{where}: wanted a seed from 0 up, got {picture.seed}")
    if picture.shift in ("", CLEAN):
        raise SoritesError(f"{where}: wanted the name of a shift, got {picture.shift!r}, as pictures at scale 0 are called")
    return picture


def _walked(root: Path, space: Labels) -> Iterator[CnsPicture]:
    for shift in subfolders(root):
        for folder in subfolders(shift):
            number = _number(folder.name, folder, space)
            for file in entries(folder):
                if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."):
                    yield _named(Path(file.path), root, as_utf8(shift.name), number, space)


def _number(name: str, folder: Path | PurePosixPath, space: Labels) -> int:
    """Return the class of a folder, by the number its name starts with or by its name among the hundred, or in a class file."""
    numbered = _NUMBERED.match(name + "_")
    first = whole(numbered[1]) if numbered else None
    if space is not imagenet():
        return _number_in_file(name, first, folder, space)
    if first is not None and first < len(imagenet()):
        return first
    of = {name: number for number, name in classes().items()}
    plain = name.replace("_", " ").lower()
    if plain not in of:
        raise SoritesError(f"{folder}: wanted a class folder like '022_bald eagle': a class number below 1000 and a name")
    return of[plain]


def _number_in_file(name: str, first: int | None, folder: Path | PurePosixPath, space: Labels) -> int:
    """Return the number of a class of a class file; a folder whose number and name are two classes of it is an error."""
    named = space.get(name, _NUMBERED.sub("", name, count=1))
    if first is not None and first < len(space) and named in (first, None):
        return first
    if named is None or (first is not None and named != first):
        wanted = f"{named or 0:03d}_{space.ids[named or 0]}"
        raise SoritesError(f"{folder}: wanted a class folder like {wanted!r}: a number from 0 to {len(space) - 1} and its class")
    return named


def _named(file: Path, root: Path, shift: str, number: int, space: Labels) -> CnsPicture:
    seed, scale = _seed_and_scale(file)
    return _checked(CnsPicture(file.relative_to(root).as_posix(), shift, number, seed, scale), file.parent.parent, space)


def _seed_and_scale(file: Path | PurePosixPath) -> tuple[int, float]:
    found = _NAME.fullmatch(file.stem)
    if not found or len(found[1]) > 9 or len(found[2]) > 9:
        raise SoritesError(f"{file}: wanted a name like seed_0034_scale_1000.jpg")
    return int(found[1]), int(found[2]) / 1000


def named_picture(path: str) -> CnsPicture:
    """Return what a path ``…/shift/class/seed_0034_scale_1000.jpg`` says of its picture, which need not exist."""
    file = PurePosixPath(path.replace("\\", "/"))
    if len(file.parts) < 3:
        raise SoritesError(f"{path}: wanted a path that ends in shift/class/seed_0034_scale_1000.jpg")
    seed, scale = _seed_and_scale(file)
    number = _number(file.parts[-2], file.parent, imagenet())
    return _checked(CnsPicture(path, file.parts[-3], number, seed, scale), path, imagenet())


def _trajectories(pictures: Iterable[CnsPicture], rule: str, root: Path) -> list[CnsPicture]:
    """Return the pictures that the rule keeps, trajectory by trajectory; two pictures at one scale are an error."""
    trajectories: dict[str, dict[float, CnsPicture]] = {}
    for picture in sorted(pictures, key=lambda s: (s.trajectory, s.scale, s.path)):
        steps = trajectories.setdefault(picture.trajectory, {})
        if picture.scale in steps:
            twice = f"{steps[picture.scale].path} and {picture.path}"
            raise SoritesError(f"{root}: two pictures of {picture.trajectory} at scale {picture.scale:g}: {twice}. Remove one.")
        steps[picture.scale] = picture
    if rule == "completed":
        _complete(trajectories)
    if rule != "all":
        trajectories = _whole(trajectories, root)
    return [picture for steps in trajectories.values() for _, picture in sorted(steps.items())]


def _complete(trajectories: dict[str, dict[float, CnsPicture]]) -> None:
    """Give trajectories without a scale 0 the one of the same class and seed under another shift."""
    starts = {(s.number, s.seed): s for steps in trajectories.values() for s in steps.values() if s.scale == 0}
    for steps in trajectories.values():
        any_ = next(iter(steps.values()))
        if 0.0 not in steps and (any_.number, any_.seed) in starts:
            steps[0.0] = replace(starts[any_.number, any_.seed], shift=any_.shift)


def _whole(trajectories: dict[str, dict[float, CnsPicture]], root: Path) -> dict[str, dict[float, CnsPicture]]:
    """Return the trajectories that have every scale; warn about the others."""
    scales = {scale for steps in trajectories.values() for scale in steps}
    whole = {name: steps for name, steps in trajectories.items() if steps.keys() == scales}
    if not whole:
        raise SoritesError(
            f"no trajectory in {root} has all of the scales {sorted(scales)}. Add ?trajectories=all to keep parts."
        )
    if len(whole) < len(trajectories):
        first = next(name for name in trajectories if name not in whole)
        lost = len(trajectories) - len(whole)
        warnings.warn(f"{lost} of {len(trajectories)} trajectories lack a scale and are left out, first {first}", stacklevel=4)
    return whole


def _label(picture: CnsPicture, place: dict[str, int], root: Path, space: Labels, file: str | None) -> int:
    ids = space.ids
    if picture.number >= len(ids) or ids[picture.number] not in place:
        called = str(picture.number) if file is None else f"{picture.number} ({ids[picture.number]})"
        why = "CNS-Bench has ImageNet's classes." if file is None else f"Add --labels {file}, or another file that has it."
        raise SoritesError(f"{root / picture.path}: class {called} is not among the labels. {why}")
    return place[ids[picture.number]]


def _sample(root: Path, picture: CnsPicture, steps: list[float], label: int) -> Sample:
    clean = Sample(picture.trajectory, functools.partial(load, root, picture.path), label)
    if picture.scale == 0:
        return clean
    return replace(clean, shift=picture.shift, setting=Setting(picture.scale, level=steps.index(picture.scale) + 1))
