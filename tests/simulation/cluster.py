"""One seed, lived through: nodes that come, die, hang and return, clients, bells, and who buries the dead."""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.actors import App, Node, NodeSettings
from fencepost.actors.delivering import Deliverer
from fencepost.actors.messages import Passivate
from fencepost.actors.node import Parts
from fencepost.actors.starting import Envelope, Starter
from fencepost.actors.turn import Turn
from fencepost.bus import BusError, InProcessBus
from fencepost.world import UNREAD, Batch, Checks, IncarnationDead, RunEnded, Unavailable
from fencepost.world import events as ev
from tests.simulation import flows, hookflows
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Proc, SimLoop
from tests.simulation.machine import SimExecutor, SimHost
from tests.simulation.mail import Mail
from tests.simulation.world import Line, SimWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.simulation.plan import Plan, RunPlan
    from tests.simulation.world import Commit

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
QUIET_S = 480.0
MOVING = "SELECT 1 FROM runs WHERE ended_at IS NULL AND stalled = '' LIMIT 1"


class SimApp(App):
    """What all nodes run. Its code is one version, whatever else of this folder is loaded."""

    code = "simulated"


@dataclass(frozen=True, slots=True)
class Variant:
    """Which laws hold, and which turn, world, node … are used. `patches` are put into the product for a seed's time."""

    checks: Checks = field(default_factory=Checks)
    turn: type[Turn] = Turn
    world: type[SimWorld] = SimWorld
    node: type[Node] = Node
    host: type[SimHost] = SimHost
    deliverer: type[Deliverer] = Deliverer
    patches: tuple[tuple[Any, str, Any], ...] = ()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Put the patches in, and take them out again."""
        patches = self.patches
        before = [(place, name, getattr(place, name)) for place, name, _ in patches]
        try:
            for place, name, other in patches:
                setattr(place, name, other)
            yield
        finally:
            for place, name, original in before:
                setattr(place, name, original)


@dataclass(slots=True, eq=False)
class Place:
    """Where a node may run: at most one process at a time."""

    number: int
    proc: Proc | None = None
    node: Node | None = None
    boots: int = 0
    offset_s: float = 0.0


@dataclass(slots=True)
class Cluster:
    """See the module."""

    seed: int
    plan: Plan
    variant: Variant
    loop: SimLoop = field(init=False)
    world: SimWorld = field(init=False)
    ledger: Ledger = field(init=False)
    mail: Mail = field(init=False)
    random: Random = field(init=False)
    app: App = field(init=False)
    places: list[Place] = field(init=False)
    nodes: list[Node] = field(default_factory=list)
    dead: list[Proc] = field(default_factory=list)
    run_ids: dict[str, RunPlan] = field(default_factory=dict)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    quiet: bool = False
    busy_clients: int = 0

    def __post_init__(self) -> None:
        self.random = self._chance("driver")
        self.loop = SimLoop(self._chance("loop"), shuffle=self.plan.shuffle)
        self.loop.killed = self._died
        self.world = self.variant.world(self.loop, self.now, self.variant.checks, self._chance("line"))
        self.world.line = self.plan.line
        self.ledger = Ledger(self._chance("outside"), self.plan.temper)
        self.app = SimApp("sim", [*flows.FLOWS, *hookflows.FLOWS, flows.tree])
        self.mail = Mail(self, self._chance("mail"))
        self.places = [Place(n + 1) for n in range(self.plan.nodes)]

    def _chance(self, what: str) -> Random:
        return Random(f"{self.seed} {what}")

    def now(self) -> datetime:
        """Return the world's clock."""
        return BEGINNING + timedelta(seconds=self.loop.now_s)

    def note(self, what: str) -> None:
        """Write a line into the history."""
        self.world.history.note(self.loop.now_s, "", what)

    def later(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Start something of the simulator's own."""
        self.tasks.append(self.loop.world.run(lambda: self.loop.create_task(coro, name="simulator")))

    # ---- the story

    async def live(self) -> None:
        """Live through the plan, then heal everything and wait until all is done or `QUIET_S` has passed."""
        plan = self.plan
        for place in self.places:
            self.begin(place)
        self.busy_clients = len(plan.runs) + len(plan.letters)
        for number, run in enumerate(plan.runs):
            self.later(self._counted(self._client(number, run)))
        for letter in plan.letters:
            self.later(self._counted(self.mail.post(letter)))
        if plan.faulty:
            self.trouble()
        await self._last(plan.lasts_s)
        await self._heal()
        self.later(self.mail.stop_all())
        ends_s = self.loop.now_s + QUIET_S
        while self.loop.now_s < ends_s and (  # noqa: ASYNC110  (what ends a run is a row, not a signal)
            self.busy_clients or self.moving()
        ):
            await asyncio.sleep(1.0)
        await self.settle()

    async def _last(self, at_most_s: float) -> None:
        """Let the trouble last, until everything asked for is over: then it could break nothing any more."""
        ends_s = self.loop.now_s + at_most_s
        while self.loop.now_s < ends_s and (  # noqa: ASYNC110  (what ends a run is a row, not a signal)
            self.busy_clients or self.unended()
        ):
            await asyncio.sleep(1.0)

    async def settle(self) -> None:
        """Let what is over come to rest."""

    def trouble(self) -> None:
        """Let the faults of the plan begin."""
        plan = self.plan
        self.later(self._every(plan.kill_every_s, self._doom))
        self.later(self._every(plan.pause_every_s, self._pause))
        self.later(self._every(plan.passivate_every_s, self._passivate))
        self.later(self._every(plan.noise_every_s, self._noise))
        self.later(self._fail_over())

    def unended(self) -> list[str]:
        """Return the runs that have not ended."""
        rows = self.world.core.connection.execute("SELECT run_id FROM runs WHERE ended_at IS NULL ORDER BY run_id")
        return [row[0] for row in rows]

    def moving(self) -> bool:
        """Tell whether a run is left that may still end by itself."""
        return self.world.core.connection.execute(MOVING).fetchone() is not None

    async def _every(self, mean_s: float, act: Any) -> None:
        while mean_s and not self.quiet:
            await asyncio.sleep(self.random.expovariate(1 / mean_s))
            if not self.quiet:
                act()

    async def _heal(self) -> None:
        self.note("==== quiet from here on")
        self.quiet = True
        self.world.line = Line()
        for place in self.places:
            if place.proc is not None:
                place.proc.dies_after = None
                self._resume(place.proc)
                if self._is_zombie(place.proc) or self.plan.late_queue:
                    self._kill(place.proc)
            if place.proc is None:
                self.boot(place)
        await self._bury()
        while self.world.on_way:  # noqa: ASYNC110  # it may be the join of a dead process
            await asyncio.sleep(1.0)
        await self._bury()

    # ---- clients

    async def _counted(self, client: Coroutine[Any, Any, None]) -> None:
        await client
        self.busy_clients -= 1

    async def _client(self, number: int, run: RunPlan) -> None:
        await asyncio.sleep(run.at_s)
        host = SimHost(self.loop, self.loop.world, self._chance(f"run {number}"), self.now)
        envelope = Envelope(id=f"order-{number}", input=msgspec.Raw(msgspec.json.encode(run.argument)))
        created = await Starter(self.world, host, self.app).start(run.flow.name, envelope)
        self.run_ids[created.run_id] = run
        self.note(f"client starts {created.run_id}: {run.flow.name}({run.argument})")
        self.ring(created.run_id)
        if run.cancel_at_s is not None:
            await asyncio.sleep(run.cancel_at_s - self.loop.now_s if run.cancel_at_s > self.loop.now_s else 0)
            for again in range(self.random.choice((1, 1, 2))):
                await self._cancel(created.run_id, f"key {again // 2}")

    async def _cancel(self, run_id: str, key: str) -> None:
        try:
            await self.world.append(Batch(run_id, (ev.CancelRequested(reason="a client's word", key=key),), UNREAD))
        except RunEnded:
            return
        self.ring(run_id)

    # ---- bells

    def ring(self, run_id: str) -> None:
        """Ring for a run as a bad bus does: never, late, or at two nodes at once."""
        if self.random.random() < self.plan.bell_lost and not self.quiet:
            self.note(f"the bell of {run_id[-6:]} is lost")
            return
        for _ in range(2 if self.random.random() < self.plan.bell_twice else 1):
            self.later(self._deliver(run_id))

    def ringer(self, _place: Place) -> Callable[[str, str], None]:
        """Return how a node rings for a run."""
        return lambda run_id, _app: self.ring(run_id)

    async def _deliver(self, run_id: str) -> None:
        late_s = self.random.expovariate(1 / self.plan.bell_late_s) if self.plan.bell_late_s else 0.0
        await asyncio.sleep(late_s)
        live = self._live()
        if live:
            place = self.random.choice(live)
            place.proc.run(self._bell(place), run_id)

    def _bell(self, place: Place) -> Callable[[str], None]:
        """Return what looks at a run: of nodes that share the runs, whoever is asked."""
        assert place.node is not None
        return place.node.tick

    def _live(self) -> list[Place]:
        return [place for place in self.places if place.proc is not None and place.node and place.node.incarnation]

    def _noise(self) -> None:
        if self.run_ids:
            self.ring(self.random.choice(list(self.run_ids)))

    def _passivate(self) -> None:
        for place in self._live():
            for run_id in list(place.node._actors):
                place.proc.run(place.node._mailboxes.post, run_id, Passivate())

    # ---- nodes

    def begin(self, place: Place) -> None:
        """Let a place have a node, now and when it dies."""
        self.boot(place)

    def boot(self, place: Place) -> None:
        """Start a process with a node in it."""
        plan, place.boots = self.plan, place.boots + 1
        proc = place.proc = self.loop.start(f"n{place.number}.{place.boots}")
        proc.is_newer = (place.number + place.boots) % 2 == 0
        chance = self._chance(proc.name)
        place.offset_s = chance.uniform(-plan.skew_s, plan.skew_s)
        executor = SimExecutor(self.loop, proc, self.ledger, chance, loses=0.0 if self.quiet else plan.body_lost)
        host = self._host(place, proc, chance)
        place.node = self._node(place, proc, Parts(host=host, executor=executor, turn=self.variant.turn))
        self.nodes.append(place.node)
        self.note(f"{proc.name} starts")
        self.later(self._watch_start(proc, host.spawn(self._start(place.node), "start")))

    def _host(self, place: Place, proc: Proc, chance: Random) -> SimHost:
        return SimHost(self.loop, proc, chance, self.now, place.offset_s)

    def _node(self, place: Place, _proc: Proc, parts: Parts) -> Node:
        parts.serve_bus = False
        return self.variant.node(self.app, self.world, InProcessBus(), self._settings(place), parts)

    def _settings(self, place: Place) -> NodeSettings:
        plan = self.plan
        queues = {"default"} if plan.late_queue and not self.quiet else {"default", "elsewhere"}
        return NodeSettings(
            name=f"n{place.number}",
            step_slots=plan.slots,
            queues=frozenset(queues),
            max_live_runs=plan.max_live,
            idle_s=plan.idle_s,
            shadow=plan.shadow,
            run_ahead=plan.run_ahead,
        )

    async def _start(self, node: Node) -> str:
        try:
            await node.start()
        except (Unavailable, IncarnationDead, BusError) as error:
            return repr(error)
        return ""

    async def _watch_start(self, proc: Proc, task: asyncio.Task[str]) -> None:
        await asyncio.wait([task], timeout=60.0)
        if not proc.dead and (not task.done() or task.result()):
            self.note(f"{proc.name} does not come up: {task.result() if task.done() else 'no answer'}")
            self._kill(proc)

    def _kill(self, proc: Proc) -> None:
        self.loop.kill(proc)
        self._died(proc)

    def _died(self, proc: Proc) -> None:
        self.note(f"{proc.name} is killed")
        self.dead.append(proc)
        place = next(place for place in self.places if place.proc is proc)
        place.proc = place.node = None
        self.later(self._supervise(place))

    async def _supervise(self, place: Place) -> None:
        """Bury the dead and start another, in either order."""
        plan = self.plan
        if self.random.random() < 0.5:
            await self._wait(plan.leave_s)
            await self._bury()
            await self._wait(plan.boot_s)
        else:
            await self._wait(plan.boot_s)
            self.later(self._bury_later(plan.leave_s))
        if place.proc is None:
            self.boot(place)

    async def _bury_later(self, mean_s: float) -> None:
        await self._wait(mean_s)
        await self._bury()

    async def _wait(self, mean_s: float) -> None:
        await asyncio.sleep(self.random.expovariate(1 / mean_s))

    async def _bury(self) -> None:
        """Say that the incarnations of dead processes have left."""
        dead = {proc.name for proc in self.dead}
        for incarnation, name in list(self.world.joined.items()):
            if name in dead and incarnation not in self.world.left:
                await self.world.leave(incarnation)

    # ---- faults

    def _doom(self) -> None:
        live = [place.proc for place in self.places if place.proc is not None and place.proc.dies_after is None]
        if live:
            self.random.choice(live).dies_after = int(self.random.expovariate(1 / 150))

    def _pause(self) -> None:
        live = [place for place in self.places if place.proc is not None and not place.proc.paused]
        if live:
            place = self.random.choice(live)
            place.proc.paused = True
            self.note(f"{place.proc.name} hangs")
            self.later(self._hang(place, place.proc))

    async def _hang(self, place: Place, proc: Proc) -> None:
        declared_dead = self.random.random() < self.plan.declared_dead
        await self._wait(self.plan.pause_s / 2)
        if declared_dead and not proc.dead and not self.quiet:
            self.note(f"{proc.name} is declared dead")
            for incarnation, name in list(self.world.joined.items()):
                if name == proc.name and incarnation not in self.world.left:
                    await self.world.leave(incarnation)
        await self._wait(self.plan.pause_s / 2)
        self._resume(proc)
        if self._is_zombie(proc):
            await self._wait(2.0)
            if place.proc is proc:
                self._kill(proc)

    async def _fail_over(self) -> None:
        """Lose the last commits now and then: a replica is behind when it takes over."""
        while self.plan.failover_every_s and not self.quiet:
            await self._wait(self.plan.failover_every_s)
            snapshot = self.world.snapshot()
            await self._wait(0.4)
            if lost := self.world.fail_over(snapshot, wanted=not self.quiet):
                self.note(f"a replica takes over without the last {len(lost)} commits")
                self._forgive(lost)
                for place in self.places:
                    self.later(self._restart(place, place.proc))

    def _forgive(self, lost: list[Commit]) -> None:
        for commit in lost:
            if commit.method == "end_claim":
                self.ledger.forgive(commit.what[1])
            for body in commit.what.events if isinstance(commit.what, Batch) else ():
                if isinstance(body, ev.HookCreated):
                    self.mail.lost_hooks.add((commit.what.run_id, body.token))
                if isinstance(body, ev.HookReceived):
                    self.mail.lost.add((commit.what.run_id, body.delivery))
                self.ledger.forgive(getattr(body, "token", ""))
                self.ledger.forgive_all_of(commit.what.run_id, body.op)

    async def _restart(self, place: Place, proc: Proc | None) -> None:
        """Start a node anew that remembers what the world does not: by then it may have written."""
        await self._wait(1.5)
        if proc is not None and place.proc is proc:
            self._kill(proc)

    def _resume(self, proc: Proc) -> None:
        if proc.paused and not proc.dead:
            proc.paused = False
            self.note(f"{proc.name} goes on")

    def _is_zombie(self, proc: Proc) -> bool:
        return any(name == proc.name and inc in self.world.left for inc, name in self.world.joined.items())

    # ---- afterwards

    def close(self) -> None:
        """Put what is left to rest. Nothing of it counts any more."""
        for node in self.nodes:
            for actor in node._actors.values():
                actor.drop()
        self.loop.close()
        self.world.core.connection.close()
