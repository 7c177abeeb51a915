"""The floor under Postgres and JetStream: a bare commit, a round trip, a shared commit of many, a stored message.

The same server, the same driver, the same connection over loopback as the world has: only what is written is less.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import asyncpg  # type: ignore[import-untyped]
import nats

from .noise import quantile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .stack import Servers

ROW: Final = "x" * 300
"""About what an event is."""

TABLE: Final = "CREATE TABLE IF NOT EXISTS floor (id bigserial PRIMARY KEY, body text)"
INSERT: Final = "INSERT INTO floor (body) VALUES ($1)"
INSERT_ALL: Final = "INSERT INTO floor (body) SELECT unnest($1::text[])"
ACTORS: Final = 200


async def commit_now_ms(url: str, times: int) -> float:
    """Return what a commit of one row takes at this moment: disks and neighbours change within minutes."""
    connection: Any = await asyncpg.connect(url)
    await connection.execute(TABLE)
    samples = await _samples_ms(times, lambda: connection.execute(INSERT, ROW))
    await connection.close()
    return quantile(samples, 0.5)


async def floor_stack(servers: Servers, *, times: int) -> dict[str, float]:
    """Measure all of it."""
    assert servers.postgres is not None
    assert servers.nats is not None
    here = await _postgres(servers.postgres.url, times)
    near = {
        f"{name}_socket": samples for name, samples in (await _postgres(servers.postgres.socket_url, times)).items()
    }
    sent = await _messages(servers.nats.url, times)
    named: dict[str, float] = {}
    for name, samples in (here | near | sent).items():
        named |= {f"{name}_p50_ms": quantile(samples, 0.5), f"{name}_p99_ms": quantile(samples, 0.99)}
    shared = {
        "pg_actors1_s": await _shared(servers.postgres.url, 1, times // 2),
        "pg_actors200_s": await _shared(servers.postgres.url, ACTORS, max(times // 20, 2)),
    }
    return named | shared


async def _samples_ms(times: int, work: Callable[[], Awaitable[Any]]) -> list[float]:
    samples = list[float]()
    for _ in range(times):
        began_s = time.perf_counter()
        await work()
        samples.append(1e3 * (time.perf_counter() - began_s))
    return samples


async def _postgres(url: str, times: int) -> dict[str, list[float]]:
    connection: Any = await asyncpg.connect(url)
    await connection.execute(TABLE)
    found = {
        "pg_commit": await _samples_ms(times, lambda: connection.execute(INSERT, ROW)),
        "pg_rtt": await _samples_ms(times, lambda: connection.fetch("SELECT 1")),
    }
    await connection.close()
    return found


async def _messages(url: str, times: int) -> dict[str, list[float]]:
    client: Any = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="FLOOR", subjects=["floor"])
    found = await _samples_ms(times, lambda: jetstream.publish("floor", ROW.encode()))
    await jetstream.delete_stream("FLOOR")
    await client.close()
    return {"js_publish": found}


async def _shared(url: str, actors: int, steps: int) -> float:
    """Return rows a second when actors write one after the other, and what waits goes into one commit."""
    connection: Any = await asyncpg.connect(url)
    await connection.execute(TABLE)
    waiting = list[asyncio.Future[None]]()
    wanted = asyncio.Event()

    async def write() -> None:
        while await wanted.wait():
            wanted.clear()
            taken, waiting[:] = list(waiting), []
            await connection.execute(INSERT_ALL, [ROW] * len(taken))
            for future in taken:
                future.set_result(None)

    async def act() -> None:
        for _ in range(steps):
            future = asyncio.get_running_loop().create_future()
            waiting.append(future)
            wanted.set()
            await future

    writer = asyncio.create_task(write())
    began_s = time.perf_counter()
    await asyncio.gather(*(act() for _ in range(actors)))
    took_s = time.perf_counter() - began_s
    writer.cancel()
    await connection.close()
    return actors * steps / took_s
