"""The nouns: source -> shift -> model -> scorer -> one table -> metric -> report.

Types only: nothing here is registered, read from disk or computed. Everything else may import them; they import errors alone.
"""

from sorites.types.judges import Batches, Examples, Features, Measure, Metric, PlainScorer, Referee, Scorer
from sorites.types.model import Head, Model, Outputs
from sorites.types.pictures import (
    CLEAN,
    Attr,
    Box,
    Image,
    OwnDial,
    Picture,
    Sample,
    Setting,
    Source,
    read_only,
    to_image,
    to_picture,
)
from sorites.types.shift import Apply, Shift, ShiftResult, Stop, Sweep
from sorites.types.specs import named_spec, split_spec

__all__ = [
    "CLEAN",
    "Apply",
    "Attr",
    "Batches",
    "Box",
    "Examples",
    "Features",
    "Head",
    "Image",
    "Measure",
    "Metric",
    "Model",
    "Outputs",
    "OwnDial",
    "Picture",
    "PlainScorer",
    "Referee",
    "Sample",
    "Scorer",
    "Setting",
    "Shift",
    "ShiftResult",
    "Source",
    "Stop",
    "Sweep",
    "named_spec",
    "read_only",
    "split_spec",
    "to_image",
    "to_picture",
]
