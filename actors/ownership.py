"""Which partitions this node decides for. For speed only: the fence and the claims are what keep two owners apart.

Twice a second the world is asked: it declares dead whose lease has run out, hands out free partitions up to a fair
share, says which of ours another node should have, and what time it is. A partition that came is looked at at once:
what its last owner left undone is due. A node that does not hear the bus gives its partitions to one that does; when
none does, all keep what they have: the bus costs time only.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from fencepost.bus import BusError
from fencepost.world import IncarnationDead, Share, Unavailable, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, KeysView

    from fencepost.bus import Bell, Bus, Subscription

    from .host import Host

log = structlog.get_logger(__name__)

EVERY_S = 0.5
UNHEARD_S = 2.0
STOP_S = 2.0


class _Nothing:
    async def stop(self) -> None:
        """Have nothing to stop."""


_NOTHING, _ASKED = _Nothing(), _Nothing()


@dataclass(frozen=True, slots=True)
class Changes:
    """What a node does when its share changes."""

    on_bell: Callable[[Bell], Awaitable[None]]
    gained: Callable[[], None]
    """Look at what is due: partitions came."""
    lost: Callable[[Collection[int]], None]
    """Decide nothing more for these: they are about to be given back, or are gone."""
    died: Callable[[str], None]
    """Another incarnation is dead."""
    stop_claims: Callable[[Collection[str]], None]
    over: Callable[[str], None]
    """This node was declared dead."""
    back: Callable[[], None]
    """The world answers again."""


class Ownership:
    """See the module."""

    def __init__(self, world: World, bus: Bus, host: Host, app: str, changes: Changes) -> None:
        self._world, self._bus, self._host, self._app, self._changes = world, bus, host, app, changes
        self._taking: dict[int, Subscription] = {}
        self._stopping: list[Subscription] = []
        self._alive: frozenset[str] = frozenset()
        self._unknown: set[int] = set()
        self.incarnation = ""
        self.listens = self.takes = True
        self.newer = False
        self._answered_s: float | None = None

    @property
    def owned(self) -> KeysView[int]:
        """The partitions this node decides for now."""
        return self._taking.keys()

    def is_alive(self, incarnation: str) -> bool:
        """Tell whether an incarnation lived when the world was last asked."""
        return incarnation in self._alive

    @property
    def away_s(self) -> float:
        """How long ago the world last answered; 0 before it ever did."""
        return 0.0 if self._answered_s is None else self._host.monotonic_s() - self._answered_s

    @property
    def alone(self) -> bool:
        """Whether no other incarnation lives."""
        return len(self._alive) <= 1

    async def run(self) -> None:
        """Keep the share right, for as long as this incarnation lives."""
        away = False
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
                if away:
                    away = False
                    self._changes.back()
            except Unavailable as why:
                away = True
                log.warning("the world does not say which partitions are whose", why=str(why))
            except IncarnationDead as why:
                self._changes.over(str(why))
                return

    async def look(self) -> None:
        """Take and give back what the world says."""
        share = await self._ask()
        if share.surplus:
            share = await self._ask(give=share.surplus)
        if not self._hears and share.heard and self.owned:
            log.warning("the bus is not heard; others shall decide", unheard_s=round(self._bus.unheard_s, 1))
            share = await self._ask(give=list(self.owned))
        if self._unknown and self.newer:
            await self._pass_on()
        self._listen()
        self._hear_of(share)

    @property
    def _hears(self) -> bool:
        return self._bus.unheard_s < UNHEARD_S

    async def _ask(self, *, give: Collection[int] = (), to_newer: bool = False) -> Share:
        self._lose(give)
        asked_s, hears = self._host.monotonic_s(), self._hears
        share = await self._world.share(self.incarnation, list(give), take=self.takes, to_newer=to_newer, hears=hears)
        self._host.tell_time(share.now, asked_s)
        self._answered_s = self._host.monotonic_s()
        self.newer = share.newer
        self._lose(self.owned - share.owned)
        self._gain(share.owned - self.owned)
        return share

    def _hear_of(self, share: Share) -> None:
        dead, self._alive = self._alive - share.alive, share.alive
        for incarnation in sorted(dead):
            self._changes.died(incarnation)
        if share.stopping:
            self._changes.stop_claims(share.stopping)

    # ---- partitions that come and go

    def _gain(self, partitions: Collection[int]) -> None:
        self._taking |= dict.fromkeys(partitions, _NOTHING)
        self._listen()
        if partitions:
            log.debug("partitions came", partitions=sorted(partitions))
            self._changes.gained()

    def _listen(self) -> None:
        """Take the bells of what is owned, beside all else: a bus that does not answer must keep no share waiting.

        Where it refuses, the timers do until it does not.
        """
        silent = [partition for partition, taking in self._taking.items() if taking is _NOTHING and self.listens]
        for partition in silent:
            self._taking[partition] = _ASKED
            self._host.spawn(self._take(partition), f"bells of partition {partition}")

    async def _take(self, partition: int) -> None:
        taking: Subscription = _NOTHING
        try:
            taking = await self._bus.take(self._app, [partition], self._changes.on_bell)
        except BusError as why:
            log.warning("the bells of a partition cannot be heard yet", partition=partition, why=str(why))
        if self._taking.get(partition) is _ASKED:
            self._taking[partition] = taking
        else:  # it went meanwhile
            await taking.stop()

    def _lose(self, partitions: Collection[int]) -> None:
        going = [self._taking.pop(partition) for partition in sorted(partitions) if partition in self._taking]
        if going:
            log.debug("partitions go", partitions=sorted(partitions))
            self._changes.lost(partitions)
            self._stopping += going
            self._host.spawn(self._stop(), "bells of partitions that went")

    async def _stop(self) -> None:
        going, self._stopping = self._stopping, []
        await asyncio.gather(*(subscription.stop() for subscription in going))

    # ---- code that is older than a run

    def lacks_workflow(self, partition: int) -> bool:
        """Say that a run of a partition has a workflow this node does not know. False: nobody newer lives."""
        if self.newer:
            self._unknown.add(partition)
        return self.newer

    async def _pass_on(self) -> None:
        """Give partitions to newer code: it is to decide for what this node does not know."""
        unknown, self._unknown = self._unknown & set(self.owned), set()
        if unknown:
            await self._ask(give=unknown, to_newer=True)

    async def retire(self) -> None:
        """Give everything back and take nothing more: the node stops."""
        self.takes = False
        await self.drop()
        with contextlib.suppress(Unavailable):  # then they are free when it has left
            await self._world.retire(self.incarnation)

    async def drop(self) -> None:
        """Take no bells any more, and wait a moment for those under way."""
        self._lose(list(self.owned))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._stop()
