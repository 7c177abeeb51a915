"""What one seed has in store. Each fault is on or off in it (swarm): all at once would hide what one alone shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.simulation import flows, hookflows
from tests.simulation.bus import Weather
from tests.simulation.ledger import Temper
from tests.simulation.mail import Letter
from tests.simulation.trees import random_tree
from tests.simulation.world import Line

EVERYTHING = frozenset({"default", "elsewhere"})
HOOKED = 0.6
"""How many seeds have runs that wait for payloads."""
SERVED = (EVERYTHING, EVERYTHING, frozenset({"default"}), frozenset({"elsewhere"}))


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run to be started: when, what, and when a client cancels it (None: never)."""

    at_s: float
    flow: Any
    argument: Any
    cancel_at_s: float | None


@dataclass(slots=True)
class Together:
    """What nodes that share a bus have in store."""

    queues: list[frozenset[str]]
    """Of each place."""
    steps_only: list[bool]
    bus_only: bool = False
    """Every step is dispatched."""
    lease_s: float = 3.0
    weather: Weather = field(default_factory=Weather)
    clock_wrong_s: float = 0.0
    """How wrong clocks are until they hear the world's; 0: they never listen."""
    cut_every_s: float = 0.0
    cut_s: float = 4.0
    away_every_s: float = 0.0
    away_s: float = 8.0
    keeper_dies_every_s: float = 0.0
    stop_every_s: float = 0.0
    """How often a node is told to stop, as in a rolling deploy."""
    notices_s: float = 6.0
    """After how long a supervisor ends a node that hangs."""


@dataclass(slots=True)
class Plan:
    """Means of seconds and probabilities; zero means never."""

    nodes: int = 1
    faulty: bool = True
    shuffle: bool = False
    lasts_s: float = 20.0
    skew_s: float = 0.0
    kill_every_s: float = 0.0
    pause_every_s: float = 0.0
    pause_s: float = 6.0
    declared_dead: float = 0.0
    """How often a paused node is declared dead: it comes back as a zombie."""
    leave_s: float = 1.0
    boot_s: float = 1.0
    bell_lost: float = 0.0
    bell_twice: float = 0.0
    bell_late_s: float = 0.0
    passivate_every_s: float = 0.0
    noise_every_s: float = 0.0
    """Bells nobody asked for, to any node."""
    body_lost: float = 0.0
    failover_every_s: float = 0.0
    """A replica takes over that has not got the last commits."""
    slots: int = 64
    max_live: int = 1000
    idle_s: float = 2.0
    shadow: bool = False
    run_ahead: bool = True
    late_queue: bool = False
    line: Line = field(default_factory=Line)
    temper: Temper = field(default_factory=Temper)
    together: Together | None = None
    runs: list[RunPlan] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)

    @property
    def loses_bells(self) -> bool:
        """Whether a bell may be missed, so that the sweeper has something to repair."""
        return self.faulty or self.bell_lost > 0 or (self.together is not None and self.together.weather.lost > 0)


def draw(seed: int) -> Plan:
    """Return the plan of a seed. Whether nodes share a bus is drawn apart: nothing else moves with it."""
    random, lot, post = (Random(f"{seed} {what}") for what in ("plan", "others lot", "post"))
    plan = replace(_drawn(random), run_ahead=random.random() < 0.7)
    if post.random() < HOOKED:
        _expect_mail(post, plan)
    if lot.random() < 0.6:
        _join_up(lot, plan)
    return plan


def _drawn(random: Random) -> Plan:
    plan = _calm(random)
    if random.random() < 0.12:
        return replace(plan, faulty=False)
    plan.nodes = random.choice((1, 1, 2, 2, 3))
    plan.skew_s = _maybe(random, 0.3, 0.3)
    plan.kill_every_s = _maybe(random, 0.6, random.choice((2.0, 5.0, 10.0)))
    plan.pause_every_s = _maybe(random, 0.5, random.choice((3.0, 8.0)))
    plan.declared_dead = _maybe(random, 0.6, 0.6)
    plan.leave_s = random.choice((0.1, 1.0, 5.0))
    plan.boot_s = random.choice((0.1, 1.0, 5.0))
    plan.bell_lost = _maybe(random, 0.4, 0.5)
    plan.bell_twice = _maybe(random, 0.4, 0.5)
    plan.bell_late_s = _maybe(random, 0.4, 1.0)
    plan.passivate_every_s = _maybe(random, 0.4, 1.0)
    plan.noise_every_s = _maybe(random, 0.5, random.choice((0.1, 0.5)))
    plan.body_lost = _maybe(random, 0.3, 0.15)
    plan.late_queue = random.random() < 0.2
    plan.line = _line(random)
    plan.failover_every_s = _maybe(random, 0.15, 3.0)
    return plan


def _join_up(random: Random, plan: Plan) -> None:
    """Let the nodes of a plan share a bus and have leases."""
    plan.nodes = random.choice((2, 2, 3, 3, 4))
    whole = random.randrange(plan.nodes)
    takes = random.choice([place for place in range(plan.nodes) if place != whole])
    queues = [random.choice(SERVED) for _ in range(plan.nodes)]
    queues[whole] = EVERYTHING
    steps_only = [place != takes and random.random() < 0.25 for place in range(plan.nodes)]
    if not plan.faulty:
        plan.skew_s = 0.0
    together = plan.together = Together(queues, steps_only)
    together.bus_only = random.random() < 0.4
    together.clock_wrong_s = 0.0 if plan.skew_s else random.choice((5.0, 300.0))
    if plan.faulty:
        together.lease_s = random.choice((2.0, 5.0))
        together.weather = _weather(random)
        together.cut_every_s = _maybe(random, 0.5, random.choice((2.0, 6.0)))
        together.cut_s = random.choice((1.0, 4.0, 8.0))
        together.away_every_s = _maybe(random, 0.25, 8.0)
        together.away_s = random.choice((2.0, 8.0))
        together.keeper_dies_every_s = _maybe(random, 0.4, 6.0)
        together.stop_every_s = _maybe(random, 0.3, 6.0)


def _weather(random: Random) -> Weather:
    return Weather(
        late_s=random.choice((0.002, 0.05, 0.5)),
        lost=_maybe(random, 0.4, 0.3),
        twice=_maybe(random, 0.4, 0.3),
        astray=_maybe(random, 0.4, 0.2),
    )


def _calm(random: Random) -> Plan:
    plan = Plan(shuffle=random.random() < 0.7, lasts_s=random.choice((8.0, 20.0, 40.0)))
    plan.slots = random.choice((1, 2, 4, 64))
    plan.max_live = random.choice((1, 3, 1000))
    plan.idle_s = random.choice((0.5, 2.0))
    plan.shadow = random.random() < 0.3
    plan.temper = Temper(
        busy_s=random.choice((0.05, 0.3, 1.0)),
        hangs=_maybe(random, 0.4, 0.1),
        fails=_maybe(random, 0.6, random.choice((0.1, 0.4))),
        stubborn=_maybe(random, 0.4, 0.5),
    )
    plan.runs = [_run(random, plan.lasts_s) for _ in range(random.randint(1, 6))]
    return plan


def _line(random: Random) -> Line:
    return Line(
        delay_s=random.choice((0.001, 0.01, 0.1)),
        slow=_maybe(random, 0.4, 0.05),
        slow_s=random.choice((1.0, 8.0)),
        loses_request=_maybe(random, 0.3, 0.05),
        loses_answer=_maybe(random, 0.4, 0.08),
    )


def _run(random: Random, lasts_s: float) -> RunPlan:
    is_tree = random.random() < 0.5
    at_s = random.random() * lasts_s / 2
    cancel_at_s = at_s + random.expovariate(0.5) if random.random() < 0.3 else None
    if random.random() < 0.1:
        cancel_at_s = at_s  # at once: it may not have begun
    if is_tree:
        return RunPlan(at_s, flows.tree, random_tree(random), cancel_at_s)
    return RunPlan(at_s, random.choice(flows.FLOWS), random.randint(1, 5), cancel_at_s)


def _expect_mail(random: Random, plan: Plan) -> None:
    """Let some of the runs be ones that wait for payloads, and let clients put some: in bursts, near deadlines."""
    tokens = [f"t{number}" for number in range(random.randint(1, 3))]
    for number in range(random.randint(1, 4)):
        token = random.choice(tokens)
        at_s = random.choice((0.2, 0.2, random.random() * plan.lasts_s / 3))
        cancel_at_s = at_s + random.expovariate(0.5) if random.random() < 0.15 else None
        run = RunPlan(at_s, random.choice(hookflows.FLOWS), token, cancel_at_s)
        plan.runs[number : number + 1] = [run]
        plan.letters += _bursts(random, run, number)
    plan.letters += [Letter(random.random() * plan.lasts_s, "nobody", f"lost{n}") for n in range(random.choice((0, 1)))]


def _bursts(random: Random, run: RunPlan, number: int) -> list[Letter]:
    """Return letters for a run: several at about the same time, about when its deadlines are."""
    letters: list[Letter] = []
    for burst in range(random.randint(1, 3)):
        about_s = run.at_s + random.choice((0.0, 0.1, 0.3, 0.4, 0.5, 1.0, 1.0, 1.5, 3.0))
        for n in range(random.choice((1, 1, 2, 4))):
            token = run.argument if run.flow is not hookflows.branches else f"{run.argument}.{random.randrange(3)}"
            at_s = max(about_s + random.gauss(0.0, random.choice((0.001, 0.02, 0.1))), 0.0)
            wait_s, twice = random.choice((0.0, 2.0, 5.0)), random.random() < 0.1
            letters.append(Letter(at_s, token, f"w{number}.{burst}.{n}", wait_s, twice))
    return letters


def _maybe(random: Random, probability: float, value: float) -> float:
    return value if random.random() < probability else 0.0
