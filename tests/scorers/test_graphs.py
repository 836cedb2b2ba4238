"""Every scorer that can be an ONNX graph gives the scores of its Python code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sorites import core
from sorites.core import Outputs
from sorites.core.errors import UnknownName
from sorites.scorers.graphs import RULES, Nodes, append_scorer

CLASSES, WIDTH = 7, 24
PARAMS = {
    "knn": {"k": 5},
    "nnguide": {"k": 5},
    "vim": {"dim": 8},
    "energy": {"temperature": 2.5},
    "gen": {"top": 4},
}


def outputs(seed: int, count: int) -> Outputs:
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.normal(0.3, 1, (count, WIDTH)), 0).astype(np.float32)
    weight, bias = head()
    return Outputs((features @ weight.T + bias).astype(np.float32), features)


def head() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    return rng.normal(0, 1, (CLASSES, WIDTH)).astype(np.float32), rng.normal(0, 1, CLASSES).astype(np.float32)


def fitted(name: str) -> Any:
    training = outputs(1, 300)
    assert training.logits is not None
    return core.scorer(name, **PARAMS.get(name, {})).fit([(training, training.logits.argmax(axis=1))], head())


def run(scorer: Any, given: Outputs, opset: int) -> np.ndarray:
    import onnxruntime
    from onnx import TensorProto, helper

    n = Nodes(classes=CLASSES, width=WIDTH)
    n.logits, n.features = n.wide("logits"), n.wide("features")
    n.add("Reshape", append_scorer(n, scorer), n.constant([-1], np.int64))
    score = n.nodes[-1].output[0]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
        for name, width in (("logits", CLASSES), ("features", WIDTH))
    ]
    made = helper.make_graph(
        n.nodes,
        "scorer",
        inputs,
        [helper.make_tensor_value_info(score, TensorProto.DOUBLE, ["n"])],
        n.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {"logits": given.logits, "features": given.features}
    used = {i.name for i in session.get_inputs()}
    return session.run([score], {k: v for k, v in feed.items() if k in used})[0]


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_graph_gives_the_scores_of_the_scorer(name: str, opset: int) -> None:
    scorer, given = fitted(name), outputs(2, 40)
    assert given.features is not None
    given.features[3] = 0
    given.features[4, :] = given.features[4, 0]  # ties
    given = Outputs((given.features @ head()[0].T + head()[1]).astype(np.float32), given.features)
    np.testing.assert_allclose(run(scorer, given, opset), scorer(given), rtol=1e-5, atol=1e-5)


def test_gen_keeps_its_digits_where_a_model_is_confident() -> None:
    logits = np.zeros((4, CLASSES), np.float32)
    logits[np.arange(4), 1] = [5, 20, 30, 34]
    given = Outputs(logits, np.zeros((4, WIDTH), np.float32))
    np.testing.assert_allclose(run(fitted("gen"), given, 17), fitted("gen")(given), rtol=1e-5)


def test_a_scorer_that_looks_inside_a_model_is_refused() -> None:
    with pytest.raises(UnknownName) as caught:
        append_scorer(Nodes("logits", "features", 3, 4), core.scorer("gradnorm"))
    assert caught.value.fields["name"] == "gradnorm"
