"""The whole path in the virtual studio: capture, run, report."""

from __future__ import annotations

from pathlib import Path

from sorites.cli.output import say

SIDE = 375
"""The shorter side of the demo's pictures, px: the camera's frame then has about as many pixels as they."""


def run_demo(out: Path, source: str, limit: int, grid: str, auto: int, megapixels: float, model: str, browser: bool) -> None:
    """Capture some pictures virtually, judge the photographs with a model and write the report."""
    from sorites.pipeline.run import run
    from sorites.progress import bars
    from sorites.reports.report import report
    from sorites.studio.capture import Options
    from sorites.studio.capturing import Job, capture_all
    from sorites.studio.devices import Wanted

    job = Job(
        source, out, grid, auto, limit, None, Wanted(browser=browser, megapixels=megapixels), Options(originals="drop"), side=SIDE
    )
    say("virtual studio: a CCAPI camera, a Hue bridge and a television on this machine; no real device is used", err=True)
    with bars() as bar:
        done = capture_all(job, lambda text: say(text, err=True), bar)
        run("imagenet_es", source=f"imagenet_es:{out}", models=[model], labels="imagenet", out=out / "run", bar=bar)
    say("\n".join(done.lines()))
    page = report([out / "run"], out / "report.html")
    say(f"wrote {page}\nnext: open it in a browser, or: sorites studio sheets {out}", err=True)
