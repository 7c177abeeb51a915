"""A node: the actors of one process, and how they are wired. It owns nothing that a crash could lose."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import structlog

from fencepost.world import Member, World

from . import bugs, views
from .api import Api
from .bodies import Bodies
from .executor import Executor
from .host import AsyncioHost, Host
from .ingress import Ingress
from .mailbox import Mailboxes
from .messages import Passivate, RunMessage, Tick
from .run import RunActor
from .starting import Starter
from .surroundings import Surroundings
from .sweeper import Sweeper
from .timers import Timers
from .trouble import WorldAway
from .turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from fencepost.bus import Bell, Bus, Subscription

    from .app import App
    from .executor import Lifespan

log = structlog.get_logger(__name__)

SWITCH_INTERVAL_S = 0.0005
RECORD_S = 2.0


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How a node behaves. Durations in seconds."""

    name: str = "node"
    step_slots: int = 64
    threads: int = 32
    queues: frozenset[str] = frozenset({"default"})
    max_live_runs: int = 1000
    idle_s: float = 2.0
    """A run with nothing to do keeps its coroutine this long."""
    activations: int = 8
    grace_s: float = 5.0
    """How long running bodies may go on when the node stops."""
    shadow: bool = False
    """Replay every tick in a second coroutine and compare (development, tests)."""


@dataclass(slots=True)
class Parts:
    """What a node may be given instead of making it: seams for the simulator and tests."""

    host: Host | None = None
    executor: Executor | None = None
    turn: type[Turn] = Turn
    serve_bus: bool = True


class Node:
    """Runs the workflows of an app on a world and a bus: `async with Node(app, world, bus):` serves the block long."""

    def __init__(
        self,
        app: App,
        world: World,
        bus: Bus,
        settings: NodeSettings = NodeSettings(),
        parts: Parts | None = None,
    ) -> None:
        self.app, self.world, self.bus, self.settings = app, world, bus, settings
        self._parts = parts or Parts()
        self._own_host = AsyncioHost() if self._parts.host is None else None
        self.host: Host = self._parts.host or self._own_host  # type: ignore[assignment]
        lifespan: Lifespan | None = app.lifespan
        self.executor = self._parts.executor or Executor(threads=settings.threads, lifespan=lifespan)
        self._mailboxes: Mailboxes[RunMessage] = Mailboxes(self.host, self._handle)
        self.bodies = Bodies(world, self.host, self.executor, settings.step_slots, self._mailboxes.post)
        self.timers = Timers(world, self.host, self.ring)
        self.sweeper = Sweeper(world, self.host, lambda run_id: self._mailboxes.post(run_id, Tick(swept=True)))
        self._actors: dict[str, RunActor] = {}
        self._subscriptions: list[Subscription] = []
        self._around: Surroundings | None = None
        self._api: Api | None = None
        self.incarnation = ""

    # ---- life

    async def start(self) -> None:
        """Join the namespace and serve."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        facts = await self.world.facts()
        await self.executor.start()
        app, settings = self.app, self.settings
        member = Member(settings.name, app.name, app.code, frozenset(app.workflows), settings.queues)
        self.incarnation = await self.world.join(member)
        self._around = self._surroundings()
        for service in (self.timers.run, self.sweeper.run, self._reap):
            self.host.spawn(self._keep_up(service), service.__qualname__)
        if self._parts.serve_bus:
            await self._serve(facts.partitions)
        log.debug("node serves", app=app.name, workflows=sorted(app.workflows), incarnation=self.incarnation)

    async def _keep_up(self, service: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a service for ever: without timers or sweeper runs would wait and nobody would know."""
        while True:
            try:
                await service()
            except Exception:  # noqa: BLE001  (reported)
                bugs.report("a service of the node failed and begins again", service=service.__qualname__)
            await asyncio.sleep(1.0)

    async def _serve(self, partitions: int) -> None:
        starter = Starter(self.world, self.host, self.app)
        api = self._api = Api(
            self.world,
            self.bus,
            self.host,
            starter,
            self.ring,
            self.wake,
            self.settings.queues.__contains__,
            self.facts,
        )
        ingress = Ingress(self.world, self.bus, starter, self.wake)
        self._subscriptions += await asyncio.gather(
            self.bus.take(self.app.name, range(partitions), self._on_bell),
            self.bus.starts(ingress.take),
            self.bus.serve(api.endpoints()),
        )

    async def stop(self) -> None:
        """Take nothing new, let bodies end for `grace_s`, and leave. What did not end runs again at the next start."""
        if self._api is not None:
            self._api.stop_waiting()
        for subscription in self._subscriptions:
            await subscription.stop()
        self._subscriptions.clear()
        self.bodies.slots.close()
        await self._drain(self.settings.grace_s, lambda: self.bodies.count or self._mailboxes.busy)
        await self.executor.stop(0.0)
        await self._drain(RECORD_S, lambda: self._mailboxes.busy)  # what ended meanwhile is recorded or given back
        self._mailboxes.closed = True
        if self._own_host is not None:
            await self._own_host.cancel_all()
        for actor in self._actors.values():
            actor.drop()
        self._actors.clear()
        if self.incarnation:
            await self.world.leave(self.incarnation)

    @staticmethod
    async def _drain(patience_s: float, is_busy: Callable[[], object]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while is_busy():  # noqa: ASYNC110  (counters, once a process)
                    await asyncio.sleep(0.01)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ---- messages

    def ring(self, run_id: str) -> None:
        """Wake a run. A bell for this node never leaves it."""
        self._mailboxes.post(run_id, Tick())

    def wake(self, run_id: str, at: datetime | None) -> None:
        """Wake a run now, or at an instant it was asked to begin at."""
        if at is None or at <= self.host.now():
            self.ring(run_id)
        else:
            self.timers.arm(run_id, at)

    async def _on_bell(self, bell: Bell) -> None:
        if bell.kind == "run":
            self.ring(bell.id)

    async def _handle(self, run_id: str, messages: list[RunMessage]) -> None:
        assert self._around is not None
        actor = self._actors.get(run_id)
        if actor is None:
            actor = self._actors[run_id] = RunActor(run_id, self._around)
        try:
            await actor.handle(messages)
        finally:
            if actor.asleep:
                self._actors.pop(run_id, None)

    async def _announce(self, run_id: str, seq: int, over: bool) -> None:  # noqa: FBT001  (called by position)
        await self.bus.announce(f"event.{run_id}", views.news(seq, over=over))

    async def _reap(self) -> None:
        """Put idle runs to sleep; the idlest at once when there are more than `max_live_runs`."""
        while True:
            await asyncio.sleep(self.settings.idle_s / 2)
            now_s = self.host.monotonic_s()
            idle = sorted((a for a in self._actors.values() if a.idle), key=lambda a: a.idle_since_s)
            surplus = len(self._actors) - self.settings.max_live_runs
            for number, actor in enumerate(idle):
                if number < surplus or now_s - actor.idle_since_s > self.settings.idle_s:
                    self._mailboxes.post(actor.run_id, Passivate())

    def _surroundings(self) -> Surroundings:
        queues = self.settings.queues
        return Surroundings(
            world=self.world,
            host=self.host,
            workflows=self.app.workflows,
            incarnation=self.incarnation,
            bodies=self.bodies,
            serves=queues.__contains__,
            arm=self.timers.arm,
            announce=self._announce,
            activations=asyncio.Semaphore(self.settings.activations),
            world_away=WorldAway(),
            repaired=self.sweeper.repaired,
            turn=self._parts.turn,
            shadow=self.settings.shadow,
        )

    def facts(self) -> dict[str, Any]:
        """Tell what this node is and does now."""
        return {
            "node": self.settings.name,
            "app": self.app.name,
            "workflows": sorted(self.app.workflows),
            "queues": sorted(self.settings.queues),
            "incarnation": self.incarnation,
            "live_runs": len(self._actors),
            "step_slots": self.settings.step_slots,
            "steps_running": self.bodies.count,
            "steps_waiting": self.bodies.slots.waiting,
            "repairs": self.sweeper.repairs,
            "bus_unheard_s": round(self.bus.unheard_s, 3),
        }
