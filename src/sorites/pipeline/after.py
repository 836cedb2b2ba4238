"""Write the facts that are learnt of a run's images once all are seen: levels from the source, degrees that the suite wants."""

from __future__ import annotations

from pathlib import Path

from sorites.engines import Engine
from sorites.pipeline.distance import distance_of_run, write_published_levels
from sorites.pipeline.plan import Plan
from sorites.pipeline.similarity import measure_images
from sorites.progress import Bar


def learn(plan: Plan, folder: Path, *, engine: Engine, workers: int, bar: Bar | None = None) -> None:
    """Write the facts of a finished run that its suite asks for; what is there already is not measured again."""
    write_published_levels(plan, folder)
    if plan.suite.distance:
        distance_of_run(plan, folder, plan.suite.distance, bar)
    if plan.suite.similarity or plan.suite.lpips_below is not None:
        measure_images(
            plan, folder, plan.suite.similarity, lpips_below=plan.suite.lpips_below, engine=engine, workers=workers, bar=bar
        )
