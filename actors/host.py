"""What an actor needs from where it runs: time, tasks, chance. One protocol, so that a simulator can own it all.

Actors never call `asyncio.create_task`, `time.*` or `random.*` themselves. Waiting is `asyncio.sleep` on the host's
loop: the simulator's loop has a virtual clock.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine

TOKENS_AT_ONCE = 64


class Host(Protocol):
    """See the module."""

    @property
    def random(self) -> Random:
        """Chance: jitter, spreading. Not for secrets."""
        ...

    def now(self) -> datetime:
        """Return the world's clock as this node estimates it, in UTC."""
        ...

    def tell_time(self, at: datetime, asked_s: float) -> None:
        """Take a reading of the world's clock that was asked for at `asked_s` (of `monotonic_s`) and came just now."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds on a clock that only goes forward."""
        ...

    def token(self) -> str:
        """Return 128 unguessable bits in hex: batch ids, claim tokens, seeds."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> None:
        """Start a task that is held until it ends."""
        ...


class AsyncioHost:
    """The real one: the running loop, and the world's clock as heard of."""

    def __init__(self) -> None:
        self.random = Random()  # noqa: S311  (jitter)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._chance = b""
        self._clock = WorldClock()

    def now(self) -> datetime:
        """See Host. The machine's own clock until the world has told its."""
        return self._clock.at(self.monotonic_s())

    def tell_time(self, at: datetime, asked_s: float) -> None:
        """See Host."""
        self._clock.tell(at, asked_s, self.monotonic_s())

    def monotonic_s(self) -> float:
        """Return the running loop's clock."""
        return asyncio.get_running_loop().time()

    def token(self) -> str:
        """Return 128 bits from the system's source, which is asked for many at once: each call gives up the GIL."""
        if not self._chance:
            self._chance = os.urandom(16 * TOKENS_AT_ONCE)
        taken, self._chance = self._chance[:16], self._chance[16:]
        return taken.hex()

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> None:
        """Start a task and hold it: asyncio itself keeps only a weak reference."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel_all(self) -> None:
        """Cancel what is still running and wait for it (the node stops)."""
        current = asyncio.current_task()
        tasks = [t for t in self._tasks if t is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class WorldClock:
    """The world's clock as estimated from readings, never ahead of it: each was true before it was heard.

    Of the last few the one that lagged least counts. It runs on by a monotonic clock, so that a step of this
    machine's own clock moves nothing.
    """

    READINGS = 8
    STEP_S = 0.05

    def __init__(self) -> None:
        self._readings: deque[tuple[datetime, float]] = deque(maxlen=self.READINGS)
        self._best: tuple[datetime, float] | None = None
        """The reading that lagged least, found when one comes: every decision asks for the time several times."""

    def tell(self, at: datetime, asked_s: float, heard_s: float) -> None:
        """Take a reading: the world said `at` at some moment between two of the monotonic clock."""
        behind_s = (self.at(heard_s) - at).total_seconds() if self._readings else 0.0
        if behind_s > heard_s - asked_s + self.STEP_S:
            self._readings.clear()  # the world's clock was set back, or another server took over
        self._readings.append((at, heard_s))
        self._best = max(self._readings, key=lambda reading: reading[0] - timedelta(seconds=reading[1]))

    def at(self, now_s: float) -> datetime:
        """Return the world's time at an instant of the monotonic clock."""
        if self._best is None:
            return datetime.now(UTC)
        at, heard_s = self._best
        return at + timedelta(seconds=now_s - heard_s)
