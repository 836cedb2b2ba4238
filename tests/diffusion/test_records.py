"""The records of sliders and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core.errors import Damaged
from sorites.diffusion import sliders, words
from sorites.diffusion.records import SliderRecord, WordRecord
from sorites.io.digests import write_sealed


def test_a_record_is_read_as_it_was_written_and_fields_that_were_not_set_are_not(tmp_path: Path) -> None:
    record = SliderRecord(concept="disc", number=0, shift="snow", recipe={"rank": 4}, last_loss=0.5)
    written = {"class": "disc", "number": 0, "shift": "snow", "recipe": {"rank": 4}, "last_loss": 0.5}
    assert record.as_json() == written
    write_sealed(record.as_json(), tmp_path / sliders.RECORD)
    assert sliders.read_record(tmp_path) == record
    word = WordRecord(concept="disc", token="<disc>", images=3)
    write_sealed(word.as_json(), tmp_path / words.RECORD)
    assert words.read_record(tmp_path) == word


@pytest.mark.parametrize("wrong", [{"number": "0"}, {"recipe": []}, {"shifts": "snow"}, {"files": {"a": 1}}])
def test_a_record_with_other_fields_is_damage_that_names_the_field(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    write_sealed({"class": "disc", **wrong}, tmp_path / sliders.RECORD)
    with pytest.raises(Damaged) as damaged:
        sliders.read_record(tmp_path)
    assert next(iter(wrong)) in str(damaged.value)
