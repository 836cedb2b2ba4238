"""Models, scorers, attacks, explanations and measures compute on the device, with the numbers of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.devices.pretended import pretended  # noqa: E402

import sorites  # noqa: E402
from sorites import core  # noqa: E402
from sorites.core import Head, ImageU8, Model, Outputs  # noqa: E402
from sorites.core.compute.torch_tools import ComputeOptions, use_compute_options  # noqa: E402
from sorites.core.errors import IncompatibleRun, SoritesError  # noqa: E402
from sorites.evaluation.engines import Engine  # noqa: E402
from sorites.evaluation.plan import restricted  # noqa: E402
from sorites.evaluation.predict import INSIDE, look_inside, score_outputs  # noqa: E402
from sorites.evaluation.storage.record import read_record  # noqa: E402
from sorites.models.preprocess import Input  # noqa: E402
from sorites.models.torch_module import in_passes, linear_head, torch_model  # noqa: E402
from sorites.training import explain as explanations  # noqa: E402
from sorites.training.attack import run as attacks  # noqa: E402
from sorites.training.attack.apgd import LOSSES, Norm  # noqa: E402
from sorites.training.explain import gradcam  # noqa: E402

nn = torch.nn
# All scorers of the registry that look inside a network, and all others.
LOOKING = [name for name in core.SCORERS.names() if core.scorer(name).needs & INSIDE]
OTHERS = sorted(set(core.SCORERS.names()) - set(LOOKING))
CLASSES = ("a", "b", "c", "d", "e")
SIZE = (24, 24)


class Network(nn.Module):  # type: ignore[misc]
    """Two stages of convolutions and a linear layer; an image whose mean is 7 makes it fail."""

    sorites = {"size": SIZE, "crop_pct": 1.0, "mean": (0.0,) * 3, "std": (1.0,) * 3, "labels": CLASSES}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stages = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 12, 3, 2), nn.ReLU())
        self.fc = nn.Linear(12, len(CLASSES))

    def forward(self, x: Any) -> Any:
        if bool((x.flatten(1).mean(1).mul(255).round() == 7).any()):
            raise ValueError("seven")
        features = self.stages(x).mean((2, 3))
        return self.fc(features), features


@pytest.fixture
def images() -> list[ImageU8]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*SIZE, 3), np.uint8) for _ in range(7)]


def loaded(device: str, precision: str | None = None, module: Any = None) -> Model:
    network = module or Network()
    with use_compute_options(ComputeOptions(device, precision)):
        wants = Input(size=SIZE, crop_pct=1.0, mean=(0,) * 3, std=(1,) * 3)
        return torch_model("net", network, wants, CLASSES, linear_head(network.fc))


@pytest.fixture(scope="module")
def here() -> Model:
    """The model on the CPU, made before the pretence begins: the exporter does not work within it."""
    return loaded("cpu")


@pytest.fixture(params=["cuda", "mps"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with pretended(request.param):
        yield request.param


def test_a_torch_model_computes_there_and_says_so(here: Model, kind: str, images: list[ImageU8]) -> None:
    there = loaded(kind)
    assert (there.backend.library, there.backend.kind, there.backend.batch_matters) == ("torch", kind, True)
    assert (here.backend.library, here.backend.device, here.backend.batch_matters) == (
        "onnxruntime",
        "cpu",
        False,
    )
    assert there.version == here.version
    assert there.cache_key() != here.cache_key()
    places = np.array([3, 1])
    for ours, theirs in ((there, here), (restricted(there, places), restricted(here, places))):
        np.testing.assert_allclose(ours(images).logits, theirs(images).logits, atol=1e-5)
        assert next(ours.module.buffers()).device.type == kind


@pytest.mark.parametrize("scorer", LOOKING)
def test_scorers_look_inside_in_batches_that_do_not_mix(
    here: Model, kind: str, scorer: str, images: list[ImageU8]
) -> None:
    there, look = loaded(kind).with_batch(4), core.scorer(scorer)
    together = look.look(there, images)
    np.testing.assert_allclose(together, look.look(here, images), rtol=2e-4, atol=2e-5)
    for i in (0, 3, 6):
        np.testing.assert_array_equal(look.look(there, [images[i]])[0], together[i])
    backwards = look.look(there, images[::-1])
    np.testing.assert_array_equal(backwards[::-1], together)


@pytest.mark.parametrize("scorer", LOOKING)
def test_an_image_that_fails_inside_fails_alone(kind: str, scorer: str, images: list[ImageU8]) -> None:
    model, look = loaded(kind).with_batch(4), core.scorer(scorer)
    good = look_inside(look, scorer, model, [(image, True) for image in images])
    images[2] = np.full((*SIZE, 3), 7, np.uint8)
    rows = look_inside(look, scorer, model, [(image, i != 5) for i, image in enumerate(images)])
    assert [i for i, (_, error) in enumerate(rows) if error] == [2]
    assert "seven" in str(rows[2][1])
    for i in (0, 1, 3, 4, 5, 6):
        np.testing.assert_array_equal(rows[i][0], good[i][0])


def test_scores_of_a_batch_are_those_of_single_images(kind: str, images: list[ImageU8]) -> None:
    model, odin = loaded(kind).with_batch(3), core.scorer("odin")
    outputs = model(images)
    scores = score_outputs("odin", odin, model, outputs, [(image, False) for image in images])
    alone = [
        score_outputs("odin", odin, model, outputs[i : i + 1], [(images[i], False)])[0] for i in range(7)
    ]
    assert scores == alone
    assert all(error is None for _, error in scores)


def test_the_scorers_that_look_inside_are_known() -> None:
    assert set(LOOKING) >= {"odin", "rankfeat", "gram"}
    assert len(OTHERS) > 15


def embedded(head: Head, names: Sequence[str]) -> np.ndarray:
    """Embed names as a zero-shot model would."""
    return np.random.default_rng(0).normal(size=(len(names), head[0].shape[1]))


@pytest.mark.parametrize("scorer", OTHERS)
def test_other_scorers_get_the_outputs_of_the_device(
    here: Model, kind: str, scorer: str, images: list[ImageU8]
) -> None:
    """They compute on the CPU: outputs, features and the last layer arrive there."""
    there, scores = loaded(kind).with_batch(4), {}
    for model in (here, there):
        made, outputs = core.scorer(scorer), model(images * 15)
        assert all(
            part is None or isinstance(part, np.ndarray) for part in (outputs.logits, outputs.features)
        )
        if "texts" in made.needs:
            made.embed = partial(embedded, model.head)
        if made.needs & {"training", "features", "head"}:
            made.fit([(outputs, np.arange(len(images) * 15) % len(CLASSES))], model.head)
        scores[model.backend.kind] = np.asarray(made(outputs))
    np.testing.assert_allclose(scores[kind], scores["cpu"], rtol=2e-2, atol=2e-3)


# Explanations by masks call the model as evaluation does, which other tests cover.
BY_MASKS = {"class_score", "deletion", "insertion", "object_score", "occlusion", "rise"}


@pytest.mark.parametrize("explain", sorted(set(explanations.__all__) - {"explain"} - BY_MASKS))
def test_every_explanation_computes_there(
    here: Model, kind: str, explain: str, images: list[ImageU8]
) -> None:
    function = getattr(explanations, explain)
    np.testing.assert_allclose(function(loaded(kind), images), function(here, images), atol=1e-5)


def test_explanations_compute_there(here: Model, kind: str, images: list[ImageU8]) -> None:
    there = loaded(kind)
    for ours, theirs in zip(
        gradcam.explained(there, images[:2])[:2], gradcam.explained(here, images[:2])[:2], strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(("norm", "eps"), [("l2", 1.0), ("linf", 0.05)])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_attacks_compute_there(kind: str, norm: Norm, eps: float, loss: str, images: list[ImageU8]) -> None:
    model = loaded(kind).with_batch(4)
    x = torch.from_numpy(np.stack(images).astype(np.float32) / 255).to(kind)

    def logits(points: Any) -> Any:
        return in_passes(lambda part: model.module(part)[0], points * 255, model.batch)

    right = nn.functional.one_hot(logits(x).argmax(1), len(CLASSES)).bool()
    point, wrong = attacks.apgd(logits, x, right, x.clone(), eps, norm, loss, 4)
    assert point.device.type == kind
    moved = (point - x).flatten(1)
    size = moved.square().sum(1).sqrt() if norm == "l2" else moved.abs().amax(1)
    assert float(size.max()) <= eps * 1.001
    assert float(size.max()) > 0
    assert bool(((logits(point).argmax(1) != logits(x).argmax(1)) == wrong).all())


def test_passes_of_constant_size_drop_their_copies() -> None:
    sizes: list[int] = []

    def double(rows: Any) -> Any:
        sizes.append(len(rows))
        return rows * 2

    rows = torch.arange(7.0)[:, None]
    np.testing.assert_array_equal(in_passes(double, rows, 3), rows * 2)
    np.testing.assert_array_equal(in_passes(double, rows, None), rows * 2)
    assert sizes == [3, 3, 3, 7]


# Runs. The pretence holds in one thread, so tasks run in this one.


def _inline(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
    return ((unit, work(unit)) for unit in units)


INLINE = Engine(_inline, True, "inline")


@pytest.fixture
def source(images: list[ImageU8]) -> core.Source:
    from sorites.core import ArrayRef, Sample

    return core.Source("given", [Sample(f"s{i}", ArrayRef(image), i % 5) for i, image in enumerate(images)])


def run(source: core.Source, out: Path, device: str | None, batch: int, **more: Any) -> Any:
    from sorites.suites.suite import parse

    suite = parse(
        {"name": "t", "shifts": [{"name": "contrast", "severities": [0.5]}], "labels": list(CLASSES)}, "test"
    )
    return sorites.run(
        suite, source=source, models={"net": Network()}, scorers=["odin"], out=out, device=device, batch=batch,
        engine=INLINE, workers=1, producers=0, **more,
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_on_the_device_has_an_identity_of_its_own(source: core.Source, tmp_path: Path) -> None:
    with pretended("cuda"):
        first = run(source, tmp_path / "cuda", None, 4)
        record = read_record(tmp_path / "cuda")
        again = run(source, tmp_path / "again", "cuda:0", 4)
        run(source, tmp_path / "three", "cuda", 3)
        (place,) = record.as_json()["ran_on"]
        assert place["device"] == "cuda"
        assert place["hardware"]["name"] == "a pretended GPU"
        assert place["options"] == {"tf32": "off", "kernels": "deterministic"}
        assert place["library"] == "torch"
    columns = ("image_id", "conf", "score", "error")
    assert first.collect().select(columns).equals(again.collect().select(columns))
    assert first.collect()["error"].null_count() == len(first.collect())
    assert read_record(tmp_path / "again").run_id == record.run_id
    assert read_record(tmp_path / "three").run_id != record.run_id
    assert record.as_json()["computing"] == {
        "net": {"library": "torch", "device": "cuda", "precision": "float32", "batch": 4, "tf32": False}
    }
    with pytest.raises(IncompatibleRun, match="computing"):
        run(source, tmp_path / "cuda", "cpu", 4)


def test_on_a_cpu_neither_batch_nor_device_is_part_of_the_id(source: core.Source, tmp_path: Path) -> None:
    ids = set()
    for batch in (3, 8):
        run(source, tmp_path / str(batch), None, batch)
        record = read_record(tmp_path / str(batch))
        assert "computing" not in record.as_json()
        assert record.batch is None
        ids.add(record.run_id)
    assert len(ids) == 1


def test_a_run_with_auto_batch_continues_with_its_own(source: core.Source, tmp_path: Path) -> None:
    with pretended("cuda"):
        before = run(source, tmp_path / "run", None, 4).collect()
        assert run(source, tmp_path / "run", None, "auto").collect().equals(before)  # type: ignore[arg-type]


def test_a_device_without_a_runtime_is_an_error() -> None:
    with pytest.raises(SoritesError, match="cuda"):
        loaded("cuda")


def test_outputs_of_padded_passes_are_those_of_the_images(images: list[ImageU8]) -> None:
    calls: list[int] = []

    def forward(given: list[Any]) -> Outputs:
        calls.append(len(given))
        return Outputs(np.stack([np.full(2, image.mean(), np.float32) for image in given]))

    model = Model("m", forward, backend=core.Backend("torch", batch_matters=True)).with_batch(3)
    np.testing.assert_array_equal(model(images).logits[:, 0], [np.float32(i.mean()) for i in images])
    assert calls == [3, 3, 3]
    assert model.batch == 3
    assert Model("m", forward).with_batch(3).batch is None
