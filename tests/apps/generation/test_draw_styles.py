"""Labels in styles by cells of distance: laid out as is_ood reads them, resumed, checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from sorites import core
from sorites.apps.generation.safety import checker
from sorites.apps.generation.styles import (
    Order,
    Prompts,
    Style,
    StyleCounts,
    claim,
    draw_styles,
    jobs,
    pair_prompts,
)
from sorites.core.errors import SoritesError
from sorites.core.labels import open_labels
from sorites.core.samples import to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.toy.world import SHAPES, draw
from sorites.suites.suite import Distance

from .conftest import FEW

STYLES = [Style("plain", "a picture of a {label}"), Style("snow", "a picture of a {label} in snow", "night")]
ORDER = Order(per_cell=3, kind="png", batch=4, in_distribution=5)


@pytest.fixture(scope="module")
def how(tmp_path_factory: pytest.TempPathFactory) -> Distance:
    real, rng = tmp_path_factory.mktemp("real"), np.random.default_rng(0)
    for place in range(12):
        Image.fromarray(to_uint8(draw(SHAPES[place % 2], "plain", rng))).save(real / f"{place}.png")
    return Distance(encoder="toy", against=f"folder:{real}", k=2, levels=2)


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return pair_prompts(SHAPES, STYLES, ())


@pytest.fixture(scope="module")
def made(
    tiny: Pipe, prompts: Prompts, how: Distance, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, StyleCounts]:
    out = tmp_path_factory.mktemp("styles")
    return out, draw_styles(tiny, prompts, how, out, FEW, ORDER)


@pytest.mark.slow
def test_every_cell_has_its_number_and_is_ood_reads_the_folder(
    made: tuple[Path, StyleCounts], prompts: Prompts
) -> None:
    out, counts = made
    found = core.source(f"is_ood:{out}", open_labels())
    drawn = [sample for sample in found if sample.shift == "syn_is"]
    cells = {(sample.setting.params["cov_level"], sample.setting.params["sem_level"]) for sample in drawn}
    assert counts.images == len(drawn) == 3 * len(cells) == 3 * counts.cells
    assert len(prompts) == 8
    assert counts.cells + counts.empty_cells == 4
    assert len(found) - len(drawn) == 5
    assert drawn[0].load().shape == (16, 16, 3)


def test_prompts_stand_in_their_cells(made: tuple[Path, StyleCounts]) -> None:
    rows = pl.read_parquet(made[0] / "prompts.parquet")
    assert rows.height == 8
    snow = rows.group_by("style").agg(pl.col("covariate").mean()).sort("style")["covariate"]
    assert snow[1] > snow[0], "snow is farther in appearance"


def test_typed_again_nothing_is_drawn_and_a_lost_image_comes_back(
    made: tuple[Path, StyleCounts], tiny: Pipe, prompts: Prompts, how: Distance
) -> None:
    out, counts = made
    files = sorted(out.glob("SynIS/*/*.png"))
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}
    lost = files[1]
    lost.unlink()
    assert draw_styles(tiny, prompts, how, out, FEW, ORDER) == counts
    assert all(file.stat().st_mtime_ns == before[file][0] for file in files if file != lost)
    now, then = (np.asarray(Image.open(lost)).astype(int), before[lost][1])
    import io

    assert np.abs(now - np.asarray(Image.open(io.BytesIO(then))).astype(int)).max() <= 1
    with pytest.raises(SoritesError, match="made with other steps 4, not 5"):
        draw_styles(tiny, prompts, how, out, type(FEW)(steps=5, guidance=2.0, negative=""), ORDER)


def test_a_cell_uses_each_prompt_before_one_comes_again() -> None:
    rows = pl.DataFrame({"label": [0, 1, 2], "style": [0, 0, 1], "text": ["a", "b", "c"]})
    found = jobs((0, 1), rows, 5)
    assert sorted(job.text for job in found[:3]) == ["a", "b", "c"]
    assert [job.seed for job in found] == [0, 0, 0, 1, 1]
    assert found == jobs((0, 1), rows, 7)[:5]


def test_what_is_wrong_claims_nothing_and_a_call_that_drew_nothing_is_replaced(
    tiny: Pipe, prompts: Prompts, how: Distance, tmp_path: Path
) -> None:
    wrong = {"decomposition": "nowhere.safetensors", "k": 13, "limit": 1}
    for (key, value), said in zip(
        wrong.items(), ("cannot read nowhere", "exceeds the 12", "exceeds the 1 "), strict=True
    ):
        with pytest.raises(SoritesError, match=said):
            draw_styles(tiny, prompts, how.model_copy(update={key: value}), tmp_path / "out", FEW, ORDER)
    assert not (tmp_path / "out").exists()
    with pytest.raises(SoritesError, match="jpg or png"):
        Order(kind="gif")
    with pytest.raises(SoritesError, match="at least 0"):
        Order(in_distribution=-1)
    facts = {"distance": {"k": 2, "levels": 2}, "styles": [["plain"]]}
    other = {**facts, "distance": {"k": 3, "levels": 2}}
    claim(tmp_path, facts)
    claim(tmp_path, other)
    assert json.loads((tmp_path / "styles.json").read_text())["distance"]["k"] == 3
    (tmp_path / "SynIS" / "cov_0_sem_0").mkdir(parents=True)
    (tmp_path / "SynIS" / "cov_0_sem_0" / "0_0_0.png").touch()
    claim(tmp_path, other)
    with pytest.raises(SoritesError, match="made with other distance, k 3, not 2; use"):
        claim(tmp_path, facts)


@pytest.mark.slow
def test_refused_images_are_drawn_again_given_up_and_counted(
    tiny: Pipe, prompts: Prompts, how: Distance, tmp_path: Path
) -> None:
    seen: list[int] = []

    def first_two(images: Any) -> list[bool]:
        seen.append(len(images))
        return [len(seen) <= 2] * len(images)

    few = Order(per_cell=1, kind="png", in_distribution=1)
    counts = draw_styles(tiny, prompts, how, tmp_path, FEW, few, first_two)
    assert counts.flagged == 2
    assert counts.given_up == 0
    assert draw_styles(tiny, prompts, how, tmp_path, FEW, few).flagged == 2, "counts are kept"
    none = draw_styles(tiny, prompts, how, tmp_path / "none", FEW, few, lambda images: [True] * len(images))
    assert none.images == 0
    assert none.given_up == none.cells


def test_the_pipelines_own_checker_is_used(tiny: Pipe, tmp_path: Path) -> None:
    import shutil

    with pytest.raises(SoritesError, match="has no folders safety_checker"):
        checker("own", tiny.path)
    folder = Path(shutil.copytree(tiny.path, tmp_path / "pipe"))
    _safety_checker(folder)
    found = checker("own", folder)
    assert found is not None
    assert found([np.zeros((16, 16, 3), np.uint8), np.full((16, 16, 3), 255, np.uint8)]) == [False, False]


def _safety_checker(folder: Path) -> None:
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPVisionConfig

    vision = CLIPVisionConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=32,
        patch_size=16,
    )
    config = CLIPConfig(vision_config=vision.to_dict(), projection_dim=8)
    made = StableDiffusionSafetyChecker(config)
    made.concept_embeds_weights.data.fill_(2.0)
    made.special_care_embeds_weights.data.fill_(2.0)
    made.save_pretrained(folder / "safety_checker")
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32).save_pretrained(folder / "feature_extractor")


def test_a_checker_that_is_none_is_refused(tiny: Pipe) -> None:
    assert checker(None, tiny.path) is None
    with pytest.raises(SoritesError, match="safety"):
        checker("something", tiny.path)
    with pytest.raises(SoritesError, match="no Python module named"):
        checker("python:nowhere_at_all:f", tiny.path)
