from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sorites.core.rng import digest, hashed_order, rng_for

texts = st.text(max_size=12)


def first(seed: int, sample: str, shift: str) -> list[int]:
    return [int(n) for n in rng_for(seed, sample, shift).integers(0, 2**63, 3)]


@given(st.integers(), texts, texts)
def test_the_same_trajectory_draws_the_same(seed: int, sample: str, shift: str) -> None:
    assert first(seed, sample, shift) == first(seed, sample, shift)


@given(st.tuples(st.integers(-5, 5), texts, texts), st.tuples(st.integers(-5, 5), texts, texts))
def test_another_seed_sample_or_shift_draws_otherwise(
    one: tuple[int, str, str], other: tuple[int, str, str]
) -> None:
    assert (first(*one) == first(*other)) == (one == other)


def test_streams_do_not_lean_on_each_other() -> None:
    """The first draws of ten thousand samples are as good as one stream's: uniform, and neighbours
    uncorrelated.
    """
    draws = np.array([rng_for(0, f"p{i:05d}", "noise").random() for i in range(10_000)])
    counts, _ = np.histogram(draws, 20, (0, 1))
    chi = ((counts - 500) ** 2 / 500).sum()
    assert chi < 43.8, "chi-squared of 19 degrees at 0.999"
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.035
    other = np.array([rng_for(1, f"p{i:05d}", "noise").random() for i in range(10_000)])
    assert abs(np.corrcoef(draws, other)[0, 1]) < 0.035


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_parts_do_not_run_into_each_other(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_the_hash_is_the_published_one_on_every_machine() -> None:
    """Length and text of each part through BLAKE2b, so that ids written elsewhere stay the same."""
    fed = (1).to_bytes(8, "little") + b"7" + (4).to_bytes(8, "little") + "né!".encode()
    assert digest(7, "né!") == hashlib.blake2b(fed, digest_size=16).digest()
    assert len(digest("x", size=6)) == 6


def test_a_fair_order_is_by_hash_alone() -> None:
    names = [f"p{i}" for i in range(50)]
    ordered = hashed_order(names, lambda name: ["salt", name])
    assert (
        hashed_order(names[::-1], lambda name: ["salt", name])
        == ordered
        == sorted(names, key=lambda name: digest("salt", name))
    )
    assert hashed_order(names, lambda name: [name]) != ordered
