"""How far each step of a run has come, folded from the log: attempts, losses, the running claim, when to try again.

The first event of a class counts for each (operation, attempt, dispatch); later ones are inert. Attempts count
failures only: a loss (its node died) raises `dispatch` and `lost`, not `attempt` (L14).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.world import Offer
from fencepost.world import events as ev

from .durations import after

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(slots=True)
class Attempts:
    """One step. It runs while `token` is set, waits for `retry_at` between attempts, and is over with `ended`."""

    op: str
    created: ev.StepCreated
    created_at: datetime
    attempt: int = 0
    """Attempts that were started, losses not counted."""
    dispatch: int = 0
    lost: int = 0
    token: str = ""
    incarnation: str = ""
    retry_at: datetime | None = None
    again: bool = False
    """The next start repeats the present attempt: it was lost."""
    ended: bool = False

    @property
    def running(self) -> bool:
        """Whether an attempt was started and has no outcome yet."""
        return bool(self.token) and not self.ended

    def ready(self, now: datetime) -> bool:
        """Tell whether an attempt may be started."""
        return not self.ended and not self.token and (self.retry_at is None or self.retry_at <= now)

    def next_start(self, token: str, incarnation: str) -> ev.StepStarted:
        """Return the event that starts the next attempt, or repeats a lost one."""
        attempt, dispatch = self._next
        return ev.StepStarted(op=self.op, attempt=attempt, token=token, incarnation=incarnation, dispatch=dispatch)

    def offer(self) -> Offer:
        """Return the offer of the next attempt to whatever node serves the step's queue."""
        return Offer(self.op, self.created.queue, *self._next)

    @property
    def _next(self) -> tuple[int, int]:
        return (self.attempt if self.again else self.attempt + 1), self.dispatch + 1


class Progress:
    """All steps of one run that are not over yet, by operation."""

    def __init__(self) -> None:
        self.open: dict[str, Attempts] = {}

    def take(self, event: ev.Event) -> None:
        """Fold one event in."""
        body = event.body
        match body:
            case ev.StepCreated(op=op):
                self.open.setdefault(op, Attempts(op, body, event.at))
            case ev.StepStarted(op=op) if op in self.open:
                self._started(self.open[op], body)
            case ev.StepRetrying(op=op) if op in self.open:
                self._retrying(self.open[op], body, event.at)
            case ev.StepCompleted(op=op) | ev.StepFailed(op=op) | ev.StepCancelled(op=op) if op in self.open:
                self.open.pop(op).ended = True
            case _:
                return

    def _started(self, step: Attempts, body: ev.StepStarted) -> None:
        if body.dispatch <= step.dispatch:
            return
        step.attempt, step.dispatch = body.attempt, body.dispatch
        step.token, step.incarnation = body.token, body.incarnation
        step.retry_at, step.again = None, False

    def _retrying(self, step: Attempts, body: ev.StepRetrying, at: datetime) -> None:
        if body.attempt != step.attempt or not step.token:
            return
        step.token = step.incarnation = ""
        step.again = body.lost > step.lost or body.deferred
        step.lost = step.lost if body.deferred else body.lost  # an attempt that ended by itself was not lost
        step.retry_at = after(at, body.delay_s)
