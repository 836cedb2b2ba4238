"""The command: hashes are made and written, or compared with those written before."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS")
"""Set to one, before any library is loaded: a sum that is shared out among threads depends on how many there are."""


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.net", description="Hashes of everything that Sorites computes.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="FILE", help="write the hashes")
    what.add_argument(
        "--against", type=Path, metavar="FILE", help="compare with hashes written before; differences are exit code 1"
    )
    parser.add_argument("--only", default="", metavar="PREFIX", help="only names that start so")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="tasks at a time (default: %(default)s)")
    asked = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))
    from tests.net.tasks import computed

    found = computed(asked.only, asked.processes)
    if asked.against is not None:
        before = json.loads(asked.against.read_text(encoding="utf-8"))
        return compare({name: digest for name, digest in before.items() if name.startswith(asked.only)}, found)
    asked.out.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    failed = [f"{name}: {digest}" for name, digest in found.items() if name.endswith("(raised)")]
    print(*failed, f"wrote {len(found)} hashes to {asked.out}", sep="\n")
    return int(bool(failed))


def compare(before: dict[str, str], now: dict[str, str]) -> int:
    """Say every name that differs, is new or is gone; 1 if there is one."""
    both = before.keys() & now.keys()
    told = {name: "differs" for name in both if before[name] != now[name]}
    told |= dict.fromkeys(now.keys() - both, "is new") | dict.fromkeys(before.keys() - both, "is gone")
    for name, how in sorted(told.items()):
        print(f"{how}: {name}" + (f" ({now[name]})" if name.endswith("(raised)") and name in now else ""))
    print(
        f"{len(told)} of {len(before.keys() | now.keys())} hashes are not as they were"
        if told
        else f"{len(now)} hashes, all equal"
    )
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
