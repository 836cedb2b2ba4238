"""The samples of a source in a fair order, and those that scorers are fitted on and chosen by."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Box, ImageU8, Sample, Source, read_only, split_spec
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, open_labels
from sorites.core.packed import ById, PackedSamples, packed, seen
from sorites.core.rng import digest, fair_order
from sorites.sources.shards import SHARDED, Shard
from sorites.suites.suite import Fit, Frame, Suite


def training_samples(fit: Fit, labels: Labels, source: Source | None) -> list[Sample]:
    """Return the training images of a suite: clean ones of its source, or of the source given as
    an object.
    """
    read = core.source(fit.source, labels) if source is None else source
    found = _clean("fit", fit.source, read, fit.split)[: fit.limit]
    if fit.only == "right" and all(sample.label is None for sample in found):
        raise SoritesError(
            f'fit: only = "right" wants labelled training images, and those of {fit.source} have no labels'
        )
    return found


def validation_samples(
    fit: Fit, labels: Labels, source: Source | None, training: Sequence[Sample]
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the in-distribution images and the OOD validation images; the labels of OOD ones may be any."""
    asked = fit.validation
    if asked is None:
        return (), ()
    spec, own = asked.source or fit.source, asked.source in (None, fit.source)
    read = source if own and source is not None else core.source(spec, labels)
    in_distribution = _clean("fit.validation", spec, read, asked.split)[: asked.limit]
    both = {sample.id for sample in training} & {sample.id for sample in in_distribution} if own else ()
    if both:
        raise SoritesError(
            f"fit: {len(both)} of {len(in_distribution)} validation images are training images; name another"
            " split"
        )
    if asked.ood is None:
        if all(sample.label is None for sample in in_distribution):
            raise SoritesError(
                f"fit.validation: the images of {spec} have no labels, so that a model has none of them"
                ' wrong. Name OOD ones: [fit.validation] OOD = "folder:PATH"'
            )
        return in_distribution, ()
    return (
        in_distribution,
        _clean("fit.validation", asked.ood, core.source(asked.ood, open_labels()), None)[: asked.limit],
    )


def _clean(key: str, spec: str, source: Source, split: str | None) -> list[Sample]:
    """Return the clean images of a split of a source, or of all of it; none at all is an error."""
    clean = [sample for sample in in_order(source) if sample.shift == CLEAN]
    unique(clean)
    chosen = [sample for sample in clean if split is None or sample.split == split]
    if not chosen:
        splits = ", ".join(sorted({sample.split for sample in clean if sample.split})) or "none"
        of = "" if split is None else f" of the split {split!r}; its splits are {splits}"
        raise SoritesError(f"{key}: the source {spec} holds no clean images{of}")
    return chosen


def in_order(source: Source) -> PackedSamples:
    """Ordered by a hash of the sample's id: any prefix is a fair sample, and the source's own order
    does not matter.
    """
    samples = seen(source.samples)
    if not len(samples):
        raise SoritesError(f"the source {source.name} holds no samples")
    heads = samples.heads()
    order = np.argsort(heads, kind="stable")
    for start, stop in _runs(heads[order]):
        order[start:stop] = sorted(order[start:stop], key=lambda place: _place(samples[int(place)]))
    return samples.take(order)


def _place(sample: Sample) -> tuple[bytes, str, float, str]:
    return digest(sample.id), sample.shift, sample.setting.severity or 0.0, sample.setting.canonical


def _runs(ordered: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return where equal values stand together, each run of two or more as its start and its end."""
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts, stops = np.r_[0, edges], np.r_[edges, len(ordered)]
    longer = stops - starts > 1
    return list(zip(starts[longer].tolist(), stops[longer].tolist(), strict=True))


def tied(samples: PackedSamples) -> list[int]:
    """Return the places of samples that may have the id of another one, in order: all that do are
    among them.
    """
    heads = samples.heads()
    order = np.argsort(heads, kind="stable")
    return sorted(int(place) for start, stop in _runs(heads[order]) for place in order[start:stop])


def distinct(samples: PackedSamples) -> int:
    """Return how many ids there are."""
    places = tied(samples)
    return len(samples) - len(places) + len(set(samples.take(places).ids()))


def by_shards(spec: str, labels: Labels, limit: int | None) -> Source:
    """Return the samples of a source shard by shard, in the order of a hash of the shards' names;
    no more shards are read than a limit needs. Samples of one shard stand together, so that a
    prefix is no fair sample of all samples.
    """
    name, argument = split_spec(spec)
    if name not in SHARDED:
        raise SoritesError(
            f"order = shards wants a source that lies in shards ({', '.join(sorted(SHARDED))}), got {spec}"
        )
    found = packed(
        _in_shards(fair_order(SHARDED[name](argument, labels), lambda shard: (shard.name,)), limit)
    )
    if not found:
        raise SoritesError(f"the source {spec} holds no samples")
    return Source(name, found)


def _in_shards(shards: Sequence[Shard], limit: int | None) -> Iterator[Sample]:
    count = 0
    for shard in shards:
        for sample in shard.read():
            count += 1
            yield sample
        if limit is not None and count >= limit:
            return


def first_ids(samples: PackedSamples, limit: int | None) -> dict[str, None]:
    """Return the first ids, each once, as many as a limit allows."""
    found: dict[str, None] = {}
    for id_ in samples.ids():
        if limit is not None and len(found) >= limit:
            break
        found[id_] = None
    return found


def named(source: Source, name: str) -> Sample:
    """Return the clean sample of a source by its id, or by the end of it if no other ends so."""
    clean = [sample for sample in source if sample.shift == CLEAN]
    found = [sample for sample in clean if sample.id == name] or [
        s for s in clean if f"/{s.id}".endswith(f"/{name}")
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise SoritesError(
            f"{len(found)} images of {source.name} are called {name}, such as {found[0].id} and {found[1].id}"
        )
    raise UnknownName(
        "image", name, (sample.id for sample in clean), f"The source {source.name} has {len(clean):,}."
    )


def unique(samples: Sequence[Sample]) -> None:
    """Refuse two samples of one id, shift and setting."""
    held = seen(samples)
    known: set[tuple[str, str, str]] = set()
    for sample in held.take(tied(held)):
        key = (sample.id, sample.shift, sample.setting.canonical)
        if key in known:
            raise SoritesError(
                f"the source has two {sample.shift} samples with the id {sample.id!r} and the same setting"
            )
        known.add(key)


# The frame of each sample: it is laid on the image, and moves the ground-truth boxes with it.


GroundTruth = tuple[Box, ...] | None


def frame_of(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame for a sample: that of its captured shift, else of its source, else of the suite."""
    own = (
        next((entry.frame for entry in suite.sources if entry.name == sample.source), None)
        if sample.source
        else None
    )
    return suite.frames.get(sample.shift) or own or suite.frame


def laid_frame(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame that is laid on the sample's image; none is laid on one that came framed."""
    return None if sample.framed else frame_of(suite, sample)


def framed_sample(suite: Suite, sample: Sample) -> tuple[ImageU8, GroundTruth]:
    """Decode a sample and lay its frame on it, unless it came framed; its ground-truth boxes are in pixels
    of what is returned.

    Nobody can write into the image: others look at it too.
    """
    image, frame = sample.load(), laid_frame(suite, sample)
    if frame is None:
        return read_only(image), sample.ground_truth
    ground_truth = None if sample.ground_truth is None else frame.moved(sample.ground_truth, *image.shape[:2])
    return read_only(frame(image)), ground_truth


def framed_image(suite: Suite, sample: Sample) -> ImageU8:
    """Decode a sample and lay its frame on it, unless it came framed."""
    return framed_sample(suite, sample)[0]


class CleanImages:
    """The clean images of a suite with their frames laid on, by the sample's id; the last
    ``kept`` of them stay in memory.
    """

    def __init__(self, suite: Suite, clean: PackedSamples, kept: int) -> None:
        self._samples = ById(clean)
        self._suite = suite
        self._laid = functools.lru_cache(maxsize=kept)(lambda id_: framed_sample(suite, self._samples[id_]))

    def __call__(self, id_: str) -> ImageU8:
        return self._laid(id_)[0]

    def ground_truth(self, id_: str) -> GroundTruth:
        """Return the ground-truth boxes in pixels of the framed image, or None where nothing is known of
        them.
        """
        sample = self._samples[id_]
        return (
            sample.ground_truth
            if sample.ground_truth is None or laid_frame(self._suite, sample) is None
            else self._laid(id_)[1]
        )
