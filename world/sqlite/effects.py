"""What an appended event does besides standing in the log: claims, offers, due. Keyed by (run, op)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import (
    TERMINAL,
    EventBody,
    Outcome,
    StepCancelled,
    StepCompleted,
    StepCreated,
    StepFailed,
    StepRetrying,
    StepStarted,
)
from ..folding import OWNS_CLAIMS, OWNS_OFFERS, ends_claim, is_free
from ..instants import to_us
from .pages import Pages

if TYPE_CHECKING:
    from datetime import datetime

    from ..records import Batch
    from ..rows import Held


class Effects(Pages):
    """Effects, in the transaction of their event. A run that owns no claim touches no claim (`owns`)."""

    def apply(self, run: Held, batch: Batch, first: int) -> int:
        """Do what the events of a batch entail, in their order, and return what the run may own after them."""
        owns = run.owns
        for seq, body in enumerate(batch.events, first):
            if isinstance(body, StepStarted):
                owns |= self._start(run.run_id, seq, body)
            elif owns & OWNS_CLAIMS:
                self._end(run.run_id, body)
        if owns & OWNS_OFFERS:
            self._withdraw(run.run_id, batch)
        return owns | self._offer(run, batch, owns)

    # ---- claims

    def has_claim(self, run_id: str, outcome: Outcome) -> bool:
        """Tell whether an outcome has its claim: current, not draining, of a live incarnation."""
        claims = self.all("claims_of_op", run_id=run_id, op=outcome.op)
        return any(
            (attempt, token) == (outcome.attempt, outcome.token) and alive and not draining
            for attempt, token, draining, alive in claims
        )

    def is_alive(self, incarnation: str) -> bool:
        """Tell whether an incarnation has joined and not left."""
        return self.one("is_alive", incarnation=incarnation) is not None

    def waits_for_the_dead(self, run_id: str, owns: int) -> bool:
        """Tell whether an attempt's incarnation has left and nobody has said so in the log yet.

        `leave` made the run due for it; a writer who does not know must not take that back.
        """
        return bool(owns & OWNS_CLAIMS) and self.one("has_dead_claim", run_id=run_id) is not None

    def end_claim(self, run_id: str, token: str) -> bool:
        """See World."""
        run = self.hold(run_id)
        ended = self.do("end_claim", run_id=run_id, token=token) > 0
        if ended and run.is_live:
            self.ring(run)
        return ended

    def _start(self, run_id: str, seq: int, body: StepStarted) -> int:
        if not is_free(self.history(run_id, body.op, seq), body):
            return 0
        self.do(
            "insert_claim",
            run_id=run_id,
            op=body.op,
            attempt=body.attempt,
            dispatch=body.dispatch,
            token=body.token,
            incarnation=body.incarnation,
        )
        return OWNS_CLAIMS

    def _end(self, run_id: str, body: EventBody) -> None:
        match body:
            case StepCompleted() | StepRetrying() | StepFailed() if ends_claim(body):
                self.do("end_claim_of_op", run_id=run_id, op=body.op, token=body.token)
            case StepCompleted() | StepRetrying() | StepFailed():
                self._drain(run_id, "drain_attempt", op=body.op, attempt=body.attempt)
            case StepCancelled():
                self._drain(run_id, "drain_op", op=body.op)
            case _ if isinstance(body, TERMINAL):
                self._drain(run_id, "drain_run")
            case _:
                pass

    def _drain(self, run_id: str, query: str, **of: object) -> None:
        """Let claims drain: their bodies may still run. On a dead node none does, so there the claim just ends."""
        if self.do(query, run_id=run_id, **of):
            self.do("end_drained_of_run", run_id=run_id)

    # ---- offers

    def _withdraw(self, run_id: str, batch: Batch) -> None:
        if any(isinstance(body, TERMINAL) for body in batch.events):
            self.do("delete_offers", run_id=run_id)
        for body in batch.events:
            if isinstance(body, (StepStarted, StepCancelled)):
                self.do("delete_offer", run_id=run_id, op=body.op)

    def _offer(self, run: Held, batch: Batch, owns: int) -> int:
        """Make the run's offers exactly those the decider names. An outside batch leaves them as they are."""
        if batch.fence is None or not (batch.offers or owns & OWNS_OFFERS):
            return 0
        present = {row["op"] for row in self.all("offers_of_run", run_id=run.run_id)}
        for op in sorted(present - batch.offers):
            self.do("delete_offer", run_id=run.run_id, op=op)
        for op in sorted(batch.offers - present):
            self.do("insert_offer", run_id=run.run_id, op=op, queue=self._queue_of(run.run_id, op))
        return OWNS_OFFERS if batch.offers else 0

    def _queue_of(self, run_id: str, op: str) -> str:
        for event in self.history(run_id, op):
            if isinstance(event.body, StepCreated):
                return event.body.queue
        raise ValueError(f"run {run_id}: {op} is offered but was never created")

    # ---- due

    def write_due(self, run: Held, due: datetime | None) -> None:
        """Write when to look at the run, if that is another time than before."""
        if due == run.due:
            return
        if due is None:
            self.do("delete_due", run_id=run.run_id)
        else:
            self.do("set_due", run_id=run.run_id, partition=run.partition, at=to_us(due))
