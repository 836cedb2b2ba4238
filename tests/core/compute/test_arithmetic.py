"""The settings of torch that change numbers: set while a block runs, the same for all threads, restored after."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from sorites.core.compute.arithmetic import EXACT, Flags, exact, read_flags, reproducible, write_flags  # noqa: E402

backends = torch.backends


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = read_flags()
    yield
    write_flags(before)
    assert read_flags() == before


def is_exact() -> bool:
    flags = read_flags()
    return set(flags.precisions) <= {EXACT} and flags.cudnn and not flags.benchmark


def test_tf32_and_timed_kernels_are_off_inside_and_as_before_outside() -> None:
    torch.set_float32_matmul_precision("medium")
    backends.cudnn.benchmark, backends.cudnn.allow_tf32 = True, True
    before = read_flags()
    with exact():
        assert is_exact()
        assert not backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match="broken"), exact():
        raise ValueError("broken")
    assert read_flags() == before


def test_off_the_cpu_operations_are_deterministic_where_torch_can() -> None:
    with exact("cuda:1"):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_training_may_use_tf32_but_not_while_a_model_is_evaluated() -> None:
    torch.set_float32_matmul_precision("high")
    with exact(tf32=True):
        assert torch.get_float32_matmul_precision() == "high"
        assert backends.cudnn.deterministic
        with exact():
            assert is_exact()
        assert torch.get_float32_matmul_precision() == "high"


@pytest.mark.skipif(not hasattr(backends, "fp32_precision"), reason="torch before 2.9 has one interface")
@pytest.mark.parametrize("name", ["conv", "rnn"])
def test_a_model_that_uses_the_new_interface_alone_is_no_error(name: str) -> None:
    getattr(backends.cudnn, name).fp32_precision = "ieee"
    with pytest.raises(RuntimeError):  # why cudnn.flags(...) cannot be used
        _ = backends.cudnn.allow_tf32
    before = read_flags()
    assert before.older is None
    with exact():
        assert is_exact()
    assert read_flags() == before


@pytest.mark.skipif(not hasattr(backends, "fp32_precision"), reason="torch before 2.9 has one interface")
def test_a_model_may_set_flags_while_it_runs() -> None:
    before = read_flags()
    with exact():
        backends.cudnn.conv.fp32_precision = "tf32"
        with exact():
            assert is_exact()
    assert read_flags() == before
    with exact(), backends.cudnn.flags(enabled=True, allow_tf32=True):
        assert backends.cudnn.allow_tf32
    assert read_flags() == before


def test_threads_that_enter_and_leave_never_see_flags_of_others() -> None:
    torch.set_float32_matmul_precision("high")
    backends.cudnn.benchmark = True
    before, wrong, start = read_flags(), list[Flags](), threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(60):
            with exact():
                if turn % 7 == number % 7:
                    time.sleep(0.0005)
                if not is_exact():
                    wrong.append(read_flags())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert read_flags() == before


def test_reproducible_is_exact_on_one_thread(two_torch_threads: None) -> None:
    with reproducible():
        assert is_exact()
        assert torch.get_num_threads() == 1
