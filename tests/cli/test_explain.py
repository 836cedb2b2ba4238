"""``sorites explain`` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.networks import small
from typer.testing import CliRunner

import sorites
from sorites import core
from sorites.cli.app import app
from sorites.core.errors import SoritesError
from sorites.suites.suite import Suite

pytest.importorskip("torch")


def typed(*words: str) -> str:
    found = CliRunner().invoke(app, ["explain", *words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.slow
def test_a_run_is_explained_and_its_page_shows_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, models = tmp_path / "run", [small("one", 0), small("other", 3)]
    sorites.run(Suite(name="s"), source=f"folder:{photos}", models=models, shifts=["contrast"], out=run)
    monkeypatch.setattr(core, "model", lambda spec: small(spec, {"one": 0, "other": 3}[spec]))
    said = typed(
        str(run),
        "--model",
        "one",
        "--model",
        "other",
        "--limit",
        "2",
        "--layer",
        "one=0.1",
        "--layer",
        "other=0.2",
    )
    assert f"explained 2 images in {run / 'explanations'}" in said
    page = sorites.report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Why did it change?" in page
    assert "0.1 of one" in page
    with pytest.raises(SoritesError, match="expects MODEL=NAME"):
        typed(str(run), "--layer", "a", "--layer", "b")


def test_a_model_without_gradients_is_refused_by_name(
    photos: Path, tmp_path: Path, tiny: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorites.run(
        Suite(name="s"), source=f"folder:{photos}", models=[tiny()], shifts=["contrast"], out=tmp_path / "run"
    )  # type: ignore[operator]
    monkeypatch.setattr(core, "model", lambda spec: tiny())  # type: ignore[operator]
    with pytest.raises(SoritesError, match="gradients"):
        typed(str(tmp_path / "run"), "--method", "gradcam")


def test_an_attack_is_refused(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sorites.training.attack import attack

    run = attack(
        small(), eps=".1", losses="ce", steps=2, limit=4, source=f"folder:{photos}", out=tmp_path / "run"
    )
    with pytest.raises(SoritesError, match="the run of an attack"):
        typed(str(run))
