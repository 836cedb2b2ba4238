from __future__ import annotations

import threading

import pytest

from sorites.torch_tools import one_thread

torch = pytest.importorskip("torch")


def test_torch_has_one_thread_inside_and_its_own_number_again_outside() -> None:
    before = torch.get_num_threads()
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="broken"), one_thread():
        raise ValueError("broken")
    assert torch.get_num_threads() == before


def test_every_thread_sets_its_own_number_and_gets_it_back() -> None:
    """The other thread has torch at two before, and a new one comes in while one is inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    started, go, seen = threading.Event(), threading.Event(), []

    def other(early: bool) -> None:
        if early:
            torch.get_num_threads()
            started.set()
            go.wait(10)
        with one_thread():
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    old, new = (threading.Thread(target=other, args=(early,)) for early in (True, False))
    old.start()
    started.wait(10)
    try:
        with one_thread():
            go.set()
            new.start()
            old.join(10)
            new.join(10)
        assert sorted(seen) == [1, 1, 2, 2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
