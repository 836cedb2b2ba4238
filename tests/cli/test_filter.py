from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.apps.annotation.worlds import answered
from tests.cli.conftest import Command

from sorites.apps.annotation.images import from_run
from sorites.core import Model, table
from sorites.core.labels import imagenet
from sorites.evaluation.run import run
from sorites.evaluation.storage.shards import delete_facts
from sorites.suites.suite import parse

ENCODER = """
import numpy as np
class Colours:
    version = "1"
    def images(self, images):
        return np.array([np.concatenate([p.mean((0, 1)), p.std((0, 1)) + 1]) for p in images])
    def texts(self, sentences):
        return np.array([[len(s), 3, 2, 1, s.count("a"), 5] for s in sentences])
"""
NAME = "python:filter_colours:Colours"


@pytest.fixture
def folder(home: Path, photos: Path, tiny: Callable[..., Model]) -> Path:
    (home / "filter_colours.py").write_text(ENCODER, encoding="utf-8")
    suite = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 32}, "limit": 3}
    run(
        parse({**suite, "shifts": [{"name": "contrast", "severities": [0.5, 0.9]}]}, "far"),
        models=[tiny()],
        out=home / "run",
    )
    return home / "run"


def test_a_run_is_filtered_and_judged_again_by_other_thresholds(
    command: Command, folder: Path, home: Path
) -> None:
    code, out, err = command(
        "filter", "run", "--encoder", NAME, "--second", NAME, "--shift-text", "contrast=in fog"
    )
    assert code == 0, err
    assert "the published thresholds are for" in err
    assert {"shift", "severity", "images", "judged", "kept"} <= set(out.split())
    assert out.splitlines()[-1] == "next: sorites report run"
    ids = (
        table.read(folder)
        .filter(pl.col("severity") == 0.9)
        .select("image_id")
        .collect()["image_id"]
        .to_list()
    )
    (home / "labels.csv").write_text(
        "image_id,outside\n" + "".join(f"{i},{n < 2}\n" for n, i in enumerate(ids))
    )
    code, out, err = command(
        "filter", "run", "--thresholds", "calibrated", "--annotations", "labels.csv", "--rule", "code"
    )
    assert (code, "note:" in err) == (0, False)
    assert "tpr: share of out-of-class images removed" in out
    assert "rule code, thresholds calibrated: class_text " in out
    held = pl.read_parquet(folder / "facts" / "out_of_class.parquet")
    assert held.height == 6
    assert held["valid"].null_count() == 0


BORDER = """
import numpy as np
class Border:
    version = "1"
    def images(self, images):
        edges = [np.concatenate([p[0], p[-1], p[:, 0], p[:, -1]]).mean(0) for p in images]
        return np.array([[*edge, *p.mean((0, 1))] for edge, p in zip(edges, images)]) / 64 + 0.1
    def texts(self, sentences):
        return np.array([[len(s), 3, 2, 1, s.count("a"), 5] for s in sentences])
"""


def test_generate_check_and_filter_agree_on_whole_images(command: Command, home: Path) -> None:
    """The shift shows at the border alone, which the crop of the models cuts off."""
    (home / "filter_border.py").write_text(BORDER, encoding="utf-8")
    rows, rng = [], np.random.default_rng(0)
    for seed in range(1, 7):
        image = np.broadcast_to(rng.integers(60, 200, 3, dtype=np.uint8), (64, 64, 3)).copy()
        for severity in (0.0, 1.0, 2.0):
            shown = image.copy()
            width = 3 if severity else 0
            for edge in (shown[:width], shown[64 - width :], shown[:, :width], shown[:, 64 - width :]):
                edge[...] = shown[32, 32] * (1 - seed / 20) if severity == 1 else (255, 0, 40 * seed)
            path = f"snow/022_bald eagle/seed_{seed:04d}_scale_{round(severity * 1000):04d}.png"
            (home / "images" / path).parent.mkdir(parents=True, exist_ok=True)
            Pillow.fromarray(shown).save(home / "images" / path)
            rows.append(
                {
                    "path": path,
                    "shift": "snow",
                    "class_name": "bald eagle",
                    "seed": seed,
                    "severity": severity,
                }
            )
    pl.DataFrame(rows).write_parquet(home / "images" / "manifest.parquet")
    name = "python:filter_border:Border"
    (home / "limits.toml").write_text(
        "class_text = -1\nshift_text = 200\njoint_image = 2\nown_image = 0.97\n", encoding="utf-8"
    )
    how = ("--encoder", name, "--second", name, "--thresholds", "limits.toml", "--rule", "code", "--softmax")
    code, said, err = command("generate", "check", "images", *how, "--format", "csv")
    assert code == 0, err
    cut = said.partition("shift,severity,before,after\n")[2].splitlines()
    checked = [line.split(",") for line in cut[:2]]
    assert (
        command(
            "run", "cns_bench", "--source", "cns_bench:images", "--model", "python:means:logits", "--out", "r"
        )[0]
        == 0
    )
    kept = {}
    for view in ("whole", "framed"):
        code, _, err = command("filter", "r", *how, *(("--view", view) if view == "framed" else ()))
        assert code == 0, err
        valid = table.read(home / "r").filter(pl.col("shift") == "snow").collect()
        counts = valid.group_by("severity").agg(pl.len(), pl.col("valid").sum()).sort("severity")
        kept[view] = counts.rows()
    assert [(float(s), int(before), int(after)) for _, s, before, after in checked] == kept["whole"]
    assert kept == {"whole": [(1.0, 6, 4), (2.0, 6, 0)], "framed": [(1.0, 6, 6), (2.0, 6, 6)]}
    code, _, err = command("filter", "r", "--view", "whole")
    assert code
    assert "similarities of framed images" in err


LOST = {0.5: "partly", 0.9: "not class"}


def judged(folder: Path, home: Path) -> Path:
    """A labelling of the run's images, as "annotate serve" makes it: what people say follows from the severity,
    and one of them is more generous.
    """
    return answered(
        home / "labels.sqlite",
        "in_class",
        from_run(folder),
        lambda row, who: {"class": "class" if who == 1 and row["severity"] == 0.5 else LOST[row["severity"]]},
    )


def test_labelling_feeds_the_filter_as_a_table_and_as_facts(
    command: Command, folder: Path, home: Path
) -> None:
    """An export goes to --annotations, or as facts to --thresholds calibrated: the same thresholds and rows."""
    file = judged(folder, home)
    assert command("filter", "run", "--encoder", NAME, "--second", NAME)[0] == 0
    # At 0.5 one says class, the other partly; the rule takes the former. At 0.9 both see nothing of it.
    assert command("annotate", "export", file, "--as", "csv", "--out", "answers.csv")[0] == 0
    told = pl.read_csv(home / "answers.csv")
    assert told.height == 6
    assert set(told["class"]) <= set(imagenet().names)
    assert dict(told.select("severity", "answer_class").iter_rows()) == {0.5: "class", 0.9: "not class"}
    assert dict(told.select("severity", "outside").iter_rows()) == {0.5: False, 0.9: True}
    code, by_table, err = command(
        "filter", "run", "--annotations", "answers.csv", "--thresholds", "calibrated"
    )
    assert code == 0, err
    assert "tpr: share of out-of-class images removed" in by_table
    first = pl.read_parquet(folder / "facts" / "out_of_class.parquet")

    delete_facts(folder, "out_of_class")
    assert command("filter", "run", "--encoder", NAME, "--second", NAME)[0] == 0
    code, _, err = command("filter", "run", "--thresholds", "calibrated")
    assert code
    assert "export annotations into the run" in err
    assert command("annotate", "export", file, "--as", "facts", "--out", "run")[0] == 0
    code, by_facts, err = command("filter", "run", "--thresholds", "calibrated")
    assert code == 0, err
    assert by_facts == by_table
    assert pl.read_parquet(folder / "facts" / "out_of_class.parquet").equals(first)
    # An answer of everybody is a line of its own; one who sees nothing of the class decides.
    assert command("annotate", "export", file, "--as", "csv", "--all", "--out", "all.csv")[0] == 0
    assert pl.read_csv(home / "all.csv")["outside"].null_count() == 3, "partly is neither"
    assert command("filter", "run", "--annotations", "all.csv", "--thresholds", "calibrated")[1] == by_table


def test_an_export_is_imported_again_with_class_and_answer(
    command: Command, folder: Path, home: Path
) -> None:
    file = judged(folder, home)
    command("annotate", "export", file, "--as", "csv", "--all", "--out", "all.csv")
    words = ("annotate", "import", "all.csv", "--as", "csv", "--task", "in_class", "--out", "again.sqlite")
    assert command(*words)[0] == 0
    command("annotate", "export", "again.sqlite", "--as", "csv", "--all", "--out", "again.csv")
    left, right = (pl.read_csv(home / name).sort("image", "annotator") for name in ("all.csv", "again.csv"))
    assert right.drop("width", "height").equals(left.drop("width", "height"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "none is not a run folder"),
        (["run"], "pass --encoder NAME and --second NAME"),
        (
            ["run", "--shift-text", "contrast"],
            "--shift-text expects SHIFT=WORDS",
        ),
    ],
)
def test_a_mistake_is_one_line(command: Command, folder: Path, words: list[str], said: str) -> None:
    code, _, err = command("filter", *words)
    assert code == 2
    assert said in err.splitlines()[-1]
