"""Words that are added to an example so that it ends soon, and what its placeholders stand for."""

from __future__ import annotations

from collections.abc import Mapping

FEW = "--limit 1 --level 3"

STANDS_FOR: Mapping[str, Mapping[str, str]] = {
    "models.md": {"SUITE": "boxes_demo"},
    "lenses.md": {"NAME": "triplet", "LENS": "CookeTriplet"},
}
"""By page, the words in capitals that are names of objects here.

PATH, RUN, BASE, NEW and DIR are folders of those very names.
"""

ADDED: Mapping[str, str] = {
    "sorites run demo --out runs/demo": "--limit 4",
    "sorites run demo --model lite0 --limit 24": "--limit 4",
    "sorites run demo --source 'parquet": FEW + " --model lite0",
    "sorites run demo --source webdataset": FEW + " --model lite0",
    "sorites run demo --source folder:PATH --labels": FEW,
    "sorites run demo --source folder:PATH ": FEW + " --model lite0",
    "sorites run demo --model v1=onnx": FEW + " --source folder:PATH --labels classes.txt",
    'sorites run demo --model "open_clip': FEW + " --source folder:PATH --labels classes.txt",
    "sorites run demo --keep-features": "--limit 24 --model lite0 --shift brightness --level 3",
    "sorites run optics_bench_boxes": FEW,
    "sorites run boxes_demo": "--limit 1 --shift coma --level 3",
    "sorites run stamps_ood": "--limit 2",
    "sorites run lens_corruptions --lenses": "--limit 1",
    "sorites run lens_corruptions --shift": "--limit 1 --model lite0",
    "sorites run tolerances --model": "--limit 1",
    "sorites run tolerances --option": "--limit 1 --model lite0",
    "sorites run slider_demo": "--limit 1",
    "sorites run cifar_optics": "--limit 4",
    "sorites run composites_optics": "--limit 1 --shift coma",
    "sorites passport": "--limit 1",
    "sorites train run": "--steps 1 --limit 64",
    "sorites attack": "--limit 1 --steps 1",
    "sorites explain": "--limit 1",
    "sorites annotate serve": "--port 0",
}
"""How a command begins, and the options that take fewer images or steps of the same work."""
