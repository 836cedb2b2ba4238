from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import sorites
from sorites.core.compute.torch_tools import one_thread, with_torchvision

torch = pytest.importorskip("torch")


def test_torch_has_one_thread_inside_and_its_own_number_again_outside(two_torch_threads: None) -> None:
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="broken"), one_thread():
        raise ValueError("broken")
    assert torch.get_num_threads() == 2


def test_every_thread_sets_its_own_number_and_gets_it_back(two_torch_threads: None) -> None:
    """The other thread has torch at two before, and a new one comes in while one is inside."""
    started, go, seen = threading.Event(), threading.Event(), []

    def other(early: bool) -> None:
        if early:
            torch.get_num_threads()
            started.set()
            go.wait(10)
        with one_thread():
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    old, new = (threading.Thread(target=other, args=(early,)) for early in (True, False))
    old.start()
    started.wait(10)
    with one_thread():
        go.set()
        new.start()
        old.join(10)
        new.join(10)
    assert sorted(seen) == [1, 1, 2, 2]
    assert torch.get_num_threads() == 2


def _in_a_fresh_process(tmp_path: Path, code: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(sorites.__file__).parents[1]), str(tmp_path)]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, cwd=tmp_path, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


MODULE = """
    import torchvision.transforms.functional
    from torchvision.ops import misc
    import numpy as np
    def predict(images):
        return np.zeros((len(images), 2))
"""


@pytest.mark.slow
def test_user_code_may_import_torchvision_first(tmp_path: Path) -> None:
    """The usual wheel does not import beside a CPU build of torch; here the user's module is the
    first that asks for it.
    """
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    (tmp_path / "own_vision.py").write_text(textwrap.dedent(MODULE))
    said = _in_a_fresh_process(
        tmp_path,
        """
        import sys
        from sorites import core
        assert "torchvision" not in sys.modules
        before = list(sys.meta_path)
        print(core.model("python:own_vision:predict").version != "")
        assert sys.meta_path == before, "no import hook is left"
        import torchvision
        print(type(torchvision.__loader__).__name__, torchvision.__spec__.loader is torchvision.__loader__)
        """,
    )
    assert said.splitlines() == ["True", "SourceFileLoader True"]


@pytest.mark.slow
def test_user_code_may_import_torchvision_late(tmp_path: Path) -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    (tmp_path / "own_late.py").write_text(
        "import numpy as np\ndef predict(images):\n    import torchvision\n    return np.ones((len(images), 2))\n"
    )
    said = _in_a_fresh_process(
        tmp_path,
        """
        import sys
        from sorites import core
        model = core.model("python:own_late:predict")
        print("torchvision" in sys.modules, model([__import__("numpy").zeros((8, 8, 3), "u1")]).logits.shape)
        """,
    )
    assert said == "True (1, 2)"


def test_an_error_of_user_code_is_not_retried() -> None:
    calls: list[int] = []

    def load() -> None:
        calls.append(1)
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        with_torchvision(load)
    assert len(calls) == 1


def test_user_code_without_torch_does_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "own_plain.py").write_text(
        "import numpy as np\ndef predict(images):\n    return np.zeros((len(images), 2))\n"
    )
    said = _in_a_fresh_process(
        tmp_path,
        """
        import sys
        from sorites import core
        core.model("python:own_plain:predict")
        print("torch" in sys.modules, "torchvision" in sys.modules)
        """,
    )
    assert said == "False False"
