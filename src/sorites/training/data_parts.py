"""Parts of a recipe's data: the pictures kept aside, and what stands in for the originals or beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sorites import core
from sorites.core import CLEAN, Sample
from sorites.labels import Labels
from sorites.training import captures, cuts
from sorites.training.deep_augment import deep_augmented
from sorites.training.mixtures import mixed
from sorites.training.pictures import Pictures, SamplePictures
from sorites.training.recipe_parts import CapturedPart, Data, ValidationPart
from sorites.training.splits import Split, by_hash, by_thing, permuted, things_of


def parted(samples: Sequence[Sample], asked: ValidationPart | None) -> tuple[list[Sample], list[Sample]]:
    """Return the training pictures and those kept aside; the samples come in the order of their source."""
    if asked is None or asked.share is None:
        return list(samples), []
    share, things = 1 - asked.share, things_of(samples)
    if asked.split == "thing":
        split = by_thing(things, [-1 if sample.label is None else sample.label for sample in samples], share, asked.seed)
        train, test = list(split.train), list(split.test)
    else:
        train, test = (
            permuted(len(samples), share, asked.seed) if asked.split == "permuted" else by_hash(things, share, asked.seed)
        )
        if train and test:
            Split(tuple(train), tuple(test), things)  # refuses pictures of one thing on both sides
    return [samples[place] for place in train], [samples[place] for place in test]


def composed(base: SamplePictures, data: Data, space: Labels) -> Pictures:
    """Return the training pictures with captures in their place, DeepAugment's after them, and made ones among them."""
    whole: Pictures = base
    if data.captures is not None:
        whole = _captured(base, data.captures, data.source, space)
    if data.deep_augment is not None:
        whole = deep_augmented(whole, data.deep_augment.root, data.deep_augment.folders)
    if data.made is not None:
        made = [sample for sample in core.source(data.made.source, space) if sample.label is not None]
        whole = mixed(whole, SamplePictures([_named(sample) for sample in made]), data.made.share)
    return whole


def _named(sample: Sample) -> Sample:
    """Return a sample under an id that says its setting too, because made pictures of one thing share theirs."""
    return sample if sample.shift == CLEAN else replace(sample, id=f"{sample.id} {sample.shift} {sample.setting.canonical}")


def _captured(base: SamplePictures, asked: CapturedPart, source: str, space: Labels) -> Pictures:
    settings = captures.settings("val")
    samples = list(core.source(source, space)) if asked.by == "files" else []

    def shots(kept: Sequence[core.Stop]) -> captures.Shots:
        if asked.by == "camera":
            return captures.simulated(base, kept)
        return captures.captured_files(base, samples, [setting for setting in kept if not isinstance(setting, float | int)])

    if asked.cut is not None and asked.measured_on is None:
        settings = cuts.published_settings(asked.cut)
    elif asked.cut is not None and asked.measured_on is not None:
        settings = cuts.kept(settings, cuts.mean_lpips(base, shots(settings), asked.measured_on), asked.cut)
    return captures.Captured(base, shots(settings), asked.share)
