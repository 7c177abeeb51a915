"""What a run costs, counted and not timed: calls of the world, commits and statements, flushes of the log, messages.

Counts do not depend on the machine, so tests hold them. They are taken by path: inline (running ahead, and strictly),
and with every step dispatched over the bus.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
import urllib.request
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg  # type: ignore[import-untyped]

from fencepost.world import SQLiteWorld

from . import flows
from .stack import NAMESPACE, SETTINGS, opened, serving
from .workloads import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from fencepost.actors import NodeSettings
    from fencepost.bus import NatsServer
    from fencepost.world import PostgresWorld, World

    from .stack import Servers, Stack
    from .workloads import Size

WRITES: Final = {"create", "append", "claim", "stall", "unstall", "end_claim", "put_value", "join", "leave", "bury"}
EXACT: Final = {"writes", "commits"}
"""What only runs cause; of all else an idle pair does some too, which is taken off."""

PATHS: Final[dict[str, NodeSettings]] = {
    "": SETTINGS,
    "strict_": replace(SETTINGS, run_ahead=False),
    "bus_": replace(SETTINGS, dispatch="bus"),
}
WRITING: Final = "(append|create|claim|end_claim|put_value|stall)_v[0-9]+"
"""The functions of the Postgres world that a run calls to write: each call is a transaction and a commit."""

SEEN: Final = f"""
    SELECT coalesce(sum(calls), 0) AS statements,
           coalesce(sum(calls) FILTER (WHERE query ~ '{WRITING}'), 0) AS commits
    FROM pg_stat_statements
    WHERE query LIKE '%"fencepost_{NAMESPACE}"%'"""
FLUSHED: Final = "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal'"
"""Of a server from 18 on."""
PRELOADED: Final = {"shared_preload_libraries": "pg_stat_statements"}
SEQUENCE: Final = 10
WIDTH: Final = 50
SLEEP_S: Final = 1.2
IDLE_S: Final = 2.0
SETTLED_S: Final = 0.2


class Counted:
    """Stands between a node and its world and counts calls: each is one transaction."""

    def __init__(self, world: SQLiteWorld | PostgresWorld, counts: Counter[str]) -> None:
        self._world, self._counts = world, counts

    def __getattr__(self, name: str) -> Any:
        """Return the world's method, counting."""
        method = getattr(self._world, name)
        kind = "writes" if name in WRITES else "shares" if name == "share" else "reads"

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


class Server:
    """What Postgres says of itself, over a connection of its own that it does not count."""

    def __init__(self, connection: Any, world: PostgresWorld) -> None:
        self._connection, self._world = connection, world

    @classmethod
    async def connect(cls, servers: Servers, world: PostgresWorld) -> Server:
        """Begin to look."""
        assert servers.postgres is not None
        connection: Any = await asyncpg.connect(servers.postgres.url)
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return cls(connection, world)

    async def counted(self) -> dict[str, float]:
        """Return the counts so far. A session tells what it did only now and then: all are made to."""
        for pool in (self._world._writers, self._world._connections):  # noqa: SLF001  (only from inside can it be seen)
            idle, pool._idle = pool._idle, []  # noqa: SLF001  (nobody else is to take one meanwhile)
            for session in idle:
                await session.execute("SELECT pg_stat_force_next_flush()")
            pool._idle += idle  # noqa: SLF001  (as above)
        seen = await self._connection.fetchrow(SEEN)
        syncs = await self._connection.fetchval(FLUSHED)
        return {"statements": float(seen["statements"]), "commits": float(seen["commits"]), "syncs": float(syncs)}


async def count(pair: str, folder: Path, size: Size) -> dict[str, float]:
    """Count the kinds of runs by every path, each several times; what a pair does when idle is taken off."""
    found: dict[str, float] = {}
    async with serving(pair, folder, PRELOADED) as servers:
        for path, settings in PATHS.items():
            counts: Counter[str] = Counter()
            between = functools.partial(_counted, counts)
            async with opened(pair, folder, between, settings, servers) as stack:
                for name, value in (await _all(stack, counts, _kinds(size, path))).items():
                    found[f"{path}{name}"] = value
    return found


def _counted(counts: Counter[str], world: SQLiteWorld | PostgresWorld) -> World:
    return cast("World", Counted(world, counts))


async def _all(
    stack: Stack, counts: Counter[str], kinds: list[tuple[str, int, Any, tuple[Any, ...]]]
) -> dict[str, float]:
    server = None
    if isinstance(stack.store, SQLiteWorld):
        trace(stack.store, counts)
    else:
        server = await Server.connect(stack.servers, stack.store)
    now = functools.partial(_now, stack, counts, server)
    await run(stack, flows.sequence, 1)
    idle_s = await _rate(now)
    found: dict[str, float] = {}
    for name, times, workflow, args in kinds:
        began_s, before = time.monotonic(), await now()
        for _ in range(times):
            await run(stack, workflow, *args)
        span_s, after = time.monotonic() - began_s, await now()
        for what, value in after.items():
            less = 0.0 if what in EXACT else idle_s[what] * span_s
            found[f"{name}_{what}"] = max(0.0, round((value - before[what] - less) / times, 2))
    return found


def _kinds(size: Size, path: str) -> list[tuple[str, int, Any, tuple[Any, ...]]]:
    kinds: list[tuple[str, int, Any, tuple[Any, ...]]] = [
        ("run", size.counted, flows.noop, ()),
        ("seq", size.counted, flows.sequence, (SEQUENCE,)),
        ("fan", size.counted, flows.fan, (WIDTH,)),
    ]
    return kinds if path else [*kinds, ("sleep", max(2, size.counted // 5), flows.sleeper, (SLEEP_S,))]


async def _now(stack: Stack, counts: Counter[str], server: Server | None) -> dict[str, float]:
    """Return the counts so far. A result is told before the last bookkeeping of its run: let that happen first."""
    await asyncio.sleep(SETTLED_S)
    sent, received = await asyncio.to_thread(messages, stack.servers.nats)
    ours = {kind: float(counts[kind]) for kind in ("writes", "reads", "statements")}
    ours["commits"] = float(counts["commits"] - counts["shares"])  # a node asks for its share all the while
    theirs = await server.counted() if server is not None else {}
    return ours | theirs | {"msgs_in": float(sent), "msgs_out": float(received)}


async def _rate(now: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """Return what happens in a second while nothing is asked."""
    before = await now()
    await asyncio.sleep(IDLE_S)
    after = await now()
    return {what: (after[what] - before[what]) / IDLE_S for what in after}
