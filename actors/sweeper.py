"""The sweeper: rings again for what has been due for a while. In a healthy system it finds nothing to repair.

A *repair* is a sweep whose tick appended something, or fed an event that nobody had looked at for `AGE`: a bell was
lost on the way. The count is a health figure, 0 when all is well; the actor that was ticked reports it, because only
it knows whether there was something to do. What it fed it answers with an append (L12), so one look at that is enough.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from fencepost.world import Unavailable, World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .host import Host

log = structlog.get_logger(__name__)

AGE = timedelta(seconds=2)
EVERY_S = 2.0
AT_ONCE = 200


class Sweeper:
    """See the module. `tick(run_id)` wakes a run and marks the tick as swept."""

    def __init__(
        self, world: World, host: Host, app: str, owned: Callable[[], Collection[int]], tick: Callable[[str], None]
    ) -> None:
        self._world, self._host, self._app, self._owned, self._tick = world, host, app, owned, tick
        self.repairs = 0

    def repaired(self) -> None:
        """Count a repair."""
        self.repairs += 1

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.sweep()
            except Unavailable as why:
                log.warning("the sweeper cannot read what is overdue", why=str(why))

    async def sweep(self) -> int:
        """Ring for everything that has been due longer than `AGE`; return how many there were."""
        overdue = await self._world.due(self._app, list(self._owned()), self._host.now() - AGE, AT_ONCE)
        for row in overdue:
            if row.kind == "run":
                self._tick(row.id)
        return len(overdue)
