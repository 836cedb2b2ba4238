"""Plug-ins of user code, named python:module:name, without registration."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites import core
from sorites.core import METRICS, SHIFTS
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.user_code import code_version
from sorites.suites.suite import parse

MODULE = '''
import numpy as np
import polars as pl
from sorites import Generated, Sample, Shift
from sorites.core.types import Scorer


def margin(outputs, power=1.0):
    first, second = np.sort(outputs.logits, axis=1)[:, :-3:-1].T
    return -((first - second) ** power)


class Farthest:
    needs = frozenset({"logits"})

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, batches, head=None):
        self.mean = np.mean(np.concatenate([outputs.logits for outputs, labels in batches]), axis=0)

    def __call__(self, outputs):
        return self.scale * np.abs(outputs.logits - self.mean).max(axis=1)


def largest(reference, moved):
    """The largest difference of two pixels."""
    return float(np.abs(reference.astype(int) - moved).max())


largest.nearer = "lower"


def darker(image, severity, rng):
    return image / 2**severity


dusk = Shift("dusk", darker, "light", "stops", (1.0, 2.0))


def grey(value):
    return np.full((12, 12, 3), value, np.uint8)


def greys(path, labels):
    for value in (40, 120, 200):
        yield Sample(f"g{value}", Generated(grey, (value,)), label=value > 100)


def wrong_share(table, by=("model",)):
    wrong = 1 - pl.col("correct").cast(pl.Float64)
    rows = table.lazy().filter(pl.col("output") == "label")
    return rows.group_by(by).agg(value=wrong.mean(), n=pl.len()).collect()


def bright(images):
    return np.array([[1 - image.mean() / 255, image.mean() / 255] for image in images], np.float32) * 9


number = 3
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_plugins.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "python:own_plugins"
    sys.modules.pop("own_plugins", None)


def test_a_run_of_user_code_alone(mine: str, tmp_path: Path) -> None:
    suite = parse(
        {
            "name": "own",
            "labels": ["dark", "bright"],
            "source": f"{mine}:greys",
            "models": [f"{mine}:bright"],
            "scorers": [f"{mine}:margin", f"{mine}:margin(power=2.0)"],
            "shifts": [{"name": f"{mine}:dusk"}],
            "similarity": [f"{mine}:largest"],
        },
        "test",
    )
    run = sorites.run(suite, out=tmp_path / "run", workers=1)
    table = run.collect()
    assert set(table["shift"]) == {"clean", f"{mine}:dusk"}
    assert table.filter(shift=f"{mine}:dusk", output="label")["severity"].unique().sort().to_list() == [1, 2]
    scores = table.filter(output="ood").pivot("scorer", index="image_id", values="score")
    np.testing.assert_allclose(scores[f"{mine}:margin"] ** 2, -scores[f"{mine}:margin(power=2.0)"], rtol=1e-6)
    degrees = (
        table.filter(shift=f"{mine}:dusk", severity=1, output="label").explode("degrees").unnest("degrees")
    )
    assert dict(degrees.select("sample_id", "value").iter_rows()) == {"g40": 20, "g120": 60, "g200": 100}
    error = METRICS.get(f"{mine}:wrong_share")(run, by=["model"])
    assert error["value"].item() == pytest.approx(1 - sorites.accuracy(run, by=["model"])["value"].item())
    assert f"{mine}:dusk" in SHIFTS
    # The same command has nothing to do; after a change of the code, it is another run.
    assert sorites.run(suite, out=tmp_path / "run", workers=1).collect().height == table.height


def test_the_version_follows_the_code(mine: str, tmp_path: Path) -> None:
    before = core.scorer_version(f"{mine}:margin"), core.shift(f"{mine}:dusk").version
    sys.modules.pop("own_plugins")
    path = tmp_path / "own_plugins.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    after = core.scorer_version(f"{mine}:margin"), core.shift(f"{mine}:dusk").version
    assert before[0] != after[0]
    assert before[1] != after[1]
    sys.modules.pop("own_plugins")
    path.write_text(path.read_text(encoding="utf-8") + "\nmargin.version = 'mine'\n", encoding="utf-8")
    assert core.scorer_version(f"{mine}:margin") == "mine"


def test_classes_are_fitted_and_take_parameters(mine: str) -> None:
    scorer = core.scorer(f"{mine}:Farthest(scale=2.0)")
    assert scorer.name == f"{mine}:Farthest(scale=2.0)"
    outputs = core.Outputs(np.array([[0.0, 0.0], [2.0, 4.0]], np.float32))
    scorer.fit([(outputs, np.array([0, 1]))], None)
    np.testing.assert_allclose(scorer(outputs), [4.0, 4.0])


@pytest.mark.parametrize(
    ("look_up", "name"),
    [
        (core.scorer, "number"),
        (core.measure, "margin"),
        (core.shift, "margin"),
        (core.source, "number"),
        (METRICS.get, "number"),
    ],
)
def test_other_objects_are_refused(mine: str, look_up: object, name: str) -> None:
    with pytest.raises(SoritesError, match="expected"):
        look_up(f"{mine}:{name}")  # type: ignore[operator]
    with pytest.raises(UnknownName):
        look_up(f"{mine}:margn")  # type: ignore[operator]


def test_code_that_was_typed_has_a_version() -> None:
    assert code_version(lambda table: table) != code_version(pl.DataFrame)
