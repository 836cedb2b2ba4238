"""``sorites attack`` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.networks import small
from typer.testing import CliRunner

from sorites import core
from sorites.cli.app import app
from sorites.core.errors import SoritesError

pytest.importorskip("torch")


def typed(*words: str) -> str:
    found = CliRunner().invoke(app, ["attack", *words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_a_sweep_prints_what_stays_right(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "model", lambda spec: small(spec))
    words = (
        "net",
        "--eps",
        "4/255,2",
        "--steps",
        "5",
        "--source",
        f"folder:{photos}",
        "--out",
        str(tmp_path / "run"),
    )
    said = typed(*words)
    assert "correct under every attack" in said
    assert f"wrote 100 rows to {tmp_path / 'run' / 'predictions'}" in said
    assert "nothing to do; 100 rows" in typed(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--eps", "no"), "got 'no'"),
        (("--eps", "4/255", "--norm", "l3"), "norm is l2 or linf"),
        (("--eps", "4/255", "--restarts", "0"), "restarts must be"),
    ],
)
def test_mistakes_are_said_before_any_model_is_loaded(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "model", lambda spec: pytest.fail("a model was loaded"))
    with pytest.raises(SoritesError, match=said):
        typed("lite0", *words)
