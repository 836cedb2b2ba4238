"""Run folders of which one file is damaged, asked by every verb that reads one."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tests.fuzz import bounds, hostile, worlds
from tests.fuzz.verbs import typed

import sorites
from sorites.core import Model
from sorites.evaluation.facts.similarity import similarity
from sorites.io import digests
from sorites.suites.suite import parse

ASK = (
    "check", "metrics accuracy", "metrics failure_severity", "metrics auroc", "similarity --measure psnr", "score --scorer energy",
    "features", "filter", "sheet --out sheet.png",
)  # fmt: skip
"""The verbs that read a run folder, which is the first word after each; ``report`` takes seconds."""


@pytest.mark.slow
@bounds.shares
def test_run_folders(
    share: float, photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = parse(
        {
            "name": "s",
            "shifts": [{"name": "contrast", "levels": [1, 3]}],
            "scorers": ["msp"],
            "frame": {"resize": 32},
        },
        "test",
    )
    sorites.run(
        suite, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=3, keep_features=True
    )
    similarity(tmp_path / "run", ["ssim"])
    whole = {
        path.relative_to(tmp_path): path.read_bytes()
        for path in sorted((tmp_path / "run").rglob("*"))
        if path.is_file()
    }
    names = [path for path in whole if path.suffix in (".json", ".parquet", ".safetensors")]

    def run(case: tuple[str, int]) -> None:
        verb, seed = case
        rng = random.Random(seed)
        path = rng.choice(names)
        data = whole[path]
        if path.suffix == ".json" and rng.random() < 0.6:
            content = hostile.replaced(json.loads(data), seed)
            is_sealed = isinstance(content, dict) and rng.random() < 0.5
            plain = {key: value for key, value in content.items() if key != "digest"} if is_sealed else {}
            data = digests.seal(plain) if plain else hostile.written(content)
        else:
            data = worlds.spoil(path.name, data, seed)
        (tmp_path / path).write_bytes(data)
        try:
            name, *words = verb.split()
            typed(name, "run", *words)
        finally:
            shutil.rmtree(tmp_path / "run")
            for name, content in whole.items():
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_bytes(content)

    bounds.fuzz("run folders", share, st.tuples(st.sampled_from(ASK), hostile.seeds), run)
