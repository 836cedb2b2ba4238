"""Registration of the built-in engines."""

from __future__ import annotations

from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.engines.local import local, processes
from sorites.evaluation.engines.ray import ray_engine

ENGINES.add("local", Engine(local, one_process=True, name="local"))
ENGINES.add("processes", Engine(processes, one_process=False, name="processes"))
ENGINES.add("ray", ray_engine())
