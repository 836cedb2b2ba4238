"""Distances under the names and keys of earlier releases are still read."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.pipeline.conftest import how, suite

import sorites
from sorites import table
from sorites.core import Model, referee
from sorites.errors import SoritesError
from sorites.pipeline import decomposition, distance
from sorites.referees.python import as_referee
from sorites.rng import digest
from sorites.suite import Distance, parse


def old_folder(run: Path) -> None:
    """Turn a run folder into what release 0.2 wrote: other names of keys and of fact files."""
    info = json.loads((run / "run.json").read_text())
    info["suite"] = {
        {"similarity": "degrees", "distance": "measure"}.get(key, key): value for key, value in info["suite"].items()
    }
    info["suite"]["measure"]["split"] = info["suite"]["measure"].pop("decomposition")
    (run / "run.json").write_text(json.dumps(info))
    record = json.loads((run / "facts" / "distance.json").read_text())
    record["asked"]["split"] = record["asked"].pop("decomposition")
    (run / "facts" / "degrees.json").write_text(json.dumps(record))
    (run / "facts" / "distance.json").unlink()
    (run / "facts" / "distance.parquet").rename(run / "facts" / "degrees.parquet")


def test_facts_under_their_old_names_are_read_and_replaced(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    run, asked = tmp_path / "run", how(judge, photos)
    before = sorites.run(suite(asked), source=f"folder:{photos}", models=[tiny()], out=run, limit=5).collect()
    old_folder(run)
    assert table.read(run).collect().equals(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "ruler", lambda *args: pytest.fail("measured again"))
        assert distance.distance(str(run), asked).rows.height == 5 * 13
    other = distance.distance(str(run), how(judge, photos, k=2))
    assert sorted(path.name for path in (run / "facts").iterdir()) == ["distance.json", "distance.parquet"]
    assert table.read(run).collect()["sem_level"].to_list() != before["sem_level"].to_list()
    assert other.record["k"] == 2


@pytest.mark.parametrize(("key", "file"), [("distance", "decomposition"), ("measure", "split")])
def test_the_old_keys_of_a_suite_are_read(key: str, file: str) -> None:
    asked = parse({"name": "s", key: {"referee": "cifar", "against": "stamps", file: "w.safetensors"}}, "s")
    assert asked.distance == Distance(referee="cifar", against="stamps", decomposition="w.safetensors")
    with pytest.raises(SoritesError, match=f"unknown key '{key}.leves'.*Did you mean levels"):
        parse({"name": "s", key: {"referee": "cifar", "against": "stamps", "leves": 3}}, "s")


def test_a_cached_decomposition_is_found_by_the_name_it_always_had(judge: str) -> None:
    own = referee(judge)
    made = decomposition.recipe(own)
    first = {"labels": made.labels, "looks": made.styles, "count": made.count, "training": asdict(made.training)}
    assert made.key(own) == digest(own.version, json.dumps(first, sort_keys=True)).hex()


def test_a_referee_may_call_its_styles_looks(judge: str) -> None:
    module = importlib.import_module(judge.split(":")[1])
    old = type("Old", (module.Judge,), {"looks": (("an {}",), ("a {}",))})
    del module.Judge.styles
    assert as_referee("own", old).styles == (("an {}",), ("a {}",))
