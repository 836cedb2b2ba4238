from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

import sorites
from sorites import cli

Said = tuple[int, str, str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Callable[..., Said]:
    """Type a command: its exit code, what it printed, what it complained of."""
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))

    def typed(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["sorites", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return typed


@pytest.fixture
def home(tmp_path: Path, photos: Path) -> Path:
    """A folder with a suite and a model of the user's own in it."""
    (tmp_path / "means.py").write_text(
        "import numpy as np\n"
        "def logits(pictures):\n"
        "    means = np.stack([np.resize(p[::4, ::4].mean(axis=(0, 1)), 1000) for p in pictures])\n"
        "    return (means / 25 + np.sin(np.arange(1000))).astype(np.float32)\n"
    )
    (tmp_path / "s.toml").write_text(
        f'about = "small"\nsource = "folder:{photos}"\nmodels = ["python:means:logits"]\nshifts = ["jpeg"]\nlimit = 3\n'
        'reference = "python:means:logits"\n[frame]\nresize = 32\n'
    )
    return tmp_path


def test_help_is_quick_to_load_and_names_every_verb() -> None:
    code = (
        "import sys\nsys.argv = ['sorites', '--help']\n"
        "from sorites.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'polars', 'torch', 'PIL', 'scipy', 'pydantic', 'plotly', 'onnxruntime', 'timm'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for verb in ("run", "metrics", "report", "show", "build", "list", "check"):
        assert f" {verb} " in done.stdout


def test_a_run_with_nothing_left_to_do_says_so(say: Callable[..., Said]) -> None:
    assert "wrote 18 rows to r/predictions" in say("run", "s.toml", "--out", "r")[1]
    out = say("run", "s.toml", "--out", "r")[1]
    assert "nothing left to do; 18 rows in r/predictions" in out
    assert "wrote" not in out


def test_a_fit_on_the_pictures_under_test_is_told(say: Callable[..., Said], photos: Path) -> None:
    note = "note: 3 of the 20 training pictures are also judged: their strangeness is too low"
    for scorer, told in (("knn(k=2)", True), ("energy", False)):
        code, _, err = say("run", "s.toml", "--model", "lite0", "--scorer", scorer, "--fit", f"folder:{photos}", "--level", "1")
        assert code == 0, err
        assert (note in err.splitlines()) is told


def test_an_empty_answer_says_what_was_asked(say: Callable[..., Said]) -> None:
    say("run", "s.toml", "--shift", "jpeg", "--scorer", "energy", "--out", "r")
    code, out, err = say("metrics", "r", "lens_field", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 1)
    assert err.startswith("no rows. lens_field asks: ")
    assert err.endswith(" This run holds nothing of that, asked in this way.\n")
    _, out, err = say("metrics", "r", "ood", "--format", "csv")
    assert len(out.splitlines()) == 6
    assert err.startswith("every value is null, n up to 18. ood asks: AUROC")
    assert "none is strange; to ask of those that the model gets wrong: --framework model-specific" in err
    assert "to ask of those" not in say("metrics", "r", "ood", "--framework", "model-specific")[2]
    assert say("metrics", "r", "accuracy")[2] == ""


def test_version(say: Callable[..., Said]) -> None:
    assert say("--version") == (0, f"{sorites.__version__}\n", "")


def test_run_then_metrics_then_check(say: Callable[..., Said], home: Path) -> None:
    code, out, err = say("run", "s.toml", "--out", "r")
    assert code == 0, err
    assert "python:means:logits" in out
    assert "wrote 18 rows to r/predictions" in out
    assert "next: sorites report r" in out
    code, out, err = say("metrics", "r", "accuracy", "--by", "model, shift", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err, [row["shift"] for row in rows]) == (0, "", ["clean", "jpeg"])
    assert [int(row["n"]) for row in rows] == [3, 15]
    code, out, _ = say("metrics", "r", "corruption_error", "--format", "json")
    assert (code, json.loads(out)[0]["model"]) == (0, "python:means:logits")
    code, out, _ = say("metrics", "r", "accuracy")
    assert code == 0
    assert out.split("\n")[1].split() == ["model", "shift", "severity", "value", "n", "low", "high", "missing"]
    code, out, _ = say("check", "r")
    assert (code, out.splitlines()[-1]) == (0, "python:means:logits: 18 rows, 0 errors, whole")


def test_overrides_reach_the_run(say: Callable[..., Said], photos: Path, home: Path) -> None:
    words = ["--shift", "contrast", "--severity", "0.5", "--limit", "2", "--seed", "4", "--batch", "1", "--refine", "0.25"]
    code, _, err = say("run", "s.toml", *words, "--scorer", "msp", "--keep-features", "--out", "r", "--workers", "1")
    assert code == 0, err
    assert "features will take 0.0 MB" in err
    held = sorites.read("r").collect()
    assert set(held["shift"]) == {"clean", "contrast"}
    assert set(held["severity"]) >= {0.0, 0.5}
    assert (held["sample_id"].n_unique(), held["seed"].unique().to_list()) == (2, [4])
    assert set(held["scorer"].drop_nulls()) == {"msp"}
    assert list((home / "r" / "features").iterdir())


def test_the_same_command_finds_its_own_folder(say: Callable[..., Said], home: Path) -> None:
    for _ in range(2):
        assert say("run", "s.toml")[0] == 0
    assert say("run", "s.toml", "--seed", "1")[0] == 0
    assert len(list((home / "runs").iterdir())) == 2


def test_show_draws_a_strip(say: Callable[..., Said], home: Path, photos: Path) -> None:
    picture = next(photos.rglob("*.png"))
    code, out, _ = say("show", "jpeg", picture)
    assert (code, out) == (0, f"wrote {picture.stem}-jpeg.png\nnext: sorites run demo --shift jpeg\n")
    with Pillow.open(home / f"{picture.stem}-jpeg.png") as strip:
        assert strip.width > 6 * 224
    assert say("show", "jpeg", picture, "--severity", "40", "--out", "s.jpg")[0] == 0
    with Pillow.open(home / "s.jpg") as strip:
        assert strip.format == "JPEG"


def test_show_takes_options_of_the_shift(say: Callable[..., Said], home: Path, photos: Path) -> None:
    picture = next(photos.rglob("*.png"))
    say("lens", "select", "--n", "2", "--out", home / "few")
    code, out, _ = say("show", "lens", picture, "--option", f"lenses={home / 'few'}", "--out", "few.png")
    assert (code, out.splitlines()[1]) == (0, f"next: sorites run demo --shift lens --option lenses={home / 'few'}")
    assert say("show", "lens", picture, "--out", "all.png")[0] == 0
    with Pillow.open(home / "few.png") as few, Pillow.open(home / "all.png") as every:
        assert few.width == every.width
        assert 2 * few.height < 1.5 * every.height
    assert "no option named 'lensse'. Did you mean lenses?" in say("show", "lens", picture, "--option", "lensse=x")[2]


def test_build_writes_a_dataset_and_says_how_to_run_it(say: Callable[..., Said], home: Path) -> None:
    code, out, err = say("build", "s.toml", "--out", "set", "--shift", "contrast", "--level", "2", "--quality", "90")
    assert code == 0, err
    assert out.splitlines() == ["wrote 6 pictures to set", "next: sorites run s.toml --source folder:set --shift contrast"]
    code, _, err = say(*out.splitlines()[1].removeprefix("next: sorites ").split(), "--out", "r")
    assert code == 0, err
    assert sorites.read("r").collect().group_by("shift", "level").len().sort("shift").rows() == [
        ("clean", None, 3),
        ("contrast", 2, 3),
    ]


def test_build_tells_of_pictures_it_could_not_make(say: Callable[..., Said], home: Path, photos: Path) -> None:
    bad = home / "bad" / "n01440764"
    bad.mkdir(parents=True)
    Pillow.fromarray(np.zeros((9, 9, 3), np.uint8)).save(bad / "good.png")
    (bad / "bad.png").write_text("not a picture")
    code, out, err = say("build", "s.toml", "--source", f"folder:{home / 'bad'}", "--level", "1", "--out", "set")
    assert code == 0
    assert "wrote 2 pictures to set; 2 could not be made" in out
    assert err.count("not written: n01440764/bad.png") == 2


def test_list(say: Callable[..., Said]) -> None:
    code, out, _ = say("list")
    assert code == 0
    assert [line for line in out.splitlines() if not line.startswith(" ")] == [
        f"{kind}:" for kind in ("shifts", "models", "sources", "metrics", "scorers", "measures", "referees", "suites")
    ]
    assert "  demo" in say("list", "suites")[1]
    assert "levels 75, 82, 85, 90, 93" in say("list", "shifts")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "dmo"], "no suite named 'dmo'. Did you mean demo?"),
        (["run", "none.toml"], "cannot read the suite none.toml: No such file or directory"),
        (["run", "s.toml", "--shift", "jpge"], "no shift named 'jpge'. Did you mean jpeg"),
        (["run", "s.toml", "--model", "lite9"], "no model named 'lite9'. Did you mean lite"),
        (["run", "s.toml", "--source", "foldr:x"], "no source named 'foldr'. Did you mean folder?"),
        (["run", "s.toml", "--source", "folder:none"], "wanted a folder of pictures, got none"),
        (["run", "s.toml", "--severity", "3"], "--severity needs exactly one --shift"),
        (["run", "s.toml", "--shift", "jpeg", "--severity", "-3"], "a severity is a number above 0"),
        (["run", "s.toml", "--level", "6"], "jpeg has levels 1 to 5, got 6"),
        (["run", "s.toml", "--limit", "0"], "limit: Input should be greater than 0"),
        (["run", "s.toml", "--refine", "2"], "refine: Input should be less than 1"),
        (["run", "s.toml", "--engine", "ry"], "no engine named 'ry'"),
        (["run", "s.toml", "--labels", "none.txt"], "labels: wanted"),
        (["run", "s.toml", "--out", "s.toml"], "cannot make the run folder s.toml"),
        (["run", "s.toml", "--model", "python:none:x"], "none"),
        (["metrics", "none", "accuracy"], "no predictions in none"),
        (["metrics", "none", "acuracy"], "no metric named 'acuracy'. Did you mean accuracy"),
        (["run", "s.toml", "--scorer", "knn(q=3)"], "no parameter of scorer knn named 'q'. It has k, bank."),
        (["run", "s.toml", "--scorer", "msp(q=3)"], "no parameter of scorer msp named 'q'. It has temperature."),
        (["run", "tolerances", "--lenses", "x"], "no shift of the suite has an option 'lenses': decentre has tolerances"),
        (["run", "s.toml", "--shift", "jpeg", "--severity", "100"], "jpeg: wanted a severity from 0 to 99"),
        (["show", "jpge", "x.png"], "no shift named 'jpge'"),
        (["show", "jpeg", "x.png"], "x.png: cannot be read as a picture: No such file"),
        (["show", "jpeg", "s.toml"], "s.toml: not a picture"),
        (["build", "s.toml", "--out", "set", "--quality", "0"], "--quality wants 1 to 100, got 0"),
        (["list", "shift"], "no kind named 'shift'. Did you mean shifts"),
        (["check", "dmo"], "no suite named 'dmo'"),
        (["check", "."], "is not a run folder"),
        (["report", "none"], "none"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_mistake_is_one_line_and_code_2(say: Callable[..., Said], words: list[str], said: str) -> None:
    code, out, err = say(*words)
    lines = [line for line in err.splitlines() if line.strip()]
    assert (code, out) == (2, "")
    assert lines[-1].startswith("sorites: ")
    assert said in lines[-1]
    assert len(lines) == 1


def test_mistakes_about_a_run(say: Callable[..., Said]) -> None:
    say("run", "s.toml", "--out", "r")
    for words, said in [
        (["metrics", "r", "accuracy", "--by", "modle"], "no column named 'modle'. Did you mean model"),
        (
            ["metrics", "r", "lens_field", "--by", "foo"],
            "no column named 'foo'. The columns are run_id, source, split, sample_id,",
        ),
        (["metrics", "r", "accuracy", "--format", "xml"], "--format wants table, csv or json, got 'xml'"),
        (["metrics", "r", "accuracy", "--reference", "x"], "accuracy takes no reference model"),
        (["metrics", "r", "corruption_error", "--reference", "x"], "no model named 'x'"),
        (["run", "s.toml", "--seed", "1", "--out", "r"], "r holds another run (suite.seed: 0 there, 1 here)"),
    ]:
        code, out, err = say(*words)
        assert (code, out) == (2, "")
        assert said in err


@pytest.mark.parametrize("words", [["run"], ["run", "s.toml", "--batch", "0"], ["run", "s.toml", "--workers", "0"], ["fly"]])
def test_what_cannot_be_parsed_is_code_2_too(say: Callable[..., Said], words: list[str]) -> None:
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("format", ["csv", "json"])
def test_columns_of_lists_can_be_printed(say: Callable[..., Said], format: str) -> None:
    say("run", "s.toml", "--out", "r")
    code, out, err = say("metrics", "r", "accuracy", "--by", "accept", "--format", format)
    assert code == 0, err
    assert "[" in out


def test_an_interrupt_says_that_nothing_is_lost(home: Path) -> None:
    (home / "slow.py").write_text(
        "import time\nfrom means import logits as fast\ndef logits(p):\n    time.sleep(0.5)\n    return fast(p)\n"
    )
    command = [sys.executable, "-c", "from sorites.cli import main; main()", "run", "s.toml", "--model", "python:slow:logits"]
    process = subprocess.Popen([*command, "--out", "r"], cwd=home, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (home / "r" / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "stopping; what is finished is kept" in err
    assert "stopped; type the same command to go on" in err
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_crash(home: Path) -> None:
    command = f"{sys.executable} -c 'from sorites.cli import main; main()' list | head -n 1"
    done = subprocess.run(command, shell=True, cwd=home, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
