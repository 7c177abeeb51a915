"""The world: what is true. One interface, several stores, one contract suite (`tests/contract`).

Every method is one transaction and, for a store across a network, one round trip: lock, then look, then write.
Lock order of every transaction: run rows ascending, then key rows ascending, then new unique ids ascending.
Rows owned by a run (claims, due, later hooks and waiters) are written only under that run row's lock. Bells are
inserts. Instants are aware UTC datetimes with microseconds, on the world's clock; spans are timedeltas.

Errors are the types of `errors.py`. A method that raises has written nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .records import PAGE

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from .events import Event
    from .records import (
        Accepted,
        Batch,
        Claimed,
        Created,
        Due,
        Facts,
        Fence,
        Hook,
        Letter,
        Member,
        NewLetter,
        NewRun,
        Opened,
        Run,
        RunQuery,
        Share,
    )


class World(Protocol):
    """The store. See the module for the rules all methods obey."""

    async def facts(self) -> Facts:
        """Return the namespace's constants."""
        ...

    async def now(self) -> datetime:
        """Return the world's clock."""
        ...

    # ---- runs and their logs

    async def create(self, new: NewRun) -> Created:
        """Create a run: its row at tick 0, event 1 `run_created`, its chain, due at `new.due` or now.

        Idempotent by `chain_id`: a chain that exists with the same workflow and `input_digest` is returned as
        `existing`. Likewise by `run_id`. A run of no app (`new.app` empty: the starter does not know the workflow)
        goes to the app of the newest live member that knows it, if there is one; its event keeps no app, since its
        input was not checked.

        Raises:
            RunExists: the chain exists with another workflow or digest.
        """
        ...

    async def open(self, run_id: str) -> Opened:
        """Return fence, row, claims and the first page (up to `PAGE` events) in one snapshot.

        Raises:
            RunNotFound: no run has this id (a chain id is not resolved here, see `find`).
            UnknownEvent: the page holds a type this version does not know.
        """
        ...

    async def more(self, run_id: str, after: int, limit: int = PAGE) -> tuple[Event, ...]:
        """Return up to `limit` events after a position, ascending: always a prefix of what follows it.

        Raises:
            RunNotFound: no run has this id.
            UnknownEvent: as for `open`.
        """
        ...

    async def append(self, batch: Batch) -> Accepted:
        """Append a batch at the next positions, with all its effects, or raise and change nothing.

        In this order, under the run row's lock: the run must be live (`RunEnded`), the fence must match and `known`
        be no position that is not there (`Superseded`), the whole-log fence must hold (`StaleLog`; for any in-band
        batch also when `known` is below the row's `revoked_seq`), every outcome with a token needs its current, not
        draining claim of a live incarnation (`ClaimLost`). Likewise a `step_started` of an incarnation that is not
        alive, and one from outside (a worker that claims) whose attempt is not free: the operation is settled, or
        `(attempt, dispatch)` is not above every one started before. A `hook_received` needs its hook to be open: its
        token with this run and operation (`HookNotFound`), and fewer than `HOOK_UNREAD_MAX` payloads unread
        (`HookFull`). The token of a `hook_created` must be of no other open hook, of this run neither, what the batch
        disposes before it aside (`Taken`); created again by its own operation it is inert. Before all this, an outside
        batch whose event carries a key (`folding.key_of`) that the log holds already for that type answers `repeated`,
        also on an ended run or a closed hook.

        An in-band batch refused as stale tells what landed. `at` is the world's clock, never before the
        run's last event. A proposed `batch.at` is taken as it is, or refused with `StaleLog` when it lies before
        the run's last event or more than `AHEAD` after the world's clock.

        Effects: `step_started` makes a claim and ends the offer, unless its attempt is not free (in-band: a worker
        was faster, and it is inert); an outcome that was accepted by token ends its claim; a verdict without
        token, or `step_failed` that `drains`, leaves the attempt's claim `draining` (as does `step_cancelled`, for
        the claims of its op), and a draining claim of a dead incarnation is gone; `hook_created` opens a hook,
        `hook_disposed` closes it (keyed by token, run and operation), `hook_received` counts as unread until `reads`
        says that it was taken; a terminal event sets the status, drains all claims, closes all hooks and deletes the
        run's due. Waking events from outside set due to now. An in-band
        batch sets due to `batch.due` if the log ended where the writer knew it to end (quiet events do not count)
        and no claim of a dead incarnation is left, else to now; a due within 15 s before the asked one may be left
        as it is. An event whose operation is settled already is recorded and inert. An empty in-band batch only
        raises the tick and moves due.

        Raises:
            RunNotFound, RunEnded, Superseded, StaleLog, ClaimLost, Taken, HookNotFound, HookFull: as described.
            ValueTooLarge: an event is over the bound.
            ValueError: a bug of the caller: an in-band event type without a fence or an outside one with it, an
                event after a terminal one, an `at` without `whole_log`.
        """
        ...

    async def claim(self, run_id: str, op: str, token: str, incarnation: str) -> Claimed:
        """Take an offer: write its `step_started` from outside and make the claim `token`. The run row is locked.

        Quiet: no due is set. Idempotent by token: a claim of this operation that has it already is answered again.

        Raises:
            RunNotFound, RunEnded: as for `append`.
            ClaimLost: it is not on offer (any more), or the incarnation is not alive.
        """
        ...

    async def hook(self, token: str) -> Hook:
        """Return whose a token is, or was last.

        Raises:
            HookNotFound: nobody ever made a hook with it.
        """
        ...

    async def received(self, run_id: str, token: str, delivery: str) -> Event | None:
        """Return what a run received under a token and a delivery id, None for nothing."""
        ...

    async def position_at(self, run_id: str, time: datetime) -> int:
        """Return the highest position strictly before a time, 0 before the run began.

        Raises:
            RunNotFound: no run has this id.
        """
        ...

    async def stall(self, run_id: str, fence: Fence | None, why: str) -> None:
        """Mark a live run as stalled, under the tick fence; its due is deleted. No event.

        `fence` is None for a run whose log this version cannot read: then nobody here decides for it anyway.

        Raises:
            RunNotFound, RunEnded, Superseded.
        """
        ...

    async def unstall(self, run_id: str) -> bool:
        """Let a stalled run go on: clear the reason, due now. False when it was not stalled.

        Raises:
            RunNotFound, RunEnded.
        """
        ...

    async def end_claim(self, run_id: str, token: str) -> bool:
        """Say that the body behind a claim has ended without an outcome to record. Works on ended runs too.

        Writes no event; a live run gets due now. False when there was no such claim.
        """
        ...

    async def put_value(self, run_id: str, body: bytes) -> str:
        """Keep a large value of a run, content-addressed, and return its SHA-256 in hex. Idempotent.

        The run need not exist yet: its input may be such a value.

        Raises:
            ValueTooLarge: it is over the bound.
        """
        ...

    async def get_value(self, run_id: str, ref: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Return (a piece of) a kept value.

        Raises:
            RunNotFound: the run keeps no such value.
        """
        ...

    # ---- nodes, and what wants to be looked at

    async def join(self, member: Member) -> str:
        """Start an incarnation and return its id.

        In the same transaction: due now for every run with a claim of a dead incarnation or an offer in one of
        the member's queues, for pending runs whose workflow the member knows, and for stalled runs of its app when
        the code digest is not the one of the app's previous member (their stall is cleared). Pending runs get the
        member's app, except where a live member of their own app knows the workflow; one that has a due keeps it
        (it may begin later on purpose).
        """
        ...

    async def leave(self, incarnation: str) -> None:
        """End an incarnation. Its claims are dead from here on; runs that have one are due now."""
        ...

    async def renew(self, incarnation: str) -> None:
        """Let an incarnation live for the lease it joined with, from now. Nothing to do for one without a lease.

        Raises:
            IncarnationDead: it has left, or was declared dead.
        """
        ...

    async def share(
        self,
        incarnation: str,
        give: Collection[int] = (),
        *,
        take: bool = True,
        to_newer: bool = False,
        hears: bool = True,
    ) -> Share:
        """Declare dead whose lease has run out (as `leave` does), give partitions back, take others, tell the rest.

        Partitions in `give` that are the incarnation's become free. With `take`, and if the member takes any, free
        ones of its app (no owner, or a dead one) become its, up to a fair share. A partition remembers the newest code
        that owned it: its fair share is counted among live members at least as new. An older one takes it only when
        no such member lives and it has been free for `OLDER_AFTER`. Owned beyond the fair share is `surplus`, the
        highest numbers first. `to_newer`: what is given asks for code as new as the newest that lives (the giver does
        not know a workflow of it). `hears`: whether the caller hears the bus; who does not counts in nobody's fair
        share while another does.

        When nobody has asked for longer than `PULSE` the world itself was away, and nobody could renew: then leases
        that were good at the last time are good for one lease more, and nobody is declared dead.

        Raises:
            IncarnationDead: it has left, or was declared dead.
        """
        ...

    async def retire(self, incarnation: str) -> None:
        """Take no partitions any more and give all back: the node is about to leave. Its claims stay its own."""
        ...

    async def offers(self, app: str, queue: str, limit: int) -> tuple[tuple[str, str], ...]:
        """Return (run, operation) of an app's steps on offer in a queue, up to a limit: their bells may be lost."""
        ...

    async def due(
        self, app: str | None, partitions: Collection[int] | None, before: datetime, limit: int
    ) -> tuple[Due, ...]:
        """Return what is due at an instant or before, earliest first; of an app and partitions, or of all for None.

        What belongs to no app (nobody knows its workflow yet) is everybody's.
        """
        ...

    # ---- asking

    async def find(self, run_or_chain: str) -> Run:
        """Return the row of a chain's present run, or of a run by its own id.

        Raises:
            RunNotFound: neither exists.
        """
        ...

    async def runs(self, query: RunQuery) -> tuple[Run, ...]:
        """List runs, newest first. Stable while runs are created."""
        ...

    async def count(self) -> dict[str, int]:
        """Return how many runs there are by status, `stalled` apart from `running`, and `dead` letters."""
        ...

    # ---- dead letters

    async def bury(self, letter: NewLetter) -> str:
        """Keep a dead letter and return its id; a known `source` returns the one that is there."""
        ...

    async def letters(self, before: str = "", limit: int = 50) -> tuple[Letter, ...]:
        """List dead letters, newest first; `before` is the id to continue after."""
        ...

    async def letter(self, letter_id: str) -> Letter | None:
        """Return one dead letter."""
        ...

    async def mark_replayed(self, letter_id: str, replayed_as: str) -> bool:
        """Note what a replay of the letter led to (a run id). False when there is no such letter."""
        ...

    async def close(self) -> None:
        """Let go of files and connections. Idempotent."""
        ...
