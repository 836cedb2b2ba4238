"""The room as a whole: what it offers, and that looking in costs little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sorites import core
from sorites.core.errors import UnknownName


def test_the_models_on_offer() -> None:
    assert {"lite0", "lite1", "lite2", "timm", "onnx", "python"} <= set(core.MODELS.names())
    with pytest.raises(UnknownName, match="Did you mean lite"):
        core.model("light0")


@pytest.mark.slow
def test_naming_the_models_loads_no_heavy_library() -> None:
    code = (
        "import sys; from sorites import core; core.MODELS.names(); core.SCORERS.names();"
        "print(*{'torch', 'timm', 'onnx', 'onnxruntime', 'torchvision'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
