"""Read IS-OOD (Long et al., NeurIPS 2024): the published image lists, for images that the user has.

``is_ood:ROOT`` expects these folders, as below ``data`` in the published repository::

    ROOT/imglist/imagenet1k/test_imagenet.txt            ID images: 45,000 ImageNet validation images
    ROOT/imglist/imagenet21k/{train,val}/cov_C_sem_S.txt ImageNet-21K-P images by covariate and semantic
                                                         level, 0 to 7
    ROOT/imglist/SynIS/cov_C_sem_S.txt                   generated images by level
    ROOT/imagenet1k  ROOT/imagenet21k  ROOT/SynIS        the images, at the paths in the lists

Levels are counted from 1 here, as in the paper. The lists contain no labels, and ID images need none;
class folders (``val/n01440764/NAME``) or ``LOC_val_solution.csv`` beside ``val`` add labels, so that
accuracy is available too. The graded images have the shifts ``imagenet21k`` and ``syn_is``, so that
images of a known class are not counted as in-distribution.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import polars as pl

from sorites.core import Attr, FileRef, Sample, Setting, add_source
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.packed import Block, PackedSamples, SampleList, packed
from sorites.core.specs import split_path
from sorites.io.paths import entries, is_dir, is_file, path_of, subfolders
from sorites.io.readers import parse_integer
from sorites.io.tables import csv
from sorites.sources.papers.listed import Graded, Missing, PresentFiles, ids_below, labels_of, read_list
from sorites.sources.written import STYLED


# The prompts of Syn-IS: 51 Stable Diffusion XL styles (IS-OOD, appendix D), combined with labels.
@functools.cache
def styles() -> tuple[str, ...]:
    """Return the style names in the order of the paper."""
    return tuple(files("sorites.sources").joinpath("syn_is.tsv").read_text(encoding="utf-8").splitlines()[1:])


def prompts(labels: Sequence[str], of: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield (label, style, prompt) for all combinations of labels and styles; default: all styles."""
    for label in labels:
        for style in of or styles():
            yield label, style, f"{style} style {label}"


LEVELS = 8
CELL = re.compile(r"cov_([0-7])_sem_([0-7])\.txt")
# The list folders of each shift; the first part of their path is also the folder of the images.
SETS = {"imagenet21k": ("imagenet21k/train", "imagenet21k/val"), "syn_is": ("SynIS",)}
WNID = re.compile(r"n\d{8}")
IN_DISTRIBUTION = "imagenet1k/test_imagenet.txt"
SOLUTION = ("ImageId", "PredictionString")


@dataclass(frozen=True)
class Request:
    """The parsed source path: the root, the sets to read, the number of images per list, and whether to skip
    missing images (``present``).
    """

    root: Path
    sets: tuple[str, ...]
    each: int | None
    present: bool

    @functools.cached_property
    def prefix(self) -> str:
        """The root as text, to which the id of a sample is appended: its path relative to the root."""
        return str(self.root / "x")[:-1]

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """The digests of the images by id; empty if Sorites did not draw them."""
        return STYLED.digests(self.root)


@add_source
def is_ood(path: str | None, labels: Labels) -> Sequence[Sample]:
    """Read the lists of IS-OOD for your images: is_ood:ROOT[,imagenet21k][,syn_is][,each=N][,present].

    ``imagenet21k`` or ``syn_is`` reads only that set. Missing files are an error that lists them, unless
    ``present`` skips them. ``each=N`` takes N images per list in a deterministic random order, because
    ImageNet-21K-P has 11.6 million images; there is one list per combination of levels.
    """
    request = _parse(path)
    lists = request.root / "imglist"
    label_of = {name: index for index, name in reversed([*enumerate(labels.ids)])}
    present, missing = PresentFiles(request.root), Missing()
    cells = [
        (name, part, cell)
        for name in request.sets
        for part, cell in sorted((part, cell) for part in SETS[name] for cell in _cells(lists / part))
    ]
    in_distribution = [*_in_distribution(request, lists, label_of)]
    ids = pl.Series("id", [sample.id for sample in in_distribution], pl.String)
    present.list_folders_of(ids)
    for _, part, cell in cells:
        present.list_folders_of(_ids(part, cell, request))
    blocks: list[Block | SampleList] = [SampleList(_kept(in_distribution, ids, present, missing))]
    for name, part, cell in cells:
        ids = _ids(part, cell, request)
        found = present.among(ids)
        missing.add(ids.filter(~found).head(3).to_list(), int((~found).sum()))
        kept = ids.filter(found)
        if len(kept):
            blocks.append(_graded(name, request, cell).block(kept, labels_of(kept, WNID.pattern, label_of)))
    samples = PackedSamples(blocks)
    _report(missing, request, len(samples))
    return packed(samples)


def _ids(part: str, cell: Path, request: Request) -> pl.Series:
    STYLED.verify(cell)
    return ids_below(read_list(cell, request.each), part.split("/")[0])


def _kept(samples: Sequence[Sample], ids: pl.Series, present: PresentFiles, missing: Missing) -> list[Sample]:
    found = present.among(ids)
    missing.add(ids.filter(~found).head(3).to_list(), int((~found).sum()))
    return [sample for sample, there in zip(samples, found, strict=True) if there]


def _parse(path: str | None) -> Request:
    root, rest = split_path(path or "", ",")
    words = rest.split(",") if rest else []
    if not root:
        raise SoritesError(
            "the is_ood source needs the folder with imglist and the images. Pass"
            f" {option('source', 'is_ood:ROOT')}"
        )
    where = path_of(root)
    where = where / "data" if is_dir(where / "data" / "imglist") else where
    if not is_dir(where / "imglist"):
        raise SoritesError(f"expected a folder {where / 'imglist'} with the published lists of IS-OOD")
    each, sets = None, tuple(word for word in words if word in SETS)
    for word in words:
        if word.startswith("each=") and (number := parse_integer(word.removeprefix("each="))):
            each = number
        elif word not in (*SETS, "present"):
            raise SoritesError(
                f"is_ood: expected {', '.join(SETS)}, each=N or present after the folder, got {word[:80]!r}"
            )
    chosen = sets or tuple(
        name for name, folders in SETS.items() if any(is_dir(where / "imglist" / part) for part in folders)
    )
    return Request(where, chosen, each, "present" in words)


def _cells(folder: Path) -> list[Path]:
    if not is_dir(folder):
        return []
    return [Path(entry.path) for entry in entries(folder) if CELL.fullmatch(entry.name)]


def _graded(name: str, request: Request, cell: Path) -> Graded:
    """Return what the images of one list share."""
    covariate, semantic = (int(level) + 1 for level in CELL.fullmatch(cell.name).groups())  # type: ignore[union-attr]
    return Graded(
        request.prefix,
        name,
        cell.parent.name,
        (Attr("sem_level", str(semantic)), Attr("cov_level", str(covariate))),
        Setting(None, {"cov_level": covariate, "sem_level": semantic}),
        _generated if name == "syn_is" else None,
        request.digests,
    )


def _generated(line: str) -> tuple[Attr, ...]:
    """Return the word and style of a Syn-IS image, encoded as numbers in its file name."""
    parts = Path(line).stem.split("_")
    return (Attr("word", parts[1]), Attr("style", parts[2])) if len(parts) == 3 else ()


def _in_distribution(request: Request, lists: Path, label_of: Mapping[str, int]) -> Iterator[Sample]:
    images = request.root / "imagenet1k"
    solution, folders = _solution(images), _class_folders(images / "val")
    file = lists / IN_DISTRIBUTION
    STYLED.verify(file)
    for line in read_list(file, request.each).to_list():
        name = Path(line).stem
        where = folders.get(Path(line).name)
        below = Path(line).as_posix() if where is None else f"val/{where}/{Path(line).name}"
        id_ = f"imagenet1k/{below}"
        image = FileRef(f"{request.prefix}{id_}", digest=request.digests.get(id_, ""))
        yield Sample(id_, image, label_of.get(where or solution.get(name, "")), split="test")


def _solution(images: Path) -> dict[str, str]:
    """Map each image to its WordNet id, from the table of ImageNet's validation set."""
    path = images / "LOC_val_solution.csv"
    if not is_file(path):
        return {}
    frame = csv(path, f"a table with the columns {' and '.join(SOLUTION)}")
    if missing := [name for name in SOLUTION if name not in frame.columns]:
        raise SoritesError(f"{path}: expected the columns {' and '.join(SOLUTION)}; missing: {missing[0]}")
    return {
        image: words.split()[0]
        for image, words in frame.select(SOLUTION).iter_rows()
        if image and words and words.split()
    }


def _class_folders(val: Path) -> dict[str, str]:
    """Map each image to its class folder."""
    if not is_dir(val):
        return {}
    wnids = [folder.name for folder in subfolders(val) if re.fullmatch(r"n\d{8}", folder.name)]
    return {name: wnid for wnid in wnids for name in os.listdir(val / wnid)}


def _report(missing: Missing, request: Request, existing: int) -> None:
    """Raise an error about missing images, or warn with ``present``."""
    if not missing.total:
        return
    first = f"is_ood: {missing.total} of {existing + missing.total} listed images are missing:"
    message = "\n".join([first, *missing.lines(request.root)])
    if not request.present:
        raise SoritesError(f"{message}\nTo skip them: is_ood:{request.root},present")
    warnings.warn(Notice(message, code="missing_images", count=missing.total), stacklevel=3)
