"""The engines that come with the package, by name."""

from __future__ import annotations

from sorites.engines import ENGINES, Engine
from sorites.engines.local import local
from sorites.engines.processes import processes
from sorites.engines.ray import on

ENGINES.add("local", Engine(local, one_process=True, name="local"))
ENGINES.add("processes", Engine(processes, one_process=False, name="processes"))
ENGINES.add("ray", on())
