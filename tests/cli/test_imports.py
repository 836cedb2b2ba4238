from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Command

import sorites


def test_import_then_metrics_check_and_report(command: Command, home: Path) -> None:
    (home / "p.csv").write_text(
        "image,gt,prediction,arch,shift,severity\n"
        + "".join(f"s{i},281,{281 if i >= s else 1},m,fog,{s}\n" for i in range(3) for s in range(3))
    )
    code, out, err = command("import", "p.csv", "--as", "csv", "--out", "r")
    assert (code, err) == (
        0,
        "read sample_id from image, label from gt, model from arch, pred from prediction\n",
    )
    assert "wrote 9 rows to r/predictions" in out
    code, out, err = command("import", "p.csv", "--as", "csv", "--out", "r")
    assert (code, err) == (0, "")
    assert "nothing to do; 9 rows in r/predictions" in out
    code, out, _ = command("metrics", "r", "failure_severity", "--format", "csv")
    assert (code, out.splitlines()[1].split(",")[:3]) == (
        0,
        ["m", "fog", "2.0"],
    ), "one fails at 1, one at 2, one survives"
    assert command("check", "r")[1].splitlines()[1] == "m: 9 rows, 0 errors"
    assert command("report", "r", "--out", "page.html")[0] == 0
    assert command("import", "p.csv", "--as", "csv", "--source", "x", "--out", "r")[::2] == (
        2,
        (
            'sorites: r contains another run (constants.source: null there, "x" here). Choose another --out DIR.\n'
        ),
    )


@pytest.mark.slow
def test_a_published_curve_is_a_reference(command: Command, home: Path) -> None:
    rows = "".join(f"s{i},1,{1 if i >= s else 2},m,fog,{s}\n" for i in range(4) for s in (0, 1, 2))
    (home / "p.csv").write_text("sample,label,pred,model,shift,severity\n" + rows)
    (home / "alexnet.csv").write_text("shift,severity,error\nfog,0,0.25\nfog,1,0.5\nfog,2,1\n")
    command("import", "p.csv", "--as", "csv", "--out", "r", "--reference", "alexnet.csv")
    code, out, _ = command("metrics", "r", "relative_corruption_error", "--format", "csv")
    assert (code, out.splitlines()[1].split(",")[:3]) == (
        0,
        ["m", "fog", "0.75"],
    ), "(1/4 + 2/4) / (1/4 + 3/4)"
    code, out, _ = command(
        "metrics", "r", "corruption_error", "--reference", "alexnet.csv", "--format", "csv"
    )
    assert out.splitlines()[1].split(",")[:3] == ["m", "fog", "0.5"], "(1/4 + 2/4) / (1/2 + 1)"
    page = sorites.report("r", "page.html").read_text(encoding="utf-8")
    assert "Errors relative to alexnet.csv" in page


def test_counts_say_why_a_question_has_no_answer(command: Command, home: Path) -> None:
    (home / "c.csv").write_text("light,param,n,correct\non,1,10,3\noff,1,10,4\n")
    code, out, _ = command("import", "c.csv", "--as", "counts", "--model", "m", "--out", "r")
    assert (code, "wrote 20 rows" in out) == (0, True)
    code, out, err = command("metrics", "r", "camera_control", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "r was imported from counts" in err


def test_a_mistake_is_one_line(command: Command, home: Path) -> None:
    (home / "p.csv").write_text("sample,label,pred,model\na,1,x y,m\n")
    code, out, err = command("import", "p.csv", "--as", "csv", "--out", "r")
    assert (code, out) == (2, "")
    assert err.startswith("sorites: p.csv, row 1, column pred: no class named 'x y'")
    assert err.count("\n") == 1
    assert not (home / "r").exists()
    assert command("import", "p.csv", "--as", "xls", "--out", "r")[2].startswith(
        "sorites: no layout named 'xls'"
    )
