"""Read ImageNet-ES-Diverse as published: prints photographed in six environments at 27 manual camera settings
and with five automatic shots each.

    ImageNet-ES-Diverse/
      es-diverse-test/ {sampled_tin_no_resize2, param_control, auto_exposure}    1000 references, 192,000
      photographs es-train/tin_no_resize_sample_removed                                      8000 references

``param_control`` and ``auto_exposure`` contain environment (l1, l2, l3, l4, l6, l7) / param_1, param_2, ... /
WordNet id / image. Baek et al., "Adaptive Camera Sensor for Vision Models", ICLR 2025; the layout is
described in the README of its repository, the names of the environments in code that reads the archive. The
archive does not list
its settings: their numbers are taken to be those of the test part of ImageNet-ES, unless ``settings.json`` in
``es-diverse-test`` lists others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sorites.core import Attr, FileRef, Sample, Setting, add_source
from sorites.core import camera_grid as es_grid
from sorites.core.camera_grid import Params
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.io.decode import SUFFIXES
from sorites.io.paths import entries, is_dir, path_of, subfolders

PART, REFERENCES = "es-diverse-test", "sampled_tin_no_resize2"
ENVIRONMENTS = 6
_ENVIRONMENT = re.compile(r"l\d+")
# The maximum number of missing folders or images named in an error.
MAX_NAMED = 6


@add_source
def imagenet_es_diverse(path: str | None, labels: Labels) -> list[Sample]:
    """Read ImageNet-ES-Diverse from its folder, or from es-diverse-test in it.

    The shift is ``camera`` with ISO, shutter, aperture and mode as params; ``light`` is the environment
    (l1, l2, l3, l4, l6 or l7). A sample is a reference image: its id is WordNet id / file name, its clean
    image is the original.
    """
    root = _root(path)
    references = _images(root / REFERENCES)
    if not references:
        raise SoritesError(f"no images in {root / REFERENCES}; expected WordNet id / image")
    label_of = {wnid: labels.find(wnid) for wnid in sorted({id_.split("/")[0] for id_ in references})}
    clean = {
        id_: Sample(
            id_, FileRef(file), label_of[id_.split("/")[0]], attrs=(Attr("partition", "S2"),), split="test"
        )
        for id_, file in references.items()
    }
    return [*clean.values(), *_photographs(root, clean)]


def _root(path: str | None) -> Path:
    if path is None:
        raise SoritesError(
            "the imagenet_es_diverse source needs a folder. Pass"
            f" {option('source', 'imagenet_es_diverse:PATH')}"
        )
    given = path_of(path)
    for root in (given, given / PART, given / "ImageNet-ES-Diverse" / PART):
        if is_dir(root / "param_control"):
            return root
    raise SoritesError(f"expected the folder of ImageNet-ES-Diverse, but {given} has no {PART}/param_control")


def _photographs(root: Path, clean: dict[str, Sample]) -> Iterator[Sample]:
    for params, folder in _places(root):
        shots = {_stem(id_): file for id_, file in _images(root / folder).items()}
        absent = [f"{folder}/{id_}" for id_ in clean if _stem(id_) not in shots]
        if absent:
            more = f" and {len(absent) - MAX_NAMED} more" if len(absent) > MAX_NAMED else ""
            raise SoritesError(
                f"{root} lacks {', '.join(absent[:MAX_NAMED])}{more}: each of the {len(clean)} references"
                " needs an"
                " image at every setting"
            )
        setting = Setting(None, params)
        for id_, sample in clean.items():
            yield replace(sample, image=FileRef(shots[_stem(id_)]), shift="camera", setting=setting)


def _places(root: Path) -> Iterator[tuple[Params, str]]:
    """Yield every setting with the folder of its photographs."""
    grid = es_grid.captured_grid(root, "test")
    environments = sorted(
        (folder.name for folder in subfolders(root / "param_control") if _ENVIRONMENT.fullmatch(folder.name)),
        key=lambda name: int(name[1:]),
    )
    if len(environments) != ENVIRONMENTS:
        raise SoritesError(
            f"{root / 'param_control'}: expected {ENVIRONMENTS} environments (l1, l2, l3, l4, l6, l7), got"
            f" {', '.join(environments) or 'none'}. Unpack the whole archive"
        )
    for light in environments:
        for number, values in enumerate(grid.manual, 1):
            manual = {key: values[key] for key in ("iso", "shutter", "aperture")}
            yield {**manual, "light": light, "mode": "manual"}, f"param_control/{light}/param_{number}"
        for shot in range(1, grid.shots + 1):
            yield {"light": light, "mode": "auto", "shot": shot}, f"auto_exposure/{light}/param_{shot}"


def _images(folder: Path) -> dict[str, Path]:
    """Map WordNet id / file name to the file, in order; a folder that does not exist is empty."""
    if not is_dir(folder):
        return {}
    files = (entry for path in subfolders(folder) for entry in entries(path))
    images = (Path(entry.path) for entry in files if entry.name.lower().endswith(SUFFIXES))
    return {
        as_utf8(f"{file.parent.name}/{file.name}"): file for file in images if not file.name.startswith(".")
    }


def _stem(id_: str) -> str:
    return id_.rpartition(".")[0]
