"""What one seed has in store. Each fault is on or off in it (swarm): all at once would hide what one alone shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.simulation import flows
from tests.simulation.ledger import Temper
from tests.simulation.trees import random_tree
from tests.simulation.world import Line

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run to be started: when, what, and when a client cancels it (None: never)."""

    at_s: float
    flow: Any
    argument: Any
    cancel_at_s: float | None


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
    runs: list[RunPlan] = field(default_factory=list)


def draw(random: Random) -> Plan:
    """Return the plan of a seed."""
    return replace(_drawn(random), run_ahead=random.random() < 0.7)


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


def _calm(random: Random) -> Plan:
    plan = Plan(shuffle=random.random() < 0.7, lasts_s=random.choice((8.0, 20.0, 40.0)))
    plan.slots = random.choice((1, 2, 4, 64))
    plan.max_live = random.choice((1, 3, 1000))
    plan.idle_s = random.choice((0.2, 2.0))
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


def _maybe(random: Random, probability: float, value: float) -> float:
    return value if random.random() < probability else 0.0
