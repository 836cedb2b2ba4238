"""Read ImageNet-ES as published: photographs of a screen at 27 or 64 manual camera settings and five
automatic shots, with the light on and off.

    ImageNet-ES/
      es-val/  {sampled_tin_no_resize, param_control, auto_exposure}     1000 references, partition S1
      es-test/ {sampled_tin_no_resize2, param_control, auto_exposure}    1000 references, partition S2
      es-train/tin_no_resize_sample_removed                              8000 references, partition S3

The references are images of Tiny-ImageNet's validation set. The folders ``param_control`` and
``auto_exposure`` contain light (l1 on, l5 off) / param_1, param_2, ... / WordNet id / image. Captures of
``sorites studio capture`` have the same layout, may contain only one part, and store their settings in
``settings.json``. The folder of the dataset is read as its test split, which the tables of the paper are
about; ``PATH,all`` reads both captured splits, which metrics and pages then show side by side.
Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sorites.core import Attr, FileRef, Sample, Setting, add_source
from sorites.core import camera_grid as es_grid
from sorites.core.errors import Information, SoritesError, as_utf8, tell
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io.decode import SUFFIXES
from sorites.io.listed import RESTORE, read_listed
from sorites.io.paths import entries, is_dir, is_file, path_of, subfolders
from sorites.sources import captures

# The maximum number of missing folders or images named in an error.
MAX_NAMED = 6
# The end of a path that asks for both captured splits, and the split that is read without it.
ALL, DEFAULT_SPLIT = ",all", "test"


@dataclass(frozen=True)
class Part:
    """A part of the dataset: its folder, split, partition and the folder of its reference images."""

    folder: str
    split: str
    partition: str
    references: str

    @property
    def captured(self) -> bool:
        """True if the part contains photographs of the screen in addition to references."""
        return self.split != "train"


PARTS = (
    Part("es-val", "val", "S1", "sampled_tin_no_resize"),
    Part("es-test", "test", "S2", "sampled_tin_no_resize2"),
    Part("es-train", "train", "S3", "tin_no_resize_sample_removed"),
)


@add_source
def imagenet_es(path: str | None, labels: Labels) -> list[Sample]:
    """Read ImageNet-ES: PATH is its test split, PATH,all val and test; or PATH/es-val, PATH/es-train.

    The shift is ``camera`` with the published settings as params. A sample is a reference image: its id
    is WordNet id / file name, its clean image is the original, and the attribute ``partition`` is S1,
    S2 or S3.
    """
    parts = _parts(path)
    for part, root in parts:
        _verify_grid(part, root)
    absent = [folder for part, root in parts for folder in missing(part, root)]
    if absent:
        raise SoritesError(
            f"ImageNet-ES at {path} lacks {_abbreviate(absent)}. Unpack the whole archive, or pass one part:"
            " PATH/es-test"
        )
    return [sample for part, root in parts for sample in _samples(part, root, labels)]


def _parts(path: str | None) -> list[tuple[Part, Path]]:
    if path is None:
        raise SoritesError(
            f"the imagenet_es source needs a folder. Pass {option('source', 'imagenet_es:PATH')}"
        )
    both = path.endswith(ALL) and not is_dir(path_of(path))
    root = path_of(path.removesuffix(ALL) if both else path)
    if not is_dir(root):
        problem = "is a file" if is_file(root) else "does not exist"
        raise SoritesError(f"expected the folder of ImageNet-ES, but {root} {problem}")
    for part in PARTS:
        if root.name == part.folder:
            return [(part, root)]
    if is_dir(root / "ImageNet-ES"):
        root = root / "ImageNet-ES"
    captured = [(part, root / part.folder) for part in PARTS if part.captured]
    studio_captures = [(part, folder) for part, folder in captured if is_file(folder / es_grid.GRID_FILE)]
    found = studio_captures or captured
    return found if both else _one_split(str(path), found)


def _one_split(path: str, found: list[tuple[Part, Path]]) -> list[tuple[Part, Path]]:
    """Return the test split, or the only one of a capture, and say what else there is to read."""
    chosen = [entry for entry in found if entry[0].split == DEFAULT_SPLIT] or found[:1]
    others = [part.folder for part, folder in found if (part, folder) not in chosen and is_dir(folder)]
    if others:
        tell(
            Information(
                f"reading {chosen[0][0].folder} of {path}, the split of the published tables;"
                f" imagenet_es:{path}/{others[0]} reads {others[0]}, and imagenet_es:{path}{ALL} reads both",
                code="split",
            )
        )
    return chosen


def _verify_grid(part: Part, root: Path) -> None:
    """Compare the grid of a capture with its digest; published datasets have none."""
    record, name = root.parent / captures.RECORD, f"{part.folder}/{es_grid.GRID_FILE}"
    if is_file(record):
        read_listed(record, name, RESTORE)


def missing(part: Part, root: Path) -> list[str]:
    """Return the missing folders of the published layout, as paths starting with the name of ``root``."""
    expected = [part.references]
    if part.captured:
        expected += [folder for _, folder in es_grid.captured_grid(root, part.split).places()]
    return [f"{root.name}/{folder}" for folder in expected if not is_dir(root / folder)]


def _samples(part: Part, root: Path, labels: Labels) -> Iterator[Sample]:
    attrs = (Attr("partition", part.partition),)
    references = _images(root / part.references)
    if not references:
        raise SoritesError(f"no images in {root / part.references}; expected WordNet id / image")
    label_of = {wnid: labels.find(wnid) for wnid in sorted({id_.split("/")[0] for id_ in references})}

    digests = captures.image_digests(root.parent)

    def sample(id_: str, file: Path) -> Sample:
        image = FileRef(file, digest=digests.get(file.relative_to(root.parent).as_posix(), ""))
        return Sample(id_, image, label_of[id_.split("/")[0]], attrs=attrs, split=part.split)

    yield from (sample(id_, file) for id_, file in references.items())
    for params, folder in es_grid.captured_grid(root, part.split).places() if part.captured else ():
        shots = {_stem(id_): file for id_, file in _images(root / folder).items()}
        absent = [f"{folder}/{id_}" for id_ in references if _stem(id_) not in shots]
        if absent:
            raise SoritesError(
                f"{root} lacks {_abbreviate(absent)}: each of the {len(references)} references needs an image"
                " at every setting"
            )
        setting = Setting(None, params)
        yield from (
            replace(sample(id_, shots[_stem(id_)]), shift="camera", setting=setting) for id_ in references
        )


def _images(folder: Path) -> dict[str, Path]:
    """Map WordNet id / file name to the file, in order."""
    files = (entry for path in subfolders(folder) for entry in entries(path))
    images = (
        Path(entry.path)
        for entry in files
        if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
    )
    return {as_utf8(f"{file.parent.name}/{file.name}"): file for file in images}


def _stem(id_: str) -> str:
    """Return an id without the file extension, which may differ between a reference and its photographs."""
    return id_.rpartition(".")[0]


def _abbreviate(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
