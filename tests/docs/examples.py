"""The examples of the docs as they stand in fenced blocks, and what is said of those that cannot be
run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NO_WEIGHTS = "needs gigabytes of weights that a hub holds, and a GPU"
NO_CLUSTER = (
    "needs a cluster and an object store; tests/evaluation/engines and tests/io/stores run both on this"
    " machine"
)
NO_TORCHVISION = (
    "needs weights of torchvision; tests/models/test_torchvision.py runs untrained networks from files"
)
INSTALLS = "installs packages; tests/package and tests/contracts/test_plugin.py install them"
TOO_LONG = "takes minutes to hours"

CANNOT: Mapping[str, str] = {
    "make ": INSTALLS,
    "pip install": INSTALLS,
    "sorites run demo --source folder:s3://": NO_CLUSTER,
    "sorites run SUITE --engine ray": NO_CLUSTER,
    "sorites distance 'webdataset:s3://": (
        NO_CLUSTER + "; tests/evaluation/test_neighbours.py runs the verb's job"
    ),
    "sorites run exposure --model lite0 --source folder:photos": TOO_LONG,
    "sorites guard ": "needs that run; tests/analysis/guard/test_guard.py runs the verbs",
    "from sorites.deploy import Guard": "needs a guard; tests/analysis/guard/test_guard.py uses one",
    "sorites generate ": NO_WEIGHTS,
    "sorites view": "serves until it is stopped; tests/apps/workbench opens it in a browser",
    "sorites build SUITE --source folder:/data/photos --shift haze": "needs such photographs",
    "sorites run lens_corruptions --shift lens_whole --option": (
        "needs a source of your own; tests/shifts and tests/lenses turn these options"
    ),
    "sorites run demo --model hf:": NO_WEIGHTS + "; tests/models/test_hf.py runs a small one",
    "sorites run demo --model torchvision:": NO_TORCHVISION,
    'sorites run demo --model "torchvision:': NO_TORCHVISION,
    "sorites run cns_bench": NO_WEIGHTS,
    "sorites filter run ": NO_WEIGHTS,
    "sorites report run": "reports on the run before it, which " + NO_WEIGHTS,
    "sorites run is_ood --source is_ood:syn_is": NO_WEIGHTS,
    "sorites run openood_": "needs the images of OpenOOD; tests/sources/test_openood.py runs the command",
    'sorites run SUITE --source "slider:sliders': "needs sliders that " + NO_WEIGHTS,
    'sorites run SUITE --source "edited:sliders': "needs sliders that " + NO_WEIGHTS,
    "sorites similarity run --measure psnr,lpips": "measures the run before it, which needs such sliders",
    "sorites metrics run edited_accuracy": "reads the run before it, which needs such sliders",
    "sorites lens import *.seq": "needs such files; tests/lenses reads them",
    "sorites lens import camera.npy": "needs measured PSFs; tests/lenses imports some",
    "sorites lens import edge.png": "needs a photograph of an edge; tests/lenses imports one",
    "sorites run focus --source focus:DIR --model open_clip:ViT-B-32@openai": NO_WEIGHTS,
    'sorites run SUITE --model "boxes:yolo11n.onnx': (
        "needs a detector that tests/models/test_picodet.py fetches"
    ),
    "sorites passport lite0 --battery standard": TOO_LONG,
    "sorites passport picodet": TOO_LONG + "; tests/reports/passport/test_box_passport.py makes one",
    "sorites passport boxes:mine.onnx": "needs a detector; tests/reports/passport/test_box_passport.py has one",
    "sorites explain RUN --model picodet": "needs a run of a detector; tests/training/explain explains one",
    "sorites doctor --gpu": TOO_LONG + " on a CPU; tests/evaluation/pipeline/test_check.py measures a model",
    "sorites train arms": TOO_LONG + "; tests/cli/test_train_arms.py runs the verb",
    "sorites train run detector_optics --model timm": (
        "needs a file of boxes; tests/training/detection/test_training.py trains on one"
    ),
    "from sorites.training.arms": TOO_LONG + "; tests/training/arms run these functions",
    "from sorites.training import AugMix, ImageTransform": (
        "needs torchvision, which Sorites does not depend on"
    ),
}
"""How a line, or a block of Python, begins, and why it is not run."""


@dataclass(frozen=True)
class Example:
    """A command, or a block of Python, as it stands on a page."""

    page: str
    kind: str
    text: str

    @property
    def reason(self) -> str | None:
        """Why it cannot be run here, or None."""
        return next((reason for start, reason in CANNOT.items() if self.text.startswith(start)), None)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the kind and the text of every fenced block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def examples() -> Iterator[Example]:
    """Yield what the pages tell the reader to type, in their order."""
    for page in PAGES:
        for kind, text in blocks(page):
            if kind == "python":
                yield Example(page.name, kind, text)
            elif kind in ("", "sh"):
                lines = text.replace("\\\n", " ").splitlines()
                yield from (
                    Example(page.name, "sh", line)
                    for line in lines
                    if re.match(r"(sorites|make|pip|python) ", line)
                )


def named_files(page: str) -> dict[str, str]:
    """Return the TOML blocks of a page whose first line names a file."""
    texts = [
        text for kind, text in blocks(next(path for path in PAGES if path.name == page)) if kind == "toml"
    ]
    return {named[1]: text for text in texts if (named := re.match(r"# (\S+\.toml)\n", text))}
