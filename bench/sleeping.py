"""Many sleeping runs: what they cost while they sleep, and how soon a node that starts among them is of use."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from typing import TYPE_CHECKING, Final

import psutil

from . import flows
from .noise import own
from .stack import opened
from .workloads import bounded, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .stack import Servers, Stack
    from .workloads import Size

AWHILE_S: Final = 3600.0
PASSIVE_S_MAX: Final = 120.0
POLL_S: Final = 0.1


async def fall_asleep(pair: str, folder: Path, size: Size) -> dict[str, float]:
    """Create sleeping runs, wait until their coroutines are gone, and look at memory and CPU."""
    async with opened(pair, folder) as stack:
        await run(stack, flows.sequence, 10)
        idle = await _resting(stack, size.idle_s)
        began_s = time.perf_counter()
        await bounded((lambda: stack.client.start(flows.sleeper, AWHILE_S) for _ in range(size.sleepers)), 50)
        created_s = time.perf_counter() - began_s
        passive_s = await _passive(stack, size.sleepers)
        full = await _resting(stack, size.idle_s)
    return {
        "runs": float(size.sleepers),
        "create_s": created_s,
        "passive_after_s": passive_s,
        "memory_mb": full["memory_mb"] - idle["memory_mb"],
        "memory_idle_node_mb": idle["memory_mb"],
        "cpu_pct": full["cpu_pct"],
        "cpu_idle_node_pct": idle["cpu_pct"],
        "nats_cpu_pct": full["nats_cpu_pct"],
        "postgres_cpu_pct": full["postgres_cpu_pct"],
        "postgres_cpu_idle_node_pct": idle["postgres_cpu_pct"],
        "file_mb": _size_mb(folder),
    }


def _size_mb(folder: Path) -> float:
    """Return the size of the SQLite world's files."""
    return sum(file.stat().st_size for file in folder.glob("world.db*")) / 1e6


async def _passive(stack: Stack, sleepers: int) -> float:
    """Wait until every run sleeps and no coroutine is left; return how long that took after the last creation."""
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < PASSIVE_S_MAX:
        counted = await stack.store.count()
        if not stack.node.facts()["live_runs"] and counted["running"] >= sleepers:
            break
        await asyncio.sleep(POLL_S)
    return time.perf_counter() - began_s


async def _resting(stack: Stack, over_s: float) -> dict[str, float]:
    """Return memory of this process, and the CPU it and the servers use while nothing is asked."""
    gc.collect()
    return await resting([os.getpid()], stack.servers, over_s)


async def resting(pids: Sequence[int], servers: Servers, over_s: float) -> dict[str, float]:
    """Return the memory of processes, and the CPU they and the servers (with all they started) use over a while."""
    nats, postgres = ([one.pid] if one is not None and one.pid else [] for one in (servers.nats, servers.postgres))
    groups = {"": list(pids), "nats_": nats, "postgres_": postgres}
    before = {name: own(group) for name, group in groups.items()}
    await asyncio.sleep(over_s)
    used = {f"{name}cpu_pct": 100 * (own(group) - before[name]) / over_s for name, group in groups.items()}
    return {"memory_mb": sum(psutil.Process(pid).memory_full_info().uss for pid in pids) / 1e6, **used}


async def wake_among(pair: str, folder: Path, began_at: float) -> dict[str, float]:
    """Open what is there and run one new run; `began_at` is when this process was started."""
    opening_at = time.time()
    async with opened(pair, folder) as stack:
        open_at = time.time()
        await run(stack, flows.sequence, 1)
        done_at = time.time()
        counted = await stack.store.count()
    return {
        "runs": float(counted["running"]),
        "process_s": opening_at - began_at,
        "open_s": open_at - opening_at,
        "first_run_s": done_at - open_at,
        "total_s": done_at - began_at,
    }
