"""What a run costs, counted and not timed: calls of the world, commits and statements of SQLite, messages of NATS.

Counts do not depend on the machine, so tests hold them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

from . import flows
from .stack import opened
from .workloads import run

if TYPE_CHECKING:
    from pathlib import Path

    from fencepost.bus import NatsServer
    from fencepost.world import SQLiteWorld, World

    from .stack import Stack
    from .workloads import Size

WRITES: Final = {"create", "append", "stall", "unstall", "end_claim", "put_value", "join", "leave", "bury"}
SEQUENCE: Final = 10
WIDTH: Final = 50
SLEEP_S: Final = 1.2
IDLE_S: Final = 2.0


class Counted:
    """Stands between a node and its world and counts calls: each is one transaction."""

    def __init__(self, world: SQLiteWorld, counts: Counter[str]) -> None:
        self._world, self._counts = world, counts

    def __getattr__(self, name: str) -> Any:
        """Return the world's method, counting."""
        method = getattr(self._world, name)
        kind = "writes" if name in WRITES else "reads"

        @functools.wraps(method)
        async def through(*args: Any, **more: Any) -> Any:
            self._counts[kind] += 1
            return await method(*args, **more)

        return through


def trace(world: SQLiteWorld, counts: Counter[str]) -> None:
    """Count every statement of both connections, the commits of the one that writes."""

    def written(statement: str) -> None:
        counts["commits"] += statement == "COMMIT"
        counts["statements"] += 1

    def looked(_statement: str) -> None:
        counts["statements"] += 1

    writer, reader = world._writer.core, world._reader.core  # noqa: SLF001  (only from inside can it be seen)
    writer.connection.set_trace_callback(written)
    reader.connection.set_trace_callback(looked)


def messages(server: NatsServer | None) -> tuple[int, int]:
    """Return how many messages went into the server and out of it so far."""
    if server is None or server.monitoring_url is None:
        return 0, 0
    with urllib.request.urlopen(f"{server.monitoring_url}/varz", timeout=5) as answer:
        told = json.load(answer)
    return told["in_msgs"], told["out_msgs"]


async def count(pair: str, folder: Path, size: Size) -> dict[str, float]:
    """Count the kinds of runs, each several times; what a pair does when idle is taken off."""
    counts: Counter[str] = Counter()
    async with opened(pair, folder, lambda world: cast("World", Counted(world, counts))) as stack:
        trace(stack.store, counts)
        await run(stack, flows.sequence, 1)
        idle_s = await _rate(stack, counts)
        found: dict[str, float] = {}
        for name, times, workflow, args in _kinds(size):
            began_s, before = time.monotonic(), await _now(stack, counts)
            for _ in range(times):
                await run(stack, workflow, *args)
            span_s, after = time.monotonic() - began_s, await _now(stack, counts)
            for what, value in after.items():
                less = 0.0 if what in {"writes", "commits"} else idle_s[what] * span_s
                found[f"{name}_{what}"] = max(0.0, round((value - before[what] - less) / times, 2))
    return found


def _kinds(size: Size) -> list[tuple[str, int, Any, tuple[Any, ...]]]:
    return [
        ("run", size.counted, flows.noop, ()),
        ("seq", size.counted, flows.sequence, (SEQUENCE,)),
        ("fan", size.counted, flows.fan, (WIDTH,)),
        ("sleep", max(2, size.counted // 5), flows.sleeper, (SLEEP_S,)),
    ]


async def _now(stack: Stack, counts: Counter[str]) -> dict[str, float]:
    """Return the counts so far. A result is told before the last bookkeeping of its run: let that happen first."""
    await asyncio.sleep(0.05)
    sent, received = await asyncio.to_thread(messages, stack.server)
    kinds = ("writes", "reads", "commits", "statements")
    return {**{kind: float(counts[kind]) for kind in kinds}, "msgs_in": float(sent), "msgs_out": float(received)}


async def _rate(stack: Stack, counts: Counter[str]) -> dict[str, float]:
    """Return what happens in a second while nothing is asked."""
    before = await _now(stack, counts)
    await asyncio.sleep(IDLE_S)
    after = await _now(stack, counts)
    return {what: (after[what] - before[what]) / IDLE_S for what in after}
