"""The user's own code as a model: every shape the docstring allows, and an answer to every other."""

from __future__ import annotations

import itertools
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sorites import core
from sorites.core import ImageU8, Model, Outputs
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.models.python import as_model

_numbers = itertools.count()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module of a fresh name into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path.copy())

    def write(code: str) -> str:
        name = f"own_model_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        return name

    return write


def colours(images: list[ImageU8]) -> np.ndarray:
    return np.stack([p.mean(axis=(0, 1)) for p in images])


def test_a_function_of_images_from_the_current_folder(
    written: Callable[[str], str], noise: list[ImageU8]
) -> None:
    module = written("""
        import numpy as np
        def predict(images):
            return np.stack([p.mean(axis=(0, 1)) for p in images])
    """)
    model = core.model(f"python:{module}:predict")
    logits = model(noise).logits
    assert logits is not None
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, colours(noise), rtol=1e-6)
    assert model.name == f"python:{module}:predict"
    assert model.version


def test_a_factory_is_called_once(written: Callable[[str], str], noise: list[ImageU8]) -> None:
    module = written("""
        from sorites.core import Model, Outputs
        import numpy as np
        calls = []
        def make(size=3):
            calls.append(size)
            return Model("mine", lambda images: Outputs(np.ones((len(images), size))), labels=("a", "b", "c"), version="7")
    """)
    model = core.model(f"python:{module}:make")
    model(noise)
    model(noise)
    assert sys.modules[module].calls == [3]
    assert (model.labels, model.version) == (("a", "b", "c"), "7")


@pytest.mark.parametrize(
    "given",
    [
        lambda images: (colours(images), colours(images)),
        lambda images: Outputs(colours(images), colours(images)),
        lambda images: (torch.tensor(colours(images), requires_grad=True), colours(images).tolist()),
    ],
)
def test_logits_with_features(given: Any, noise: list[ImageU8]) -> None:
    outputs = as_model("mine", given)(noise)
    np.testing.assert_allclose(outputs.logits, colours(noise), rtol=1e-6)
    np.testing.assert_allclose(outputs.features, colours(noise), rtol=1e-6)


def test_one_thread_at_a_time(noise: list[ImageU8]) -> None:
    inside: list[int] = []

    def predict(images: list[ImageU8]) -> np.ndarray:
        inside.append(1)
        assert len(inside) == 1
        time.sleep(0.002)
        inside.pop()
        return colours(images)

    model = as_model("mine", predict)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: model(noise), range(24)))) == 24


class Pooled(nn.Module):
    """Mean colour, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.mean((2, 3)))


def test_a_torch_module_with_its_own_preprocessing_and_labels(noise: list[ImageU8]) -> None:
    module = Pooled()
    module.sorites = {"size": 32, "mean": (0, 0, 0), "std": (1, 1, 1), "labels": ["cat", "dog"]}  # type: ignore[assignment]
    model = as_model("mine", module)
    assert model.labels == ("cat", "dog")
    assert model.prepare(noise[0], False).shape == (32, 32, 3)
    seen = np.stack([model.prepare(p, False).mean(axis=(0, 1)) for p in noise]) / 255
    weight, bias = module.fc.weight.detach().numpy(), module.fc.bias.detach().numpy()
    np.testing.assert_allclose(model(noise).logits, seen @ weight.T + bias, atol=1e-5)


def test_a_model_is_a_snapshot_and_leaves_the_module_alone(noise: list[ImageU8]) -> None:
    module = Pooled().train()
    model = as_model("mine", module)
    before = model(noise).logits
    with torch.no_grad():
        module.fc.weight.add_(1)
    assert module.training
    assert np.array_equal(before, model(noise).logits)
    assert as_model("mine", module).version != model.version


def test_a_class_is_a_factory(noise: list[ImageU8]) -> None:
    torch.manual_seed(0)
    model = as_model("mine", Pooled)
    logits = model(noise).logits
    assert logits is not None
    assert logits.shape == (9, 2)
    assert model.prepare(noise[0], False).shape == (224, 224, 3)


def test_a_model_keeps_all_but_its_name() -> None:
    held = Model("theirs", lambda images: Outputs(np.zeros((len(images), 2))), labels=("a", "b"), version="3")
    model = as_model("mine", held)
    assert (model.name, model.labels, model.version, held.name) == ("mine", ("a", "b"), "3", "theirs")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda images: None, "expected logits .* got NoneType"),
        (lambda images: {"logits": 1}, "got dict"),
        (lambda images: "cat", "got str"),
        (lambda images: (1, 2, 3), "got tuple"),
        (lambda images: ["cat"] * len(images), "as 9 rows of numbers, got list"),
        (lambda images: np.zeros(5), r"\(9, C\) for 9 images, got \(5,\)"),
        (lambda images: np.zeros((3, 5)), r"got \(3, 5\)"),
        (lambda images: np.zeros((9, 0)), r"got \(9, 0\)"),
        (lambda images: np.full((9, 2), np.nan), "NaN or infinity in 9 of 9 rows"),
        (lambda images: (np.zeros((9, 2)), np.full((9, 2), np.inf)), "finite features"),
    ],
)
def test_a_wrong_answer_reports_what_it_got(given: Any, message: str, noise: list[ImageU8]) -> None:
    with pytest.raises(SoritesError, match=f"model mine: .*{message}"):
        as_model("mine", given)(noise)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (3, "got int"),
        (lambda: 3, "arguments"),
        (lambda: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_a_wrong_object_reports_what_was_expected(obj: Any, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        as_model("mine", obj)


@pytest.mark.parametrize("argument", ["", ":module", ":module:", "::name"])
def test_a_wrong_spec(argument: str) -> None:
    with pytest.raises(SoritesError, match="python:module:name"):
        core.model(f"python{argument}")


def test_what_cannot_be_imported_says_why(written: Callable[[str], str]) -> None:
    with pytest.raises(SoritesError, match="module named 'no_such_module'"):
        core.model("python:no_such_module:f")
    with pytest.raises(SoritesError, match="needs no_such_library"):
        core.model(f"python:{written('import no_such_library')}:f")
    with pytest.raises(SoritesError, match="SyntaxError"):
        core.model(f"python:{written('def')}:f")
    with pytest.raises(UnknownName, match="Did you mean predict"):
        core.model(f"python:{written('def predict(images): ...')}:predct")


@pytest.mark.parametrize("text", ["import sys; sys.exit(0)", "import sys\ndef make():\n    sys.exit(0)"])
def test_code_that_calls_exit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = f"quits_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SoritesError, match=r"it calls sys\.exit\(0\)|raised SystemExit: 0"):
        core.model(f"python:{name}:make")


def test_a_function_declares_its_classes(written: Callable[[str], str]) -> None:
    module = written("""
        import numpy as np
        def predict(images):
            return np.zeros((len(images), 1000), np.float32)
        def two(images):
            return np.zeros((len(images), 2), np.float32)
        predict.sorites = {"labels": "imagenet"}
        two.sorites = {"labels": ["cat", "dog"]}
        def wrong(images):
            return two(images)
        wrong.sorites = {"labels": "cats"}
    """)
    assert core.model(f"python:{module}:predict").labels == imagenet().ids
    assert core.model(f"python:{module}:two").labels == ("cat", "dog")
    with pytest.raises(SoritesError, match="a list of class names"):
        core.model(f"python:{module}:wrong")
