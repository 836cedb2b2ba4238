"""Read the benchmarks of OpenOOD v1.5 (Zhang et al. 2023): its image lists, for images that the user has.

``openood:ROOT`` expects the folders that OpenOOD's download makes::

    ROOT/benchmark_imglist/{cifar10,cifar100,imagenet200,imagenet}/*.txt   lists with "PATH LABEL" lines
    ROOT/images_classic  ROOT/images_largescale   the images, at the paths in the lists

Only listed images are read, so images that OpenOOD has filtered out are left out, and labels are those of the
lists. In-distribution images are clean; images of the full spectrum (ImageNet-V2, -C, -R, -ES, CIFAR-10-C)
have the name of their dataset as shift. The attribute ``set`` is the dataset of an image, ``group`` is id,
near or far.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites.core import Attr, FileRef, Sample, Setting, add_source
from sorites.core.errors import Notice, SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.specs import split_path
from sorites.io.paths import is_dir, is_file, is_relative_inside, path_of
from sorites.io.readers import lines, parse_integer

CLASSIC, LARGE = "images_classic", "images_largescale"
WNID = re.compile(r"n\d{8}")
SPLITS = ("test", "train", "val", "val_ood")
NO_LABEL = -1


@dataclass(frozen=True)
class Set:
    """A list of images: its dataset, its file, the folder of the images, and its part of the benchmark.

    ``part`` is id, shifted (the full spectrum), near, far or ood (OOD images for a parameter search).
    """

    dataset: str
    file: str
    images: str
    part: str


@dataclass(frozen=True)
class Benchmark:
    """The lists of one benchmark by split."""

    classes: int
    splits: dict[str, tuple[Set, ...]]


def _benchmark(
    name: str, classes: int, images: str, shifted: Sequence[str], near: str, far: str
) -> Benchmark:
    """Return a benchmark; names of datasets are separated by spaces."""
    # Lists of ImageNet-200 are named after the benchmark, those of other datasets after themselves.
    other = {"imagenet_v2": "v2", "imagenet_c": "c", "imagenet_r": "r", "imagenet_es": "es"}

    def shifted_file(dataset: str) -> str:
        return f"test_{name}_{other[dataset]}.txt" if dataset in other else f"test_{dataset}.txt"

    def ood(datasets: str, part: str) -> list[Set]:
        return [
            Set(each, f"test_{each}.txt", CLASSIC if each == "textures" else images, part)
            for each in datasets.split()
        ]

    validation = "tin" if images == CLASSIC else "openimage_o"
    test = [
        Set(name, f"test_{name}.txt", images, "id"),
        *(Set(each, shifted_file(each), images, "shifted") for each in shifted),
        *ood(near, "near"),
        *ood(far, "far"),
    ]
    return Benchmark(
        classes,
        {
            "test": tuple(test),
            "train": (Set(name, f"train_{name}.txt", images, "id"),),
            "val": (Set(name, f"val_{name}.txt", images, "id"),),
            "val_ood": (Set(validation, f"val_{validation}.txt", images, "ood"),),
        },
    )


IMAGENET = ("imagenet_v2", "imagenet_c", "imagenet_r")
FAR = "inaturalist textures openimage_o"
BENCHMARKS = {
    "cifar10": _benchmark(
        "cifar10", 10, CLASSIC, ["cifar10c"], "cifar100 tin", "mnist svhn texture places365"
    ),
    "cifar100": _benchmark("cifar100", 100, CLASSIC, [], "cifar10 tin", "mnist svhn texture places365"),
    "imagenet200": _benchmark("imagenet200", 200, LARGE, IMAGENET, "ssb_hard ninco", FAR),
    "imagenet": _benchmark("imagenet", 1000, LARGE, [*IMAGENET, "imagenet_es"], "ssb_hard ninco", FAR),
}


@dataclass(frozen=True)
class Request:
    """The parsed source path."""

    root: Path
    name: str
    split: str
    present: bool

    @property
    def sets(self) -> tuple[Set, ...]:
        return BENCHMARKS[self.name].splits[self.split]


@add_source
def openood(path: str | None, labels: Labels) -> list[Sample]:
    """Read a benchmark of OpenOOD: openood:ROOT[,NAME][,train|val|val_ood][,present].

    NAME is cifar10, cifar100, imagenet200 or imagenet; without it, the benchmark is the one with as many
    classes as the suite has. ``train`` and ``val`` read in-distribution images, ``val_ood`` the OOD images
    for a parameter search; the default is all test images.
    Missing lists and images are an error that names them, unless ``present`` skips them.
    """
    request = _parse(path, labels)
    missing: list[str] = []
    samples: list[Sample] = []
    for each in request.sets:
        file = request.root / "benchmark_imglist" / request.name / each.file
        if not is_file(file):
            missing.append(str(Path("benchmark_imglist", request.name, each.file)))
            continue
        for sample, there in _listed(request, each, file, labels):
            samples.append(sample) if there else missing.append(sample.id)
    if missing:
        message = (
            f"openood: {len(missing)} lists or images of {request.name} are missing, first"
            f" {', '.join(missing[:3])}"
        )
        if not request.present:
            raise SoritesError(f"{message}\nTo skip them: openood:{request.root},{request.name},present")
        warnings.warn(Notice(message, code="missing_images", count=len(missing)), stacklevel=2)
    return samples


def _parse(path: str | None, labels: Labels) -> Request:
    root, rest = split_path(path or "", ",")
    words = rest.split(",") if rest else []
    if not root:
        raise SoritesError(
            "the openood source needs the folder with benchmark_imglist and the images. Pass"
            f" {option('source', 'openood:ROOT')}"
        )
    where = path_of(root)
    where = where / "data" if is_dir(where / "data" / "benchmark_imglist") else where
    if not is_dir(where / "benchmark_imglist"):
        raise SoritesError(f"expected a folder {where / 'benchmark_imglist'} with the lists of OpenOOD")
    known = [*BENCHMARKS, *SPLITS, "present"]
    for word in words:
        if word not in known:
            raise UnknownName("word after the folder of openood", word, known, f"One of {', '.join(known)}.")
    by_size = next((name for name, each in BENCHMARKS.items() if each.classes == len(labels)), "")
    name = next((word for word in words if word in BENCHMARKS), by_size)
    if not name:
        raise SoritesError(
            f"openood: no benchmark has the {len(labels)} classes of the suite; name one of"
            f" {', '.join(BENCHMARKS)}"
        )
    if BENCHMARKS[name].classes != len(labels):
        raise SoritesError(
            f"openood: {name} has {BENCHMARKS[name].classes} classes, and the suite has {len(labels)}; use"
            f" the suite openood_{name if name != 'imagenet' else 'imagenet1k'}"
        )
    split = next((word for word in words if word in SPLITS), SPLITS[0])
    return Request(where, name, split, "present" in words)


def _listed(request: Request, each: Set, file: Path, labels: Labels) -> Iterator[tuple[Sample, bool]]:
    """Yield the samples of a list and whether their file exists."""
    names_in = functools.cache(
        lambda folder: frozenset(os.listdir(folder)) if os.path.isdir(folder) else frozenset()
    )
    wnids = {id_: index for index, id_ in enumerate(labels.ids) if WNID.fullmatch(id_)}
    known = each.part in ("id", "shifted")
    shift = (
        {"shift": each.dataset, "setting": Setting(None, {"set": each.dataset})}
        if each.part == "shifted"
        else {}
    )
    split = {"id": request.split, "shifted": "test"}.get(each.part, "unknown")
    group = each.part if each.part in ("near", "far") else "id" if known else "ood"
    attrs = (Attr("group", group), Attr("set", each.dataset))
    for number, text in enumerate(lines(file, 'a list of "PATH LABEL" lines'), start=1):
        if not text.strip():
            continue
        line, _, value = text.strip().rpartition(" ")
        label = parse_integer(value.removeprefix("-"))
        if not line or label is None or not is_relative_inside(line):
            raise SoritesError(
                f'{file}, line {number}: expected "PATH LABEL", with a path below {each.images}, got'
                f" {text[:80]!r}"
            )
        if known:
            _check(file, number, line, label, value, wnids, len(labels))
        path = str(request.root / each.images / line)
        folder, _, name = path.rpartition(os.sep)
        sample = Sample(
            f"{each.images}/{line}",
            FileRef(path),
            label if known else None,
            attrs=attrs,
            split=split,
            **shift,  # type: ignore[arg-type]
        )
        yield sample, name in names_in(folder)


def _check(
    file: Path, number: int, line: str, label: int, value: str, wnids: dict[str, int], classes: int
) -> None:
    """Raise an error if a label is not a class, or is not the class that the path names."""
    if value.startswith("-") or label >= classes:
        raise SoritesError(f"{file}, line {number}: expected a label from 0 to {classes - 1}, got {value}")
    found = WNID.search(line)
    if found and found[0] in wnids and wnids[found[0]] != label:
        raise SoritesError(
            f"{file}, line {number}: {line} is of class {wnids[found[0]]} of the suite, and its label is"
            f" {label}; the classes of the suite are in another order"
        )
