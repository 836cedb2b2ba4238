"""Damaged files of a passport are named by ``check``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.faults.mutations import DAMAGES, damage, duplicate
from tests.reports.passport.conftest import BATTERY, MODEL, SUITE

import sorites
from sorites.core.errors import Damaged, SoritesError
from sorites.reports.passport.passport import passport

KINDS = ("passport.json", "files.json", "badge.svg", "model_card.md", "robustness_record.md", "passport.html")


@pytest.fixture(scope="module")
def made(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("passports")
    (home / "noisy.toml").write_text(SUITE.format(photos=photos, shifts='"jpeg"'))
    (home / "light.toml").write_text(SUITE.format(photos=photos, shifts='"contrast"'))
    (home / "mine.toml").write_text(BATTERY)
    (home / "guessing.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.syspath_prepend(str(home))
        passport("python:guessing:logits", battery="mine.toml", out="p", limit=4)
        yield home / "p"


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("name", KINDS)
def test_damage_is_named(made: Path, name: str, damage_kind: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(3 if damage_kind in ("flip", "truncate") else 1):
        with damage(made / name, damage_kind, rng, b"foreign content"), pytest.raises(Damaged) as caught:
            sorites.check(made)
        assert str(made / name) in str(caught.value)
    assert "unchanged" in sorites.check(made)


def test_a_copy_is_named_and_a_missing_list_means_unfinished(made: Path) -> None:
    for name in KINDS:
        with duplicate(made / name) as copy:
            assert str(copy) in sorites.check(made)
    listed = (made / "files.json").read_bytes()
    (made / "files.json").unlink()
    with pytest.raises(SoritesError, match="not finished") as caught:
        sorites.check(made)
    assert not isinstance(caught.value, Damaged)
    (made / "files.json").write_bytes(listed)


def test_a_damaged_run_of_a_passport_is_named(made: Path) -> None:
    path = made / "runs/noise/run.json"
    with damage(path, "truncate", np.random.default_rng(0), b""), pytest.raises(Damaged, match="run.json"):
        sorites.check(made)


@pytest.mark.slow
def test_no_flip_goes_unnoticed(made: Path) -> None:
    rng, count = np.random.default_rng(5), 0
    for name in KINDS:
        for _ in range(40):
            with damage(made / name, "flip", rng, b""), pytest.raises(Damaged) as caught:
                sorites.check(made)
            assert str(made / name) in str(caught.value)
            count += 1
    print(f"{count} flips in a passport, {count} named")
