"""What an actor needs from where it runs: time, tasks, chance. One protocol, so that a simulator can own it all.

Actors never call `asyncio.create_task`, `time.*` or `random.*` themselves. Waiting is `asyncio.sleep` on the host's
loop: the simulator's loop has a virtual clock.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
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
    """The real one: the running loop, the system's clock."""

    def __init__(self) -> None:
        self.random = Random()  # noqa: S311  (jitter)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._chance = b""

    def now(self) -> datetime:
        """Return the system's clock. With SQLite the world is in this process and has the same one."""
        return datetime.now(UTC)

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
