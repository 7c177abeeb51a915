"""Several nodes as they are run: on one bus, each with a lease and a supervisor. The world says who is dead.

supervisor (a process) ─ renews the lease ─ node dies: leave, another one ─ it dies: its node with it
machine: both of them; it can hang, be cut off from the world or from the bus, and die as a whole
"""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fencepost.bus import Bell
from fencepost.world import IncarnationDead, Unavailable, partition_of
from tests.simulation.bus import Line as BusLine
from tests.simulation.bus import Post, Weather
from tests.simulation.cluster import Cluster, Place
from tests.simulation.machine import SimHost
from tests.simulation.plan import EVERYTHING, Together
from tests.simulation.rest import at_rest
from tests.simulation.world import Line

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from fencepost.actors import Node, NodeSettings
    from fencepost.actors.node import Parts
    from tests.simulation.loop import Proc

RENEWALS = 4
AGAIN_S = 0.5
STOPS_S = 1.0
SETTLES_S = 60


@dataclass(slots=True, eq=False)
class Keeper:
    """The supervisor of a place, see `fencepost.supervisor`."""

    fleet: Fleet
    place: Place
    proc: Proc
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep(self) -> None:
        """Start a node, keep its lease, end its incarnation when it is dead, and start another one."""
        loop, plan = self.fleet.loop, self.fleet.plan
        while True:
            self.gone = asyncio.Event()
            self.fleet.boot(self.place)
            node, proc = self.place.node, self.place.proc
            assert node is not None
            assert proc is not None
            renewing = loop.create_task(self._renew(node, proc), name="renews")
            await self.gone.wait()
            renewing.cancel()
            if node.incarnation:
                loop.create_task(self._leave(node.incarnation), name="leaves")
            await asyncio.sleep(self.fleet.random.expovariate(1 / plan.boot_s))

    async def _renew(self, node: Node, proc: Proc) -> None:
        every_s = self.fleet.together.lease_s / RENEWALS
        while True:
            await asyncio.sleep(every_s)
            if node.incarnation and not await self._renewed(node.incarnation, every_s):
                self.fleet.note(f"{self.proc.name} ends {proc.name}, whose incarnation is dead")
                self.fleet.kill(proc)
                return

    async def _renewed(self, incarnation: str, within_s: float) -> bool:
        while True:
            try:
                async with asyncio.timeout(within_s):
                    await self.fleet.world.renew(incarnation)
            except IncarnationDead:
                return False
            except (Unavailable, TimeoutError):
                await asyncio.sleep(AGAIN_S)
                continue
            return True

    async def _leave(self, incarnation: str) -> None:
        for _ in range(20):
            try:
                await self.fleet.world.leave(incarnation)
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
                continue
            return


@dataclass(slots=True)
class Fleet(Cluster):
    """See the module."""

    together: Together = field(init=False)
    post: Post = field(init=False)
    keepers: dict[int, Keeper] = field(default_factory=dict)
    lines: dict[str, BusLine] = field(default_factory=dict)
    quiet_s: float = 0.0

    def __post_init__(self) -> None:
        Cluster.__post_init__(self)
        assert self.plan.together is not None
        self.together = self.plan.together
        self.post = Post(self.loop, self._chance("bus"), self.together.weather)

    # ---- places

    def begin(self, place: Place) -> None:
        proc = self.loop.start(f"s{place.number}.{place.boots + 1}")
        keeper = self.keepers[place.number] = Keeper(self, place, proc)
        proc.run(lambda: self.loop.create_task(keeper.keep(), name="keeps"))

    def _host(self, place: Place, proc: Proc, chance: Random) -> SimHost:
        wrong_s = self.together.clock_wrong_s
        if wrong_s:
            return self.variant.host(self.loop, proc, chance, self.now, chance.uniform(-wrong_s, wrong_s), listens=True)
        return SimHost(self.loop, proc, chance, self.now, place.offset_s)

    def _node(self, place: Place, proc: Proc, parts: Parts) -> Node:
        line = self.lines[proc.name] = BusLine(self.post, proc)
        node = self.variant.node(self.app, self.world, line, self._settings(place), parts)
        self.later(self._end_when_dead(node, proc))
        return node

    def _settings(self, place: Place) -> NodeSettings:
        number, together = place.number - 1, self.together
        queues = together.queues[number]
        if self.plan.late_queue:
            queues = EVERYTHING if self.quiet else queues - {"elsewhere"} or frozenset({"default"})
        return replace(
            Cluster._settings(self, place),
            queues=queues,
            dispatch="bus" if together.bus_only else "auto",
            steps_only=together.steps_only[number],
            lease_s=together.lease_s,
        )

    async def _end_when_dead(self, node: Node, proc: Proc) -> None:
        """End a process whose node was declared dead: it stops by itself, within its grace."""
        await node.died.wait()
        self.note(f"{proc.name} finds that it is dead")
        await self._stop(node, proc)

    async def _stop(self, node: Node, proc: Proc) -> None:
        async def stop() -> None:
            try:
                await node.stop()
            except Unavailable:
                return

        task = proc.run(lambda: self.loop.create_task(stop(), name="stops"))
        await asyncio.wait([task], timeout=self.random.expovariate(1 / STOPS_S) + 0.5)
        if not proc.dead:
            self.kill(proc)

    # ---- bells

    def _live(self) -> list[Place]:
        """Return who serves: nobody looks at anything before it has heard the world's clock."""
        return [place for place in Cluster._live(self) if place.node.ownership._answered_s is not None]

    def ring(self, run_id: str) -> None:
        """Ring the owner over the bus; now and then, anybody."""
        if self.random.random() < 0.1 and not self.quiet:
            Cluster.ring(self, run_id)
        else:
            self.post.send(Bell("run", run_id, partition_of(run_id, self.world.core.facts.partitions), "sim"))

    def _bell(self, place: Place) -> Callable[[str], None]:
        """Ring the owner, as a node does; where bells go astray, now and then a node that is not."""
        assert place.node is not None
        node = place.node
        if self.random.random() < self.plan.bell_twice:
            return node.tick
        return lambda run_id: node.ringer.ring(run_id, "sim")

    def ringer(self, place: Place) -> Callable[[str, str], None]:
        assert place.node is not None
        return place.node.ringer.ring

    # ---- death

    def kill(self, proc: Proc) -> None:
        """End a process at once."""
        if not proc.dead:
            self._kill(proc)

    def _died(self, proc: Proc) -> None:
        self.note(f"{proc.name} is killed")
        place = next(p for p in self.places if p.proc is proc or self.keepers[p.number].proc is proc)
        keeper = self.keepers[place.number]
        if keeper.proc is proc:
            self.later(self._keep_again(place, place.proc))
            return
        self.dead.append(proc)
        self.post.takings = [taking for taking in self.post.takings if taking.line.proc is not proc]
        place.proc = place.node = None
        keeper.gone.set()

    async def _keep_again(self, place: Place, orphan: Proc | None) -> None:
        """End the node of a dead supervisor, and start another."""
        await self._wait(0.05)
        if orphan is not None:
            orphan.paused = False
            self.kill(orphan)
        await self._wait(self.plan.boot_s)
        if self.keepers[place.number].proc.dead:
            self.begin(place)

    # ---- faults

    def trouble(self) -> None:
        Cluster.trouble(self)
        together = self.together
        self.later(self._every(together.cut_every_s, self._cut))
        self.later(self._every(together.keeper_dies_every_s, self._kill_keeper))
        self.later(self._every(together.stop_every_s, self._tell_to_stop))
        self.later(self._go_away())

    def _kill_keeper(self) -> None:
        """Kill a supervisor, or the whole machine: then nobody ends the incarnation."""
        place = self.random.choice(self.places)
        keeper = self.keepers[place.number]
        if keeper.proc.dead:
            return
        if self.random.random() < 0.5 and place.proc is not None:
            self.note(f"machine {place.number} dies")
            proc = place.proc
            self.kill(keeper.proc)
            self.kill(proc)
        else:
            self.kill(keeper.proc)

    def _tell_to_stop(self) -> None:
        live = self._live()
        if live:
            place = self.random.choice(live)
            self.note(f"{place.proc.name} is told to stop")
            self.later(self._stop(place.node, place.proc))

    def _pause(self) -> None:
        """Let a node hang, its supervisor, or both."""
        place = self.random.choice(self.places)
        keeper = self.keepers[place.number].proc
        both = [proc for proc in (place.proc, keeper) if proc is not None and not proc.dead and not proc.paused]
        hanging = self.random.choice((both, both, both[:1], both[1:]))
        for proc in hanging:
            self.note(f"{proc.name} hangs")
            proc.paused = True
            if proc.name in self.lines:
                self.lines[proc.name].cut("hangs")
        self.later(self._hang_all(hanging, noticed=keeper not in hanging))

    async def _hang_all(self, hanging: list[Proc], *, noticed: bool) -> None:
        lasts_s = self.random.expovariate(1 / self.plan.pause_s)
        await asyncio.sleep(min(lasts_s, self.together.notices_s) if noticed else lasts_s)
        for proc in hanging:
            if noticed and lasts_s > self.together.notices_s and not proc.dead:
                self.note(f"{proc.name} gave no sign for too long")
                self.kill(proc)
            await self._go_on(proc)

    async def _go_on(self, proc: Proc) -> None:
        self._resume(proc)
        await self._wait(0.1)  # it has not read what the bus sent meanwhile
        if proc.name in self.lines:
            self.lines[proc.name].mend("hangs")

    def _cut(self) -> None:
        """Cut a machine off from the bus, from the world, or from both, for a while."""
        place = self.random.choice(self.places)
        if place.proc is None:
            return
        bus, world = self.random.choice(((True, False), (True, False), (False, True), (True, True)))
        names = [place.proc.name, self.keepers[place.number].proc.name]
        if self.random.random() < 0.3:
            names.pop()
        self.note(f"{' and '.join(names)} cut off from {'the bus ' * bus}{'the world' * world}")
        if bus:
            self.lines[place.proc.name].cut("cut")
        if world:
            self.world.cut.update(names)
        self.later(self._mend(names))

    async def _mend(self, names: list[str]) -> None:
        await self._wait(self.together.cut_s)
        self.note(f"{' and '.join(names)} not cut off any more")
        self.lines[names[0]].mend("cut")
        self.world.cut.difference_update(names)

    async def _go_away(self) -> None:
        """Let the world be away now and then."""
        while self.together.away_every_s and not self.quiet:
            await self._wait(self.together.away_every_s)
            self.world.away = not self.quiet
            self.note("the world is away")
            await self._wait(self.together.away_s)
            self.world.away = False
            self.note("the world is back")

    # ---- the end

    async def _heal(self) -> None:
        self.note("==== quiet from here on")
        self.quiet, self.quiet_s = True, self.loop.now_s
        self.world.line, self.world.away = Line(), False
        self.world.cut.clear()
        self.post.weather = Weather()
        for place in self.places:
            keeper = self.keepers[place.number].proc
            for proc in (keeper, place.proc):
                if proc is not None and not proc.dead:
                    proc.dies_after = None
                    self._resume(proc)
            if place.proc is not None:
                self.lines[place.proc.name].reasons.clear()
                if self.plan.late_queue:
                    self.kill(place.proc)
        while self.world.on_way:  # noqa: ASYNC110  (virtual time)
            await asyncio.sleep(1.0)

    async def settle(self) -> None:
        for _ in range(SETTLES_S):
            await asyncio.sleep(1.0)
            if not any(at_rest(self)):
                return
