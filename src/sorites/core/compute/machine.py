"""Resources of this machine: cores of the process, and GPUs with their drivers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

# Where the driver of NVIDIA describes itself on Linux.
NVIDIA = Path("/proc/driver/nvidia/version")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_facts(device: str, driver: Path = NVIDIA) -> dict[str, str]:
    """Return what results on a GPU may depend on; empty for other devices.

    Args:
        device: A torch device, such as ``cuda:1``.
        driver: The file in which the driver describes itself.

    Returns:
        The name of the GPU and the versions of CUDA and cuDNN, if torch is imported, and of the driver.
    """
    if not device.startswith("cuda"):
        return {}
    facts: dict[str, object] = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["name"] = torch.cuda.get_device_name(device)
        facts["cuda"], facts["cudnn"] = torch.version.cuda, torch.backends.cudnn.version()
    if driver.is_file() and (found := re.search(r"Module.*?(\d+(?:\.\d+)+)", driver.read_text())):
        facts["driver"] = found[1]
    return {name: str(fact) for name, fact in facts.items() if fact}
