"""``order = "shards"``: no more shards are read than a limit needs, and a run says so, in its
folder and on its page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.evaluation.test_packed_runs import SUITE, tars

import sorites
from sorites.core import Model
from sorites.core.errors import SoritesError
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.record import read_record
from sorites.suites.suite import Suite, parse


def suite(where: Path, model: Model, **more: object) -> Suite:
    return parse(
        {**SUITE, "labels": list(model.labels or ()), "source": f"webdataset:{where}", **more}, "test"
    )


def test_tars_beyond_the_limit_are_not_opened(tiny: Callable[..., Model], tmp_path: Path) -> None:
    where, model = tars(tmp_path / "tars"), tiny()
    short = suite(where, model, order="shards", limit=5)
    sorites.run(short, models=[model], out=tmp_path / "run")
    read = {id_.partition("/")[0] for id_ in read_manifest(tmp_path / "run")["sample_id"]}
    assert len(read) == 1
    for tar in where.iterdir():
        if tar.name not in read:
            tar.write_bytes(b"this is no tar, and reading it is an error")
    again = sorites.run(short, models=[model], out=tmp_path / "again").collect()
    assert again["sample_id"].n_unique() == 5
    with pytest.raises(SoritesError, match="is not a complete tar"):
        sorites.run(suite(where, model, limit=5), models=[model], out=tmp_path / "fair")


@pytest.mark.slow
def test_it_stands_in_the_run_and_on_the_page(tiny: Callable[..., Model], tmp_path: Path) -> None:
    where, model = tars(tmp_path / "tars"), tiny()
    ids = {}
    for name, more in (("fair", {}), ("shards", {"order": "shards"})):
        sorites.run(suite(where, model, limit=5, **more), models=[model], out=tmp_path / name)
        ids[name] = read_record(tmp_path / name).run_id
    assert ids["fair"] != ids["shards"]
    assert read_record(tmp_path / "shards").suite.order == "shards"
    said = "from the first shards, not a random sample"
    for name in ids:
        sorites.report(tmp_path / name, out=tmp_path / f"{name}.html")
        assert (said in (tmp_path / f"{name}.html").read_text(encoding="utf-8")) == (name == "shards")


def test_a_source_without_shards_is_refused(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    asked = parse({**SUITE, "source": f"folder:{photos}", "order": "shards"}, "test")
    with pytest.raises(SoritesError, match=r"\(parquet, webdataset\)"):
        sorites.run(asked, models=[tiny()], out=tmp_path / "run")
