"""Who is rung for a run: its actor here when this node owns the run's partition, else the owner, over the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.bus import Bell, Bus
from fencepost.world import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from datetime import datetime

    from .host import Host


class Ringer:
    """See the module. `tick` wakes the actor here, `arm` at an instant. A bell for this node never leaves it."""

    def __init__(
        self,
        bus: Bus,
        host: Host,
        app: str,
        tick: Callable[[str], None],
        arm: Callable[[str, datetime], None],
    ) -> None:
        self._bus, self._host, self._app, self._tick, self._arm = bus, host, app, tick, arm
        self.owned: Container[int] = ()
        self.partitions = 1

    def owns(self, run_id: str, app: str) -> bool:
        """Tell whether this node decides for a run."""
        return app == self._app and partition_of(run_id, self.partitions) in self.owned

    def ring(self, run_id: str, app: str) -> None:
        """Wake a run, wherever its actor is. One of no app (nobody knows its workflow yet) is everybody's."""
        if not app or self.owns(run_id, app):
            self._tick(run_id)
        else:
            bell = Bell("run", run_id, partition_of(run_id, self.partitions), app)
            self._host.spawn(self._bus.ring(bell), f"ring {run_id}")

    def wake(self, run_id: str, app: str, at: datetime | None) -> None:
        """Wake a run now, or at an instant it was asked to begin at; that of another node stands in its due."""
        if at is None or at <= self._host.now():
            self.ring(run_id, app)
        elif not app or self.owns(run_id, app):
            self._arm(run_id, at)
