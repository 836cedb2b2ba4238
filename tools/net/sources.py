"""Every source: what it says of its samples, and the first images of a fair order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

from sorites import core
from sorites.core import Sample
from sorites.core.rng import digest
from tools.net import images
from tools.net.hashes import Entry, of_array, of_leaves
from tools.net.home import Task, typed

MOST = 6
"""Images of a source that are decoded."""


def nothing() -> None:
    """For a source that fetches its images itself."""


def photos() -> None:
    images.photos("photos", 8)


def composites() -> None:
    typed("context", "--out", "composites", "--limit", "2")


SOURCES: Mapping[str, Callable[[], None]] = {
    "stamps": nothing,
    "stamps:unknown": nothing,
    "stamps_ood": nothing,
    "folder:photos": photos,
    "folder:loose": functools.partial(images.loose, "loose"),
    "webdataset:shards": functools.partial(images.shards, "shards"),
    "parquet:tables": functools.partial(images.parquet, "tables"),
    "imagenet_es:es/es-test": functools.partial(images.imagenet_es, "es"),
    "cns_bench:cns": functools.partial(images.cns_bench, "cns"),
    "cns_bench:cns?trajectories=all": functools.partial(images.cns_listed, "cns"),
    "focus:focus": functools.partial(images.focus, "focus"),
    "focus:focus?bird_rocks=uncommon": functools.partial(images.focus, "focus"),
    "focus:focus?uncommon=counts&below=0.5": functools.partial(images.focus, "focus"),
    "is_ood:lists": functools.partial(images.is_ood, "lists"),
    "is_ood:lists,imagenet21k,each=2": functools.partial(images.is_ood, "lists"),
    "is_ood:lists,syn_is": functools.partial(images.is_ood, "lists"),
    "context:composites": composites,
    "composites:12": nothing,
}
"""A spec, and what puts its images into the folder.

``cifar`` needs labels, and so stands among the runs.
"""


def tasks() -> list[Task]:
    return [
        Task((f"sources/{spec}",), functools.partial(digests, spec, make)) for spec, make in SOURCES.items()
    ]


def digests(spec: str, make: Callable[[], None]) -> Iterator[Entry]:
    make()
    samples = list(core.source(spec))
    for field in (
        "id",
        "label",
        "accept",
        "ground_truth",
        "attrs",
        "split",
        "shift",
        "setting",
        "framed",
        "image_id",
    ):
        yield from of_leaves([getattr(sample, field) for sample in samples], f"sources/{spec}/{field}")
    for sample in sorted(samples, key=_place)[:MOST]:
        at = f"sources/{spec}/images/{sample.id} {sample.shift} {sample.setting.canonical}"
        yield at, of_array(sample.load())
        if sample.alpha is not None:
            yield f"{at}/alpha", of_array(sample.alpha())


def _place(sample: Sample) -> tuple[bytes, str, str]:
    return digest(sample.id), sample.shift, sample.setting.canonical
