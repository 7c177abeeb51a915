"""Nodes as they run in production: `fencepost node` with its supervisor, on Postgres and nats-server.

What they weigh while runs sleep, and how soon runs go on when one is killed: its process only (the supervisor knows
at once), or everything of it (a machine; its lease has to run out).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import psutil

from fencepost.client import Client

from . import flows
from .sleeping import AWHILE_S, PASSIVE_S_MAX, resting
from .stack import NAMESPACE, Servers, serving
from .workloads import bounded

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable

    from .workloads import Size

ROOT: Final = Path(__file__).resolve().parent.parent
APP: Final = "from bench.flows import new_app\n\napp = new_app()\n"
READY_S: Final = 60.0
BEATS: Final = 60
PAUSE_S: Final = 0.05
"""A step every so often: how long one is away is seen as a longer pause between two."""
BEFORE_S: Final = 1.5
SPARE_S: Final = 8.0
"""Until a supervisor's second process has imported what it needs; killed before, a node is away that much longer."""


@dataclass(slots=True)
class NodeProcess:
    """One `fencepost node` in a folder of its own."""

    folder: Path
    servers: Servers
    name: str
    lease_s: float
    child: int = 0
    """The process that serves; its parent is the supervisor."""
    _process: Process | None = None
    _reader: asyncio.Task[None] | None = None
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True)
        (self.folder / "app.py").write_text(APP, encoding="utf-8")
        with (self.folder / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_command(),
                "app.py",
                "--json",
                cwd=self.folder,
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self._reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError:
            await self.__aexit__()
            said = (self.folder / "log").read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"the node was not ready: {' | '.join(said[-3:])}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 15)
        if self._process.returncode is None:
            self.kill_all()
            await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()

    @property
    def pids(self) -> list[int]:
        """The node process and its supervisor."""
        assert self._process is not None
        return [self.child, self._process.pid]

    @property
    def family(self) -> list[int]:
        """All processes of the node, the one that waits to replace its first included."""
        assert self._process is not None
        root = psutil.Process(self._process.pid)
        return [root.pid, *(one.pid for one in root.children(recursive=True))]

    def kill_child(self) -> None:
        """End the node process as a crash would."""
        os.kill(self.child, signal.SIGKILL)

    def kill_all(self) -> None:
        """End both as a lost machine would, the supervisor first: it is not to know."""
        for pid in reversed(self.pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                told: dict[str, Any] = json.loads(line)
                if "pid" in told and told.get("node") == self.name:
                    self.child = int(told["pid"])
                    self._ready.set()

    def _environment(self) -> dict[str, str]:
        assert self.servers.nats is not None
        assert self.servers.postgres is not None
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        return clean | {
            "FENCEPOST_NATS_URL": self.servers.nats.url,
            "FENCEPOST_DATABASE_URL": self.servers.postgres.url,
            "FENCEPOST_NAMESPACE": NAMESPACE,
            "FENCEPOST_NODE_NAME": self.name,
            "FENCEPOST_LEASE": f"{self.lease_s:g}s",
            "FENCEPOST_LOG_LEVEL": "warning",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }


def _command() -> list[str]:
    beside = Path(sys.executable).with_name("fencepost")
    found = str(beside) if beside.exists() else shutil.which("fencepost")
    if found is None:
        raise RuntimeError("the fencepost command is not installed")
    return [found, "node"]


# ---- at rest


async def rest(folder: Path, size: Size) -> dict[str, float]:
    """Look at a node process alone, then at the same one with sleeping runs."""
    async with (
        serving("stack", folder) as servers,
        NodeProcess(folder / "node", servers, "bench", size.lease_s) as node,
    ):
        assert servers.nats is not None
        async with Client.connect(servers.nats.url, NAMESPACE) as client:
            await (await client.start(flows.sequence, 10)).result()
            await asyncio.sleep(SPARE_S)
            idle = await resting(node.pids[:1], servers, size.idle_s)
            spare = [pid for pid in node.family if pid not in node.pids]
            spares_mb = (await resting(spare, servers, 0.1))["memory_mb"]
            supervisor = await resting(node.pids[1:], servers, size.idle_s / 10)
            await bounded((lambda: client.start(flows.sleeper, AWHILE_S) for _ in range(size.sleepers)), 50)
            passive_s = await _passive(client, size.sleepers)
            full = await resting(node.pids[:1], servers, size.idle_s)
    return {
        "runs": float(size.sleepers),
        "passive_after_s": passive_s,
        "memory_mb": full["memory_mb"] - idle["memory_mb"],
        "memory_idle_node_mb": idle["memory_mb"],
        "memory_supervisor_mb": supervisor["memory_mb"],
        "memory_spare_mb": spares_mb,
        "cpu_pct": full["cpu_pct"],
        "cpu_idle_node_pct": idle["cpu_pct"],
        "nats_cpu_pct": full["nats_cpu_pct"],
        "postgres_cpu_pct": full["postgres_cpu_pct"],
        "postgres_cpu_idle_node_pct": idle["postgres_cpu_pct"],
    }


async def _passive(client: Client, sleepers: int) -> float:
    """Wait until every run sleeps and no coroutine is left; return how long that took."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < PASSIVE_S_MAX:
        told = await client.info()
        if not told["live_runs"] and told["runs"]["running"] >= sleepers:
            break
        await asyncio.sleep(0.1)
    return time.monotonic() - began_s


# ---- killed


async def kill(folder: Path, size: Size) -> dict[str, float]:
    """Kill a node's process, then (of two nodes) a node with its supervisor, while runs do a step each moment."""
    async with serving("stack", folder) as servers:
        async with NodeProcess(folder / "a", servers, "a", size.lease_s) as node:
            await asyncio.sleep(SPARE_S)
            child_s = await _away_s(node, size.hit, BEATS + int(5 / PAUSE_S), node.kill_child)
        async with (
            NodeProcess(folder / "b", servers, "b", size.lease_s) as node,
            NodeProcess(folder / "c", servers, "c", size.lease_s),
        ):
            await asyncio.sleep(SPARE_S)  # until partitions are shared
            beats = BEATS + int((size.lease_s + 5) / PAUSE_S)
            machine_s = await _away_s(node, size.hit, beats, node.kill_all)
    return {
        "runs": float(size.hit),
        "child_hit": float(len(child_s)),
        "child_median_s": statistics.median(child_s),
        "child_worst_s": max(child_s),
        "lease_s": size.lease_s,
        "machine_hit": float(len(machine_s)),
        "machine_median_s": statistics.median(machine_s),
        "machine_worst_s": max(machine_s),
        "machine_beyond_s": max(machine_s) - size.lease_s,
    }


async def _away_s(node: NodeProcess, runs: int, beats: int, hit: Callable[[], None]) -> list[float]:
    """Return for each run that was on the node how long after the kill it began its next step."""
    assert node.servers.nats is not None
    pid = node.child
    async with Client.connect(node.servers.nats.url, NAMESPACE) as client:
        handles = [await client.start(flows.pulse, beats, PAUSE_S) for _ in range(runs)]
        await asyncio.sleep(BEFORE_S)
        at_s = time.time()
        hit()
        pulses = await asyncio.gather(*(handle.result() for handle in handles))
    away_s = list[float]()
    for pulse in pulses:
        before = [where for began_s, where in pulse if began_s < at_s]
        after_s = [began_s for began_s, _ in pulse if began_s > at_s]
        if before and before[-1] == pid and after_s:
            away_s.append(after_s[0] - at_s)
    if not away_s:
        raise RuntimeError("no run was on the node that was killed")
    return away_s
