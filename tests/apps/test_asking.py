"""``sorites ask``: every command is one that there is, and questions are found in other words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command, command, home  # noqa: F401

import sorites
from sorites.apps.asking import parsed, questions, stems
from sorites.cli.app import command_of
from sorites.cli.guard import RunByDefault
from sorites.core.errors import SoritesError

DOCS = Path(__file__).parents[2] / "docs"
LINES = [(one.name, line) for one in questions() for line in (*one.commands, *one.example)]
LINES += [
    (page, line)
    for page in ("why.md", "start.md", "sources.md")
    for line in re.findall(
        r"^    (sorites .+?)(?:  +#.*)?$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE
    )
]
IN_OTHER_WORDS = {
    "own-images": ("evaluate a timm checkpoint on a folder of photos", "run my own dataset"),
    "which-model": ("which network is best for production", "rank my candidate backbones"),
    "how-far": ("at what severity does it break", "how much blur is tolerated before failure"),
    "does-it-know": ("is my network overconfident when it is wrong", "does it notice its own errors"),
    "abstain": ("when should it refuse to answer", "selective prediction risk coverage"),
    "threshold": ("what cutoff for alarms in deployment", "choose an operating point for the score"),
    "threshold-holds": ("is the guard still valid on new data", "recheck the alarm rate after deployment"),
    "which-lens": ("compare objectives for our camera", "what optics to purchase, zemax files"),
    "lens-tolerance": (
        "manufacturing error of a misaligned element",
        "how much decentre and tilt is allowed",
    ),
    "camera-setting": ("best ISO and shutter in the dark", "choose exposure time and aperture"),
    "quantised": ("int8 quantization accuracy loss", "does TensorRT conversion change robustness"),
    "ci-gate": ("fail the build when robustness regresses", "github actions regression test"),
    "differ": ("images where two versions disagree", "which predictions flipped between versions"),
    "why-changed": ("grad-cam heatmaps of flips", "explain a changed prediction"),
    "slices": ("what are the weak spots of my classifier", "find subgroups with more errors"),
    "detector": ("yolo robustness mAP", "evaluate bounding boxes under corruption"),
    "train-robust": ("fine-tune with optics augmentation", "improve robustness by training"),
    "augmentation-helps": ("ablation of augmix against nothing", "is the gain of an augmentation real"),
    "jpeg": ("how low can the compression quality be", "bandwidth and codec artefacts"),
    "weather": ("driving in fog and storm", "effect of snowfall and haze"),
    "calibration": ("expected calibration error by severity", "temperature scaling reliability"),
    "prediction-sets": ("conformal sets with coverage", "guaranteed coverage 90 %"),
    "which-scorer": ("energy or knn for novelty detection", "best OOD method on openood"),
    "dataset-distance": ("domain gap between two datasets", "how similar are my photos to training images"),
    "import-predictions": ("I have a csv of results", "evaluate without running a network, from files"),
    "mce": ("mean corruption error relative to alexnet", "imagenet-c benchmark number"),
    "summary": ("document for the regulator", "model card and certificate to share"),
    "by-hand": ("interactive slider in the browser", "play with a dial live"),
    "write-images": ("save the corrupted pictures as png files", "export a shifted dataset folder"),
    "in-my-pipeline": ("torchvision or albumentations transform", "apply shifts in my dataloader"),
    "own-shift": ("write a custom corruption", "plug-in for a new perturbation"),
    "cost": ("gpu hours and price", "estimate the runtime"),
    "hugging-face": ("load from the hub with transformers", "use a huggingface checkpoint"),
    "contexts": ("spurious correlation with the background", "objects in uncommon places"),
    "diffusion": ("stable diffusion slider for snow", "generative synthetic style changes"),
    "which-shifts": ("list of corruptions", "upside down or rotated images"),
    "how-many": ("how large must my test set be to be significant", "error bars and sample size"),
    "python": ("use in jupyter notebook", "plot accuracy against severity"),
    "other-tools": ("wandb logging", "export to fiftyone"),
    "large-runs": ("resume an interrupted run", "run on several gpus with slurm"),
    "attack": ("adversarial attack pgd", "robust accuracy at epsilon 4/255"),
    "paper": ("reproduce a paper table", "which benchmarks are built in, and how to cite them"),
    "collect": ("download openly licensed pictures", "search wikimedia for photographs of foxes"),
    "install": ("pip install with cuda", "why does importing torchvision fail"),
    "annotate": ("my labels are wrong", "human raters and their agreement"),
}


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words name, and the words that are its own."""
    found: Any = command_of(words[0])
    words = words[1:]
    while hasattr(found, "get_command"):
        if isinstance(found, RunByDefault) and words[0] not in found.commands:
            words = ["run", *words]
        found, words = found.get_command(None, words[0]), words[1:]
        assert found is not None
    return found, words


@pytest.mark.parametrize(("name", "line"), LINES, ids=[f"{name}: {line[:40]}" for name, line in LINES])
def test_every_command_is_parsed_by_the_command_line(name: str, line: str) -> None:
    first, *words = shlex.split(line)
    if first == "python":
        (script,) = words
        files = next(one.files for one in questions() if one.name == name)
        compile(files[script], script, "exec")
        return
    assert first == "sorites"
    found, words = leaf(words)
    found.make_context(found.name, words)  # a wrong option, value or number of arguments raises


def test_every_file_of_an_example_is_used_and_every_script_is_a_file() -> None:
    for one in questions():
        lines = " ".join(one.example)
        for file in one.files:
            assert file in lines or f"python:{file.removesuffix('.py')}:" in lines, one.name


def test_each_question_has_a_page_and_the_section_it_names() -> None:
    assert len(questions()) >= 30
    for one in questions():
        page, _, anchor = one.page.partition("#")
        text = (DOCS / page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in slugs, one.name


@pytest.mark.parametrize("name", [one.name for one in questions()])
def test_a_question_is_found_in_its_own_and_in_other_words(name: str) -> None:
    question = next(one.question for one in questions() if one.name == name)
    assert sorites.ask(question)[0].name == name
    for words in IN_OTHER_WORDS[name]:
        assert name in [one.name for one in sorites.ask(words)], words


def test_without_words_all_are_listed(command: Command) -> None:  # noqa: F811
    code, out, _ = command("ask")
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith("?")] == [one.question for one in questions()]
    assert sorites.ask() == list(questions())


def test_the_command_line_prints_the_best_three(command: Command) -> None:  # noqa: F811
    code, out, _ = command("ask", "which", "lens")
    first = out.partition("\n\n")[0]
    assert code == 0
    assert out.count("docs/") in (2, 3)
    assert first.startswith("Which lens should I buy?\n")
    assert "    sorites run lens_corruptions" in first
    assert re.search(r"about \d minutes? on two cores", first)


def test_no_match_says_what_to_type(command: Command) -> None:  # noqa: F811
    code, out, err = command("ask", "xyzzy")
    assert (code, out) == (2, "")
    assert err == "sorites: no question matches 'xyzzy'. List all questions: sorites ask\n"


def test_no_verb_names_five_and_help_names_all(command: Command) -> None:  # noqa: F811
    code, out, _ = command()
    assert code == 0
    assert re.findall(r"^  sorites (\w+)", out, re.MULTILINE) == [
        "run",
        "report",
        "compare",
        "passport",
        "view",
    ]
    assert 'What would you like to know?  sorites ask "' in out
    assert "Evaluate models" in command("--help")[1]


GOOD = """measured = "2026-11-19"

[[question]]
name = "a"
question = "Is it?"
words = "w"
commands = ["sorites list"]
example = ["sorites list"]
minutes = 1
answer = "It is."
page = "ci.md"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("minutes = 1", "minutes = 0"), r"minutes"),
        (GOOD.replace("minutes = 1", 'minutes = "1"'), r"minutes"),
        (GOOD + 'wrods = "x"\n', r"no key named 'wrods'. Did you mean words"),
        (GOOD.replace('page = "ci.md"\n', ""), r"page"),
        (GOOD.replace("2026-11-19", "today"), r"measured"),
        (GOOD + GOOD.partition("\n\n")[2], r"expected unique names, got a twice"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str) -> None:
    assert parsed(GOOD)[0].name == "a"
    with pytest.raises(SoritesError, match=message):
        parsed(text)


def test_endings_do_not_matter() -> None:
    assert stems("Which lenses?") == stems("which lens") == ["lens"]
    assert stems("calibrated") == stems("calibration")
    assert stems("quantised, quantization")[0] == stems("quantised, quantization")[1]
