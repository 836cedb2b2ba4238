"""A real Ray cluster of two nodes on this machine, with ports, a token and a folder of its own,
stopped by process id.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

WAIT = 90.0
"""Seconds that the cluster has to start."""


def free_port() -> int:
    """Return a port that is free now, outside the range that Ray gives to its workers."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            if not 10002 <= port <= 19999:
                return port


@dataclass
class Cluster:
    """Two nodes of some CPUs each; ``env`` is what a driver needs to reach them."""

    address: str
    env: dict[str, str]
    temp: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def second_raylet(self) -> int:
        """Return the process id of the second node's raylet."""
        return next(pid for pid in _children(self.started[1].pid) if "raylet" in _command(pid).split(" ")[0])

    def workers(self) -> list[int]:
        """Return the process ids of the workers that have begun a unit."""
        return [
            pid
            for node in self.started
            for pid in _below(node.pid)
            if _command(pid).startswith("ray::Worker")
        ]


def _node(cluster: Cluster, words: list[str], low: int) -> None:
    ports = ["--min-worker-port", str(low), "--max-worker-port", str(low + 99)]
    for name in (
        "node-manager",
        "object-manager",
        "dashboard-agent-grpc",
        "runtime-env-agent",
        "metrics-export",
    ):
        ports += [f"--{name}-port", str(free_port())]
    ports += ["--dashboard-agent-listen-port", str(free_port())]
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--block",
        "--num-cpus",
        "2",
        "--disable-usage-stats",
    ]
    command += ["--object-store-memory", str(80 << 20), "--node-ip-address", "127.0.0.1", *words, *ports]
    with (cluster.temp / f"node{len(cluster.started)}.log").open("wb") as log:
        cluster.started.append(
            subprocess.Popen(
                command, env=cluster.env, cwd=cluster.temp, stdout=log, stderr=log, start_new_session=True
            )
        )


@contextmanager
def two_nodes(temp: Path) -> Iterator[Cluster]:
    """Start a head and a second node, and end every process of both by its id when done."""
    port = free_port()
    env = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    env |= {
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
        "RAY_ADDRESS": "",
    }
    env["RAY_worker_niceness"] = "0"
    env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
    cluster = Cluster(f"127.0.0.1:{port}", env, temp)
    try:
        _node(
            cluster,
            ["--head", "--port", str(port), "--temp-dir", str(temp), "--include-dashboard=false"],
            20000,
        )
        _wait(cluster, 1)
        _node(cluster, ["--address", cluster.address], 20200)
        _wait(cluster, 2)
        yield cluster
    finally:
        _setting(cluster)


def _wait(cluster: Cluster, nodes: int) -> None:
    """Wait until so many nodes answer, asked by a process of its own."""
    ask = (
        "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR');"
        " print(len(ray.nodes()))"
    )
    until = time.monotonic() + WAIT
    said = ""
    while time.monotonic() < until:
        done = subprocess.run(
            [sys.executable, "-c", ask, cluster.address],
            env=cluster.env,
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
        said = done.stderr
        if done.stdout.split()[-1:] == [str(nodes)]:
            return
        time.sleep(0.5)
    logs = "".join(path.read_text(errors="replace")[-2000:] for path in cluster.temp.glob("node*.log"))
    raise TimeoutError(f"{nodes} nodes did not start in {WAIT:.0f} s: {said[-2000:]} {logs}")


def _setting(cluster: Cluster) -> None:
    below = [pid for node in cluster.started for pid in [*_below(node.pid), node.pid]]
    for pid in below:
        _end(pid)
    for node in cluster.started:
        node.wait(30)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _below(pid: int) -> list[int]:
    return [found for child in _children(pid) for found in (child, *_below(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
