from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command


def test_a_finished_run_is_whole(command: Command) -> None:
    command("run", "s.toml", "--out", "r")
    code, out, _ = command("check", "r")
    assert (code, out.splitlines()[-1]) == (0, "python:means:logits: 18 rows, 0 errors, complete")


def test_a_suite_that_can_run_says_how(command: Command) -> None:
    code, out, _ = command("check", "s.toml")
    assert (code, out.splitlines()[-1]) == (0, "next: sorites run s.toml")


def test_a_damaged_run_is_repaired_by_what_is_said(command: Command, home: Path) -> None:
    command("run", "s.toml", "--out", "r")
    shard = min((home / "r" / "predictions").iterdir())
    shard.write_bytes(b"")
    for verb in (("metrics", "r", "accuracy"), ("report", "r"), ("run", "s.toml", "--out", "r")):
        code, _, said = command(*verb)
        assert code == 2
        assert (
            f"r/predictions/{shard.name} cannot be read: it is empty. Type: sorites check r --repair\n"
            in said
        )
    code, out, _ = command("check", "r", "--repair")
    assert (code, out.splitlines()[-1]) == (0, "next: repeat the run")
    assert command("run", "s.toml", "--out", "r")[0] == 0
    assert command("check", "r")[1].endswith("0 errors, complete\n")
    assert command("check", "s.toml", "--repair") == (
        2,
        "",
        "sorites: --repair needs a run folder, got s.toml\n",
    )
