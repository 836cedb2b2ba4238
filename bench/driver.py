"""The memory of the process that starts a run: planning and scheduling a million samples for four models.

The models do nothing, and neither do the workers: every task is packed with its samples as it would be sent
to another process, and thrown away. The figure is the peak memory of a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.plan import _written

SAMPLES = 1_000_000

_DRIVE = """
import json, pickle, resource, sys, time
import numpy as np
from sorites.core import Model, Outputs
from sorites.evaluation import plan, runner
from sorites.evaluation.engines import Engine
from sorites.evaluation.tasks import Done
from sorites.suites.suite import parse

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

sent = [0, 0]

def start(units, work, workers):
    pickle.dumps(work)
    for index in range(len(units)):
        parcel = units[index]
        sent[0] += 1
        sent[1] += len(pickle.dumps(parcel))
        yield parcel, Done(hashes=((None, None, None),) * len(parcel.task.unit))

models = [f"{name}=python:nothing:logits" for name in "abcd"]
suite = parse({"name": "drive", "source": f"parquet:{sys.argv[1]}", "shifts": ["contrast"], "models": models}, "here")
made = plan.make(suite)
planned = peak()
prepared = runner.prepare(made)
begin = time.process_time()
engine = Engine(start, one_process=False, name="nothing")
runner.execute(prepared, sys.argv[2], engine=engine, workers=64, models_per_worker=2, say=print)
print(json.dumps([planned, peak(), time.process_time() - begin, *sent]))
"""
_MODEL = """
import numpy as np
def logits(images):
    return np.zeros((len(images), 1000), np.float32)
"""


def run() -> Iterator[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "nothing.py").write_text(_MODEL)
        source = _written(home, SAMPLES)
        words = [sys.executable, "-c", _DRIVE, str(source), str(home / "run")]
        done = subprocess.run(words, capture_output=True, text=True, cwd=home, env=dict(os.environ))
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
    planned, peak, seconds, tasks, size = json.loads(done.stdout.splitlines()[-1])
    yield "driver, 1 M samples x 4 models, peak memory (GB)", peak, "aim <= 1"
    yield "driver, of which after planning (GB)", planned, ""
    yield "driver, processor time of scheduling (s)", seconds, f"{tasks} tasks"
    yield "bytes sent for each sample", size / SAMPLES, "for all tasks together"
