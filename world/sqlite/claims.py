"""What is on offer, and how a worker takes it: one `step_started` from outside, and the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ClaimLost
from ..events import StepStarted
from ..records import UNREAD, Batch, Claimed
from .log import Log

if TYPE_CHECKING:
    from ..rows import Held


class Claims(Log):
    """Claims of offers. Lock, look, write, as for every append."""

    def claim(self, run_id: str, op: str, token: str, incarnation: str) -> Claimed | None:
        """See World. A claim that is there is answered before anything is checked: its answer was lost.

        None for one that drains: it is over, and its body never began, so it ends here.
        """
        if not token:
            raise ValueError("a claim needs a token")
        run = self.hold(run_id)
        made = self.one("claim_by_token", run_id=run_id, op=op, token=token)
        if made is not None and made["draining"]:
            self.end_claim(run_id, token)
            return None
        if made is not None:
            return self._claimed(run, op, made["attempt"], made["dispatch"])
        self._check_ended(run)
        start = self._start_offered(run_id, op, token, incarnation)
        batch = Batch(run_id, (start,), UNREAD)
        self._write(run, batch, self._lines(batch), ())
        return self._claimed(run, op, start.attempt, start.dispatch)

    def offers(self, app: str, queue: str, limit: int) -> tuple[tuple[str, str], ...]:
        """See World."""
        found = self.all("offers_in_queue", app=app, queue=queue, limit=max(limit, 0))
        return tuple((row["run_id"], row["op"]) for row in found)

    def _start_offered(self, run_id: str, op: str, token: str, incarnation: str) -> StepStarted:
        """Return the start an offer stands for. Also an offer can be late: its attempt must be free.

        Raises:
            ClaimLost: there is none, or the incarnation may not start it.
        """
        offer = self.one("offer_of_op", run_id=run_id, op=op)
        if offer is None:
            raise ClaimLost(run_id, (op,))
        start = StepStarted(
            op=op, attempt=offer["attempt"], token=token, incarnation=incarnation, dispatch=offer["dispatch"]
        )
        self._check_claims(Batch(run_id, (start,), UNREAD))
        return start

    def _claimed(self, run: Held, op: str, attempt: int, dispatch: int) -> Claimed:
        return Claimed(run.workflow, run.app, run.partition, attempt, dispatch, self.history(run.run_id, op))
