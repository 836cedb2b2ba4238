"""CNS-Bench's result files, as written by its evaluation and as released."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites import metrics
from sorites.core import table
from sorites.core.errors import SoritesError
from sorites.evaluation.imports.write import import_predictions

SCALES = (0, 500, 1000, 1500, 2000, 2500)
RIGHT = {  # shift, folder, seed: the scales at which the model is right
    ("heavy_snow", "022_bald eagle", 34): (0, 500, 1500),
    ("heavy_snow", "950_orange", 7): SCALES,
    ("painting_style", "022_bald eagle", 34): (0, 500, 1000, 1500, 2000),
    ("painting_style", "950_orange", 7): (),
}


def released(folder: Path, model: str) -> list[Path]:
    """Write what prepare_csv_files.py writes: an index, answers as floats, and a scale cut from a
    name of another length.
    """
    files = []
    for shift in ("heavy_snow", "painting_style"):
        lines = [f",pred_class,gt_class,shift,class_str,img_name,class_name,seed,scale,{model}"]
        for (where, name, seed), right in RIGHT.items():
            for scale in SCALES if where == shift else ():
                ground_truth = int(name[:3])
                pred, image = ground_truth if scale in right else 1, f"seed_{seed:04d}_scale_{scale:04d}.jpg"
                cut = int(image.split("_")[-1][:-5]) / 1000
                lines.append(
                    f"{len(lines) % 3},{pred}.0,{ground_truth}.0,{shift},{name},{image},{name[4:]},"
                    f"{seed:04d},{cut},{pred == ground_truth}"
                )
        files.append(folder / f"{model}__{shift}.csv")
        files[-1].write_text("\n".join(lines) + "\n")
    return files


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return import_predictions(released(tmp_path, "resnet50.a1_in1k"), "cns", tmp_path / "run").folder


def test_a_trajectory_starts_clean_and_its_scale_is_that_of_the_name(run: Path) -> None:
    rows = (
        table.read(run)
        .filter(table.pl.col("sample_id") == "heavy_snow/022/seed_0034")
        .sort("severity")
        .collect()
    )
    assert rows.select("shift", "severity", "level", "label", "pred", "correct").rows() == [
        ("clean", 0.0, None, 22, 22, True),
        ("heavy_snow", 0.5, 1, 22, 22, True),
        ("heavy_snow", 1.0, 2, 22, 1, False),
        ("heavy_snow", 1.5, 3, 22, 22, True),
        ("heavy_snow", 2.0, 4, 22, 1, False),
        ("heavy_snow", 2.5, 5, 22, 1, False),
    ]
    assert set(rows["model"]) == {"resnet50.a1_in1k"}
    assert set(rows["source"]) == {"cns_bench"}


def test_section_3_3_failure_severities_of_released_predictions(run: Path) -> None:
    """The least failing scale by value: snow 1.0 and never; painting 2.5 and 0."""
    found = metrics.trajectories(table.read(run)).collect().sort("sample_id")
    assert dict(found.select("sample_id", "failure").iter_rows()) == {
        "heavy_snow/022/seed_0034": 1.0,
        "heavy_snow/950/seed_0007": None,
        "painting_style/022/seed_0034": 2.5,
        "painting_style/950/seed_0007": 0.0,
    }


def test_table_5_accuracy_and_drop_of_released_predictions(run: Path) -> None:
    """Accuracies by scale averaged over all trajectories, and the average over scales with 0, from
    the lists above.
    """
    shares = {scale: sum(scale in right for right in RIGHT.values()) / len(RIGHT) for scale in SCALES}
    average = metrics.dial_accuracy(table.read(run))["value"].item()
    assert average == pytest.approx(sum(shares.values()) / len(SCALES))
    drop = metrics.dial_drop(table.read(run))["value"].item()
    assert drop == pytest.approx(sum(shares[0] - share for share in shares.values()) / len(SCALES))


def test_what_the_evaluation_writes_gives_the_same_rows(run: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    lines = [",pred_class,gt_class,img_dir"]
    for (shift, name, seed), right in RIGHT.items():
        for scale in SCALES:
            pred = int(name[:3]) if scale in right else 1
            lines.append(
                f"0,{pred},{int(name[:3])},/data/cns_bench/{shift}/{name}/seed_{seed:04d}_scale_{scale:04d}.jpg"
            )
    (raw / "resnet50.a1_in1k.csv").write_text("\n".join(lines) + "\n")
    other = import_predictions([raw], "cns", tmp_path / "other").folder
    one, two = (table.read(folder).drop("run_id").sort("image_id").collect() for folder in (run, other))
    assert one.equals(two)


def test_images_made_with_the_scripts_take_the_shift_from_the_name_of_the_file(tmp_path: Path) -> None:
    image = "results/shifts/id_0012/022_bald eagle/seed_0003_startnoise_0750_scale_0500m.png"
    (tmp_path / "m__heavy_fog.csv").write_text(f"pred_class,gt_class,img_dir\n22,22,{image}\n")
    out = import_predictions([tmp_path / "m__heavy_fog.csv"], "cns", tmp_path / "run").folder
    assert table.read(out).select("shift", "severity").collect().rows() == [("heavy_fog", 0.5)]
    (tmp_path / "m.csv").write_text(f"pred_class,gt_class,img_dir\n22,22,{image}\n")
    with pytest.raises(
        SoritesError,
        match="id_0012 .* MODEL__SHIFT.csv",
    ):
        import_predictions([tmp_path / "m.csv"], "cns", tmp_path / "other")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "a,b\n1,2\n",
            "m.csv: .*gt_class, shift.* missing",
        ),
        (
            "pred_class,gt_class,img_dir\n1,22,x.jpg\n",
            "row 1, column img_dir: x.jpg",
        ),
        (
            "pred_class,gt_class,img_dir\n1,22,s/022_bald eagle/x.jpg\n",
            "column img_dir: .*seed_0034",
        ),
        (
            "pred_class,gt_class,img_dir\n1,3,s/022_bald eagle/seed_0001_scale_0500.jpg\n",
            "gt_class: expected 22, .*got 3.0",
        ),
        (
            "pred_class,gt_class,img_dir\nx,22,s/022_bald eagle/seed_0001_scale_0500.jpg\n",
            "row 1, column pred_class: .*'x'",
        ),
    ],
)
def test_bad_input_is_named(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(SoritesError, match=match):
        import_predictions([tmp_path / "m.csv"], "cns", tmp_path / "run")
    assert not (tmp_path / "run").exists()
