from __future__ import annotations

import dataclasses
import html
import json
import re

import numpy as np
import polars as pl
import pytest

from sorites.core import CLEAN, ImageU8
from sorites.core.errors import SoritesError
from sorites.reports.section import Section
from sorites.reports.sections.images import strips
from sorites.reports.view import RunView, merge


def grey(sample_id: str, shift: str, severity: float) -> ImageU8:
    return np.full((30, 40, 3), 128, np.uint8)


def made(run: RunView) -> Section:
    section = strips.strips(merge([run]))
    assert section is not None
    return section


def facts_in(body: str) -> list[dict[str, str]]:
    """The facts by which the cards of a gallery are filtered."""
    return [json.loads(html.unescape(text)) for text in re.findall(r'data-facts="([^"]*)"', body)]


def test_those_lost_first_come_first_and_were_right_when_clean(run: RunView, rows: pl.DataFrame) -> None:
    chosen = strips.first_lost(merge([run])).filter(model="lite0", shift="defocus_disk").to_dicts()
    own = [
        row for row in rows.to_dicts() if row["model"] == "lite0" and row["shift"] in (CLEAN, "defocus_disk")
    ]
    wrong = sorted((row["severity"], row["sample_id"]) for row in own if not row["correct"])
    lost_clean = {sample for severity, sample in wrong if severity == 0}
    first: dict[str, float] = {}
    for severity, sample in wrong:
        if sample not in lost_clean:
            first.setdefault(sample, severity)
    assert [(row["sample_id"], row["failure"]) for row in chosen] == sorted(
        first.items(), key=lambda item: item[::-1]
    )[: strips.MAX_PER_MODEL]


def test_a_strip_shows_the_last_right_and_the_first_wrong_stop(run: RunView) -> None:
    asked = []

    def note(sample_id: str, shift: str, severity: float) -> ImageU8:
        asked.append((sample_id, shift, severity))
        return grey(sample_id, shift, severity)

    section = made(dataclasses.replace(run, image=note))
    assert len(set(asked)) == len(asked), "an image is made once, however many models lost it"
    row = strips.frames_of(merge([run]))[0]
    assert row["clean"]["severity"] == 0
    assert row["right"]["severity"] < row["wrong"]["severity"] == row["failure"]
    assert row["right"]["pred"] == row["right"]["label"] != row["wrong"]["pred"]
    assert (row["sample_id"], row["shift"], row["failure"]) in asked
    assert "&lt;b&gt;tank &amp; tower&lt;/b&gt;" in section.body
    assert "<b>tank" not in section.body


def test_a_clean_image_that_is_the_last_right_one_is_shown_once(run: RunView) -> None:
    bare = dataclasses.replace(run, image=grey, table=run.table.filter(~pl.col("probe")))
    frames = strips.frames_of(merge([bare]))
    once = [row for row in frames if not row["right"]["severity"]]
    section = made(bare)
    assert once
    broken = [facts for facts in facts_in(section.body) if facts["flip"] == strips.BROKEN]
    assert len(broken) == len(frames)
    fixed = len(facts_in(section.body)) - len(broken)
    assert section.body.count("<figure") == 3 * len(frames) - len(once) + 2 * fixed
    assert section.body.count("clean, last correct</figcaption>") == len(once)


def test_accepted_labels_are_marked(run: RunView) -> None:
    assert "counts as right" not in made(dataclasses.replace(run, image=grey)).body
    right = pl.col("correct") & (pl.col("shift") == CLEAN)
    other = run.table.with_columns(pred=pl.when(right).then((pl.col("label") + 1) % 2).otherwise("pred"))
    body = made(dataclasses.replace(run, table=other, image=grey)).body
    clean, wrong = (
        re.findall(rf'<figure class="{kind}">.*?<figcaption><b>(.*?)</b>', body)
        for kind in ("clean", "wrong")
    )
    assert any("(counts as correct)" in caption for caption in clean)
    assert not any("(counts as correct)" in caption for caption in wrong)


def test_the_page_stays_light_and_every_model_and_shift_gets_its_turn(run: RunView) -> None:
    noise = np.random.default_rng(0)
    heavy = dataclasses.replace(run, image=lambda *_: noise.integers(0, 256, (160, 160, 3), dtype=np.uint8))
    body = made(heavy).body
    assert sum(map(len, re.findall(r'src="(data:[^"]+)"', body))) < strips.THUMBNAIL_BYTES + 100_000
    turns = {(facts["shift"], facts["model"]) for facts in facts_in(body)}
    assert len(turns) == 9


def test_a_image_that_cannot_be_made_leaves_its_words(run: RunView) -> None:
    def gone(sample_id: str, shift: str, severity: float) -> ImageU8:
        raise SoritesError("the folder moved")

    body = made(dataclasses.replace(run, image=gone)).body
    assert "image not available" in body
    assert "<img" not in body
    assert "first misclassified" in body


@pytest.mark.parametrize("shifts", [["jpeg"], ["jpeg", "defocus_disk"]])
def test_a_menu_only_where_there_is_a_choice(run: RunView, shifts: list[str]) -> None:
    kept = run.table.filter(pl.col("shift").is_in([CLEAN, *shifts]))
    body = made(dataclasses.replace(run, table=kept, image=grey)).body
    assert ('data-fact="shift"' in body) == (len(shifts) > 1)
    assert 'data-fact="model"' in body


def test_an_image_that_a_shift_corrects_is_a_flip_too(run: RunView, rows: pl.DataFrame) -> None:
    fixed = strips.fixed_frames(merge([run]))
    assert fixed
    own = rows.filter(~pl.col("probe"))
    for row in fixed:
        same = own.filter(model=row["model"], sample_id=row["sample_id"])
        assert same.filter(shift=CLEAN)["correct"].to_list() == [False]
        right = same.filter(pl.col("correct"), shift=row["shift"])
        assert row["right"]["severity"] == right["severity"].min()
    flips = {facts["flip"] for facts in facts_in(made(dataclasses.replace(run, image=grey)).body)}
    assert flips == {strips.BROKEN, strips.FIXED}
