"""The version of the user's own code: it moves with everything the answers depend on, and with
nothing else.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sorites import core
from sorites.core import ImageU8, Model, Outputs
from sorites.models.python import as_model
from sorites.models.versions import with_version

_numbers = itertools.count()


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes files, and returns the version of ``own:predict`` as a fresh process would see it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path.copy())

    def asked(**files: str | bytes) -> str:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_npy", ".npy")
            path = path if path.suffix else path.with_suffix(".py")
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        for name in [name for name in sys.modules if name.partition(".")[0] in ("own", "helpers", "deep")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        sys.dont_write_bytecode = True
        return core.model("python:own:predict").version

    return asked


OWN = """
    import numpy as np
    import helpers
    def predict(images):
        return np.stack([p.mean(axis=(0, 1)) * helpers.scale() for p in images])
"""


def test_a_module_that_is_imported_is_part_of_the_version(version: Callable[..., str]) -> None:
    first = version(own=OWN, helpers="def scale():\n    return 1.0\n")
    assert version() == first
    assert version(helpers="def scale():\n    return 1.0  # the same\n") != first, (
        "files count, whatever they say"
    )
    assert version(helpers="def scale():\n    return 1.0\n") == first
    assert version(unused="x = 1\n") == first


def test_modules_imported_late_or_from_a_package_count_too(version: Callable[..., str]) -> None:
    own = """
        def predict(images):
            from deep.inside import answers
            return answers(images)
    """
    inside = """
        import numpy as np
        from .more import bias
        def answers(images):
            return np.stack([p.mean(axis=(0, 1)) for p in images]) + 0 * bias
    """
    first = version(own=own, deep____init__="", deep__inside=inside, deep__more="bias = 1\n")
    assert version(deep__more="bias = 2\n") != first
    assert version(deep__more="bias = 1\n") == first


def test_weights_that_are_read_at_every_call_show_in_the_answers(
    version: Callable[..., str], tmp_path: Path
) -> None:
    own = """
        import numpy as np
        def predict(images):
            return np.stack([p.mean(axis=(0, 1)) for p in images]) * np.load("weights.npy")
    """
    np.save(tmp_path / "weights.npy", np.ones(3))
    first = version(own=own)
    np.save(tmp_path / "weights.npy", np.array([1, 1, 1.02]))
    assert version() != first
    np.save(tmp_path / "weights.npy", np.ones(3))
    assert version() == first


def test_weights_that_are_loaded_once_are_known_by_their_bytes(
    version: Callable[..., str], tmp_path: Path
) -> None:
    own = """
        import numpy as np
        class Net:
            def __init__(self):
                self.layer = np.load("weights.npy")
            def __call__(self, images):
                return np.stack([p.mean(axis=(0, 1)) for p in images]) + self.layer.sum()
        predict = Net()
    """
    np.save(tmp_path / "weights.npy", np.zeros(3))
    first = version(own=own)
    np.save(tmp_path / "weights.npy", np.array([0, 1e-9, 0]))
    assert version() != first, "too little to show in any answer"


def colours(images: list[ImageU8], weights: Any = 1.0) -> Any:
    return np.stack([p.mean(axis=(0, 1)) for p in images]) * float(
        weights.sum() if hasattr(weights, "sum") else weights
    )


def held_in(weights: Any, how: str) -> Any:
    if how == "partial":
        return functools.partial(colours, weights=weights)
    if how == "function":

        def predict(images: list[ImageU8]) -> Any:
            return colours(images, weights)

        predict.weights = weights  # type: ignore[attr-defined]
        return predict

    class Holder:
        def __init__(self) -> None:
            self.weights = torch.nn.ParameterList([weights]) if how == "module" else weights

        def run(self, images: list[ImageU8]) -> Any:
            return colours(images, self.weights[0] if how == "module" else self.weights)

        def __call__(self, images: list[ImageU8]) -> Any:
            return self.run(images)

    return Holder() if how in ("object", "module") else Holder().run


@pytest.mark.parametrize("how", ["partial", "function", "object", "method"])
@pytest.mark.parametrize("make", [np.asarray, torch.tensor, lambda x: torch.tensor(x, dtype=torch.bfloat16)])
def test_arrays_and_tensors_count_if_they_are_attributes_or_arguments(how: str, make: Any) -> None:
    one, same, other = (as_model("m", held_in(make(w), how)).version for w in ([1.0, 0], [1.0, 0], [0, 1.0]))
    assert one == same
    assert one != other, "the answers are the same, the weights are not"


def test_weights_of_a_torch_module_count_if_it_is_an_attribute() -> None:
    one, same, other = (
        as_model("m", held_in(torch.tensor(w), "module")).version for w in ([1.0, 0], [1.0, 0], [0, 1.0])
    )
    assert one == same
    assert one != other


def in_closure(weights: Any) -> Any:
    return lambda images: colours(images, weights)


def test_arrays_in_closures_count_by_the_outputs_only() -> None:
    """Pins what the documentation says is not detected, and that a declared version covers it."""
    one, same, other = (as_model("m", in_closure(np.array(w))).version for w in ([1.0, 0], [0, 1.0], [2, 0]))
    assert one == same
    assert one != other
    first, second = in_closure(np.array([1.0, 0])), in_closure(np.array([0, 1.0]))
    first.sorites, second.sorites = {"version": 1}, {"version": 2}
    assert as_model("m", first).version == "1"
    assert as_model("m", second).version == "2"


def test_a_torch_module_may_declare_its_version() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean((2, 3))

    net = Net()
    computed = as_model("m", net)
    net.sorites = {"version": "a", "size": 32}  # type: ignore[assignment]
    declared = as_model("m", net)
    assert declared.version == "a"
    assert computed.version
    assert declared.input["size"] == [32, 32]


def test_a_state_that_calls_leave_behind_is_no_weight() -> None:
    class Remembering:
        def __init__(self) -> None:
            self.calls, self.last = np.zeros(1), np.zeros(1)

        def __call__(self, images: list[ImageU8]) -> Any:
            self.calls += 1
            self.last = colours(images)
            return self.last

    obj = Remembering()
    first = as_model("m", obj).version
    obj([np.full((9, 9, 3), 7, np.uint8)])
    assert as_model("m", obj).version == first
    assert as_model("m", Remembering()).version == first


def test_answers_that_differ_by_rounding_have_one_version() -> None:
    def noisy(seed: int) -> str:
        rng = np.random.default_rng(seed)
        weights = np.random.default_rng(0).normal(size=(3, 1000))
        rounding = 1 + rng.normal(0, 1e-7, 1000)

        def forward(images: list[ImageU8]) -> Outputs:
            return Outputs(colours(images) @ weights * rounding)

        return with_version(Model("m", forward), len).version

    assert len({noisy(seed) for seed in range(12)}) == 1


def test_a_model_that_does_not_repeat_itself_is_called_so_and_keeps_its_version() -> None:
    rng = np.random.default_rng(0)

    def shaken(images: list[ImageU8]) -> Any:
        return colours(images) + rng.normal(size=(len(images), 3))

    first, second = as_model("m", shaken), as_model("m", shaken)
    assert not first.repeats
    assert first.version == second.version
    assert as_model("m", colours_only).repeats


def colours_only(images: list[ImageU8]) -> Any:
    return colours(images)


def test_a_model_that_brings_a_version_keeps_it() -> None:
    asked = []
    model = Model("m", lambda images: asked.append(1) or Outputs(), version="7")  # type: ignore[func-returns-value]
    assert as_model("m", model).version == "7"
    assert asked == [1], "one batch of trial images, which decides whether it returns probabilities"


def test_a_model_without_a_version_gets_one() -> None:
    def forward(weights: Any) -> Any:
        return lambda images: Outputs(colours(images, weights))

    one, other = (as_model("m", Model("n", forward(np.array(w)))) for w in ([1, 0], [0, 2]))
    assert one.version
    assert one.version != other.version


def test_a_model_that_fails_on_the_trial_images_still_has_a_version() -> None:
    def fails(images: list[ImageU8]) -> Any:
        raise RuntimeError("not today")

    assert as_model("m", fails).version


@pytest.mark.slow
def test_of_a_script_only_what_it_defines_counts(tmp_path: Path) -> None:
    script, files = tmp_path / "script.py", Path(__file__).parents[2] / "src"
    text = """
        import sys
        sys.path.insert(0, {src!r})
        from sorites.models.python import as_model
        import numpy as np
        SCALE = {scale}
        def predict(images):
            return np.stack([p.mean(axis=(0, 1)) for p in images])
        print({printed})
        print(as_model("m", predict).version)
    """

    def said(scale: float, printed: str) -> str:
        script.write_text(textwrap.dedent(text.format(src=str(files), scale=scale, printed=printed)))
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout.splitlines()[-1]

    first = said(1, "1")
    assert said(1, "2") == first
    assert said(2, "1") != first


def test_typed_code_counts_by_itself() -> None:
    spaces = [
        dict[str, Any](__name__="__main__"),
        dict[str, Any](__name__="__main__"),
        dict[str, Any](__name__="__main__"),
    ]
    for space, number in zip(spaces, (1, 1, 2), strict=True):
        exec(f"def typed(images):\n    raise ValueError({number})", space)
    one, same, other = (as_model("m", space["typed"]).version for space in spaces)
    assert one == same
    assert one != other
