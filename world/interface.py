"""The world: what is true. One interface, several stores, one contract suite (`tests/contract`).

Every method is one transaction and, for a store across a network, one round trip: lock, then look, then write.
Lock order of every transaction: run rows ascending, then key rows ascending, then new unique ids ascending.
Rows owned by a run (claims, due, later hooks and waiters) are written only under that run row's lock. Bells are
inserts. Instants are aware UTC datetimes with microseconds, on the world's clock; spans are timedeltas.

Errors are the types of `errors.py`. A method that raises has written nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .events import Event, EventBody, Value

PAGE: Final = 500
"""Events a page of a log holds at most."""

Status = Literal["pending", "running", "completed", "failed", "cancelled", "terminated", "continued"]
LIVE: Final = ("pending", "running")


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to decide: the tick and the batch that set it. Read with the first page, never later (L3)."""

    tick: int
    last_batch: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be created. `input_digest` is what decides whether a second start is the same one.

    `chain_id` is the user's id, or empty for none. `run_id` is `run_` and a ULID, made by the caller.
    """

    run_id: str
    workflow: str
    app: str
    input: Value
    input_digest: str
    seed: str
    chain_id: str = ""
    code: str = ""
    python: str = ""
    parent: str = ""
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    due: datetime | None = None
    """When it should begin; None means now."""


@dataclass(frozen=True, slots=True)
class Created:
    """`run_id` is the run of the id: the new one, or with `existing` the one that was there."""

    run_id: str
    existing: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to record the outcome of one attempt (L10). It lives as long as its incarnation."""

    op: str
    attempt: int
    dispatch: int
    token: str
    incarnation: str
    draining: bool = False
    """The attempt was given up (timeout, cancel, end of the run) and its body may still run."""
    alive: bool = True
    """Whether the incarnation was alive in the snapshot it was read in."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run's row: what a list shows, without its log."""

    run_id: str
    chain_id: str
    app: str
    workflow: str
    status: Status
    stalled: str
    """Why it cannot go on until a person acts, in one sentence; empty when it can."""
    seq: int
    tick: int
    decided_seq: int
    """The tail that the last in-band batch was decided from."""
    created_at: datetime
    last_at: datetime
    ended_at: datetime | None
    in_band_count: int
    """Events that count against `max_events`."""
    partition: int
    due: datetime | None
    parent: str = ""
    attributes: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Opened:
    """One snapshot: the fence, the row, the claims, and the first page of the log."""

    fence: Fence
    run: Run
    claims: tuple[Claim, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to append together, all or nothing.

    With `fence` the batch is in-band: it succeeds only if the run's fence still is this one, raises the tick by
    one and leaves `batch_id` as the new `last_batch`. Without, it comes from outside: unconditional while the run
    lives. `known` is the last position the writer has seen and is always given.
    """

    run_id: str
    events: tuple[EventBody, ...]
    known: int
    fence: Fence | None = None
    batch_id: str = ""
    whole_log: bool = False
    """Refuse with `StaleLog` when an event that can resume code landed after `known`."""
    due: datetime | None = None
    """In-band only: when to look at the run again; None when only an event or a claim can move it."""
    offers: frozenset[str] = frozenset()
    """In-band only: the operations of *all* steps that wait for a slot or for a node that serves their queue."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is durable: its events have positions `first_seq`, `first_seq + 1` … and all carry `at`.

    `between` holds what had landed after `known`, complete and in order. `fence` is the one for the next in-band
    batch (the unchanged current one after an outside batch).
    """

    first_seq: int
    at: datetime
    fence: Fence
    between: tuple[Event, ...]
    repeated: bool = False
    """An outside batch whose key was in the log already: nothing was written, `first_seq` is where it stands."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node that joins: its name, its app, the digest of its code, and the workflows it knows."""

    name: str
    app: str
    code: str
    workflows: frozenset[str]
    queues: frozenset[str] = frozenset({"default"})


@dataclass(frozen=True, slots=True)
class Due:
    """Something that wants to be looked at: kind `run` (later `key`, `schedule`), its id, and when."""

    kind: str
    id: str
    partition: int
    at: datetime


@dataclass(frozen=True, slots=True)
class NewLetter:
    """A message nobody could take: why, and its original bytes."""

    kind: str
    """What it was meant to be: `start`, later `hook`."""
    subject: str
    code: str
    """The error's type name, such as `InvalidInput`."""
    reason: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])
    source: str = ""
    """Where the message came from; a letter with the same non-empty source is kept once."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it is kept: what `NewLetter` said, its id, when, and what its replay led to."""

    id: str
    at: datetime
    letter: NewLetter
    replayed_as: str = ""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest first. Empty fields do not restrict; `before` is the cursor: a run id."""

    workflow: str = ""
    status: str = ""
    """A status, or `stalled`, or `live` (pending, running or stalled)."""
    attribute: tuple[str, str] | None = None
    before: str = ""
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Facts:
    """What a namespace fixed when it was made, and what is wrong with it now."""

    namespace: str
    schema: int
    partitions: int
    hash_seed: int
    """The PYTHONHASHSEED all nodes of the namespace run with."""
    created_at: datetime


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
        `existing`. Likewise by `run_id`.

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

        In this order, under the run row's lock: the run must be live (`RunEnded`), the fence must match
        (`Superseded`), the whole-log fence must hold (`StaleLog`; for any in-band batch also when `known` is
        below the row's `revoked_seq`), every outcome with a token needs its current, not draining claim of a
        live incarnation (`ClaimLost`). An outside batch whose event carries a `key` that the log holds already
        for that type answers `repeated`.

        An in-band batch refused as stale tells what landed. `at` is the world's clock, never before the
        run's last event.

        Effects: `step_started` makes a claim; an outcome that was accepted by token ends its claim; a verdict
        without token leaves the attempt's claim `draining` (as does `step_cancelled`, for the claims of its op);
        a terminal event sets the status, drains all claims and deletes the run's due. Waking events from outside
        set due to now. An in-band batch sets due to `batch.due` if the log ended where the writer knew it to
        end, else to now; a due within 15 s before the asked one may be left as it is. An event whose operation
        is settled already is recorded and inert. An empty in-band batch only raises the tick and moves due.

        Raises:
            RunNotFound, RunEnded, Superseded, StaleLog, ClaimLost, Taken: as described.
            ValueError: an in-band event type without a fence, or an outside one with it (a bug of the caller).
        """
        ...

    async def position_at(self, run_id: str, time: datetime) -> int:
        """Return the highest position strictly before a time, 0 before the run began.

        Raises:
            RunNotFound: no run has this id.
        """
        ...

    async def stall(self, run_id: str, fence: Fence, why: str) -> None:
        """Mark a live run as stalled, under the tick fence; its due is deleted. No event.

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
        """Keep a large value of a run, content-addressed, and return its SHA-256 in hex. Idempotent."""
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
        the member's queues, for pending runs whose workflow the member knows (they get its app), and for stalled
        runs of its app when the code digest is not the one of the app's previous member (their stall is cleared).
        """
        ...

    async def leave(self, incarnation: str) -> None:
        """End an incarnation. Its claims are dead from here on; runs that have one are due now."""
        ...

    async def due(self, partitions: Sequence[int] | None, before: datetime, limit: int) -> tuple[Due, ...]:
        """Return what is due before an instant, earliest first; of these partitions, or of all for None."""
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
