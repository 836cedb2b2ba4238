from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import Generated, Model, Outputs, Sample, Source, table
from sorites.core.errors import Damaged, SoritesError
from sorites.evaluation.integrity.check import check
from sorites.evaluation.storage.shards import write_metadata
from sorites.io import digests
from sorites.suites.suite import parse

SUITE = parse(
    {"name": "s", "shifts": ["jpeg", {"name": "contrast", "levels": [5]}], "frame": {"resize": 40}}, "test"
)


@pytest.fixture(scope="module")
def whole(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("check") / "run"
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny(), tiny("other")], out=run, refine=0.1)
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def shards(run: Path, pattern: str = "*") -> list[Path]:
    return sorted((run / "predictions").glob(f"{pattern}.*.parquet"))


def rewrite(path: Path, rows: pl.DataFrame) -> None:
    """Replace the rows of a shard; its name has the new digest."""
    path.unlink()
    table.write_shard(rows, path.parent.parent, digests.stem_of(path.name) or "")


def test_a_whole_run_says_so(run: Path) -> None:
    said = check(str(run)).splitlines()
    assert said[0].endswith("140 images per model")
    assert said[1:] == ["tiny: 140 rows, 0 errors, complete", "other: 140 rows, 0 errors, complete"]


def test_errors_are_counted_and_do_not_make_a_run_less_whole(tmp_path: Path) -> None:
    def broken() -> None:
        raise SoritesError("truncated")

    model = Model("m", lambda images: Outputs(np.zeros((len(images), 1000), np.float32)))
    source = Source("mine", [Sample("bad", Generated(broken), 0)])  # type: ignore[arg-type]
    sorites.run(SUITE, source=source, models=[model], out=tmp_path / "run", max_errors=1.0)
    assert "m: 7 rows, 7 errors, complete" in check(str(tmp_path / "run"))


@pytest.mark.parametrize("keep", [0, 100, -8, -400])
def test_a_truncated_shard_is_named(run: Path, keep: int) -> None:
    broken = shards(run)[1]
    broken.write_bytes(broken.read_bytes()[:keep])
    with pytest.raises(SoritesError, match=rf"{broken.name} cannot be read: .*\nType: .*repair=True"):
        check(str(run))


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5])
def test_a_shard_with_scrambled_data_is_named(run: Path, part: float) -> None:
    broken = shards(run)[1]
    data = bytearray(broken.read_bytes())
    at = int(len(data) * part)
    data[at : at + 64] = bytes(255 - b for b in data[at : at + 64])
    broken.write_bytes(bytes(data))
    with pytest.raises(SoritesError, match=rf"{broken.name} cannot be read: .*\nType: .*repair=True"):
        check(str(run))


def test_a_missing_shard_is_counted_and_the_same_command_mends_it(
    run: Path, photos: Path, tiny: Callable[..., Model]
) -> None:
    shards(run, "jpeg-0000000--*")[0].unlink()
    with pytest.raises(SoritesError, match="60 rows, 0 errors, 80 missing:"):
        check(str(run))
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny(), tiny("other")], out=run, refine=0.1)
    assert check(str(run)).count("complete") == 2


def test_a_missing_probe_is_noticed_too(run: Path) -> None:
    shards(run, "jpeg-0000016-probe--*")[0].unlink()
    with pytest.raises(SoritesError, match="other: 140 rows, 0 errors, 1"):
        check(str(run))


def test_a_shard_of_another_run_is_noticed_and_not_read(run: Path) -> None:
    before = table.read(run).collect()
    stray = pl.read_parquet(shards(run)[0]).with_columns(run_id=pl.lit("another"))
    path = table.write_shard(stray, run, "stray")
    assert table.read(run).collect().equals(before)
    with pytest.raises(SoritesError, match=f"{path.name} cannot be read: .*rows of another run"):
        check(str(run))


@pytest.mark.parametrize(
    "name", ["predictions/{} copy.parquet", "predictions/x.parquet", "facts/x.parquet", "heads/x", "note.txt"]
)
def test_a_file_of_others_changes_nothing_and_is_named(run: Path, name: str) -> None:
    before, first = table.read(run).collect(), shards(run)[0]
    copy = run / name.format(first.stem)
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(first.read_bytes())
    assert table.read(run).collect().equals(before)
    said = check(str(run))
    assert said.count("complete") == 2
    assert f"not part of this run and not read: {copy}" in said
    assert not (run / "damaged").exists()


def test_derived_files_are_known(run: Path) -> None:
    (run / "report.html").write_text("")
    (run / "predictions" / f"sorites-{'0' * 16}-1.tmp").write_text("")
    (run / "replaced").mkdir()
    assert "not part" not in check(str(run))


def test_a_copy_under_another_name_is_named_and_moved_away(run: Path) -> None:
    before, first = table.read(run).collect(), shards(run)[0]
    copy = first.with_name(f"again{first.name}")
    shutil.copy(first, copy)
    with pytest.raises(SoritesError, match=f"{copy.name} cannot be read"):
        check(str(run))
    check(str(run), repair=True)
    assert table.read(run).collect().equals(before)
    assert check(str(run)).count("complete") == 2


@pytest.mark.parametrize("name", ["manifest.parquet", "predictions"])
def test_missing_parts_are_clear_errors(run: Path, name: str) -> None:
    path = run / name
    path.unlink() if path.is_file() else shutil.rmtree(path)
    with pytest.raises(SoritesError, match=rf"{name} cannot be read|no predictions"):
        check(str(run))


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="is not a run folder: it has no"):
        check(str(tmp_path))


@pytest.mark.parametrize("keep", [0, 100, -8])
def test_a_damaged_shard_is_set_aside_and_made_again(
    run: Path, photos: Path, tiny: Callable[..., Model], keep: int
) -> None:
    broken = shards(run)[1]
    whole, half = broken.read_bytes(), broken.read_bytes()[:keep]
    broken.write_bytes(half)
    said = check(str(run), repair=True)
    assert said.startswith(f"moved {broken} (")
    assert said.endswith("next: repeat the run")
    assert (run / "damaged" / "predictions" / broken.name).read_bytes() == half
    assert not broken.exists()
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny(), tiny("other")], out=run, refine=0.1)
    assert broken.read_bytes() == whole
    assert check(str(run)).count("complete") == 2
    assert "nothing in" in check(str(run), repair=True)


def test_what_is_set_aside_twice_is_kept_twice(run: Path) -> None:
    broken = shards(run)[1]
    for data in (b"one", b"two"):
        broken.write_bytes(data)
        check(str(run), repair=True)
    assert sorted(path.read_bytes() for path in (run / "damaged" / "predictions").iterdir()) == [
        b"one",
        b"two",
    ]


FOREIGN = {
    "it has no column run_id": pl.DataFrame({"a": [1]}),
    "its column severity is String, not Float64": table.rows([{"severity": 3.0}]).cast(
        {"severity": pl.String}
    ),
}


@pytest.mark.parametrize("why", FOREIGN)
def test_a_shard_of_another_kind_is_named(run: Path, why: str) -> None:
    path = table.write_shard(FOREIGN[why], run, "other")
    with pytest.raises(SoritesError, match=rf"{path.name} cannot be read: {why}"):
        check(str(run))


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
@pytest.mark.parametrize("data", [b"", b"PAR1", b"[" * 100_000, None])
def test_damaged_facts_are_named_and_set_aside_with_their_record(
    run: Path, suffix: str, data: bytes | None
) -> None:
    table.write_facts(run, "mine", pl.DataFrame({"image_id": ["a"], "level": [1]}))
    write_metadata(run, "mine", {"how": "so"})
    path = run / "facts" / f"mine{suffix}"
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(SoritesError, match=f"{path.name} cannot be read"):
        check(str(run))
    check(str(run), repair=True)
    assert not list((run / "facts").iterdir())
    assert check(str(run)).count("complete") == 2


@pytest.mark.parametrize("data", [b"", b"PAR1", None])
def test_a_damaged_manifest_is_recreated_by_the_run(
    run: Path, photos: Path, tiny: Callable[..., Model], data: bytes | None
) -> None:
    path = run / "manifest.parquet"
    whole = path.read_bytes()
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(SoritesError, match=r"manifest\.parquet cannot be read"):
        check(str(run))
    check(str(run), repair=True)
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny(), tiny("other")], out=run, refine=0.1)
    assert path.read_bytes() == whole
    assert check(str(run)).count("complete") == 2


def test_a_damaged_record_is_to_be_restored(run: Path) -> None:
    path = run / "run.json"
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    for repair in (False, True):
        with pytest.raises(Damaged, match="Restore it from a backup") as caught:
            check(str(run), repair)
        assert caught.value.fields["path"] == str(path)


def test_rows_of_a_scorer_that_are_missing_are_counted(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    sorites.run(
        SUITE.override(only_scorers=("msp",)),
        source=f"folder:{photos}",
        models=[tiny()],
        out=tmp_path,
        limit=4,
    )
    path = shards(tmp_path)[0]
    rewrite(path, pl.read_parquet(path).filter(pl.col("output") == "label"))
    with pytest.raises(SoritesError, match="rows of msp missing:"):
        check(str(tmp_path))


def test_rows_of_other_samples_are_not_whole(run: Path) -> None:
    path = shards(run)[0]
    rewrite(path, pl.read_parquet(path).with_columns(sample_id=pl.lit("elsewhere")))
    with pytest.raises(SoritesError, match=r"\d+ rows of samples"):
        check(str(run))


def suite_file(tmp_path: Path, photos: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(f'about = "mine"\nsource = "folder:{photos}"\n{text}')
    return str(path)


def test_a_sound_suite_says_what_it_will_do(tmp_path: Path, photos: Path) -> None:
    path = suite_file(
        tmp_path, photos, 'models = ["lite0"]\nshifts = ["jpeg", {name = "contrast", levels = [1]}]\n'
    )
    said = check(path).splitlines()
    assert said[0] == "suite mine: mine"
    assert said[1] == f"source folder:{photos}: 20 images, 1000 labels"
    assert said[2:4] == [
        "shift jpeg: 75, 82, 85, 90, 93 (100 - quality)",
        "shift contrast: 0.6 (1 - c)",
    ]
    assert said[4:] == ["models: lite0", f"next: sorites.run({str(path)!r})"]


def test_a_suite_that_judges_its_own_training_images_is_told(tmp_path: Path, photos: Path) -> None:
    text = f'limit = 3\nscorers = ["mds"]\nfit = {{source = "folder:{photos}"}}\n'
    said = check(suite_file(tmp_path, photos, text)).splitlines()
    assert "note: 3 of 20 training images are also in the test set; their OOD scores are biased low" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('models = ["lite00"]', "no model named 'lite00'. Did you mean lite0"),
        ('scorers = ["mps"]', "no scorer named 'mps'. Did you mean msp"),
        ('shifts = ["jepg"]', "no shift named 'jepg'. Did you mean jpeg"),
        ('shifts = [{name = "jpeg", levels = [9]}]', "jpeg has levels 1 to 5, got 9"),
        ('models = ["lite0"]\nreference = "lite1"', "reference 'lite1' is not among its models lite0"),
        ('labels = "none.txt"', "labels: expected"),
    ],
)
def test_an_unsound_suite_is_an_error(tmp_path: Path, photos: Path, text: str, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        check(suite_file(tmp_path, photos, text))


def test_a_built_dataset_is_captured(tmp_path: Path, photos: Path) -> None:
    sorites.build(SUITE.override(source=f"folder:{photos}"), tmp_path / "set")
    path = tmp_path / "built.toml"
    path.write_text(f'source = "folder:{tmp_path / "set"}"\nshifts = ["jpeg", "brightness"]\n')
    said = check(str(path))
    assert "shift jpeg: captured" in said
    assert "shift brightness: 0.1" in said
