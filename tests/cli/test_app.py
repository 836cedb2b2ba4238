from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Command

import sorites


def test_help_is_quick_to_load_and_names_every_verb() -> None:
    code = (
        "import sys\nimport typer\nbefore = set(sys.modules)\nsys.argv = ['sorites', '--help']\nfrom"
        " sorites.cli import main\ntry: main()\nexcept SystemExit: pass\nheavy = {'numpy', 'polars', 'torch',"
        " 'PIL', 'scipy', 'pydantic', 'plotly', 'onnxruntime', 'timm', 'ray', 'fsspec',\n         'faiss',"
        " 'transformers', 'open_clip', 'safetensors', 'asyncio'} - before\nprint('HEAVY', sorted(heavy &"
        " set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    verbs = ("run", "metrics", "report", "show", "build", "list", "check", "score", "similarity", "distance")
    for verb in (*verbs, "import", "features", "sheet", "filter"):
        assert f" {verb} " in done.stdout
    for old in ("degrees", "measure"):
        assert f" {old} " not in done.stdout


def test_version(command: Command) -> None:
    assert command("--version") == (0, f"{sorites.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "dmo"], "no suite named 'dmo'. Did you mean demo?"),
        (["run", "none.toml"], "cannot read none.toml: No such file or directory. Expected a suite in TOML"),
        (["run", "s.toml", "--shift", "jpge"], "no shift named 'jpge'. Did you mean jpeg"),
        (["run", "s.toml", "--model", "lite9"], "no model named 'lite9'. Did you mean lite"),
        (["run", "s.toml", "--source", "foldr:x"], "no source named 'foldr'. Did you mean folder"),
        (["run", "s.toml", "--source", "folder:none"], "expected a folder of images, but none"),
        (["run", "s.toml", "--severity", "3"], "--severity needs exactly one --shift"),
        (["run", "s.toml", "--shift", "jpeg", "--severity", "-3"], "a severity must be above 0"),
        (["run", "s.toml", "--level", "6"], "jpeg has levels 1 to 5, got 6"),
        (["run", "s.toml", "--refine", "2"], "refine: expected a number below 1, got 2"),
        (["run", "s.toml", "--engine", "ry"], "no engine named 'ry'"),
        (["run", "s.toml", "--labels", "none.txt"], "labels: expected"),
        (["run", "s.toml", "--out", "s.toml"], "cannot create the run folder s.toml"),
        (["run", "s.toml", "--model", "python:none:x"], "none"),
        (["metrics", "none", "accuracy"], "no predictions in none"),
        (["metrics", "none", "acuracy"], "no metric named 'acuracy'. Did you mean accuracy"),
        (["run", "s.toml", "--scorer", "knn(q=3)"], "no parameter of scorer knn named 'q'. It has k, bank."),
        (
            ["run", "s.toml", "--scorer", "msp(q=3)"],
            "no parameter of scorer msp named 'q'. It has temperature.",
        ),
        (
            ["run", "tolerances", "--lenses", "x"],
            "no shift of the suite has an option 'lenses': decentre has tolerances",
        ),
        (["run", "s.toml", "--shift", "jpeg", "--severity", "100"], "jpeg: expected a severity from 0 to 99"),
        (["show", "jpge", "x.png"], "no shift named 'jpge'"),
        (["show", "jpeg", "x.png"], "x.png: cannot be read as an image: No such file"),
        (["show", "jpeg", "s.toml"], "s.toml: not an image"),
        (["build", "s.toml", "--out", "set", "--quality", "0"], "1 to 100, got 0"),
        (["list", "shift"], "no kind named 'shift'. Did you mean shifts"),
        (["check", "dmo"], "no suite named 'dmo'"),
        (["check", "."], "is not a run folder"),
        (["report", "none"], "none"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_mistake_is_one_line_and_code_2(command: Command, words: list[str], message: str) -> None:
    code, out, err = command(*words)
    lines = [line for line in err.splitlines() if line.strip()]
    assert (code, out) == (2, "")
    assert lines[-1].startswith("sorites: ")
    assert message in lines[-1]
    assert len(lines) == 1


@pytest.mark.parametrize(
    "words", [["run"], ["run", "s.toml", "--batch", "0"], ["run", "s.toml", "--limit", "0"], ["fly"]]
)
def test_what_cannot_be_parsed_is_code_2_too(command: Command, words: list[str]) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.slow
def test_an_interrupt_says_that_nothing_is_lost(home: Path) -> None:
    (home / "slow.py").write_text(
        "import time\nfrom means import logits as fast\ndef logits(p):\n    time.sleep(0.5)\n    return"
        " fast(p)\n"
    )
    command = [
        sys.executable,
        "-c",
        "from sorites.cli import main; main()",
        "run",
        "s.toml",
        "--model",
        "python:slow:logits",
    ]
    process = subprocess.Popen(
        [*command, "--out", "r"], cwd=home, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (home / "r" / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "stopping; finished work is kept" in err
    assert "stopped;" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_closed_pipe_is_no_crash(home: Path) -> None:
    command = f"{sys.executable} -c 'from sorites.cli import main; main()' list | head -n 1"
    done = subprocess.run(command, shell=True, cwd=home, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
