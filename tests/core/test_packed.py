"""Packed samples are the samples that went in, in any order, by any way of asking."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sorites.core import CLEAN, Attr, Generated, Sample, Setting
from sorites.core import packed as room
from sorites.core.packed import ById, PackedSamples, as_packed, concatenate, packed
from sorites.core.rng import digest


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SAMPLES_PER_BLOCK", 4)


def load(path: Path, id_: str) -> np.ndarray:
    return np.zeros((1, 1, 3), np.uint8)


def plain(count: int) -> list[Sample]:
    return [
        Sample(
            f"c/{i}.png",
            Generated(load, (Path(f"/x/c/{i}.png"), f"c/{i}.png")),
            i % 3,
        )
        for i in range(count)
    ]


def told(sample: Sample) -> tuple[object, ...]:
    """Return all fields of a sample."""
    return tuple(vars(sample).values())


MIXED = [
    *plain(6),
    Sample(
        "é/1",
        Generated(load, (Path("a"), "x")),
        None,
        frozenset({1, 2}),
        attrs=(Attr("k", "v"),),
        split="test",
    ),
    Sample(
        "s",
        Generated(load, (Path("a"), "x")),
        1,
        shift="mist",
        setting=Setting(2.0, {"a": 1}, 2),
        source="more",
    ),
    Sample(
        "t",
        Generated(load, (Path("b"), "y")),
        1,
        framed=True,
        image_id="abc",
        family="weather",
    ),
]


@pytest.mark.parametrize("samples", [plain(3), plain(4), plain(11), MIXED])
def test_what_comes_out_is_what_went_in(samples: list[Sample]) -> None:
    held = packed(iter(samples))
    assert isinstance(held, PackedSamples) == (len(samples) >= 4)
    assert [told(sample) for sample in held] == [told(sample) for sample in samples]
    assert [told(sample) for sample in held[1:3]] == [told(sample) for sample in samples[1:3]]
    assert told(held[-1]) == told(samples[-1])
    assert list(as_packed(held).ids()) == [sample.id for sample in samples]
    for place in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError):
            held[place]


def test_views_and_joins_keep_order() -> None:
    one, two = as_packed(packed(plain(11))), as_packed(packed(MIXED))
    both = concatenate([one.take([10, 0, 7]), two])
    assert [told(sample) for sample in both] == [told(plain(11)[i]) for i in (10, 0, 7)] + [
        told(sample) for sample in MIXED
    ]
    assert list(both[1:4].ids()) == ["c/0.png", "c/7.png", "c/0.png"]
    assert [sample.id for sample in two.where(lambda sample: sample.shift != CLEAN)] == ["s"]
    assert one.plain()
    assert not two.plain()
    assert [
        sample.label for sample in one.changed(lambda sample: Sample(sample.id, sample.image, 9))[:2]
    ] == [
        9,
        9,
    ]


def test_heads_are_those_of_the_digest_and_order_as_it_does() -> None:
    held = as_packed(packed(MIXED))
    heads = held.heads()
    assert [int(head).to_bytes(8, "big") for head in heads] == [digest(sample.id)[:8] for sample in MIXED]
    assert [MIXED[i].id for i in np.argsort(heads)] == sorted((s.id for s in MIXED), key=digest)


@pytest.mark.parametrize("count", [3, 40])
def test_samples_are_found_by_their_id(count: int) -> None:
    samples = [*plain(count), Sample("twice", Generated(load)), Sample("twice", Generated(load), 5)]  # type: ignore[arg-type]
    found = ById(as_packed(packed(samples)))
    assert [found[sample.id].label for sample in samples[:-2]] == [sample.label for sample in samples[:-2]]
    assert found["twice"].label == 5
    assert len(found) == len(set(found)) == count + 1
    assert ("c/1.png" in found, "c/-1.png" in found, 7 in found) == (True, False, False)
    with pytest.raises(KeyError):
        found["none"]


def test_a_stream_is_never_held_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SAMPLES_PER_BLOCK", 1000)

    def stream(count: int) -> Iterator[Sample]:
        yield from (
            Sample(
                f"c/{i:07d}",
                Generated(load, (Path("t"), f"c/{i:07d}")),
                i % 9,
            )
            for i in range(count)
        )

    tracemalloc.start()
    held = packed(stream(20_000))
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held) == 20_000
    assert size < 20_000 * 120
    assert peak < size + 1000 * 3000


def mixed(count: int) -> list[Sample]:
    """Samples of three shifts in runs of five, so that some blocks have one shift and others two."""
    shifts = (CLEAN, "fog", "rain")
    return [
        Sample(sample.id, sample.image, sample.label, shift=shifts[i // 5 % 3], setting=Setting(1.0))
        for i, sample in enumerate(plain(count))
    ]


@pytest.mark.parametrize("count", [0, 3, 40])
def test_views_by_a_field_are_those_of_the_samples(count: int) -> None:
    samples = mixed(count)
    views = [as_packed(packed(samples)), as_packed(packed(samples))[::-3]]
    for view in views:
        wanted: dict[str, list[str]] = {}
        for sample in view:
            wanted.setdefault(sample.shift, []).append(sample.id)
        found = view.by("shift")
        assert list(found) == list(wanted)
        assert {shift: list(part.ids()) for shift, part in found.items()} == wanted
        assert list(view.having("label").ids()) == [sample.id for sample in view if sample.label]
    changed = views[0].changed(lambda sample: Sample(sample.id, sample.image, shift="snow"))
    assert list(changed.by("shift")) == ["snow"] * bool(count)


def test_views_by_a_field_build_no_samples_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    view = as_packed(packed(mixed(41)))
    built: list[int] = []
    build = room.Block.__getitem__
    monkeypatch.setattr(
        room.Block, "__getitem__", lambda self, index: built.append(index) or build(self, index)
    )
    view.by("shift")
    view.having("dials")
    assert not built
    list(view)
    assert len(built) == 40
