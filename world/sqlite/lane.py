"""A lane: a thread with a connection of its own that runs what callers post, in order.

A write lane commits what it finds waiting together: at once when idle; while a commit is under way, what comes in
collects and goes with the next. Callers wait on futures. A caller that is cancelled leaves, its body does not:
cancelling a commit that others share would leave them not knowing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from ..errors import Unavailable
from .core import Core
from .transactions import Body, Outcome

T = TypeVar("T")
RunEach = Callable[[Core, Sequence[Body[Any]], str], list[Outcome[Any]]]

GROUP_MAX: Final = 256
GROUP_BYTES_MAX: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Job:
    """A body, who waits for it, and about how much it writes."""

    body: Body[Any]
    future: asyncio.Future[Any]
    size_bytes: int


class Lane:
    """A thread, a core, and a queue. `run_each` says how a group of bodies is run."""

    def __init__(self, name: str, core: Core, run_each: RunEach, where: str) -> None:
        self._core = core
        self._run_each = run_each
        self._where = where
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._closed = False
        self._closing = threading.Lock()
        self._thread.start()

    @property
    def core(self) -> Core:
        """The core the lane's thread works with."""
        return self._core

    async def run(self, body: Body[T], size_bytes: int = 0) -> T:
        """Run a body in the lane and return its answer.

        Raises:
            Unavailable: the lane is closed.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._closing:
            if self._closed:
                raise Unavailable(f"{self._where} was closed")
            self._queue.put(Job(body, future, size_bytes))
        return await future

    def close(self) -> None:
        """Let what was posted finish, and end the thread. Idempotent."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        self._core.connection.close()

    def _loop(self) -> None:
        while (group := self._take()) is not None:
            outcomes = self._run_each(self._core, [job.body for job in group], self._where)
            _answer(group, outcomes)

    def _take(self) -> list[Job] | None:
        """Return the next group, None at the end. Bounded, so that the first caller does not wait for the last."""
        job = self._queue.get()
        group, size_bytes = list[Job](), 0
        while job is not None:
            group.append(job)
            size_bytes += job.size_bytes
            if len(group) == GROUP_MAX or size_bytes > GROUP_BYTES_MAX:
                return group
            try:
                job = self._queue.get_nowait()
            except Empty:
                return group
        if group:
            self._queue.put(None)  # the end, met while collecting: for the next round
        return group or None


def _answer(group: Sequence[Job], outcomes: Sequence[Outcome[Any]]) -> None:
    """Wake the callers: one call into each loop, however many of its tasks wait."""
    by_loop = dict[asyncio.AbstractEventLoop, list[tuple[Job, Outcome[Any]]]]()
    for job, outcome in zip(group, outcomes, strict=True):
        by_loop.setdefault(job.future.get_loop(), []).append((job, outcome))
    for loop, answers in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, answers)
        except RuntimeError:
            continue  # the loop is closed, so nobody waits; what they asked for is done all the same


def _resolve(answers: Sequence[tuple[Job, Outcome[Any]]]) -> None:
    for job, outcome in answers:
        if job.future.done():
            continue
        if outcome.error is not None:
            job.future.set_exception(outcome.error)
        else:
            job.future.set_result(outcome.answer)
