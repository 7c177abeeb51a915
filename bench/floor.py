"""The floor: what the machine takes for the smallest durable thing, in the same run and on the same file system.

Nothing durable can be faster than its commit, and nothing that travels faster than a round trip; what we take
beyond that is ours.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import nats

from fencepost.bus import NatsServer

from .noise import quantile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.msg import Msg

ROW = "x" * 300
"""About what an event is."""


async def commit_now_ms(file: Path, times: int) -> float:
    """Return what a commit over a thread takes at this moment: disks and neighbours change within minutes."""
    return quantile(await _commits_in_a_thread(file, times), 0.5)


async def floor(folder: Path, *, times: int) -> dict[str, float]:
    """Measure all of it."""
    await asyncio.to_thread(folder.mkdir)
    return {
        **_named("commit", _commits(folder / "here.db", times)),
        **_named("commit_hop", await _commits_in_a_thread(folder / "there.db", times)),
        **_named("fdatasync", _syncs(folder / "sync", times)),
        **_named("nats_rtt", await _round_trips(folder / "nats", times)),
        "switch_p50_us": 1e3 * quantile(await _switches(10 * times), 0.5),
    }


def _named(name: str, samples_ms: list[float]) -> dict[str, float]:
    return {f"{name}_p50_ms": quantile(samples_ms, 0.5), f"{name}_p99_ms": quantile(samples_ms, 0.99)}


def _timed(work: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began_s)


def _database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, body TEXT)")
    return connection


def _one_row(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO rows (body) VALUES (?)", (ROW,))
    connection.execute("COMMIT")


def _commits(path: Path, times: int) -> list[float]:
    connection = _database(path)
    samples = [_timed(lambda: _one_row(connection)) for _ in range(times)]
    connection.close()
    return samples


async def _commits_in_a_thread(path: Path, times: int) -> list[float]:
    """As every durable write of an asyncio program must do it: there and back over one other thread."""
    connection, loop, samples = _database(path), asyncio.get_running_loop(), list[float]()
    with ThreadPoolExecutor(1) as thread:
        for _ in range(times):
            began_s = time.perf_counter()
            await loop.run_in_executor(thread, _one_row, connection)
            samples.append(1e3 * (time.perf_counter() - began_s))
    connection.close()
    return samples


def _syncs(path: Path, times: int) -> list[float]:
    page = b"x" * 4096
    file = os.open(path, os.O_RDWR | os.O_CREAT)

    def overwrite() -> None:
        os.pwrite(file, page, 0)
        os.fdatasync(file)

    try:
        return [_timed(overwrite) for _ in range(times)]
    finally:
        os.close(file)


async def _round_trips(folder: Path, times: int) -> list[float]:
    async with NatsServer(folder) as server:
        here, there = await nats.connect(server.url), await nats.connect(server.url)

        async def answer(question: Msg) -> None:
            await question.respond(b"")

        await there.subscribe("echo", cb=answer)
        await there.flush()
        samples: list[float] = []
        for _ in range(times):
            began_s = time.perf_counter()
            await here.request("echo", b"", timeout=5)
            samples.append(1e3 * (time.perf_counter() - began_s))
        await here.close()
        await there.close()
    return samples


async def _switches(times: int) -> list[float]:
    """A pass of the loop each, ten times many."""
    samples: list[float] = []
    for _ in range(10):
        began_s = time.perf_counter()
        for _ in range(times // 10):
            await asyncio.sleep(0)
        samples.append(1e3 * (time.perf_counter() - began_s) / (times // 10))
    return samples
