"""The models of a plan: named, versioned, of one shape, and each with images of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.conftest import CLASSES

import sorites
from sorites.core import ImageU8, Model, Outputs
from sorites.core.errors import SoritesError
from sorites.evaluation.predict import evaluate_images
from sorites.evaluation.storage.record import read_record
from sorites.suites.suite import parse


def run(photos: Path, out: Path, models: Any, recipe: Any = ()) -> pl.DataFrame:
    suite = parse({"name": "s", "shifts": [{"name": "jpeg", "levels": [1]}], "models": recipe}, "test")
    return sorites.run(
        suite, source=f"folder:{photos}", labels=CLASSES, models=models, limit=5, out=out
    ).collect()


def by_colour(images: list[ImageU8]) -> Any:
    return np.stack([np.append(p.mean(axis=(0, 1)), p.std()) for p in images])


def test_models_have_the_names_they_are_given(
    photos: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    rows = run(photos, tmp_path, {"v1": tiny(), "v2": by_colour})
    assert sorted(rows["model"].unique()) == ["v1", "v2"]
    assert read_record(tmp_path).models.keys() == {"v1", "v2"}


def test_a_spec_has_a_name_in_a_suite_and_in_python(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_named.py").write_text(
        "import numpy as np\ndef f(images):\n    return np.stack([np.append(p.mean(axis=(0, 1)), 0) for p"
        " in images])\n"
    )
    given: list[tuple[Any, dict[str, Any]]] = [
        ({"v2": "python:own_named:f"}, {}),
        (["v2=python:own_named:f"], {}),
        ((), {"recipe": ["v2=python:own_named:f"]}),
        ((), {"recipe": [{"name": "v2", "spec": "python:own_named:f"}]}),
    ]
    for i, (models, more) in enumerate(given):
        rows = run(photos, tmp_path / str(i), models, **more)
        assert rows["model"].unique().to_list() == ["v2"]
    assert len({read_record(tmp_path / str(i)).run_id for i in range(4)}) == 1


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ([{"name": "a=b", "spec": "lite0"}], "must not contain = or :"),
        ([{"name": "v2"}], "a model is a spec or a table such as"),
        (["=lite0"], "a model as SPEC or NAME=SPEC"),
        (["v2="], "a model as SPEC or NAME=SPEC"),
        (["v2=lite0", "v2=lite1"], "model 'v2'"),
    ],
)
def test_a_name_that_cannot_be_is_an_error(models: Any, says: str) -> None:
    with pytest.raises(SoritesError, match=says):
        parse({"name": "s", "models": models}, "t")


def test_an_equals_sign_in_a_spec_is_no_name() -> None:
    suite = parse({"name": "s", "models": ["onnx:a=b.onnx", "open_clip:A@b?templates=c.txt"]}, "t")
    assert suite.model_names == suite.models


def test_a_model_that_writes_into_its_images_spoils_no_other(
    photos: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    def vandal(images: list[ImageU8]) -> Any:
        given = by_colour(images)
        for image in images:
            image[:] = 0
        return given

    def object_(images: list[ImageU8]) -> Outputs:
        return Outputs(np.asarray(vandal(images), np.float32))

    alone = run(photos, tmp_path / "a", [tiny()])
    with_others = run(photos, tmp_path / "b", [vandal, Model("object", object_, version="1"), tiny()])
    kept = with_others.filter(pl.col("model") == "tiny").drop("run_id")
    assert kept.sort("image_id").equals(alone.drop("run_id").sort("image_id"))
    assert with_others["error"].null_count() == with_others.height


def test_a_image_can_become_a_tensor_without_a_warning(photos: Path, tmp_path: Path) -> None:
    def on_torch(images: list[ImageU8]) -> Any:
        means = [torch.from_numpy(p).float().mean((0, 1)) for p in images]
        return torch.nn.functional.pad(torch.stack(means), (0, 1))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(photos, tmp_path, [on_torch])["error"].null_count() == 10


def test_images_that_are_shared_cannot_be_written_into(photos: Path, tiny: Callable[..., Model]) -> None:
    from sorites.evaluation import plan
    from sorites.evaluation.images import shots

    suite = {
        "name": "s",
        "source": f"folder:{photos}",
        "limit": 2,
        "frame": {"resize": 32},
        "shifts": ["jpeg"],
    }
    planned = plan.make(parse(suite, "t"))
    for unit in planned.units():
        for shot in shots(planned, unit):
            assert shot.image is not None
            with pytest.raises(ValueError, match="read-only"):
                shot.image[0, 0, 0] = 1


@pytest.mark.slow
def test_a_model_that_is_not_deterministic_is_called_so_once(photos: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def shaken(images: list[ImageU8]) -> Any:
        return by_colour(images) + rng.normal(0, 9, (len(images), 4))

    with pytest.warns(UserWarning, match="shaken is not deterministic") as said:
        run(photos, tmp_path / "run", [shaken])
    assert len(said) == 1
    assert read_record(tmp_path / "run").not_repeating == ("shaken",)
    page = sorites.report(tmp_path / "run", tmp_path / "page.html").read_text()
    assert page.count("not deterministic") == 1
    assert "shaken: repeated inputs" in page
    with pytest.warns(UserWarning, match="shaken is not deterministic"):
        run(photos, tmp_path / "run", [shaken])


def test_features_of_another_width_are_an_error() -> None:
    wide = iter([3, 3, 4])
    model = Model("m", lambda images: Outputs(np.zeros((1, 2)), np.zeros((1, next(wide)))))
    image = np.zeros((4, 4, 3), np.uint8)
    errors = [evaluate_images(model, [image], False)[1] for _ in range(3)]
    assert errors == [[None], [None], ["model m returned features of shape (4,), not (3,) as before"]]
