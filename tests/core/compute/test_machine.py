"""The number of cores is what this process may use, not what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sorites.core.compute.machine import cores, gpu_facts
from sorites.evaluation.engines import ENGINES


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_counts() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cores() == ENGINES.get("local").cores() == ENGINES.get("processes").cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert cores() == len(before)


def test_a_gpu_is_described_by_what_its_results_depend_on(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    )
    assert gpu_facts("cuda:0", file)["driver"] == "550.54.15"
    assert gpu_facts("cpu", file) == gpu_facts("mps", file) == gpu_facts("cuda", tmp_path / "none") == {}
