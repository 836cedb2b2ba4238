"""The report of the installation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sorites.cli import doctor
from sorites.cli.doctor import HIDDEN, USES, missing, report, requirements


def test_doctor_names_what_is_missing_with_its_command() -> None:
    held = {"": ["numpy>=2"], "a": ["sorites[b]", "surely-not-there>=1"], "b": ["numpy>=2", "nor-this"]}
    assert missing("a", held) == ["nor-this", "surely-not-there"]
    assert missing("b", held) == ["nor-this"]
    assert missing("", held) == []
    assert "numpy" in " ".join(requirements()[""])
    said = report()
    assert "ONNX Runtime" in said
    assert re.search(
        r"^  lite +(installed|missing .* type: pip install 'sorites\[lite\]')", said, re.MULTILINE
    )


def test_every_extra_says_what_it_is_for_in_one_column() -> None:
    assert set(USES) == {name for name in requirements() if name} - set(HIDDEN)
    said = report().partition("extras:\n")[2].partition("\n\n")[0].splitlines()
    assert len(said) == len(USES)
    assert len({re.search(r"installed|missing", line).start() for line in said}) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("works", [True, False])
def test_a_torchvision_that_does_not_load_is_explained(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of that name on the path of the process that doctor starts, as the wheel for CUDA behaves."""
    body = "" if works else 'raise RuntimeError("operator torchvision::nms does not exist")'
    (tmp_path / "torchvision.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    versions = {"torchvision": "0.28.0", "torch": "2.13.0+cpu"}
    monkeypatch.setattr(doctor, "installed", versions.get)
    said = doctor._torchvision()
    assert said.startswith("0.28.0 imports") == works
    if not works:
        assert "operator torchvision::nms does not exist" in said
        assert "import of timm or torchvision therefore fails" in said
        assert "another torch than 2.13.0+cpu" in said
        assert "--force-reinstall --no-deps torchvision==0.28.0" in said
