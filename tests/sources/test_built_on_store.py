"""A dataset that was built on a disk and copied to a store is read there: the same samples, and the
same images.
"""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy as np
import pytest

import sorites
from sorites import core
from sorites.core import Sample
from sorites.evaluation.storage.contents import contents
from sorites.suites.suite import parse


def told(sample: Sample) -> dict[str, object]:
    return {name: value for name, value in vars(sample).items() if name != "image"}


def test_a_built_dataset_is_read_from_a_store(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    suite = parse(
        {
            "name": "s",
            "shifts": ["contrast"],
            "frame": {"resize": 40},
            "limit": 4,
            "source": f"folder:{photos}",
        },
        "test",
    )
    sorites.build(suite, tmp_path / "built")
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path / "built"), "/bucket/built", recursive=True)
    here, there = (core.source(f"folder:{where}") for where in (tmp_path / "built", "memory://bucket/built"))
    assert len(here) == 24
    assert [told(sample) for sample in there] == [told(sample) for sample in here]
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.load(), other.load())
    assert contents(list(there))["content"].null_count() == 0
