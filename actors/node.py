"""A node: the actors of one process, and how they are wired. It owns nothing that a crash could lose."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

import structlog

from fencepost.bus import Again, Offering
from fencepost.world import Member, World, partition_of

from . import bugs, views
from .api import Api
from .bodies import Bodies
from .dispatch import Worker
from .executor import Executor
from .host import AsyncioHost, Host
from .ingress import Ingress
from .mailbox import Mailboxes
from .messages import HandOver, NodeDied, Passivate, RunMessage, Running, StepEnded, Tick
from .ownership import Changes, Ownership
from .reporting import Reporter
from .ringing import Ringer
from .run import RunActor
from .starting import Starter
from .surroundings import Surroundings
from .sweeper import Sweeper
from .timers import Timers
from .trouble import WorldAway
from .turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from fencepost.bus import Bell, Bus, Subscription
    from fencepost.world import Offer

    from .app import App

log = structlog.get_logger(__name__)

SWITCH_INTERVAL_S = 0.0005
RECORD_S = 2.0
NOT_OURS_S = 0.2


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
    run_ahead: bool = True
    """Write results and what follows from them in one batch (L4)."""
    dispatch: Literal["auto", "bus"] = "auto"
    """`bus`: offer every step to the nodes of its queue, also when there is a free slot here."""
    steps_only: bool = False
    """Take no partitions, answer no questions, take no start messages in: run steps of the queues."""
    lease_s: float | None = None
    """How long the incarnation lives without being renewed (by the supervisor); None: until the node leaves."""
    follows: str = ""
    """The incarnation of the process before it, when a supervisor starts it anew."""


@dataclass(slots=True)
class Parts:
    """What a node may be given instead of making it: seams for the simulator and tests."""

    host: Host | None = None
    executor: Executor | None = None
    turn: type[Turn] = Turn
    serve_bus: bool = True


class Node:
    """Runs the workflows of an app on a world and a bus: `async with Node(app, world, bus):` serves the block long.

    `died` is set when its incarnation was declared dead: it decides nothing more, and has to be stopped.
    """

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
        self.died = asyncio.Event()
        self._back = asyncio.Event()
        self.incarnation = ""
        self._actors: dict[str, RunActor] = {}
        self._subscriptions: list[Subscription] = []
        self._around: Surroundings | None = None
        self._api: Api | None = None
        self._wire()

    def _wire(self) -> None:
        """Make the parts and tell them of each other."""
        app, world, bus, host, settings = self.app, self.world, self.bus, self.host, self.settings
        self.executor = self._parts.executor or Executor(
            threads=settings.threads, lifespan=app.lifespan, tell=bus.announce
        )
        self._mailboxes: Mailboxes[RunMessage] = Mailboxes(host, self._handle)
        post = self._mailboxes.post
        self.bodies = Bodies(
            world, host, self.executor, settings.step_slots, post=post, ended=self._ended, app=app.name
        )
        self.ownership = Ownership(
            world,
            bus,
            host,
            app.name,
            Changes(
                on_bell=self._on_bell,
                gained=self._gained,
                lost=self._lost,
                died=self._on_death,
                stop_claims=self.bodies.stop_claims,
                over=self._over,
                back=self._world_back,
            ),
        )
        self.timers = Timers(world, host, app.name, lambda: self.ownership.owned, self._timed)
        self.sweeper = Sweeper(
            world,
            host,
            app.name,
            lambda: self.ownership.owned,
            lambda run_id: post(run_id, Tick(swept=True)),
        )
        self.ringer = Ringer(bus, host, app.name, self.tick, self.timers.arm)
        self.ringer.owned = self.ownership.owned
        self.reporter = Reporter(world, host, self.bodies, self.ringer.ring, app.name)
        self.worker = Worker(app, world, bus, host, self.bodies, settings.queues, self._is_stale, self._timed)

    # ---- life

    async def start(self) -> None:
        """Join the namespace and serve."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        facts = await self.world.facts()
        await self.executor.start()
        self.incarnation = await self.world.join(self._member())
        self._around = self._surroundings()
        self.ringer.partitions = facts.partitions
        self.ownership.incarnation, self.ownership.listens = self.incarnation, self._parts.serve_bus
        self.ownership.takes = not self.settings.steps_only
        await self.ownership.look()
        services = [self.ownership.run, self.timers.run, self.sweeper.run, self._reap]
        services += [self.worker.run] if self._parts.serve_bus else []
        for service in services:
            self.host.spawn(self._keep_up(service), service.__qualname__)
        if self._parts.serve_bus:
            await self._serve()
        log.debug("node serves", app=self.app.name, incarnation=self.incarnation)

    def _member(self) -> Member:
        app, settings = self.app, self.settings
        return Member(
            name=settings.name,
            app=app.name,
            code=app.code,
            workflows=frozenset(app.workflows),
            queues=settings.queues,
            lease=None if settings.lease_s is None else timedelta(seconds=settings.lease_s),
            takes=not settings.steps_only,
            follows=settings.follows,
        )

    async def _keep_up(self, service: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a service while the node lives: without timers or sweeper runs would wait and nobody would know."""
        while not self.died.is_set():
            try:
                await service()
            except Exception:  # noqa: BLE001  (reported)
                bugs.report("a service of the node failed and begins again", service=service.__qualname__)
            await asyncio.sleep(1.0)

    async def _serve(self) -> None:
        await self.worker.start(self.incarnation)
        if self.settings.steps_only:
            return
        starter = Starter(self.world, self.host, self.app)
        ring, wake = self.ringer.ring, self.ringer.wake
        serves = self.settings.queues.__contains__
        api = self._api = Api(self.world, self.bus, self.host, starter, ring, wake, serves, self.facts)
        ingress = Ingress(self.world, self.bus, starter, wake)
        self._subscriptions += await asyncio.gather(self.bus.starts(ingress.take), self.bus.serve(api.endpoints()))

    async def stop(self) -> None:
        """Take nothing new, let bodies end for `grace_s`, and leave. What did not end runs again elsewhere."""
        if self._api is not None:
            self._api.stop_waiting()
        self.bodies.slots.close()
        await self.worker.stop()
        for subscription in self._subscriptions:
            await subscription.stop()
        self._subscriptions.clear()
        if self.incarnation and not self.died.is_set():
            await self.ownership.retire()
        await self._drain(self.settings.grace_s, lambda: self.bodies.count or self._busy)
        await self.executor.stop(0.0)
        await self._drain(RECORD_S, lambda: self._busy)  # what ended meanwhile is recorded or given back
        await self._end()
        if self.incarnation:
            await self.world.leave(self.incarnation)

    async def _end(self) -> None:
        """Do nothing more."""
        self._mailboxes.closed = True
        await self.ownership.drop()
        if self._own_host is not None:
            await self._own_host.cancel_all()
        for actor in self._actors.values():
            actor.drop()
        self._actors.clear()

    @property
    def _busy(self) -> int:
        return self._mailboxes.busy + self.reporter.busy

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

    def tick(self, run_id: str) -> None:
        """Look at a run here, whoever owns it."""
        self._mailboxes.post(run_id, Tick())

    async def _on_bell(self, bell: Bell) -> None:
        """Look at a run, if it is still ours.

        Raises:
            Again: its partition went to another node meanwhile.
        """
        if bell.partition not in self.ownership.owned:
            raise Again(NOT_OURS_S)
        if bell.kind == "run":
            self.tick(bell.id)

    def _timed(self, run_id: str) -> None:
        """Look at a run that is due, if it is still ours."""
        if partition_of(run_id, self.ringer.partitions) in self.ownership.owned:
            self.tick(run_id)

    def _ended(self, running: Running, ended: StepEnded) -> None:
        """Pass on that a body ended: to the run's actor when it is here, else into the log, under its claim."""
        if running.run_id in self._actors or self.ringer.owns(running.run_id, running.app):
            self._mailboxes.post(running.run_id, ended)
        else:
            self.reporter.report(running, ended)

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

    # ---- what is ours

    def _gained(self) -> None:
        self.timers.look_soon()
        self.worker.adopt()

    def _lost(self, partitions: Collection[int]) -> None:
        """Put to sleep what another node is about to decide for."""
        going = [run_id for run_id in self._actors if partition_of(run_id, self.ringer.partitions) in partitions]
        for run_id in going:
            self._mailboxes.post(run_id, HandOver())

    def _on_death(self, incarnation: str) -> None:
        for run_id in self._actors:
            self._mailboxes.post(run_id, NodeDied(incarnation))
        self._gained()

    def _world_back(self) -> None:
        """Let everybody try again who waits for the world."""
        back, self._back = self._back, asyncio.Event()
        back.set()
        self.timers.look_soon()

    async def _pause(self, seconds: float) -> None:
        """Wait, at most until the world answers again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._back.wait()

    def _over(self, why: str) -> None:
        """Decide nothing more: the world holds this node for dead, and others do its work."""
        log.warning("this node was declared dead and stops", incarnation=self.incarnation, why=why)
        self._mailboxes.closed = True
        self.bodies.slots.close()
        self.died.set()

    def _hears(self, run_id: str) -> bool:
        return any(not isinstance(message, Passivate) for message in self._mailboxes.waiting(run_id))

    def _is_stale(self, run_id: str, op: str) -> bool:
        actor = self._actors.get(run_id)
        return actor is not None and actor.has_no_offer(op)

    def _surroundings(self) -> Surroundings:
        queues, settings = self.settings.queues, self.settings
        return Surroundings(
            world=self.world,
            host=self.host,
            workflows=self.app.workflows,
            incarnation=self.incarnation,
            bodies=self.bodies,
            serves=lambda queue: settings.dispatch != "bus" and queue in queues,
            arm=self.timers.arm,
            announce=self._announce,
            activations=asyncio.Semaphore(settings.activations),
            world_away=WorldAway(),
            hears=self._hears,
            pause=self._pause,
            hand_over=self.reporter.hand_over,
            lacks_workflow=self.ownership.lacks_workflow,
            offer=self._offer,
            is_alive=self.ownership.is_alive,
            repaired=self.sweeper.repaired,
            turn=self._parts.turn,
            shadow=settings.shadow,
            run_ahead=settings.run_ahead,
        )

    def _offer(self, run_id: str, offer: Offer) -> None:
        """Offer a step, unless it waits for a slot here and nobody else is there to take it."""
        is_served_here = self.settings.dispatch != "bus" and offer.queue in self.settings.queues
        if self._parts.serve_bus and not (is_served_here and self.ownership.alone):
            offering = Offering(offer.queue, run_id, offer.op, self.app.name)
            self.host.spawn(self.bus.offer(offering), f"offer {run_id} {offer.op}")

    def facts(self) -> dict[str, Any]:
        """Tell what this node is and does now."""
        return {
            "node": self.settings.name,
            "app": self.app.name,
            "workflows": sorted(self.app.workflows),
            "queues": sorted(self.settings.queues),
            "incarnation": self.incarnation,
            "partitions": sorted(self.ownership.owned),
            "live_runs": len(self._actors),
            "step_slots": self.settings.step_slots,
            "steps_running": self.bodies.count,
            "steps_waiting": self.bodies.slots.waiting,
            "repairs": self.sweeper.repairs,
            "bus_unheard_s": round(self.bus.unheard_s, 3),
        }
