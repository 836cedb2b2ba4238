"""Every kind of file of a run folder, damaged or copied: found by name, harmless, and recreated."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.conftest import CLASSES
from tests.evaluation.conftest import MODULE
from tests.faults import kinds

import sorites
from sorites import cli, core
from sorites.core import table
from sorites.core.errors import Damaged, Notice, SoritesError
from sorites.core.shard_index import read_index
from sorites.evaluation.integrity.check import check
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.storage.compact import compact
from sorites.io import digests
from sorites.suites.suite import parse

pytest.importorskip("torch")

SEEDS = {"one": 0, "other": 3}
SUITE = parse(
    {
        "name": "faults",
        "limit": 3,
        "frame": {"resize": 32},
        "shifts": [{"name": "contrast", "levels": [1, 5]}],
        "scorers": ["knn(k=2)"],
        "similarity": ["psnr"],
        "refine": 0.2,
    },
    "test",
)


@pytest.fixture(scope="module")
def make(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Return the commands that make a run folder, or what it lacks."""
    home = tmp_path_factory.mktemp("faults")
    (home / "judge_of_faults.py").write_text(MODULE, encoding="utf-8")
    sys.path.append(str(home))

    def go(folder: Path) -> None:
        where = f"folder:{photos}"
        with pytest.warns(Notice, match="training images are also in the test set"):
            sorites.run(SUITE, source=where, fit=where, models=models(), out=folder, keep_features=True)
        judge = "python:judge_of_faults:Judge"
        sorites.distance(str(folder), against=where, encoder=judge, k=2, levels=2, engine="local", workers=1)
        sorites.explain(folder, ["one", "other"], limit=1)

    return go


def network(name: str) -> core.Model:
    """Return a small torch network with features and a last layer."""
    import torch
    from torch import nn

    from sorites.models.preprocess import Input
    from sorites.models.torch_module import linear_head, torch_model, with_features

    torch.manual_seed(SEEDS[name])
    body = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    last = nn.Linear(8, len(CLASSES))
    last.weight.data *= 8

    def parts(network: nn.ModuleDict, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = network["body"](x)
        return network["last"](features), features

    module = with_features(nn.ModuleDict({"body": body, "last": last}), parts)
    return torch_model(name, module, Input(size=(32, 32)), CLASSES, linear_head(last))


def models() -> dict[str, core.Model]:
    return {name: network(name) for name in SEEDS}


@pytest.fixture(scope="module")
def original(make: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "model", network)
        make(folder)
    digests.write_sealed({"shards": {"contrast-0000000--one": ["a"]}}, folder / "retried.json")
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(core, "model", network)
    return Path(shutil.copytree(original, tmp_path / "run"))


def test_the_run_has_every_kind_of_file_and_no_other(run: Path) -> None:
    files = {kind.name: kind.files(run) for kind in kinds.RUN}
    assert all(files.values()), files
    assert set(kinds.whole(run)) == {path for paths in files.values() for path in paths}
    assert check(run).count("complete") == 2
    assert "not part" not in check(run)


def found(run: Path) -> str:
    """Return what ``check`` says of a damaged folder."""
    with pytest.raises(SoritesError) as caught:
        check(run)
    return str(caught.value)


def sweep(run: Path, count: int, mutations: tuple[kinds.Mutation, ...], seed: int) -> Counter[str]:
    """Damage one file at a time, and check that it is named; return the cases by kind."""
    random, seen = Random(seed), Counter[str]()
    for case in range(count):
        kind = kinds.RUN[case % len(kinds.RUN)]
        path = random.choice(kind.files(run))
        data = path.read_bytes()
        changed = random.choice(mutations)(data, random)
        if changed == data:
            continue
        path.write_bytes(changed)
        assert f"{path} cannot be read" in found(run), (kind.name, path)
        path.write_bytes(data)
        seen[kind.name] += 1
    assert check(run).count("complete") == 2
    return seen


@pytest.mark.slow
def test_every_damaged_file_is_named(run: Path) -> None:
    assert len(sweep(run, 2 * len(kinds.RUN), kinds.MUTATIONS, 1)) == len(kinds.RUN)


def test_a_flip_is_exit_code_2_and_names_the_file(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kinds.RUN[4].files(run)[0]
    path.write_bytes(kinds.flip(path.read_bytes(), Random(0)))
    for words in (["check", str(run)], ["metrics", str(run), "accuracy"]):
        monkeypatch.setattr(sys, "argv", ["sorites", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 2
        assert path.name in capsys.readouterr().err


def test_copies_change_no_number_and_are_named(run: Path) -> None:
    before = table.read(run).collect()
    copies = []
    for kind in kinds.RUN:
        if kind.name == "neighbours":  # files that are looked up by name in folders of their own
            continue
        for copy in kinds.duplicates(kind.files(run)[0]):
            copy.write_bytes(kind.files(run)[0].read_bytes())
            copies.append(copy)
    assert table.read(run).collect().equals(before)
    said = check(run)
    assert said.count("complete") == 2
    assert said.count("not part of this run") == 10
    assert f"and {len(copies) - 10} more" in said


def test_a_shard_under_another_name_is_damaged(run: Path) -> None:
    for kind in kinds.RUN:
        path = kind.files(run)[0]
        if digests.digest_in(path.name) is None:
            continue
        copy = path.with_name(f"other{path.name}")
        copy.write_bytes(path.read_bytes())
        assert f"{copy} cannot be read" in found(run)
        copy.unlink()


@pytest.mark.slow
def test_what_was_damaged_is_recreated_equal_to_the_original(
    run: Path, make: Callable[[Path], None], original: Path
) -> None:
    (run / "retried.json").unlink()  # was not written by the commands
    originals, random = kinds.whole(run), Random(3)
    damaged = [kind.files(run)[0] for kind in kinds.RUN if kind.recreated and kind.files(run)]
    for path in damaged:
        path.write_bytes(kinds.flip(path.read_bytes(), random))
    said = check(run, repair=True)
    assert all(str(path) in said for path in damaged)
    make(run)
    recreated = kinds.whole(run)
    moved = [run / "run.json", run / "facts" / "distance.json"]  # the folder is elsewhere now
    assert recreated.pop(moved[1]).replace(str(run).encode(), str(original).encode()) == originals.pop(
        moved[1]
    )
    assert recreated.keys() == originals.keys()
    assert {path for path in recreated if recreated[path] != originals[path]} <= {moved[0]}
    assert check(run).count("complete") == 2


def test_a_damaged_record_names_the_file_to_restore(run: Path) -> None:
    path = run / "run.json"
    path.write_bytes(kinds.flip(path.read_bytes(), Random(4)))
    for read in (table.read, check, lambda folder: check(folder, repair=True)):
        with pytest.raises(Damaged, match="Restore it from a backup") as caught:
            read(run)
        assert caught.value.fields["path"] == str(path)


def test_a_compacted_run_is_verified_too(run: Path) -> None:
    before = table.read(run).collect()
    compact(run)
    assert check(run).count("complete") == 2
    for path in ((run / "index.json"), next((run / "predictions").iterdir())):
        data = path.read_bytes()
        path.write_bytes(kinds.flip(data, Random(5)))
        assert f"{path} cannot be read" in found(run)
        path.write_bytes(data)
    assert table.read(run).collect().equals(before)


@pytest.mark.parametrize("name", ["facts/similarity.parquet", "manifest.parquet"])
def test_a_process_that_was_killed_while_it_replaced_a_file_left_no_damage(run: Path, name: str) -> None:
    from sorites.io import listed

    old = (run / name).read_bytes()
    content = listed.read_content(run / "run.json")
    accepted = content["files"][name]
    for new in (old, b"new content"):  # killed before and after the new file was in place
        both = {**content["files"], name: [digests.digest_of(b"new content"), *accepted]}
        digests.write_sealed({**content, "files": both}, run / "run.json")
        (run / name).write_bytes(new)
        assert listed.read_listed(run / "run.json", name, "") == new
        assert not listed.listed_problems(
            run, listed.listed_files(run / "run.json"), digests.Verifier(run, False)
        )
    new_file = {**content["files"], "facts/new.parquet": [digests.digest_of(b"x"), listed.ABSENT]}
    digests.write_sealed({**content, "files": new_file}, run / "run.json")
    (run / name).write_bytes(old)
    assert check(run).count("complete") == 2
    assert not listed.is_listed(run / "run.json", "facts/new.parquet")


def test_records_cannot_lead_out_of_the_folder(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "facts" / "mine.parquet"
    outside.parent.mkdir()
    outside.write_bytes(b"of the user")
    content = digests.read_sealed(run / "run.json", "")
    files = {**content["files"], "facts/../../facts/mine.parquet": ["0" * 32]}
    digests.write_sealed({**content, "files": files}, run / "run.json")
    for read in (check, table.read, lambda folder: check(folder, repair=True)):
        with pytest.raises(Damaged, match="expected paths inside the folder"):
            read(run)
    digests.write_sealed(content, run / "run.json")
    rows = table.read(run).collect()
    for name in ("../../facts/mine.parquet", "mine.parquet"):
        digests.write_sealed({"merged": {name: [["clean", 1]]}, "shards": [name]}, run / "index.json")
        with pytest.raises(Damaged, match="expected names of shards with a digest"):
            read_index(run)
        assert table.read(run).collect().equals(rows)
        check(run, repair=True)
    assert outside.read_bytes() == b"of the user"


def test_a_folder_that_was_copied_in_part_gives_no_numbers_without_a_word(run: Path, tmp_path: Path) -> None:
    (run / "manifest.parquet").unlink()
    for ask in (sorites.read, lambda folder: sorites.accuracy(sorites.read(folder))):
        with pytest.raises(Damaged, match="manifest.parquet"):
            ask(run)


def test_the_record_of_another_run_gives_no_numbers(run: Path) -> None:
    content = digests.read_sealed(run / "run.json", "")
    models = {f"another {name}": version for name, version in content["models"].items()}
    digests.write_sealed({**content, "run_id": "0" * 16, "models": models}, run / "run.json")
    left = unfinished(run)
    assert left is not None
    with pytest.raises(SoritesError, match="No sample is finished"):
        left.keep(table.read(run))
    assert "it contains rows of another run" in found(run)


def test_a_pipe_is_not_read(run: Path) -> None:
    shard = kinds.RUN[4].files(run)[0]
    shard.unlink()
    os.mkfifo(shard)
    assert f"{shard} cannot be read: it is not a file" in found(run)
    with pytest.raises(Damaged, match="it is not a file"):
        table.read(run)
