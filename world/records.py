"""What goes into the world and comes out of it: runs, batches, claims, letters. Plain values, no behaviour.

Instants are aware UTC datetimes with microseconds, on the world's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from .events import Event, EventBody, HookCreated, Value

PAGE: Final = 500
"""Events a page of a log holds at most."""

UNREAD: Final = -1
"""`Batch.known` of an outside writer who has read nothing and wants no `between`."""

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
    """`run_id` is the run of the id: the new one, or with `existing` the one that was there. `app` is whose it is."""

    run_id: str
    existing: bool
    app: str = ""


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
    """The tail that the last in-band batch was decided from; its own last event when it ran ahead (`Batch.at`)."""
    created_at: datetime
    last_at: datetime
    ended_at: datetime | None
    in_band_count: int
    """Events that count against `max_events`."""
    partition: int
    due: datetime | None
    parent: str = ""
    attributes: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def code_decided_seq(self) -> int:
        """As `decided_seq`, for the code: what is written for a pending run leaves it to others, and runs no code."""
        return 0 if self.status == "pending" else self.decided_seq


@dataclass(frozen=True, slots=True)
class Opened:
    """One snapshot: the fence, the row, the claims, and the first page of the log."""

    fence: Fence
    run: Run
    claims: tuple[Claim, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A step that any node serving its queue may claim, and what that attempt is called."""

    op: str
    queue: str
    attempt: int
    dispatch: int


@dataclass(frozen=True, slots=True)
class Hook:
    """Whose a token is, or was last: run, its app and partition, the operation, and how the hook was made."""

    token: str
    run_id: str
    app: str
    partition: int
    created: HookCreated
    is_open: bool
    """Whether it takes payloads. Who sends one again after that still learns that it had arrived."""
    unread: int
    """How much its run has not read, of `HOOK_UNREAD_MAX`."""


@dataclass(frozen=True, slots=True)
class Read:
    """How much of a hook the run's code has taken so far (`folding.weight_of`). No event: a replay finds the same."""

    op: str
    count: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """An offer that was taken: the attempt, its run's workflow and app, and every event of the operation, in order."""

    workflow: str
    app: str
    partition: int
    attempt: int
    dispatch: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to append together, all or nothing.

    With `fence` the batch is in-band: it succeeds only if the run's fence still is this one, raises the tick by
    one and leaves `batch_id` as the new `last_batch`. Without, it comes from outside: unconditional while the run
    lives. `known` is the last position the writer has seen and is always given; an outside writer who has read
    nothing gives `UNREAD`.
    """

    run_id: str
    events: tuple[EventBody, ...]
    known: int
    fence: Fence | None = None
    batch_id: str = ""
    whole_log: bool = False
    """Refuse with `StaleLog` when an event that can resume code landed after `known`."""
    at: datetime | None = None
    """With `whole_log` only: the instant the batch was decided for, taken as its `at`."""
    due: datetime | None = None
    """In-band only: when to look at the run again; None when only an event or a claim can move it."""
    offers: tuple[Offer, ...] = ()
    """In-band only: *all* steps of the run that wait for a slot or for a node that serves their queue."""
    reads: tuple[Read, ...] = ()
    """In-band only: what the code has taken from its hooks, for those where the number may have changed."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is durable: its events have positions `first_seq`, `first_seq + 1` … and all carry `at`.

    `between` holds what had landed after `known`, complete and in order (nothing for `UNREAD`). `fence` is
    the one for the next in-band batch (the unchanged current one after an outside batch).
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
    lease: timedelta | None = None
    """How long it lives without being renewed; None: until it leaves (one process has the whole world)."""
    takes: bool = True
    """Whether it takes partitions; one that does not runs steps only."""
    follows: str = ""
    """The incarnation before it, when a supervisor starts its node anew: the same code keeps its ordinal."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a node has of its app's partitions, and what it should know about the others. See `World.share`."""

    owned: frozenset[int]
    surplus: frozenset[int]
    """Those of the owned that another node should have: stop them, then give them back."""
    alive: frozenset[str]
    """Every incarnation of the namespace that lives."""
    stopping: frozenset[str]
    """Tokens of this node's own claims that drain: nobody wants what their bodies return."""
    newer: bool
    """Whether a live member of the app that takes partitions has newer code than this one."""
    heard: bool
    """Whether another live member of the app that takes partitions hears the bus."""
    now: datetime


@dataclass(frozen=True, slots=True)
class Due:
    """Something that wants to be looked at: kind `run` (later `key`, `schedule`), its id, and when."""

    kind: str
    id: str
    app: str
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
