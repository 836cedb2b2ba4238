"""Where units run. An engine takes units and a function of one unit, and yields each unit as it is done, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sorites.plan import Unit
from sorites.registry import Registry

Engine = Callable[[Sequence[Unit], Callable[[Unit], None], int], Iterator[Unit]]
ENGINES: Registry[Engine] = Registry("engine", "sorites.engines.local")
