"""Fitted scorers as nodes of an ONNX graph, so that a model and its scorer run without Sorites.

The nodes compute in float64 like the scorers. Sums are products with ones and maxima the first of ``TopK``,
because the operators that reduce an axis take it as an attribute or as an input, depending on the version of
the graph; the nodes used here are the same from opset 11 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Scorer
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.plugins import scorer_params
from sorites.core.types import PlainScorer
from sorites.scorers import knn, mahalanobis, prototypes, shaping, vim

# The first version of ONNX operators that has all nodes used here.
LEAST_OPSET = 11
PREFIX = "guard/"


@dataclass
class Nodes:
    """Nodes and constants that are appended to a graph.

    Attributes:
        logits: Name of a float64 tensor, N x C.
        features: Name of a float64 tensor, N x D; None if the model gives none.
        classes: The number of classes.
        width: The number of features.
    """

    logits: str = ""
    features: str | None = None
    classes: int = 0
    width: int = 0
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"{PREFIX}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its last output."""
        from onnx import helper

        names = [f"{PREFIX}{kind}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[-1]

    def first(self, name: str) -> str:
        """Return the name of the first output of the node whose last output is ``name``."""
        return str(next(node.output[0] for node in reversed(self.nodes) if node.output[-1] == name))

    def wide(self, name: str) -> str:
        """Convert a tensor to float64."""
        return self.add("Cast", name, to=_type("DOUBLE"))

    def narrow(self, name: str) -> str:
        """Round a tensor to float32 and convert it back."""
        return self.wide(self.add("Cast", name, to=_type("FLOAT")))

    def total(self, rows: str, width: int) -> str:
        """Return the sum of each row, N x 1."""
        return self.add("MatMul", rows, self.constant(np.ones((width, 1))))

    def largest(self, rows: str, count: int = 1, smallest: bool = False) -> tuple[str, str]:
        """Return the largest values of each row in order, N x count, and their places; the first of ties."""
        places = self.add(
            "TopK",
            rows,
            self.constant([count], np.int64),
            outputs=2,
            axis=1,
            largest=int(not smallest),
            sorted=1,
        )
        return self.first(places), places

    def logsumexp(self, rows: str, width: int) -> str:
        """Return log(sum(exp(row))), N x 1."""
        top, _ = self.largest(rows)
        exponentials = self.add("Exp", self.add("Sub", rows, top))
        return self.add("Add", top, self.add("Log", self.total(exponentials, width)))

    def linear(self, rows: str, weight: NDArray[Any], bias: NDArray[Any] | None = None) -> str:
        """Return ``rows @ weight.T + bias``."""
        product = self.add("MatMul", rows, self.constant(weight.T))
        return product if bias is None else self.add("Add", product, self.constant(bias))

    def square(self, rows: str, width: int) -> str:
        """Return the sum of the squares of each row, N x 1."""
        return self.total(self.add("Mul", rows, rows), width)

    def dot(self, one: str, other: str, width: int) -> str:
        """Return the inner product of each pair of rows, N x 1."""
        return self.total(self.add("Mul", one, other), width)

    def negative_energy(self, logits: str, classes: int) -> str:
        """Return minus the logsumexp of each row, N x 1."""
        return self.add("Neg", self.logsumexp(logits, classes))

    def predicted(self) -> str:
        """Return the predicted class of each row, N."""
        return self.add("ArgMax", self.logits, axis=1, keepdims=0)

    def without_top(self, logits: str) -> str:
        """Return the logits with minus infinity at the predicted class."""
        _, place = self.largest(logits)
        zero = self.add("Mul", self.wide(place), self.constant(0.0))
        return self.add(
            "ScatterElements", logits, place, self.add("Add", zero, self.constant(-np.inf)), axis=1
        )

    def inputs(self) -> str:
        """Return the name of the features.

        Raises:
            SoritesError: The model gives none.
        """
        if self.features is None:
            raise SoritesError("this scorer needs features, which the graph of the model does not give")
        return self.features


def _type(name: str) -> int:
    from onnx import TensorProto

    return int(getattr(TensorProto, name))


# A rule appends the nodes of a scorer and returns the name of its scores, N x 1.
Rule = Callable[[Nodes, Any, Mapping[str, Any]], str]


def append_scorer(nodes: Nodes, scorer: Scorer) -> str:
    """Append the nodes of a fitted scorer.

    Args:
        nodes: The nodes so far, with the names of logits and features.
        scorer: A scorer that was fitted.

    Returns:
        The name of the scores, N x 1 in float64.

    Raises:
        UnknownName: The scorer cannot be a graph on top of the outputs of a model.
    """
    kind, _ = scorer_params(scorer.name, {})
    if kind not in RULES:
        known = ", ".join(RULES)
        raise UnknownName(
            "scorer of a guard", kind, RULES, f"It cannot be part of an ONNX graph. These can: {known}."
        )
    # A search may have chosen other parameters than those in the name.
    call = scorer.call if isinstance(scorer, PlainScorer) else None
    return RULES[kind](nodes, scorer, call.keywords if isinstance(call, functools.partial) else {})


def _msp(n: Nodes, scorer: Any, params: Mapping[str, Any]) -> str:
    logits = _heated(n, params)
    top, _ = n.largest(logits)
    return n.add("Sub", n.logsumexp(n.without_top(logits), n.classes), top)


def _heated(n: Nodes, params: Mapping[str, Any]) -> str:
    return n.add("Div", n.logits, n.constant(params.get("temperature", 1.0)))


def _max_logit(n: Nodes, scorer: Any, params: Mapping[str, Any]) -> str:
    return n.add("Neg", n.largest(n.logits)[0])


def _energy(n: Nodes, scorer: Any, params: Mapping[str, Any]) -> str:
    temperature = n.constant(-params.get("temperature", 1.0))
    return n.add("Mul", n.logsumexp(_heated(n, params), n.classes), temperature)


def _gen(n: Nodes, scorer: Any, params: Mapping[str, Any]) -> str:
    gamma, count = params.get("gamma", 0.1), min(params.get("top", 100), n.classes)
    top, _ = n.largest(n.logits, count)
    likely = n.add(
        "Min", n.add("Sub", top, n.logsumexp(n.logits, n.classes)), n.constant(np.zeros((1, count)))
    )
    # 1 - exp(x) without loss of digits near 0: -(exp(x) + 1) tanh(x / 2).
    half = n.add("Tanh", n.add("Mul", likely, n.constant(-0.5)))
    unlikely = n.add("Mul", n.add("Add", n.add("Exp", likely), n.constant(1.0)), half)
    product = n.add("Add", likely, n.add("Log", unlikely))
    return n.total(n.add("Exp", n.add("Mul", product, n.constant(gamma))), count)


def _mahalanobis(n: Nodes, scorer: mahalanobis._ClassMeans, params: Mapping[str, Any]) -> str:
    whitened, width = _whitened(n, scorer.ready(scorer._whitening))
    cross = n.add("Mul", n.linear(whitened, scorer._means), n.constant(-2.0))
    nearest, _ = n.largest(n.add("Add", cross, n.constant(scorer._squares)), smallest=True)
    return n.add("Add", n.square(whitened, width), nearest)


def _relative_mahalanobis(n: Nodes, scorer: mahalanobis.rmds, params: Mapping[str, Any]) -> str:
    nearest = _mahalanobis(n, scorer, params)
    return n.add("Sub", nearest, n.square(*_whitened(n, scorer._all)))


def _whitened(n: Nodes, whitening: mahalanobis.Whitening) -> tuple[str, int]:
    centred = n.add("Sub", n.inputs(), n.constant(whitening.centre))
    return n.linear(centred, whitening.shape.T), whitening.shape.shape[1]


def _directions(n: Nodes) -> str:
    """Return the features scaled to unit length and rounded to float32; zero rows stay zero."""
    lengths = n.add("Sqrt", n.square(n.inputs(), n.width))
    one = n.constant(1.0)
    safe = n.add("Where", n.add("Greater", lengths, n.constant(0.0)), lengths, one)
    return n.narrow(n.add("Div", n.inputs(), safe))


def _knn(n: Nodes, scorer: knn.knn, params: Mapping[str, Any]) -> str:
    bank = scorer.ready(scorer._bank)
    queries = _directions(n)
    squares = np.einsum("nd,nd->n", bank, bank, dtype=np.float64)
    cross = n.add("MatMul", queries, n.wide(n.constant(bank.T, np.float32)))
    squared = n.add("Add", n.add("Mul", cross, n.constant(-2.0)), n.constant(squares))
    nearest, _ = n.largest(n.add("Add", squared, n.square(queries, n.width)), scorer.k, smallest=True)
    kth = n.add("Gather", nearest, n.constant([scorer.k - 1], np.int64), axis=1)
    return n.add("Sqrt", n.add("Max", kth, n.constant(np.zeros((1, 1)))))


def _nnguide(n: Nodes, scorer: knn.nnguide, params: Mapping[str, Any]) -> str:
    bank = scorer.ready(scorer._bank)
    similar = n.add("MatMul", _directions(n), n.wide(n.constant(bank.T, np.float32)))
    mean = n.add("Div", n.total(n.largest(similar, scorer.k)[0], scorer.k), n.constant(float(scorer.k)))
    return n.add("Mul", mean, n.negative_energy(n.logits, n.classes))


def _vim(n: Nodes, scorer: vim.vim, params: Mapping[str, Any]) -> str:
    residual = scorer.ready(scorer._residual)
    projected = n.linear(n.inputs(), residual.T, -(scorer._origin @ residual))
    lengths = n.add("Sqrt", n.square(projected, residual.shape[1]))
    virtual = n.add("Mul", lengths, n.constant(scorer._alpha))
    return n.add("Sub", virtual, n.logsumexp(n.logits, n.classes))


def _react(n: Nodes, scorer: shaping.react, params: Mapping[str, Any]) -> str:
    over = n.add("Sub", n.inputs(), n.constant(scorer.limits[0]))
    excess = n.add("Max", over, n.constant(np.zeros((1, n.width))))
    logits = n.add("Sub", n.logits, n.linear(excess, scorer.ready(scorer._weight)))
    return n.negative_energy(logits, n.classes)


def _largest_mask(n: Nodes, scorer: shaping._PruningScorer) -> tuple[str, int]:
    """Return a mask of the features that are kept, N x D of 0 and 1, and how many are."""
    count = max(1, n.width - round(n.width * scorer.percentile / 100))
    values, places = n.largest(n.inputs(), count)
    zeros = n.add("Mul", n.inputs(), n.constant(0.0))
    ones = n.add("Add", n.add("Mul", values, n.constant(0.0)), n.constant(1.0))
    return n.add("ScatterElements", zeros, places, ones, axis=1), count


def _ratio(n: Nodes, part: str) -> str:
    """Return the sum of all features divided by that of the kept ones; 1 where the latter is 0."""
    kept, one = n.total(part, n.width), n.constant(1.0)
    empty = n.add("Equal", kept, n.constant(0.0))
    ratio = n.add("Div", n.total(n.inputs(), n.width), n.add("Where", empty, one, kept))
    return n.add("Where", empty, one, ratio)


def _shaped(n: Nodes, scorer: shaping._PruningScorer, rows: str) -> str:
    return n.negative_energy(n.linear(rows, *_head(scorer)), n.classes)


def _head(scorer: shaping._HeadScorer) -> tuple[NDArray[Any], NDArray[Any]]:
    return scorer.ready(scorer._weight), scorer.ready(scorer._bias)


def _ash_p(n: Nodes, scorer: shaping.ash_p, params: Mapping[str, Any]) -> str:
    return _shaped(n, scorer, n.add("Mul", n.inputs(), _largest_mask(n, scorer)[0]))


def _ash_b(n: Nodes, scorer: shaping.ash_b, params: Mapping[str, Any]) -> str:
    mask, count = _largest_mask(n, scorer)
    mean = n.add("Div", n.total(n.inputs(), n.width), n.constant(float(count)))
    return _shaped(n, scorer, n.add("Mul", mask, mean))


def _ash_s(n: Nodes, scorer: shaping.ash_s, params: Mapping[str, Any]) -> str:
    part = n.add("Mul", n.inputs(), _largest_mask(n, scorer)[0])
    limited = n.add("Min", _ratio(n, part), n.constant(np.full((1, 1), float(shaping.MAX_EXPONENT))))
    return _shaped(n, scorer, n.add("Mul", part, n.add("Exp", limited)))


def _scale(n: Nodes, scorer: shaping.scale, params: Mapping[str, Any]) -> str:
    part = n.add("Mul", n.inputs(), _largest_mask(n, scorer)[0])
    bias = n.constant(_head(scorer)[1])
    scaled = n.add("Mul", n.add("Exp", _ratio(n, part)), n.add("Sub", n.logits, bias))
    return n.negative_energy(n.add("Add", scaled, bias), n.classes)


def _dice(n: Nodes, scorer: shaping.dice, params: Mapping[str, Any]) -> str:
    return n.negative_energy(n.linear(n.inputs(), *_head(scorer)), n.classes)


def _fdbd(n: Nodes, scorer: prototypes.fdbd, params: Mapping[str, Any]) -> str:
    inverse = n.add("Gather", n.constant(scorer._inverse), n.predicted(), axis=0)
    margins = n.add("Sub", n.largest(n.logits)[0], n.logits)
    boundary = n.add("Div", n.dot(margins, inverse, n.classes), n.constant(1.0 - n.classes))
    lengths = n.add("Sqrt", n.square(_centred(n, scorer), n.width))
    return n.add("Div", boundary, n.add("Max", lengths, n.constant(np.full((1, 1), 1e-8))))


def _centred(n: Nodes, scorer: prototypes._Centred) -> str:
    return n.add("Sub", n.inputs(), n.constant(scorer.ready(scorer._mean)))


def _nci(n: Nodes, scorer: prototypes.nci, params: Mapping[str, Any]) -> str:
    centred = _centred(n, scorer)
    weights = n.add("Gather", n.constant(scorer._weight), n.predicted(), axis=0)
    lengths = n.add("Sqrt", n.square(centred, n.width))
    safe = n.add("Where", n.add("Greater", lengths, n.constant(0.0)), lengths, n.constant(1.0))
    alignment = n.add("Div", n.dot(centred, weights, n.width), safe)
    norm = n.add("Mul", n.total(n.add("Abs", n.inputs()), n.width), n.constant(scorer.alpha))
    return n.add("Neg", n.add("Add", alignment, norm))


def _she(n: Nodes, scorer: prototypes.she, params: Mapping[str, Any]) -> str:
    patterns = scorer.ready(scorer._patterns)
    missing = np.full((max(n.classes - len(patterns), 0), n.width), np.nan)
    every = n.constant(np.concatenate([patterns, missing]))
    pattern = n.add("Gather", every, n.predicted(), axis=0)
    return n.add("Neg", n.dot(n.inputs(), pattern, n.width))


RULES: dict[str, Rule] = {
    "msp": _msp,
    "max_logit": _max_logit,
    "energy": _energy,
    "gen": _gen,
    "mds": _mahalanobis,
    "rmds": _relative_mahalanobis,
    "knn": _knn,
    "nnguide": _nnguide,
    "vim": _vim,
    "react": _react,
    "ash_p": _ash_p,
    "ash_b": _ash_b,
    "ash_s": _ash_s,
    "scale": _scale,
    "dice": _dice,
    "fdbd": _fdbd,
    "nci": _nci,
    "she": _she,
}
