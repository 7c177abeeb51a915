"""What an appended event does besides standing in the log: claims, offers, hooks, due. Keyed by (run, op)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from ..events import (
    TERMINAL,
    EventBody,
    Outcome,
    StepCancelled,
    StepCompleted,
    StepFailed,
    StepRetrying,
    StepStarted,
)
from ..folding import OWNS_CLAIMS, OWNS_OFFERS, ends_claim, is_free
from ..instants import to_us
from ..records import Batch, Offer
from .hooks import Hooks

if TYPE_CHECKING:
    from datetime import datetime

    from ..rows import Held

WITHDRAWING: Final = (StepStarted, StepCancelled, StepCompleted, StepFailed)
"""What an operation's offer ends with."""


class Effects(Hooks):
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
        owns |= self.apply_hooks(run, batch, first)
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
            case StepFailed() if not body.token:
                self._drain(run_id, "drain_op", op=body.op)
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
        if _ends(batch):
            self.do("delete_offers", run_id=run_id)
        for body in batch.events:
            if isinstance(body, WITHDRAWING):
                self.do("delete_offer", run_id=run_id, op=body.op)

    def _offer(self, run: Held, batch: Batch, owns: int) -> int:
        """Make the run's offers exactly those the decider names. An outside batch leaves them as they are."""
        if batch.fence is None or not (batch.offers or owns & OWNS_OFFERS):
            return 0
        wanted = set[Offer]() if _ends(batch) else set(batch.offers)
        present = {Offer(*row) for row in self.all("offers_of_run", run_id=run.run_id)}
        gone = sorted(offer.op for offer in present - wanted)
        new = sorted(wanted - present, key=lambda offer: offer.op)
        self.do_each("delete_offer", [{"run_id": run.run_id, "op": op} for op in gone])
        free = [asdict(offer) for offer in new if self._can_start(run.run_id, offer)]
        self.do_each("insert_offer", [{"run_id": run.run_id, **offer} for offer in free])
        return OWNS_OFFERS if wanted else 0

    def _can_start(self, run_id: str, offer: Offer) -> bool:
        """Tell whether a claim could take the offer. Not when a worker was faster, and the decider has not seen it."""
        start = StepStarted(op=offer.op, attempt=offer.attempt, token="", incarnation="", dispatch=offer.dispatch)
        return is_free(self.history(run_id, offer.op), start)

    # ---- due

    def write_due(self, run: Held, due: datetime | None) -> None:
        """Write when to look at the run, if that is another time than before."""
        if due == run.due:
            return
        if due is None:
            self.do("delete_due", run_id=run.run_id)
        else:
            self.do("set_due", run_id=run.run_id, app=run.app, partition=run.partition, at=to_us(due))


def _ends(batch: Batch) -> bool:
    return any(isinstance(body, TERMINAL) for body in batch.events)
