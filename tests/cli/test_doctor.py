"""The report of the installation."""

from __future__ import annotations

import re

from sorites.cli.doctor import missing, report, requirements


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
