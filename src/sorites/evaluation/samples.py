"""The samples of a source in a fair order, and those that scorers are fitted on and chosen by."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Box, Picture, Sample, Source, read_only, split_spec
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, open_labels
from sorites.core.packed import ById, PackedSamples, packed, seen
from sorites.core.rng import digest, fair_order
from sorites.sources.shards import SHARDED, Shard
from sorites.suites.suite import Fit, Frame, Suite


def training_samples(fit: Fit, labels: Labels, source: Source | None) -> list[Sample]:
    """Return the training pictures of a suite: clean ones of its source, or of the source given as
    an object.
    """
    read = core.source(fit.source, labels) if source is None else source
    found = _clean("fit", fit.source, read, fit.split)[: fit.limit]
    if fit.only == "right" and all(sample.label is None for sample in found):
        raise SoritesError(
            f'fit: only = "right" wants labelled training pictures, and those of {fit.source} have no labels'
        )
    return found


def validation_samples(
    fit: Fit, labels: Labels, source: Source | None, training: Sequence[Sample]
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the familiar and the strange validation pictures; the labels of strange ones may be any."""
    asked = fit.validation
    if asked is None:
        return (), ()
    spec, own = asked.source or fit.source, asked.source in (None, fit.source)
    read = source if own and source is not None else core.source(spec, labels)
    familiar = _clean("fit.validation", spec, read, asked.split)[: asked.limit]
    both = {sample.id for sample in training} & {sample.id for sample in familiar} if own else ()
    if both:
        raise SoritesError(
            f"fit: {len(both)} of {len(familiar)} validation pictures are training pictures; name another"
            " split"
        )
    if asked.strange is None:
        if all(sample.label is None for sample in familiar):
            raise SoritesError(
                f"fit.validation: the pictures of {spec} have no labels, so that a model has none of them"
                ' wrong. Name strange ones: [fit.validation] strange = "folder:PATH"'
            )
        return familiar, ()
    return (
        familiar,
        _clean("fit.validation", asked.strange, core.source(asked.strange, open_labels()), None)[
            : asked.limit
        ],
    )


def _clean(key: str, spec: str, source: Source, split: str | None) -> list[Sample]:
    """Return the clean pictures of a split of a source, or of all of it; none at all is an error."""
    clean = [sample for sample in in_order(source) if sample.shift == CLEAN]
    unique(clean)
    chosen = [sample for sample in clean if split is None or sample.split == split]
    if not chosen:
        splits = ", ".join(sorted({sample.split for sample in clean if sample.split})) or "none"
        of = "" if split is None else f" of the split {split!r}; its splits are {splits}"
        raise SoritesError(f"{key}: the source {spec} holds no clean pictures{of}")
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
            f"{len(found)} pictures of {source.name} are called {name}, such as {found[0].id} and"
            f" {found[1].id}"
        )
    raise UnknownName(
        "picture", name, (sample.id for sample in clean), f"The source {source.name} has {len(clean):,}."
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


# The frame of each sample: it is laid on the picture, and moves the true boxes with it.


Truth = tuple[Box, ...] | None


def frame_of(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame for a sample: that of its captured shift, else of its source, else of the suite."""
    own = (
        next((entry.frame for entry in suite.sources if entry.name == sample.source), None)
        if sample.source
        else None
    )
    return suite.frames.get(sample.shift) or own or suite.frame


def laid_frame(suite: Suite, sample: Sample) -> Frame | None:
    """Return the frame that is laid on the sample's picture; none is laid on one that came framed."""
    return None if sample.framed else frame_of(suite, sample)


def framed_sample(suite: Suite, sample: Sample) -> tuple[Picture, Truth]:
    """Decode a sample and lay its frame on it, unless it came framed; its true boxes are in pixels
    of what is returned.

    Nobody can write into the picture: others look at it too.
    """
    picture, frame = sample.load(), laid_frame(suite, sample)
    if frame is None:
        return read_only(picture), sample.truth
    truth = None if sample.truth is None else frame.moved(sample.truth, *picture.shape[:2])
    return read_only(frame(picture)), truth


def framed_picture(suite: Suite, sample: Sample) -> Picture:
    """Decode a sample and lay its frame on it, unless it came framed."""
    return framed_sample(suite, sample)[0]


class CleanPictures:
    """The clean pictures of a suite with their frames laid on, by the sample's id; the last
    ``kept`` of them stay in memory.
    """

    def __init__(self, suite: Suite, clean: PackedSamples, kept: int) -> None:
        self._samples = ById(clean)
        self._suite = suite
        self._laid = functools.lru_cache(maxsize=kept)(lambda id_: framed_sample(suite, self._samples[id_]))

    def __call__(self, id_: str) -> Picture:
        return self._laid(id_)[0]

    def truth(self, id_: str) -> Truth:
        """Return the true boxes in pixels of the framed picture, or None where nothing is known of them."""
        sample = self._samples[id_]
        return (
            sample.truth
            if sample.truth is None or laid_frame(self._suite, sample) is None
            else self._laid(id_)[1]
        )
