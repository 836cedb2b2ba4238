"""The verb collect, typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apps.collecting.web import jpeg, openverse, results, served
from tests.cli.conftest import Command


def test_collect(command: Command, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, a service on loopback, a folder: it says what it asks, what it kept, and what to type next."""
    monkeypatch.delenv("OPENVERSE_CLIENT_ID", raising=False)
    with served() as web:
        web.say(
            "/v1/images/",
            results(openverse("a", web.say("/p/a.jpg", jpeg(1))), openverse("b", f"{web.url}/none")),
        )
        base = ["--base", f"openverse={web.url}/v1/images/", "--gap", 0, "--contact", "me@example.org"]
        code, out, err = command("collect", "ship on grass", "--out", "got", *base)
    assert code == 0, err
    assert "searching the web: 1 queries at openverse" in err
    assert "1 image in got, 3 requests" in out
    assert "answered 404" in out
    assert "sorites annotate serve context --source folder:got" in out
    assert (home / "got" / "ATTRIBUTION.md").is_file()


def test_dry_run(command: Command) -> None:
    """A dry run prints the queries and needs neither a folder nor a contact."""
    code, out, err = command("collect", "--plan", "focus", "--dry-run")
    assert code == 0
    assert out.splitlines()[0] == "truck in rain"
    assert "122 queries; nothing was searched" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected search queries"),
        (("x", "--plan", "focus"), "but not both"),
        (("x",), "missing --out DIR"),
        (("x", "--out", "d"), "--contact"),
        (("x", "--out", "d", "--contact", "me"), "e-mail or web address"),
        (("x", "--from", "bing"), "no image search named 'bing'"),
        (("x", "--from", ","), "--from expects"),
        (("x", "--licence", "mit"), "--licence: expected"),
        (("x", "--base", "commons=http://localhost"), "--base expects"),
        (("x", "--base", "openverse=ftp://localhost"), "--base expects"),
        (("x", "--gap", "0.1"), "at least 0.5 seconds"),
        (("x\x00",), "1 to 200 characters"),
        (("--plan", "none.toml"), "no plan named"),
    ],
)
def test_mistakes(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    """Each mistake is one message, before anything is asked."""
    monkeypatch.delenv("SORITES_CONTACT", raising=False)
    code, _, err = command("collect", *words)
    assert code == 2
    assert said in err
