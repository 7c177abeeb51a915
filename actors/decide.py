"""What a run's decider writes next: one batch from the fed prefix, what ended meanwhile, and the time.

Strict L8: consequences of a result come in a later batch, when the result has its position and was fed. Running ahead
(L4) will change that here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fencepost.world import events as ev

from . import failures, outcomes
from .deadlines import due_waits, next_due, run_deadline, step_deadline
from .errors import FencepostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .attempts import Attempts, Progress
    from .define import Step, Workflow
    from .host import Host
    from .messages import StepEnded
    from .turn import Turn


_WAKING = (ev.StepCompleted, ev.StepFailed, ev.WaitCompleted)


@dataclass(slots=True)
class Decision:
    """A batch in the making. `offers` are the steps that wait for a slot or a node."""

    bodies: list[ev.EventBody] = field(default_factory=list["ev.EventBody"])
    offers: set[str] = field(default_factory=set[str])
    due: datetime | None = None
    whole_log: bool = False


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

    def decide(self, ended: list[StepEnded], lost: list[tuple[str, str]], in_band_count: int) -> Decision:
        """Return what is to be written now; `bodies` is empty when nothing is.

        `ended` are bodies that ended here, `lost` (operation, claim token) of attempts whose node is dead. Takes
        slots for what it starts.
        """
        now = self.host.now()
        decision = Decision(whole_log=not self.turn.started)
        orders = self.turn.orders()
        if not self.turn.started and self.turn.cancel is not None:  # it landed while the log was being read
            decision.bodies = [ev.RunCancelled(reason=self.turn.cancel.reason)]
        elif self.turn.terminal is not None:
            decision.bodies = orders
        elif in_band_count > self.turn.workflow.max_events:
            decision.bodies = [self._too_many_events()]
        elif late := self._run_too_slow(now):
            decision.bodies = [late]
        else:
            decision.bodies = [*self._results(ended, lost, now), *orders]
            self._start_steps(decision, now)
            # A result that is durable and not answered yet wants a look, whatever becomes of this node (L12).
            wakes = any(isinstance(b, _WAKING) for b in decision.bodies)
            decision.due = now if wakes else self._due(decision.bodies, now)
        return decision

    # ---- results

    def _results(self, ended: list[StepEnded], lost: list[tuple[str, str]], now: datetime) -> list[ev.EventBody]:
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
        return outcomes.outcome_of(message, self._step(message.op), state, self.host.random, now=self.host.now())

    def _step(self, op: str) -> Step[Any, Any]:
        step = self.turn.ops.by_path[op].step
        assert step is not None
        return step

    # ---- starts

    def _start_steps(self, decision: Decision, now: datetime) -> None:
        settled = {b.op for b in decision.bodies if isinstance(b, ev.StepFailed | ev.StepCancelled)}
        ready = [s for s in self.progress.open.values() if s.op not in settled and s.ready(now)]
        for state in ready:
            self._start(decision, state.op, state.created.queue, state)
        for body in [b for b in decision.bodies if isinstance(b, ev.StepCreated)]:
            self._start(decision, body.op, body.queue, None)

    def _start(self, decision: Decision, op: str, queue: str, state: Attempts | None) -> None:
        if not self.serves(queue) or not self.take_slot(op):
            decision.offers.add(op)
            return
        token = self.host.token()
        if state is not None:
            decision.bodies.append(state.next_start(token, self.incarnation))
        else:
            decision.bodies.append(ev.StepStarted(op=op, attempt=1, token=token, incarnation=self.incarnation))

    # ---- time

    def _due(self, bodies: list[ev.EventBody], now: datetime) -> datetime | None:
        times = [
            next_due(self.turn, self.progress, bodies, now),
            run_deadline(self.turn.workflow, self.started_at or now),
            self.grace_ends,
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
