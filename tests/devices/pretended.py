"""A pretended device for tests on machines without a GPU.

Within ``pretended("cuda")``, tensors that are moved to ``cuda`` say that they are there and still hold real
numbers. Torch's rules for devices hold: an operation on tensors of two devices raises ``MixedDevices``, and
with ``pretended("mps")`` a tensor of 64-bit floats on the device raises ``NoFloat64``. The numbers are those of
the CPU, so a test can compare them. There may be several devices, which do not mix either. The pretence holds
in the thread that began it, and in threads that are started within.

A copy to the host that does not block arrives when an event after it is awaited, as on a GPU; until then the
memory of the host has other numbers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

# Torch has no kernels for a device that does not exist, so that tensors are of this one inside torch.
INSIDE = "meta"
WIDE = (torch.float64, torch.complex128)
# Operations whose index tensors may be on the CPU.
INDEXED = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}


class MixedDevices(RuntimeError):
    """An operation got tensors of two devices."""


class NoFloat64(RuntimeError):
    """A tensor of 64-bit floats was made on a device that has none."""


@dataclass
class Counts:
    """What was moved: copies to the device and from it, bytes to it, and how often the host waited; and the
    operations on the device.
    """

    to_device: int = 0
    from_device: int = 0
    bytes_to_device: int = 0
    syncs: int = 0
    operations: int = 0


class Far(torch.Tensor):
    """A tensor that says it is on the device; ``near`` has its numbers."""

    near: torch.Tensor
    index: int

    @staticmethod
    def __new__(cls, near: torch.Tensor, index: int) -> Far:
        if near.dtype in WIDE and _now.kind == "mps":
            raise NoFloat64(f"{near.dtype} of shape {tuple(near.shape)}: mps has no 64-bit floats")
        far = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, near.shape, strides=near.stride(), storage_offset=near.storage_offset(), dtype=near.dtype,
            layout=near.layout, device=torch.device(INSIDE, index),
        )  # fmt: skip
        far.near, far.index = near, index
        return far

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Far({tuple(self.shape)}, {self.dtype}, {self.index})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Now:
    """The pretence that is running."""

    kind = ""
    counts = Counts()
    # Copies to the host that have been started and not awaited.
    copies: list[Callable[[], object]] = []  # noqa: RUF012


_now = _Now()


class Event:
    """An event of a stream: waiting for it completes the copies that were started before it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._copies: list[Callable[[], object]] = []

    def record(self, stream: Any = None) -> None:
        self._copies, _now.copies = _now.copies, []

    def synchronize(self) -> None:
        _now.counts.syncs += 1
        for copy in self._copies:
            copy()


def is_far(device: object) -> bool:
    """Return whether a device, or its name, is the pretended one."""
    if device is None:
        return False
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    return kind in (_now.kind, "meta")


def index_of(device: object) -> int:
    """Return the number of a device, 0 if it has none."""
    return torch.device(str(device)).index or 0


def _near(obj: Any) -> Any:
    return obj.near if isinstance(obj, Far) else obj


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run one operation of torch on the numbers, and return a tensor of the device if it belongs there."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        with _Dispatch():
            return func.decompose(*args, **kwargs)
    name = func._schema.name.partition("::")[2]
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
    far = [t for t in tensors if isinstance(t, Far)]
    device = kwargs.get("device")
    if name == "_local_scalar_dense":
        _now.counts.from_device += bool(far)
        _now.counts.syncs += bool(far)
        return func(_near(args[0]))
    if name == "_to_copy":
        return _moved(func, args[0], kwargs)
    if name == "copy_":
        return _copied(func, *args, **kwargs)
    _check(name, func, args, tensors, far)
    belongs = bool(far) if device is None else is_far(device)
    if not belongs and not far:
        return func(*args, **kwargs)
    if belongs and kwargs.get("generator") is not None:
        raise MixedDevices(f"{func}: a generator of the CPU draws on the device")
    _now.counts.operations += 1
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    # Within an operation torch ignores the marks of tensors that are conjugated or negated later.
    func = {"_conj": torch.conj_physical, "_neg_view": torch.neg}.get(name, func)
    result = func(*tree_map(_near, args), **tree_map(_near, kwargs))
    known = {id(t.near): t for t in far}
    index = far[0].index if device is None else index_of(device)

    def wrap(t: Any) -> Any:
        return known.get(id(t)) if id(t) in known else Far(t, index) if isinstance(t, torch.Tensor) else t

    return tree_map(wrap, result) if belongs else result


def _copied(func: Any, target: torch.Tensor, source: torch.Tensor, later: bool = False) -> torch.Tensor:
    """Copy numbers into a tensor; to the host, later if that was asked for."""
    if isinstance(source, Far) and not isinstance(target, Far):
        _now.counts.from_device += 1
        _now.counts.syncs += not later
        if later:
            target.fill_(torch.nan if target.is_floating_point() else 0)
            _now.copies.append(lambda: func(target, source.near))
            return target
    func(_near(target), _near(source))
    return target


def _moved(func: Any, source: torch.Tensor, kwargs: Any) -> torch.Tensor:
    device = kwargs.get("device")
    to_far = is_far(device) or (device is None and isinstance(source, Far))
    index = source.index if device is None and isinstance(source, Far) else index_of(device or INSIDE)
    plain = {**kwargs, "device": torch.device("cpu"), "pin_memory": None}
    result: torch.Tensor = func(_near(source), **{k: v for k, v in plain.items() if v is not None})
    if to_far and not isinstance(source, Far):
        _now.counts.to_device += 1
        _now.counts.bytes_to_device += result.nbytes
    _now.counts.from_device += isinstance(source, Far) and not to_far
    _now.counts.syncs += isinstance(source, Far) and not to_far
    return Far(result, index) if to_far else result


def _check(name: str, func: Any, args: Any, tensors: list[Any], far: list[Far]) -> None:
    """Raise ``MixedDevices`` as torch would; numbers without dimensions and indices may be on the CPU."""
    if name in INDEXED:
        tensors = [args[0], *(t for t in tensors if t is not args[0] and t.is_floating_point())]
        far = [t for t in far if t is not args[0] and not isinstance(args[0], Far)] or far
    near = [t for t in tensors if not isinstance(t, Far) and t.dim()]
    if len({t.index for t in far if t.dim()}) > 1:
        raise MixedDevices(f"{func}: on the devices {[t.index for t in far]}")
    if far and near:
        shapes = [tuple(t.shape) for t in near]
        raise MixedDevices(f"{func}: on the device {[tuple(t.shape) for t in far]}, on the CPU {shapes}")


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Function(TorchFunctionMode):
    """Replaces the pretended device by that inside torch, and tells the pretended one outside."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        attribute = getattr(func, "__self__", None)
        if attribute is torch.Tensor.device and isinstance(args[0], Far):
            return torch.device(_now.kind, args[0].index)
        if attribute is torch.Tensor.is_meta and isinstance(args[0], Far):
            return False
        if func is torch.Tensor.tolist and isinstance(args[0], Far):
            _now.counts.from_device += 1
            _now.counts.syncs += 1
            return args[0].near.tolist()
        if func is torch.Tensor.numpy and isinstance(args[0], Far):
            raise TypeError(f"can't convert {_now.kind}:{args[0].index} device type tensor to numpy")
        if func is torch.device:
            return func(*args, **kwargs)
        args, kwargs = _swapped(args), {key: _swap(value) for key, value in kwargs.items()}
        kwargs.pop("pin_memory", None)
        if func in (torch.tensor, torch.as_tensor) and is_far(kwargs.get("device")):
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[1], list):
            args = (args[0], torch.tensor(args[1]), *args[2:])  # torch would make the indices on the device
        if func is torch.Tensor.new_tensor and isinstance(args[0], Far):
            far = torch.device(INSIDE, args[0].index)
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs}).to(far)
        return func(*args, **kwargs)


def _swapped(args: Any) -> tuple[Any, ...]:
    return tuple(_swap(value) for value in args)


def _swap(value: Any) -> Any:
    is_name = isinstance(value, str) and value.partition(":")[0] == _now.kind
    is_device = isinstance(value, torch.device) and value.type == _now.kind
    return torch.device(INSIDE, index_of(value)) if is_name or is_device else value


@contextlib.contextmanager
def _fork_rng(*_: Any, **__: Any) -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _inference_mode(mode: bool = True) -> contextlib.AbstractContextManager[Any]:
    """Return a block without gradients: views of weights cannot be made of such tensors in inference mode."""
    return torch.no_grad() if mode else contextlib.nullcontext()


@contextlib.contextmanager
def pretended(kind: str = "cuda", devices: int = 1) -> Iterator[Counts]:
    """Pretend that this machine has devices of a kind, ``cuda`` or ``mps``, and count what is moved."""
    cuda, run = torch.cuda, threading.Thread.run

    def run_within(thread: threading.Thread) -> None:
        with _Dispatch(), _Function():
            run(thread)

    patches: list[Any] = [
        mock.patch.object(torch.random, "fork_rng", _fork_rng),
        mock.patch.object(torch, "inference_mode", _inference_mode),
        mock.patch.object(threading.Thread, "run", run_within),
    ]
    if kind == "cuda":
        patches += [
            mock.patch.object(cuda, "is_available", return_value=True),
            mock.patch.object(cuda, "device_count", return_value=devices),
            mock.patch.object(cuda, "is_bf16_supported", return_value=True),
            mock.patch.object(cuda, "get_device_name", return_value="a pretended GPU"),
            mock.patch.object(cuda, "current_stream", return_value=None),
            mock.patch.object(cuda, "Event", Event),
            mock.patch.object(torch.Tensor, "pin_memory", lambda tensor: tensor),
        ]
    else:
        patches.append(mock.patch.object(torch.backends.mps, "is_available", return_value=True))
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        _now.kind, _now.counts, _now.copies = kind, Counts(), []
        stack.callback(setattr, _now, "kind", "")
        stack.enter_context(_Dispatch())
        stack.enter_context(_Function())
        yield _now.counts
