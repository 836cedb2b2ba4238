"""Count the samples of a run that its models were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sorites.core import named_spec, split_spec
from sorites.core.messages import option
from sorites.evaluation.samples import TRAINED, contents_of
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.shards import read_metadata, write_metadata
from sorites.suites.suite import Suite

# Name of the stored counts.
NAME = "overlap"


def record_overlap(folder: Path, suite: Suite) -> dict[str, tuple[int, int]]:
    """Count the samples of a finished run that its trained models were trained on, and store the counts.

    Returns:
        By model: how many of how many samples; only models with some.
    """
    specs = {name: named_spec(entry)[1] for entry, name in zip(suite.models, suite.model_names, strict=True)}
    trained = {name: spec for name, spec in specs.items() if split_spec(spec)[0] == TRAINED}
    if not trained:
        return {}
    images = read_manifest(folder).select("source", "sample_id", "content").unique(["source", "sample_id"])
    found = {}
    for name, spec in trained.items():
        both = int(images["content"].is_in(list(contents_of(spec))).sum())
        if both:
            found[name] = both, images.height
    if found:
        write_metadata(folder, NAME, {name: list(counts) for name, counts in found.items()})
    return found


def overlap_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the stored counts of a run; empty if none of its models was trained on its images."""
    stored = read_metadata(folder, NAME) or {}
    return {name: (int(both), int(total)) for name, (both, total) in stored.items()}


def overlap_notes(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a sentence for each model that was trained on images of its run."""
    return [
        f"{model} was trained on {both} of the {total} samples of this run: its numbers are too good. Run on"
        f" the others with {option('unseen_by', ['trained:DIR'])}"
        for model, (both, total) in counts.items()
    ]
