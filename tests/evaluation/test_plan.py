from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sorites
from sorites import core
from sorites.core import CLEAN, Generated, Model, Outputs, Sample, Setting, Source, table
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet, labels
from sorites.core.table import KEY
from sorites.evaluation import plan
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.samples import framed_image
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import SAMPLES_PER_UNIT
from sorites.suites.suite import parse


def sample(id_: str, shift: str = CLEAN, setting: Setting | None = None, **more: Any) -> Sample:
    return Sample(
        id_,
        Generated(lambda: np.full((9, 9, 3), 7, np.uint8)),
        label=0,
        shift=shift,
        setting=setting or Setting(),
        **more,
    )


def make(samples: Iterable[Sample], **suite: Any) -> Plan:
    return plan.make(parse({"name": "s", **suite}, "test"), Source("mine", list(samples)))


CLEANS = [sample(f"p{i:03d}") for i in range(40)]
MISTS = [sample(f"p{i:03d}", "mist", Setting(float(n), level=n)) for i in range(40) for n in (1, 2)]


def test_a_shift_we_make_starts_from_the_clean_samples() -> None:
    made = make(CLEANS, shifts=["jpeg", {"name": "contrast", "levels": [2]}])
    assert set(made.groups) == {CLEAN, "jpeg", "contrast"}
    assert made.groups["jpeg"] == made.groups[CLEAN]
    assert made.settings == {"jpeg": (75, 82, 85, 90, 93), "contrast": (0.7,)}
    assert made.images() == 40 * (1 + 5 + 1)


def test_a_shift_the_source_brings_is_taken_as_captured() -> None:
    made = make([*CLEANS, *MISTS], shifts=["mist", "jpeg"])
    assert set(made.shifts) == {"jpeg"}
    assert len(made.groups["mist"]) == 80
    assert made.images() == 40 + 80 + 40 * 5
    assert (made.family("mist"), made.family("jpeg"), made.family(CLEAN)) == ("captured", "digital", "clean")
    assert [unit.shift for unit in made.probes()] == ["jpeg"] * 3


def test_no_shifts_named_means_all_that_is_captured() -> None:
    assert {name: len(group) for name, group in make([*CLEANS, *MISTS]).groups.items()} == {
        CLEAN: 40,
        "mist": 80,
    }
    assert {name: len(group) for name, group in make(MISTS).groups.items()} == {CLEAN: 0, "mist": 80}


def test_captured_stops_are_chosen_by_level_or_severity() -> None:
    for settings in ({"levels": [2]}, {"severities": [2.0]}):
        made = make([*CLEANS, *MISTS], shifts=[{"name": "mist", **settings}])
        assert {s.setting.level for s in made.groups["mist"]} == {2}
    with pytest.raises(SoritesError, match="the source mine has mist, but"):
        make([*CLEANS, *MISTS], shifts=[{"name": "mist", "levels": [9]}])


def test_a_captured_shift_stays_captured_when_the_limit_leaves_none_of_it() -> None:
    """Not every sample need be captured under every shift; those that are not must not be made up."""
    order = [s.id for s in make(CLEANS).groups[CLEAN]]
    last = sample(order[-1], "jpeg", Setting(75.0, level=1))
    made = make([*CLEANS, last], shifts=["jpeg"], limit=3)
    assert made.shifts == {}
    assert list(made.groups["jpeg"]) == []


def test_a_limit_is_a_prefix_of_a_fair_order() -> None:
    order = [s.id for s in make(CLEANS).groups[CLEAN]]
    assert sorted(order) != order
    assert [s.id for s in make(CLEANS[::-1]).groups[CLEAN]] == order
    for limit in (1, 7, 39, 40, 400):
        assert [s.id for s in make(CLEANS, limit=limit).groups[CLEAN]] == order[:limit]
    few = make([*MISTS, *CLEANS], limit=5)
    assert {s.id for s in few.groups["mist"]} == {s.id for s in few.groups[CLEAN]} == set(order[:5])


def test_a_prefix_is_fair_to_classes_that_come_in_blocks() -> None:
    """Of 4 x 250 samples sorted by class, a tenth holds about a tenth of each: hypergeometric, five sigma."""
    blocks = [sample(f"class{c}/{i:03d}") for c in range(4) for i in range(250)]
    first = [s.id[:6] for s in make(blocks, limit=100).groups[CLEAN]]
    sigma = (100 * 0.25 * 0.75 * 900 / 999) ** 0.5
    assert all(abs(first.count(f"class{c}") - 25) < 5 * sigma for c in range(4))


def test_units_cut_every_group_and_go_slice_by_slice() -> None:
    made = make([*CLEANS, *MISTS], shifts=["mist", "jpeg"])
    units = made.units()
    for name, group in made.groups.items():
        cuts = [(u.start, u.stop) for u in units if u.shift == name]
        assert cuts == [
            (start, min(start + SAMPLES_PER_UNIT, len(group)))
            for start in range(0, len(group), SAMPLES_PER_UNIT)
        ]
    assert [u.start for u in units] == sorted(u.start for u in units)
    assert len({u.key for u in [*units, *made.probes()]}) == len(units) + len(made.probes())


def test_a_unit_is_known_by_its_shift_its_start_and_its_kind() -> None:
    assert Unit("jpeg", 16, 32).key == "jpeg-0000016"
    assert Unit("jpeg", 16, 32, probe=True).key == "jpeg-0000016-probe"


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "a b", "a\\b", ".hidden", "x" * 300, "naïve"])
def test_whatever_a_source_calls_its_shift_the_shard_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    for models in (["m:../x"], ["m:../x", "../y"]):
        path = table.write_shard(table.rows([]), tmp_path, shards.stem(Unit(name, 0, 1), *models))
        assert path.parent == tmp_path / "predictions"
        assert path.name.isascii()
        assert len(path.name) < 200
        assert shards.stem(Unit(name, 0, 1), *models) != shards.stem(Unit(name + "y", 0, 1), *models)


def test_image_ids_follow_what_makes_the_pixels() -> None:
    one = CLEANS[0]

    def id_(at: float = 75.0, shift: str = "jpeg", **suite: Any) -> str:
        return make([one], shifts=["jpeg", "contrast"], **suite).image_id(one, shift, Setting(at, level=1))

    frame = {"resize": 8}
    ids = [
        id_(),
        id_(80.0),
        id_(shift="contrast"),
        id_(seed=1),
        id_(frame=frame),
        id_(frame={**frame, "crop": 8}),
    ]
    assert len(set(ids)) == len(ids)
    assert id_() == id_(models=(), limit=1, refine=0.5, about="other")


def test_a_new_version_of_a_shift_makes_new_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def id_() -> str:
        return make(CLEANS, shifts=["jpeg"]).image_id(CLEANS[0], "jpeg", Setting(75.0))

    before = id_()
    monkeypatch.setattr(core.shift("jpeg"), "version", 99)
    assert id_() != before


def test_a_built_image_keeps_its_id_and_is_not_framed_again() -> None:
    built = sample("p", "mist", Setting(1.0), image_id="known", framed=True)
    made = make([built], frame={"resize": 4})
    assert made.image_id(built, "mist", built.setting) == "known"
    assert framed_image(made.suite, built).shape == (9, 9, 3)
    assert framed_image(made.suite, CLEANS[0]).shape == (4, 4, 3)


def test_what_cannot_be_planned_is_an_error_before_any_work(tiny: Callable[..., Model]) -> None:
    with pytest.raises(SoritesError, match="mine has no samples"):
        make([])
    with pytest.raises(SoritesError, match="samples with the id 'p000'"):
        make([*CLEANS, CLEANS[0]])
    with pytest.raises(SoritesError, match="samples with the id 'p000'"):
        make([*CLEANS, *MISTS, MISTS[0]])
    with pytest.raises(SoritesError, match="no shift named 'msit'"):
        make(CLEANS, shifts=["msit"])
    with pytest.raises(SoritesError, match="no scorer named 'mps'"):
        make(CLEANS, scorers=["mps"])
    ood_samples = Model("m", lambda images: Outputs(), labels=("x", "y"))
    with pytest.raises(SoritesError, match="such as 'cat'"):
        plan.make(
            parse({"name": "s", "labels": ["cat"], "models": ["m"]}, "t"),
            Source("mine", CLEANS),
            {"m": ood_samples},
        )


def test_a_model_is_asked_only_about_the_suites_labels() -> None:
    model = Model("m", lambda images: Outputs(), labels=("dog", "cat", "bird"))
    suite = parse({"name": "s", "labels": ["cat", "fish", "dog"], "models": ["m"]}, "t")
    made = plan.make(suite, Source("mine", CLEANS), {"m": model})
    columns = made.columns["m"]
    assert columns.labels.tolist() == [0, 2]
    assert made.models["m"].labels == ("cat", "dog")
    assert columns.places.tolist() == [0, 1], "of the logits that are left"
    assert columns.known == {0, 2}


def test_refining_where_no_dial_is_turned_is_refused() -> None:
    with pytest.raises(SoritesError, match="refine: none of"):
        make([*CLEANS, *MISTS], shifts=["mist"], refine=0.1)
    assert make([*CLEANS, *MISTS], shifts=["mist", "jpeg"], refine=0.1).probes()


@pytest.mark.slow
def test_units_grow_with_the_plan_and_a_folder_keeps_their_size(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [plan.slice_for(sizes) for sizes in ([], [7], [800_000], [800_001], [10_000_000] * 20)] == [
        16,
        16,
        16,
        32,
        4096,
    ]
    small = parse(
        {"name": "s", "frame": {"resize": 40}, "shifts": ["contrast"], "source": f"folder:{photos}"}, "test"
    )
    usual = sorites.run(small, models=[tiny()], out=tmp_path / "usual").collect()
    assert "slice" not in read_record(tmp_path / "usual").as_json()
    monkeypatch.setattr(plan, "MAX_UNITS", 2)
    grown = sorites.run(small, models=[tiny()], out=tmp_path / "grown").collect()
    assert read_record(tmp_path / "grown").slice == 32
    assert len(list((tmp_path / "grown" / "predictions").iterdir())) == 2
    assert grown.sort(KEY).equals(usual.sort(KEY))
    monkeypatch.undo()
    assert sorites.run(small, models=[tiny()], out=tmp_path / "grown").collect().equals(grown)


def test_classes_of_a_model_with_similar_names_are_matched() -> None:
    found = plan._similar_columns(("Dogs", "Cat", "lorry, truck"), labels(["cat", "dog", "truck"]))
    assert found == {"cat": 1, "dog": 0, "truck": 2}
    assert plan._similar_columns(("cat", "dog"), labels(["cat", "dog"])) == {}
    # A class without a partner on both sides: these are other classes.
    assert plan._similar_columns(("Cats", "ship"), labels(["cat", "dog"])) == {}
    assert plan._similar_columns(("cat", "Cats"), labels(["cat", "dog"])) == {}
    assert plan._similar_columns(imagenet().ids, labels(["tabby", "tench"])) == {"tabby": 281, "tench": 0}
