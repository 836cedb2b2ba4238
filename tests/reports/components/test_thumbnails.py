from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from sorites.reports.components.images import data_uri


def test_thumbnails_are_small_and_never_enlarged() -> None:
    rng = np.random.default_rng(0)
    for shape, size in [((300, 600), (160, 80)), ((20, 30), (30, 20))]:
        uri = data_uri(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
        with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as opened:
            assert (opened.format, opened.size) == ("WEBP", size)
