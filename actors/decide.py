"""What a run's decider writes next: one batch from the fed prefix, what ended meanwhile, and the time.

Results come first in a batch, then what was asked for. Strictly (L8) what a result leads to comes in a later batch,
when the result has its position and was fed. Running ahead (L4) the results were fed as they will stand, and the same
rules apply to what the code asks for now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.world import events as ev

from . import failures, outcomes
from .attempts import Attempts
from .deadlines import due_waits, next_due, run_deadline, step_deadline
from .errors import FencepostError
from .offering import AGAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.world import Offer

    from .attempts import Progress
    from .define import Step, Workflow
    from .host import Host
    from .messages import StepEnded
    from .turn import Turn


_WAKING = (ev.StepCompleted, ev.StepFailed, ev.WaitCompleted, ev.HookConflict)


@dataclass(slots=True)
class Decision:
    """A batch in the making. `offers` are the steps that wait for a slot or a node."""

    bodies: list[ev.EventBody] = field(default_factory=list["ev.EventBody"])
    offers: dict[str, Offer] = field(default_factory=dict[str, "Offer"])
    due: datetime | None = None
    whole_log: bool = False
    at: datetime | None = None
    """When it ran ahead: the instant its results were fed with."""
    ahead: int = 0
    """How many of its events the code has seen: its results, when it ran ahead."""


@dataclass(slots=True)
class Decider:
    """The inputs of a decision that stay the same while a run is awake."""

    turn: Turn
    progress: Progress
    host: Host
    incarnation: str
    take_slot: Callable[[str], bool]
    """Reserve a slot for an operation; False puts it in line."""
    serves: Callable[[str], bool]
    """Tell whether this node serves a queue."""
    started_at: datetime | None = None
    cancelled_at: datetime | None = None
    conflicts: dict[str, str] = field(default_factory=dict[str, str])
    """Hooks whose token the world gave to another run, and which one: what refused the last batch."""
    offered: frozenset[str] = frozenset()
    """Steps on offer: their bells are rung again when the run is due."""

    def decide(self, results: list[ev.EventBody], in_band_count: int) -> Decision:
        """Return what is to be written now; `bodies` is empty when nothing is. Takes slots for what it starts.

        Raises:
            Diverged: see `Turn.orders`.
        """
        now = self.host.now()
        decision = Decision(list(results), whole_log=not self.turn.started)
        if self._continue(decision, in_band_count, now):
            # A result that is durable and not answered yet wants a look, whatever becomes of this node (L12).
            wakes = any(isinstance(b, _WAKING) for b in decision.bodies)
            decision.due = now if wakes else self._due(decision.bodies, now)
        return decision

    def decide_ahead(self, results: list[ev.EventBody], in_band_count: int, at: datetime) -> Decision:
        """Return a batch of results that were fed ahead with `at`, and what they led to. Otherwise as `decide`."""
        decision = Decision(list(results), whole_log=True, at=at, ahead=len(results))
        if self._continue(decision, in_band_count + len(results), at):
            decision.due = self._due(decision.bodies[len(results) :], at)  # the results are answered here
        return decision

    def _continue(self, decision: Decision, in_band_count: int, now: datetime) -> bool:
        """Add to a batch's results what the code wants, and starts. False when the run ends with it."""
        orders = self._without_taken(self.turn.orders())
        if (end := self._end(orders, in_band_count, now)) is not None:
            decision.bodies += end
            return False
        decision.bodies += orders
        self._start_steps(decision, now)
        return True

    def _without_taken(self, orders: list[ev.EventBody]) -> list[ev.EventBody]:
        """Return orders up to the first hook whose token is another's, and that it is: the code may react to it.

        What was asked for after it may assume that the hook is there, and must not be begun before that (decision 20).
        """
        for number, order in enumerate(orders):
            if isinstance(order, ev.HookCreated) and order.op in self.conflicts:
                return [
                    *orders[:number],
                    ev.HookConflict(op=order.op, token=order.token, owner=self.conflicts[order.op]),
                ]
        return orders

    def _end(self, orders: list[ev.EventBody], in_band_count: int, now: datetime) -> list[ev.EventBody] | None:
        """Return what ends the run now: its code, or a verdict. None when it goes on."""
        if not self.turn.started and self.turn.cancel is not None:  # it landed while the log was being read
            return [ev.RunCancelled(reason=self.turn.cancel.reason)]
        if self.turn.terminal is not None:
            return orders
        if in_band_count > self.turn.workflow.max_events:
            return [self._too_many_events()]
        late = self._run_too_slow(now)
        return None if late is None else [late]

    # ---- results

    def results(self, ended: list[StepEnded], lost: list[tuple[str, str]], in_band_count: int) -> list[ev.EventBody]:
        """Return what was found out and can be written; nothing when the run ends now, whatever it was.

        `ended` are bodies that ended here, `lost` (operation, claim token) of attempts whose node is dead.
        """
        now = self.host.now()
        if self._end([], in_band_count, now) is not None:
            return []
        found: dict[str, ev.EventBody] = {}
        for message in ended:
            self._add(found, message.op, self._outcome(message))
        for op, token in lost:
            state = self.progress.open.get(op)
            if state is not None and state.token == token:
                self._add(found, op, outcomes.lost(self._step(op), state, "its node died"))
        for state in self.progress.open.values():
            deadline = step_deadline(self.turn, state)
            if deadline is not None and deadline <= now:
                self._add(found, state.op, outcomes.too_slow(self._step(state.op), state))
        return [*found.values(), *due_waits(self.turn, now)]

    @staticmethod
    def _add(found: dict[str, ev.EventBody], op: str, body: ev.EventBody | None) -> None:
        if body is not None:
            found.setdefault(op, body)

    def _outcome(self, message: StepEnded) -> ev.EventBody | None:
        state = self.progress.open.get(message.op)
        if state is None or state.token != message.token:
            return None
        body = outcomes.outcome_of(message, self._step(message.op), state, self.host.random, now=self.host.now())
        if isinstance(body, ev.StepRetrying | ev.StepFailed) and body.drains:
            # A verdict: the body may end, and its claim with it, before this batch is in.
            return msgspec.structs.replace(body, token="")
        return body

    def _step(self, op: str) -> Step[Any, Any]:
        step = self.turn.ops.by_path[op].step
        assert step is not None
        return step

    # ---- starts

    def _start_steps(self, decision: Decision, now: datetime) -> None:
        settled = {b.op for b in decision.bodies if isinstance(b, ev.StepFailed | ev.StepCancelled)}
        ready = [s for s in self.progress.open.values() if s.op not in settled and s.ready(now)]
        ready += [Attempts(b.op, b, now) for b in decision.bodies if isinstance(b, ev.StepCreated)]
        for state in ready:
            self._start(decision, state)
        self.offered = frozenset(decision.offers)

    def _start(self, decision: Decision, state: Attempts) -> None:
        if self.serves(state.created.queue) and self.take_slot(state.op):
            decision.bodies.append(state.next_start(self.host.token(), self.incarnation))
        else:
            decision.offers[state.op] = state.offer()

    # ---- time

    def _due(self, bodies: list[ev.EventBody], now: datetime) -> datetime | None:
        times = [
            next_due(self.turn, self.progress, bodies, now, self.offered),
            run_deadline(self.turn.workflow, self.started_at or now),
            self.grace_ends,
            now + AGAIN if self.offered else None,
        ]
        return min((t for t in times if t is not None), default=None)

    def due(self) -> datetime | None:
        """Return when the run wants to be looked at if nothing is written now."""
        return self._due([], self.host.now())

    @property
    def grace_ends(self) -> datetime | None:
        """When a cancelled run that has not ended is terminated."""
        if self.cancelled_at is None:
            return None
        return self.cancelled_at + timedelta(seconds=self.turn.workflow.cancel_grace_s)

    def _run_too_slow(self, now: datetime) -> ev.RunFailed | None:
        deadline = run_deadline(self.turn.workflow, self.started_at)
        if deadline is None or deadline > now:
            return None
        limit = f"{self.turn.workflow.timeout_s:g} s"
        return failed("timeout", f"workflow {self.turn.workflow.name!r} took longer than its timeout of {limit}")

    def _too_many_events(self) -> ev.RunFailed:
        workflow: Workflow[Any, Any] = self.turn.workflow
        return failed(
            "max_events",
            f"workflow {workflow.name!r} has more than {workflow.max_events:,} events: split it into several runs",
        )


def failed(code: str, message: str) -> ev.RunFailed:
    """Return the end of a run by a verdict, not by its code."""
    return ev.RunFailed(code=code, error=failures.describe(FencepostError(message)))
