"""Words on the way out: any text, any encoding, a full disk, a closed pipe."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command

from sorites.cli.output import Unwritten, say, without_controls
from sorites.cli.printing import format_frame
from sorites.core.progress import console

pytestmark = pytest.mark.slow

TYPED = [sys.executable, "-c", "from sorites.cli import main; main()"]


def test_control_characters_and_turned_writing_are_spelled() -> None:
    assert without_controls("a\x1b[31mb\x07\r\u202ec\x9b") == r"a\x1b[31mb\x07\r\u202ec\x9b"
    assert without_controls("two\nlines\tand a tab, ünïcode 日本") == "two\nlines\tand a tab, ünïcode 日本"
    assert without_controls("a\nb", but="") == r"a\nb"


def test_nothing_in_a_cell_is_markup_an_emoji_or_a_new_line() -> None:
    frame = pl.DataFrame({"model:key:": ["python:key:x", "[bold]b[/bold]", "a\nb\x1b[2J"]})
    shown = format_frame(frame, "table")
    assert "model:key:" in shown
    assert "python:key:x" in shown
    assert "[bold]b[/bold]" in shown
    assert r"a\nb\x1b[2J" in shown


def test_notes_print_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("/tmp/:key:/[red]x", soft_wrap=True)
    assert capsys.readouterr().err == "/tmp/:key:/[red]x\n"


def test_text_for_programs_stays_exact_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1bb")
    say("a\x1bb", exact=True)
    assert capsys.readouterr().out == "a\\x1bb\na\x1bb\n"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "-- 0.5 +- \\xe9 \\udcff"),
        ("latin-1", "-- 0.5 ± é \\udcff"),
        ("utf-8", "–─ 0.5 ± é \\udcff"),
    ],
)
def test_what_a_stream_cannot_spell_is_spelled_in_ascii(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    held = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(held, encoding=encoding))
    say("–─ 0.5 ± é \udcff")
    assert held.getvalue().decode(encoding) == shown + "\n"


class _Full(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def flush(self) -> None:
        raise OSError(28, os.strerror(28))


def test_output_that_cannot_be_written_is_an_error_of_ours_and_notes_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", _Full())
    monkeypatch.setattr(sys, "stderr", _Full())
    say("a note", err=True)
    with pytest.raises(Unwritten, match="No space left on device"):
        say("a table")


def typed(*words: str, shell: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'"$@" {shell}', "sorites", *TYPED, *words] if shell else [*TYPED, *words]
    return subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("list", "shifts"), ("--help",)])
def test_a_full_disk_behind_stdout_is_one_line(words: tuple[str, ...]) -> None:
    done = typed(*words, shell="> /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("sorites: cannot write the output: No space left on device")
    assert len(done.stderr.splitlines()) == 1
    assert typed(*words, shell="2> /dev/full").returncode == 0


def test_an_ascii_terminal_gets_ascii() -> None:
    done = typed("list", "suites", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert done.stderr == ""


def test_a_closed_pipe_is_taken_in_silence() -> None:
    done = typed("list", "shifts", shell="| true")
    assert done.stderr == ""


def test_a_run_ends_well_on_an_ascii_terminal(command: Command, home: Path) -> None:
    code, _, _ = command("run", "s.toml", "--out", "r")
    assert code == 0
    done = typed("metrics", str(home / "r"), "accuracy", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "python:means:logits" in done.stdout


def test_a_shard_with_scrambled_data_is_named_by_the_question_that_met_it(
    command: Command, home: Path
) -> None:
    command("run", "s.toml", "--out", "r")
    shard = max((home / "r" / "predictions").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(shard.read_bytes())
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[4:end] = bytes(255 - byte for byte in data[4:end])
    shard.write_bytes(bytes(data))
    code, _, said = command("metrics", "r", "accuracy")
    assert code == 2
    assert f"r/predictions/{shard.name} cannot be read" in said
    assert said.endswith("Type: sorites check r --repair\n")


def test_names_in_errors_reach_no_terminal_raw(command: Command, home: Path) -> None:
    code, _, said = command("run", "demo", "--source", "folder:\x1b[31mred")
    assert code == 2
    assert "\x1b" not in said
    assert r"\x1b[31mred" in said
