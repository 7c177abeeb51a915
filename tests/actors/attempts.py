"""Attempts for tests: a call of any function, an executor that is stopped again, a gate that bodies stand before."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading

from fencepost.actors.codec import Parameters, Returns
from fencepost.actors.executor import Call, Executor

_tokens = itertools.count(1)
LONG_S = 30.0


def call(fn, *args, **about):
    params = Parameters.of(fn)
    fields = {
        "run_id": "run_1",
        "op": "0.1",
        "step_name": getattr(fn, "__name__", "step"),
        "fn": fn,
        "args": about["args"] if "args" in about else params.encode(args, {}),
        "params": params,
        "returns": Returns.of(fn),
        "attempt": 1,
        "token": f"token-{next(_tokens)}",
        "idempotency_key": "run_1:0.1",
    }
    return Call(**{**fields, **about})


@contextlib.asynccontextmanager
async def serving(**settings):
    executor = Executor(**{"cleanup_s": 0.2, "threads": 4, "processes": 2, **settings})
    await executor.start()
    try:
        yield executor
    finally:
        await executor.stop(0)


class Gate:
    """Opens once, for threads and for loops of any thread. `reached` says that a body stands before it."""

    def __init__(self):
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self):
        self._reached.set()
        assert self._open.wait(LONG_S)

    async def apass_through(self):
        self._reached.set()
        assert await asyncio.to_thread(self._open.wait, LONG_S)

    async def reached(self):
        assert await asyncio.to_thread(self._reached.wait, LONG_S)

    def mark(self):
        self._reached.set()

    def open(self):
        self._open.set()


async def fine() -> None:
    pass


def plain() -> int:
    return 1
