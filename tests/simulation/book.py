"""Logs written by hand, with the commits that go with them: what checkers are tried on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from fencepost.world import Accepted, Batch, Fence
from fencepost.world import events as ev
from tests.simulation.checkers import Seen
from tests.simulation.ledger import Begun
from tests.simulation.loop import Proc
from tests.simulation.world import Commit

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
INPUT = ev.Value(json=msgspec.Raw(b"{}"))
RESULT = ev.Value(json=msgspec.Raw(b"7"))


class Book:
    """Writes a log batch by batch, with the commits that go with it."""

    def __init__(self):
        self.seen = Seen("run_1", [])
        self.tick = 0
        self.left = set()
        self._add(None, ev.RunCreated(workflow="flow", input=INPUT, seed="s", app="sim"))

    def _add(self, tick, *bodies):
        for body in bodies:
            at = BEGIN + timedelta(seconds=len(self.seen.log))
            self.seen.log.append(ev.Event(len(self.seen.log) + 1, tick, at, body))

    def batch(self, *bodies, known=None, last=None, whole_log=False):
        first, self.tick = len(self.seen.log) + 1, self.tick + 1
        fence = Fence(self.tick - 1, last if last is not None else (f"b{self.tick - 1}" if self.tick > 1 else ""))
        known = first - 1 if known is None else known
        batch = Batch("run_1", bodies, known, fence, f"b{self.tick}", whole_log=whole_log)
        self._commit(batch, first, Fence(self.tick, f"b{self.tick}"))
        self._add(self.tick, *bodies)
        return self

    def outside(self, body):
        self._commit(Batch("run_1", (body,), 0), len(self.seen.log) + 1, Fence(self.tick, ""))
        self._add(None, body)
        return self

    def _commit(self, batch, first, fence):
        answer = Accepted(first, BEGIN, fence, ())
        self.seen.commits.append(Commit(0.0, "n1", "append", batch, answer, frozenset(self.left)))

    def body(self, token="t1", done="Succeeded", result=b"7", op="0.0"):
        self.seen.begun[token] = Begun(token, "run_1", op, 1, Proc("n1"), 0.0, done=done, result=result)
        return self

    def leave(self, incarnation="inc_1"):
        self.left.add(incarnation)
        return self

    def moved(self, index, **fields):
        self.seen.log[index] = msgspec.structs.replace(self.seen.log[index], **fields)
        return self


def created(op="0.0"):
    return ev.StepCreated(op=op, name="work", args=INPUT)


def started(op="0.0", attempt=1, token="t1", dispatch=1):
    return ev.StepStarted(op=op, attempt=attempt, token=token, incarnation="inc_1", dispatch=dispatch)


def completed(op="0.0", attempt=1, token="t1"):
    return ev.StepCompleted(op=op, attempt=attempt, token=token, result=RESULT)


def retrying(op="0.0", attempt=1, token="t1", lost=0):
    return ev.StepRetrying(op=op, attempt=attempt, delay_s=1.0, token=token, lost=lost)


def begun():
    return Book().batch(ev.RunStarted(), created(), started(), whole_log=True)


def whole():
    return begun().body().batch(completed()).batch(ev.RunCompleted(result=RESULT))


def ahead(seconds):
    book = begun()
    batch = Batch(
        "run_1", (completed(),), 4, Fence(1, "b1"), "b2", whole_log=True, at=BEGIN + timedelta(seconds=seconds)
    )
    book._commit(batch, 5, Fence(2, "b2"))
    return book
