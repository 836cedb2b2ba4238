"""Features by an encoder in files that are kept: of any images, and of all images of a run, unit
by unit on an engine.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sorites import core
from sorites.core import Encoder, ImageU8, Sample
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.progress import Tick
from sorites.core.rng import digest
from sorites.encoders.features import features
from sorites.evaluation.engines import Engine
from sorites.evaluation.engines.interrupts import leave_if_asked
from sorites.evaluation.facts.rulers import in_distribution_images, limited
from sorites.evaluation.images import LeftOut, readable, shots
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.storage.contents import stamp
from sorites.evaluation.storage.shards import ENCODED, encoded
from sorites.evaluation.storage.tensors import About, read_header
from sorites.evaluation.worker import Running, running_in
from sorites.io.files import write_bytes
from sorites.models.export import trial_images

# The least number of images whose neighbours are searched together.
TOGETHER = 2048

# The id of an image, the image, and whether it is framed.
Named = tuple[str, ImageU8, bool]


def version_of(judge: Encoder) -> str:
    """Return the version of an encoder; for one that names none, a hash of its features of three
    images, rounded.
    """
    if judge.version:
        return judge.version
    found = judge.images(trial_images((96, 96)), True)
    return (
        f"answers {digest(np.round(found / max(float(np.abs(found).max()), 1e-30), 3).tobytes().hex()).hex()}"
    )


def encode(
    judge: Encoder,
    version: str,
    images: Iterable[Named],
    key: str,
    left: LeftOut,
    path: Path,
    stamp: str = "",
) -> None:
    """Write the features of images to a file, with their ids under ``key``, and how many of them
    could not be read.

    ``stamp`` says what the images were read from, and ``content`` is a hash of all that the file holds.
    """
    from safetensors.numpy import save

    ids: list[str] = []

    def listed() -> Iterator[tuple[ImageU8, bool]]:
        for name, image, framed in images:
            ids.append(name)
            yield image, framed

    readable = listed()
    first = next(readable, None)
    found = (
        np.empty((0, 1), np.float32) if first is None else features(judge, itertools.chain([first], readable))
    )
    content = digest(json.dumps(ids), hashlib.blake2b(found.tobytes()).hexdigest()).hex()
    about = {
        key: ids,
        "left_out": [left.count, left.first],
        "version": version,
        "stamp": stamp,
        "content": content,
    }
    write_bytes(
        save({"features": found}, metadata={name: json.dumps(value) for name, value in about.items()}), path
    )


def about_encoded(path: Path, key: str) -> About:
    """Return what a file of features says of its rows, without the features."""
    about = read_header(path)
    match about:
        case {"left_out": [int(), str()], "content": str()} if isinstance(about.get(key), list):
            return about
    raise SoritesError(f"{path} does not say what its features are of. Delete it; it is made again.")


def is_encoded(path: Path, key: str, version: str, stamp: Callable[[], str] = str) -> bool:
    """Return whether a file of features can be kept: it is whole, by this version of the encoder,
    of these images.

    One that lacks images that could not be read is not kept: they may be readable now.
    """
    try:
        about = about_encoded(path, key)
    except SoritesError:
        return False
    return about.get("version") == version and not about["left_out"][0] and about.get("stamp") == stamp()


def encode_unit(folder: Path, unit: Unit, *, encoder: str, version: str) -> None:
    """A unit of work: make its images again, encode them, and keep the features with the ids of
    the images.
    """
    running = running_in(folder)
    judge: Encoder = running.once(f"encoder {encoder}", lambda plan: core.encoder(encoder))
    left = LeftOut()
    encode(judge, version, _images(running, unit, left), "image_id", left, encoded(folder, unit, encoder))


def _images(running: Running, unit: Unit, left: LeftOut) -> Iterator[Named]:
    for shot in shots(running.plan, unit):
        if shot.image is None:
            left.add(f"{shot.sample.id}, {shot.shift}", shot.error or "no image")
        else:
            name = running.plan.image_id(shot.sample, shot.shift, shot.setting)
            yield name, shot.image, running.plan.is_framed(shot.sample)


def encode_run(
    folder: Path, plan: Plan, encoder: Encoder, engine: Engine, workers: int, tick: Tick
) -> list[list[Path]]:
    """Encode the units of a run that this version of the encoder has not encoded yet.

    Return the files of all units, in groups of about as many images as are searched together.
    """
    units, version = plan.units(), version_of(encoder)
    there = {path.name for path in (folder / ENCODED).glob("*.safetensors")}
    files = {unit: encoded(folder, unit, encoder.name) for unit in units}
    todo = [
        unit
        for unit, file in files.items()
        if file.name not in there or not is_encoded(file, "image_id", version)
    ]
    tick(sum(map(plan.images_of, units)) - sum(map(plan.images_of, todo)))
    for unit, _ in engine(
        todo, functools.partial(encode_unit, folder, encoder=encoder.name, version=version), workers
    ):
        tick(plan.images_of(unit))
    groups: list[list[Path]] = []
    room = 0
    for unit in units:
        if room <= 0:
            groups.append([])
            room = TOGETHER
        groups[-1].append(files[unit])
        room -= plan.images_of(unit)
    return groups


# Features of a source's images by an encoder, slice by slice on an engine: a slice is a file, which is
# kept and not made again.


# The number of images that are encoded into one file.
SLICE = 2048

_opening = threading.RLock()


@dataclass(frozen=True)
class Images:
    """The images of a source, by what other processes can open again.

    ``in-distribution`` ones may be of other classes than ``labels``, and a ``limit`` takes the first of a
    fair order.
    """

    source: str
    labels: Labels
    in_distribution: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Slices:
    """Images in slices, and the encoder that looks at them."""

    images: Images
    encoder: str
    version: str
    count: int
    ids: str
    """A hash of the ids of all images in their order."""
    size: int
    """The number of images of a slice."""

    def starts(self) -> range:
        """Return where the slices begin."""
        return range(0, self.count, self.size)

    def folder(self, work: Path) -> Path:
        """Return the folder of the features."""
        parts = (self.images.source, self.images.limit, self.encoder, self.version, self.ids, self.size)
        return work / f"features-{digest(*parts, size=8).hex()}"

    def files(self, work: Path) -> list[Path]:
        """Return the files of the features, in the order of the images."""
        return [file_of(self.folder(work), start) for start in self.starts()]


def slices_of(images: Images, encoder: str) -> Slices:
    """List a source and cut it into slices."""
    samples, ids = _listed(images, encoder)
    if not len(samples):
        raise SoritesError(f"the source {images.source} has no images")
    return Slices(images, encoder, version_of(judge_of(encoder)), len(samples), ids, SLICE)


def forget() -> None:
    """Let go of the sources and the encoder that this process holds."""
    _listed.cache_clear()
    judge_of.cache_clear()


def file_of(folder: Path, start: int) -> Path:
    """Return the file of the slice that begins there."""
    return folder / f"{start:09d}.safetensors"


def encode_slices(work: Path, slices: Slices, engine: Engine, workers: int, tick: Tick) -> None:
    """Encode the slices that are not encoded yet; each is a unit of the engine."""
    sizes = {start: min(slices.size, slices.count - start) for start in slices.starts()}
    folder, samples = slices.folder(work), _listed(slices.images, slices.encoder)[0]
    there = {path.name for path in folder.glob("*.safetensors")}

    def is_kept(start: int) -> bool:
        file, some = file_of(folder, start), samples[start : start + slices.size]
        return file.name in there and is_encoded(file, "sample_id", slices.version, lambda: stamp(some))

    todo = [start for start in sizes if not is_kept(start)]
    tick(slices.count - sum(sizes[start] for start in todo))
    for start, _ in engine(todo, functools.partial(encode_slice, work, slices), workers):
        tick(sizes[start])


def encode_slice(work: Path, slices: Slices, start: int) -> None:
    """A unit of work: read the images of a slice, encode them, and keep the features with the ids
    of the samples.
    """
    with _opening:
        samples, ids = _listed(slices.images, slices.encoder)
        judge = judge_of(slices.encoder)
    if (len(samples), ids) != (slices.count, slices.ids):
        named = slices.images.source
        raise SoritesError(
            f"{named} lists other images to another process: {len(samples)}, expected {slices.count}"
        )
    some, left, file = samples[start : start + slices.size], LeftOut(), file_of(slices.folder(work), start)
    encode(judge, slices.version, _read(some, left), "sample_id", left, file, stamp(some))


def _read(samples: Sequence[Sample], left: LeftOut) -> Iterator[tuple[str, ImageU8, bool]]:
    for sample, image in readable(samples, left):
        leave_if_asked()
        yield sample.id, image, sample.framed


@functools.lru_cache(maxsize=1)
def judge_of(encoder: str) -> Encoder:
    """Return an encoder, which a process loads once."""
    return core.encoder(encoder)


@functools.lru_cache(maxsize=2)
def _listed(images: Images, encoder: str) -> tuple[Sequence[Sample], str]:
    """Return the samples and a hash of all ids; a process lists a source once."""
    spec, labels = images.source, images.labels
    found = (
        in_distribution_images(spec, labels, judge_of(encoder))
        if images.in_distribution
        else core.source(spec, labels)
    )
    samples = found.samples if images.limit is None else limited(found, images.limit)
    hasher = hashlib.blake2b(digest_size=16)
    for sample in samples:
        spelled = sample.id.encode(errors="backslashreplace")
        hasher.update(len(spelled).to_bytes(8, "little") + spelled)
    return samples, hasher.hexdigest()
