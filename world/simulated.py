"""The world of the simulator: the same core in memory, inline on a virtual clock, with faults and with switches.

Nothing here runs in a thread, so a seed decides everything. Two simulated nodes may share one.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from .errors import ClaimLost, Unavailable
from .events import StepStarted
from .sqlite import schema
from .sqlite.core import Core
from .sqlite.face import Face
from .sqlite.store import MAX_VALUE_BYTES, Clock
from .sqlite.transactions import Body, read, write

if TYPE_CHECKING:
    from .events import Event, HookReceived
    from .folding import Look
    from .records import Accepted, Batch, Facts, Fence
    from .rows import Held

T = TypeVar("T")
Hook = Callable[[str], Awaitable[None]]
"""Called with a method's name; may wait, may raise."""

WHERE = "the simulated world"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The laws the world holds, each a switch. Off: a simulation that does not notice proves nothing."""

    fence: bool = True
    """In-band batches need the current tick (and its batch)."""
    last_batch: bool = True
    """An equal tick of another batch is refused."""
    whole_log: bool = True
    """A batch that ran ahead needs the whole log."""
    revoked: bool = True
    """An in-band batch must have seen the last cancel request."""
    claim: bool = True
    """An outcome needs its claim, a start a free attempt."""
    ended: bool = True
    """Nothing follows a terminal event."""
    idempotence: bool = True
    """What comes again under one key is recorded once."""
    due_kept: bool = True
    """Due is not moved later over an event its writer has not seen."""
    at: bool = True
    """A proposed `at` is neither before the last event nor ahead of the clock."""
    offer: bool = True
    """A claim takes what is on offer, for an incarnation that lives."""
    lapse: bool = True
    """Whose lease has run out is declared dead."""
    dead: bool = True
    """Who is dead neither renews nor shares."""
    taken: bool = True
    """A token belongs to one open hook; who asks for it then is refused."""
    hook_open: bool = True
    """What is put needs an open hook."""
    hook_end: bool = True
    """The end of a run closes its hooks."""


class SwitchedCore(Core):
    """A core with some of its checks off."""

    def __init__(
        self, connection: sqlite3.Connection, facts: Facts, clock: Clock, max_value_bytes: int, checks: Checks
    ) -> None:
        super().__init__(connection, facts, clock, max_value_bytes)
        self.checks = checks

    def _repeated(self, run: Held, batch: Batch) -> Accepted | None:
        return super()._repeated(run, batch) if self.checks.idempotence else None

    def _check_ended(self, run: Held) -> None:
        if self.checks.ended:
            super()._check_ended(run)

    def _check_tick(self, run: Held, fence: Fence) -> None:
        if self.checks.fence:
            super()._check_tick(run, fence)

    def _check_last_batch(self, run: Held, fence: Fence) -> None:
        if self.checks.fence and self.checks.last_batch:
            super()._check_last_batch(run, fence)

    def _check_whole_log(self, run: Held, batch: Batch, between: tuple[Event, ...]) -> None:
        if self.checks.whole_log:
            super()._check_whole_log(run, batch, between)

    def _check_revoked(self, run: Held, batch: Batch, between: tuple[Event, ...]) -> None:
        if self.checks.revoked:
            super()._check_revoked(run, batch, between)

    def _check_at(self, run: Held, batch: Batch, between: tuple[Event, ...]) -> None:
        if self.checks.at:
            super()._check_at(run, batch, between)

    def _check_claims(self, batch: Batch) -> None:
        if self.checks.claim:
            super()._check_claims(batch)

    def _check_open(self, body: HookReceived, unread: int | None) -> None:
        if self.checks.hook_open:
            super()._check_open(body, unread)

    def _check_taken(self, run: Held, batch: Batch) -> None:
        if self.checks.taken:
            super()._check_taken(run, batch)

    def _close_hooks(self, run_id: str) -> None:
        if self.checks.hook_end:
            super()._close_hooks(run_id)

    def _start_offered(self, run_id: str, op: str, token: str, incarnation: str) -> StepStarted:
        try:
            return super()._start_offered(run_id, op, token, incarnation)
        except ClaimLost:
            if self.checks.offer:
                raise
        bodies = [event.body for event in self.history(run_id, op)]
        started = [(body.attempt, body.dispatch) for body in bodies if isinstance(body, StepStarted)]
        attempt, dispatch = max(started, default=(1, 0))
        return StepStarted(op=op, attempt=attempt, token=token, incarnation=incarnation, dispatch=dispatch + 1)

    def _end_lapsed(self, now: int) -> None:
        if self.checks.lapse:
            super()._end_lapsed(now)

    def _lives(self, member: sqlite3.Row) -> bool:
        return super()._lives(member) or not self.checks.dead

    def _look(self, run: Held, batch: Batch, owns: int) -> Look:
        look = super()._look(run, batch, owns)
        return look if self.checks.due_kept else replace(look, missed=False)


async def nothing(_method: str) -> None:
    """Let a call pass."""


class SimulatedWorld(Face):
    """A world in memory whose calls a simulator can delay, fail, or answer with a lie of omission.

    `before(method)` runs ahead of the transaction: waiting there delays a commit, raising there loses the request.
    `after(method)` runs when it has committed: raising `Unavailable` there loses the answer of what is done.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        checks: Checks = Checks(),
        before: Hook = nothing,
        after: Hook = nothing,
        namespace: str = "default",
        partitions: int = 32,
        hash_seed: int = 0,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        connection.row_factory = sqlite3.Row
        constants = schema.Constants(namespace, partitions, hash_seed)
        facts = schema.prepare(connection, WHERE, constants, clock)
        self.core = SwitchedCore(connection, facts, clock, max_value_bytes, checks)
        self.before = before
        self.after = after
        self.closed = False
        weakref.finalize(self, connection.close)  # a simulation drops its worlds without a word

    async def _write(self, method: str, body: Body[T], size_bytes: int = 0) -> T:  # noqa: ARG002  (no lane to bound)
        return await self._faulty(method, lambda: write(self.core, body, WHERE))

    async def _read(self, method: str, body: Body[T]) -> T:
        return await self._faulty(method, lambda: read(self.core, body, WHERE))

    async def _faulty(self, method: str, transaction: Callable[[], T]) -> T:
        await self.before(method)
        if self.closed:
            raise Unavailable(f"{WHERE} was closed")
        answer = transaction()
        await self.after(method)
        return answer

    async def close(self) -> None:
        """See World."""
        self.closed = True
        self.core.connection.close()
