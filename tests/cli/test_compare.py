from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.schemas import problems

import sorites
from sorites.core import Model
from sorites.suites.suite import parse

LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]


@pytest.fixture(scope="module")
def two(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a model and of the same with red and blue swapped."""
    root = tmp_path_factory.mktemp("two")
    suite = parse({"name": "s", "labels": LABELS, "shifts": ["contrast", "jpeg"]}, "test")
    good = tiny("good")
    bad = replace(
        good, name="bad", version="2", forward=lambda images: good.forward([p[..., ::-1] for p in images])
    )
    for model in (good, bad):
        sorites.run(suite, source=f"folder:{photos}", models=[model], out=root / model.name)
    return root


def test_a_broken_rule_is_exit_code_1_with_the_lines_that_broke(
    command: Command, two: Path, home: Path
) -> None:
    code, out, err = command(
        "compare",
        two / "good",
        two / "bad",
        "--fail-if",
        "drop > 2",
        "--junit",
        "g.xml",
        "--markdown",
        "g.md",
        "--json",
        "c.json",
    )
    assert code == 1
    assert problems(home / "c.json", "compare") == []
    assert "broken: drop > 2: drop.contrast is" in err
    assert "gate: failed, 3 broken" in err
    assert "wrote compare.html, g.xml, g.md, c.json" in out
    assert all((home / name).stat().st_size for name in ("compare.html", "g.xml", "g.md"))


def test_rules_that_hold_are_exit_code_0_and_a_page(command: Command, two: Path, home: Path) -> None:
    code, out, err = command("compare", two / "bad", two / "good", "--fail-if", "drop > 2", "--format", "csv")
    assert code == 0
    assert "gate: passed, 3 met" in err
    assert out.splitlines()[0].startswith("dial,n,base,new,drop,low,high")
    page = (home / "compare.html").read_text()
    assert "good against bad" in page
    assert "Which images flipped?" in page


def imported(command: Command, home: Path, name: str, lost: int, few: bool) -> Path:
    """Import predictions of 200 images of fog, of which some are wrong, and perhaps of four of rain."""
    rows = [f"p{i},1,{2 if i < lost else 1},{name},fog,1" for i in range(200)]
    rows += [f"p{i},1,1,{name},rain,1" for i in range(4) if few]
    (home / f"{name}.csv").write_text("\n".join(["sample,label,pred,model,shift,severity", *rows]) + "\n")
    out = home / f"run-{name}"
    assert command("import", home / f"{name}.csv", "--as", "csv", "--source", "x", "--out", out)[0] == 0
    return out


@pytest.mark.slow
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize(("lost", "code"), [(84, 1), (1, 0), (0, 0)])
def test_a_tiny_shift_hides_no_loss(command: Command, home: Path, few: bool, lost: int, code: int) -> None:
    """84 of 200 images are lost and none is gained, beside a shift of four unchanged images."""
    base, new = imported(command, home, "a", 0, few), imported(command, home, "b", lost, few)
    found, _, err = command("compare", base, new, "--fail-if", "drop > 0")
    assert found == (code or (2 if few else 0))
    assert ("not judged: drop > 0: drop.rain" in err) == few
    assert "inf" not in err
    assert command("compare", base, new, "--fail-if", "drop > 2", "--allow-unjudged")[0] == code


def test_checks_with_too_few_images_are_exit_code_2_unless_allowed(
    command: Command, photos: Path, tiny: Callable[..., Model], home: Path
) -> None:
    good = tiny("good")
    suite = parse({"name": "s", "labels": LABELS, "shifts": ["jpeg"]}, "test")
    for name in ("one", "two"):
        model = replace(good, name=name, version=name)
        sorites.run(suite, source=f"folder:{photos}", models=[model], out=home / name, limit=3)
    words = ("compare", home / "one", home / "two", "--fail-if", "drop > 2", "--markdown", "g.md")
    code, out, err = command(*words, "--format", "json")
    assert code == 2
    assert "not judged: drop > 2: drop.jpeg" in err
    assert {row["dial"]: (row["judged"], row["bound"]) for row in json.loads(out)} == {
        "clean": (False, None),
        "jpeg": (False, None),
    }
    assert "Not judged:" in (home / "g.md").read_text()
    assert "not judged" in (home / "compare.html").read_text()
    assert command(*words, "--allow-unjudged")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fail-if", "drp > 2"], "no metric of a gate named 'drp'. Did you mean drop or map_drop?"),
        (["--fail-if", "drop > nan"], "finite number"),
        (["--fail-if", "drop.jpg > 1"], "no dial named 'jpg'. Did you mean jpeg?"),
        (["--gate", "none.toml"], "cannot read none.toml"),
        (["--model", "god"], "no model named 'god'"),
    ],
)
def test_bad_input_is_one_message(command: Command, two: Path, words: list[str], message: str) -> None:
    code, _, err = command("compare", two / "good", two / "bad", *words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_folders_that_are_no_runs_are_named(command: Command, two: Path) -> None:
    code, _, err = command("compare", two / "good", "nowhere")
    assert code == 2
    assert "nowhere" in err


def test_a_model_in_place_of_a_run_is_told_how_to_make_one(command: Command, two: Path) -> None:
    code, _, err = command("compare", "onnx:a.onnx", two / "good")
    assert code == 2
    assert "sorites run SUITE --model base=onnx:a.onnx --model new=SPEC --out RUN" in err


def test_two_models_of_one_run_need_one_argument(
    command: Command, home: Path, photos: Path, tiny: Callable[..., Model]
) -> None:
    models = [replace(tiny(), name=name, version=name) for name in ("a", "b")]
    suite = parse({"name": "both", "labels": LABELS, "shifts": ["jpeg"]}, "test")
    sorites.run(suite, source=f"folder:{photos}", models=models, out=home / "both", limit=3, levels=[1])
    code, out, _ = command("compare", home / "both", "--base-model", "a", "--model", "b")
    assert (code, "jpeg" in out) == (0, True)
    assert command("compare", home / "both", "--base-model", "a", "--model", "a")[0] == 2


def test_doctor_cite_and_completion_answer(command: Command) -> None:
    assert "extras:" in command("doctor")[1]
    assert "@inproceedings{hendrycks2019imagenetc," in command("cite", "demo")[1]
    code, _, err = command("cite", "dmo")
    assert (code, "Did you mean demo?" in err) == (2, True)
    assert "--install-completion" in command("--help")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lite9"], "no model named 'lite9'. Did you mean lite"),
        (["lite0", "--battery", "shor"], "no battery named 'shor'. Did you mean short?"),
        (["lite0", "--source", "folder:none", "--labels", "c.txt"], "labels"),
    ],
)
def test_a_passport_of_nothing_is_one_message(command: Command, words: list[str], message: str) -> None:
    code, _, err = command("passport", *words, "--limit", 2, "--out", "p")
    assert code == 2
    assert message in err
