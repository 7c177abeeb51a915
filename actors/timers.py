"""The timer actor of a node: keeps the near dues in memory, reads ahead from the world, and ticks on time.

A million sleeping runs cost rows, not memory: what is due later than the horizon is left to the next look. The world
holds the truth; a due that is in memory only (armed by an actor for the next milliseconds) is a matter of speed.
"""

from __future__ import annotations

import asyncio
import heapq
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from fencepost.world import Unavailable, World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .host import Host

log = structlog.get_logger(__name__)

HORIZON = timedelta(seconds=60)
LOOK_EVERY_S = 30.0
PAGE = 1000


class Timers:
    """See the module. `tick(run_id)` is called when a run is due, never early by the host's clock.

    `owned` are the partitions of the app whose dues it keeps.
    """

    def __init__(
        self, world: World, host: Host, app: str, owned: Callable[[], Collection[int]], tick: Callable[[str], None]
    ) -> None:
        self._world, self._host, self._app, self._owned, self._tick = world, host, app, owned, tick
        self._look_at_s = 0.0
        self._heap: list[tuple[datetime, str]] = []
        self._armed: dict[str, datetime] = {}
        self._changed = asyncio.Event()

    def arm(self, run_id: str, at: datetime) -> None:
        """Tick a run at an instant; one instant per run, the latest call counts. Beyond the horizon: ignored."""
        if at > self._host.now() + HORIZON:
            self._armed.pop(run_id, None)
            return
        if self._armed.get(run_id) == at:
            return
        self._armed[run_id] = at
        heapq.heappush(self._heap, (at, run_id))
        if self._heap[0][1] == run_id:
            self._changed.set()

    def forget(self, run_id: str) -> None:
        """Tick a run no more: it ended."""
        self._armed.pop(run_id, None)

    def look_soon(self) -> None:
        """Look ahead at once: partitions came, or a node has died."""
        self._look_at_s = 0.0
        self._changed.set()

    async def run(self) -> None:
        """Look ahead now and then, and fire what is due, for ever."""
        while True:
            self._changed.clear()
            if self._host.monotonic_s() >= self._look_at_s:
                self._look_at_s = self._host.monotonic_s() + LOOK_EVERY_S  # earlier when somebody asks meanwhile
                again_s = self._host.monotonic_s() + await self._look_ahead()
                self._look_at_s = min(self._look_at_s, again_s)
            self._fire()
            await self._wait(self._look_at_s - self._host.monotonic_s())

    async def _look_ahead(self) -> float:
        """Arm what is due before the horizon; return in how many seconds to look again."""
        try:
            rows = await self._world.due(self._app, list(self._owned()), self._host.now() + HORIZON, PAGE)
        except Unavailable as why:
            log.warning("the timer actor cannot read what is due", why=str(why))
            return 1.0
        for row in rows:
            if row.kind == "run" and (row.id not in self._armed or row.at < self._armed[row.id]):
                self.arm(row.id, row.at)
        if len(rows) < PAGE:
            return LOOK_EVERY_S
        return max(0.05, (rows[-1].at - self._host.now()).total_seconds())

    def _fire(self) -> None:
        now = self._host.now()
        while self._heap and self._heap[0][0] <= now:
            at, run_id = heapq.heappop(self._heap)
            if self._armed.get(run_id) == at:
                del self._armed[run_id]
                self._tick(run_id)

    async def _wait(self, at_most_s: float) -> None:
        wait_s = at_most_s
        if self._heap:
            wait_s = min(wait_s, (self._heap[0][0] - self._host.now()).total_seconds())
        if wait_s <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return
