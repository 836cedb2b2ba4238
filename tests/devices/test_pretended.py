"""The pretended device follows torch's rules for devices."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.devices.pretended import MixedDevices, NoFloat64, pretended  # noqa: E402


def test_numbers_are_those_of_the_cpu_and_moves_are_counted() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with pretended() as counts:
        far = x.to("cuda")
        assert far.device == torch.device("cuda:0")
        assert counts.to_device == 1
        y = (far @ far.T).softmax(1)
        assert y.device.type == "cuda"
        assert float(far[1, 2]) == 5.0
        back = y.cpu()
        assert back.device.type == "cpu"
        assert counts.from_device == 2
        with pytest.raises(TypeError, match="cuda"):
            y.numpy()
    np.testing.assert_array_equal(back.numpy(), (x @ x.T).softmax(1).numpy())


def test_two_devices_in_one_operation_are_an_error() -> None:
    with pretended():
        far, near = torch.ones(3, device="cuda"), torch.ones(3)
        for mix in (lambda: far + near, lambda: torch.cat([near, far]), lambda: near[far.long()]):
            with pytest.raises(MixedDevices):
                mix()
        assert (far * torch.tensor(2.0)).sum().item() == 6  # a number of the CPU is allowed
        assert far[near.long()].sum().item() == 3  # and so are indices


def test_gradients_and_modules_stay_on_the_device() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2)
    )
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    (expected,) = torch.autograd.grad(net(x).sum(), x)
    with pretended():
        far = x.detach().to("cuda").requires_grad_()
        (gradient,) = torch.autograd.grad(net.to("cuda")(far).sum(), far)
        assert gradient.device.type == "cuda"
        found = gradient.cpu().numpy()
    np.testing.assert_array_equal(found, expected.numpy())


def test_mps_has_no_64_bit_floats() -> None:
    with pretended("mps"):
        far = torch.ones(3, device="mps")
        for wide in (far.double, lambda: torch.ones(2, dtype=torch.float64).to("mps")):
            with pytest.raises(NoFloat64):
                wide()
        assert far.cpu().double().sum().item() == 3
