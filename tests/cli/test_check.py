from __future__ import annotations

from tests.cli.conftest import Command


def test_a_finished_run_is_whole(command: Command) -> None:
    command("run", "s.toml", "--out", "r")
    code, out, _ = command("check", "r")
    assert (code, out.splitlines()[-1]) == (0, "python:means:logits: 18 rows, 0 errors, whole")


def test_a_suite_that_can_run_says_how(command: Command) -> None:
    code, out, _ = command("check", "s.toml")
    assert (code, out.splitlines()[-1]) == (0, "next: sorites run s.toml")
