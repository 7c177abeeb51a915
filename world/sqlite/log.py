"""The append: the only way a log grows after its first event. Lock, look, write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ClaimLost, RunEnded, StaleLog, Superseded
from ..events import Event, EventBody, StepStarted, encode_body, kind_of
from ..folding import (
    Look,
    check_form,
    decided_after,
    due_after,
    fits,
    is_free,
    key_of,
    last_revoking,
    last_waking,
    status_after,
    tokens_of,
    told,
)
from ..instants import from_us, to_us
from ..records import Accepted, Batch, Fence
from .effects import Effects
from .store import ALL

if TYPE_CHECKING:
    from datetime import datetime

    from ..rows import Held


class Log(Effects):
    """Appends. Each check is a method of its own, so that a world with one of them missing can be made (tests)."""

    def append(self, batch: Batch) -> Accepted:
        """See World."""
        check_form(batch)
        lines = self._lines(batch)
        run = self.hold(batch.run_id)
        if (repeated := self._repeated(run, batch)) is not None:
            return repeated
        self._check_ended(run)
        self._check_fence(run, batch)
        between = self._between(run, batch)
        self._check_whole_log(run, batch, between)
        self._check_revoked(run, batch, between)
        self._check_at(run, batch, between)
        self._check_claims(batch)
        self._check_received(run, batch)
        self._check_taken(run, batch)
        return self._write(run, batch, lines, between)

    # ---- look

    def _lines(self, batch: Batch) -> list[str]:
        lines = [encode_body(body) for body in batch.events]
        for body, line in zip(batch.events, lines, strict=True):
            self.check_size(f"{kind_of(body)} {body.op}".strip(), len(line))
        return [line.decode() for line in lines]

    def _repeated(self, run: Held, batch: Batch) -> Accepted | None:
        """Return the answer of the first time, also on an ended run: what ended it may be what is repeated."""
        for body in batch.events:
            found = key_of(body) and self.one("event_by_key", run_id=run.run_id, type=kind_of(body), key=key_of(body))
            if found:
                between = self._between(run, batch)
                return Accepted(found["seq"], from_us(found["at"]), run.fence, between, repeated=True)
        return None

    def _check_ended(self, run: Held) -> None:
        if not run.is_live:
            raise RunEnded(run.run_id, run.status)

    def _check_fence(self, run: Held, batch: Batch) -> None:
        if batch.fence is not None:
            self._check_tick(run, batch.fence)
            self._check_last_batch(run, batch.fence)
            self._check_known(run, batch)

    def _check_tick(self, run: Held, fence: Fence) -> None:
        if fence.tick != run.tick:
            raise Superseded(run.run_id)

    def _check_last_batch(self, run: Held, fence: Fence) -> None:
        """Refuse an equal tick of another history: after a failover that lost commits, counting is not enough."""
        if fence.last_batch != run.last_batch:
            raise Superseded(run.run_id)

    def _check_known(self, run: Held, batch: Batch) -> None:
        """Refuse who has read events that a failover lost: outside ones leave the tick and its batch as they are."""
        if batch.known > run.seq:
            raise Superseded(run.run_id)

    def _between(self, run: Held, batch: Batch) -> tuple[Event, ...]:
        if not told(batch) or batch.known >= run.seq:
            return ()
        return self.events_after(run.run_id, batch.known, ALL)

    def _check_whole_log(self, run: Held, batch: Batch, between: tuple[Event, ...]) -> None:
        if batch.whole_log and run.waking_seq > batch.known:
            raise StaleLog(run.run_id, between)

    def _check_revoked(self, run: Held, batch: Batch, between: tuple[Event, ...]) -> None:
        if batch.fence is not None and run.revoked_seq > batch.known:
            raise StaleLog(run.run_id, between)

    def _check_at(self, run: Held, batch: Batch, between: tuple[Event, ...]) -> None:
        if batch.at is not None and not fits(batch.at, run.last_at, self.clock()):
            raise StaleLog(run.run_id, between)

    def _check_claims(self, batch: Batch) -> None:
        lost = [*self._lost_outcomes(batch), *self._lost_starts(batch)]
        if lost:
            raise ClaimLost(batch.run_id, tuple(dict.fromkeys(lost)))

    def _lost_outcomes(self, batch: Batch) -> list[str]:
        used: set[str] = set()
        lost: list[str] = []
        for outcome in tokens_of(batch.events):
            if outcome.token in used or not self.has_claim(batch.run_id, outcome):
                lost.append(outcome.op)
            used.add(outcome.token)
        return lost

    def _lost_starts(self, batch: Batch) -> list[str]:
        """A dead node starts nothing. From outside (a worker that claims) the attempt must be free as well.

        In-band the start of an attempt that is not free is inert: the worker was faster, and the batch must be
        able to commit.
        """
        starts = [body for body in batch.events if isinstance(body, StepStarted)]
        return [
            body.op
            for body in starts
            if not self.is_alive(body.incarnation)
            or (batch.fence is None and not is_free(self.history(batch.run_id, body.op, None), body))
        ]

    # ---- write

    def _write(self, run: Held, batch: Batch, lines: list[str], between: tuple[Event, ...]) -> Accepted:
        first = run.seq + 1
        now = self.clock()
        at = batch.at or max(now, run.last_at)
        tick = None if batch.fence is None else run.tick + 1
        self._insert(run, batch.events, lines, tick, at)
        owns = self.apply(run, batch, first)
        self._advance(run, batch, at, owns)
        self._move_due(run, batch, now, owns)
        fence = run.fence if tick is None else Fence(tick, batch.batch_id)
        return Accepted(first, at, fence, between)

    def _insert(
        self, run: Held, events: tuple[EventBody, ...], lines: list[str], tick: int | None, at: datetime
    ) -> None:
        shared = {"run_id": run.run_id, "tick": tick, "at": to_us(at)}
        numbered = enumerate(zip(events, lines, strict=True), run.seq + 1)
        parameters = [
            shared | {"seq": seq, "type": kind_of(body), "op": body.op, "key": key_of(body), "data": line}
            for seq, (body, line) in numbered
        ]
        self.do_each("insert_event", parameters)

    def _advance(self, run: Held, batch: Batch, at: datetime, owns: int) -> None:
        status = status_after(run.status, batch.events)
        in_band = batch.fence is not None
        self.do(
            "advance_run" if status == run.status else "advance_run_to",
            run_id=run.run_id,
            was_seq=run.seq,
            was_tick=run.tick,
            seq=run.seq + len(batch.events),
            tick=run.tick + in_band,
            last_batch=batch.batch_id if in_band else run.last_batch,
            at=to_us(at if batch.events else run.last_at),
            decided_seq=decided_after(batch, run.seq, run.decided_seq) if in_band else None,
            waking_seq=last_waking(batch.events, run.seq + 1, run.waking_seq),
            revoked_seq=last_revoking(batch.events, run.seq + 1, run.revoked_seq),
            in_band_count=run.in_band_count + (len(batch.events) if in_band else 0),
            owns=owns,
            status=status,
            ended=status not in ("pending", "running"),
        )

    def _move_due(self, run: Held, batch: Batch, now: datetime, owns: int) -> None:
        """Move it by the clock, not by the events' `at`: that may be ahead, and due is never later than the truth."""
        due = due_after(self._look(run, batch, owns), batch, now)
        self.write_due(run, due)

    def _look(self, run: Held, batch: Batch, owns: int) -> Look:
        return Look(
            due=run.due,
            missed=run.waking_seq > batch.known or self.waits_for_the_dead(run.run_id, owns),
            wakes=last_waking(batch.events, 1, 0) > 0,
            ends=status_after(run.status, batch.events) not in ("pending", "running"),
        )
