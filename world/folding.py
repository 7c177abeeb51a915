"""What a batch may hold and what its events do, as pure rules that every store shares.

A store adds what only it can tell: the row as it is under the lock, the claims, what landed in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from .events import (
    HOOKS,
    ORDERS,
    OUTCOMES,
    STATUS_AFTER,
    TERMINAL,
    CancelRequested,
    Event,
    EventBody,
    HookConflict,
    HookReceived,
    Outcome,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunTerminated,
    StepCancelled,
    StepCompleted,
    StepFailed,
    StepRetrying,
    StepStarted,
    WaitCompleted,
    kind_of,
    resumes_code,
)
from .records import UNREAD, Batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .records import Member, Offer

IN_BAND_ONLY: Final = (*ORDERS, WaitCompleted, HookConflict, RunCompleted, RunFailed, RunCancelled)
OUTSIDE_ONLY: Final = (CancelRequested, RunTerminated, HookReceived)
EITHER: Final = (StepStarted, *OUTCOMES)
SETTLING: Final = (StepCompleted, StepFailed, StepCancelled, WaitCompleted)

DUE_SLACK: Final = timedelta(seconds=15)
"""How much earlier than asked a due may stand without being written again: hot rows stay as they are."""

AHEAD: Final = timedelta(seconds=1)
"""How far a proposed `at` may lie after the world's clock: the clocks of nodes differ, and `at` never goes back."""

OLDER_AFTER: Final = timedelta(seconds=60)
"""How long a partition waits for code as new as it had before an older node may take it."""

PULSE: Final = timedelta(seconds=2)
"""After how long without anybody's `share` the world is taken to have been away."""

OWNS_CLAIMS: Final = 1
OWNS_OFFERS: Final = 2
OWNS_HOOKS: Final = 4

HOOK_UNREAD_MAX: Final = 1000
"""How much a hook keeps that its run has not read, as `weight_of` counts: who knows a token must not fill the store."""

HOOK_WEIGHT_BYTES: Final = 16 * 1024
"""A payload that is larger counts as several: what is unread is in the memory of the run's node."""


def check_form(batch: Batch) -> None:
    """Raise `ValueError` for a batch no caller may ever send: that is a bug, not a race."""
    if batch.fence is not None and not batch.batch_id:
        raise ValueError("an in-band batch needs a batch_id")
    if batch.known < 0 and (batch.fence is not None or batch.whole_log):
        raise ValueError("a fence needs a known position")
    if batch.fence is None and not batch.events:
        raise ValueError("an outside batch needs an event")
    if batch.fence is None and (batch.due is not None or batch.offers or batch.reads):
        raise ValueError("only an in-band batch sets due, offers and reads")
    if batch.at is not None and not batch.whole_log:
        raise ValueError("an at is proposed under the whole-log fence only")
    if any(instant is not None and instant.tzinfo is None for instant in (batch.due, batch.at)):
        raise ValueError("due or at has no time zone")
    _check_offers(batch.offers)
    for body in batch.events:
        _check_side(body, in_band=batch.fence is not None)
    if any(isinstance(body, TERMINAL) for body in batch.events[:-1]):
        raise ValueError("nothing can follow a terminal event")


def _check_offers(offers: tuple[Offer, ...]) -> None:
    if len({offer.op for offer in offers}) != len(offers):
        raise ValueError("an operation is offered once")
    if not all(offer.op and offer.queue and offer.attempt > 0 and offer.dispatch > 0 for offer in offers):
        raise ValueError("an offer needs an op, a queue, an attempt and a dispatch")


def check_member(member: Member) -> None:
    """Raise `ValueError` for a node that could never live."""
    if member.lease is not None and member.lease <= timedelta(0):
        raise ValueError(f"a lease of {member.lease} has run out before it begins")


def was_away(asked_at: datetime | None, now: datetime) -> bool:
    """Tell whether the world was away since a node last asked for its share; nobody ever did counts as that."""
    return asked_at is None or now - asked_at > PULSE


def _check_side(body: EventBody, *, in_band: bool) -> None:
    if in_band and not isinstance(body, (*IN_BAND_ONLY, *EITHER)):
        raise ValueError(f"{kind_of(body)} cannot be appended in-band")
    if not in_band and not isinstance(body, (*OUTSIDE_ONLY, *EITHER)):
        raise ValueError(f"{kind_of(body)} needs a fence")
    if not in_band and isinstance(body, OUTCOMES) and not body.token:
        raise ValueError(f"{kind_of(body)} without a token is a verdict and needs a fence")
    if isinstance(body, (*EITHER, *SETTLING, *HOOKS)) and not body.op:
        raise ValueError(f"{kind_of(body)} needs an op")
    if isinstance(body, HOOKS) and not body.token:
        raise ValueError(f"{kind_of(body)} needs a token")
    if isinstance(body, HookReceived) and not body.delivery:
        raise ValueError("hook_received needs a delivery")


def key_of(body: EventBody) -> str:
    """Return what makes an event idempotent, empty for nothing.

    A delivery is its token's, not its operation's: sent again after the hook was made anew, it is still the same.
    """
    if isinstance(body, HookReceived):
        return delivery_key(body.token, body.delivery)
    return body.key if isinstance(body, CancelRequested | RunTerminated) else ""


def delivery_key(token: str, delivery: str) -> str:
    """Return what a delivery is recorded under in its run."""
    return f"{token}\t{delivery}"


def weight_of(body: HookReceived) -> int:
    """Return how much room a payload takes in its hook."""
    size_bytes = body.payload.size_bytes or len(memoryview(body.payload.json))
    return 1 + size_bytes // HOOK_WEIGHT_BYTES


def tokens_of(events: Iterable[EventBody]) -> tuple[Outcome, ...]:
    """Return the outcomes that come by claim."""
    return tuple(body for body in events if isinstance(body, OUTCOMES) and body.token)


def status_after(status: str, events: Iterable[EventBody]) -> str:
    """Return the run's status once the events are in. An end is never taken back."""
    for body in events:
        if isinstance(body, RunStarted) and status == "pending":
            status = "running"
        status = STATUS_AFTER.get(type(body), status)
    return status


def last_waking(events: Iterable[EventBody], first_seq: int, before: int) -> int:
    """Return the position of the last event that can resume code, given the one before the batch."""
    return max((seq for seq, body in enumerate(events, first_seq) if resumes_code(body)), default=before)


def last_revoking(events: Iterable[EventBody], first_seq: int, before: int) -> int:
    """Return the position of the event that takes a right away from a decider who has not seen it.

    Only the first cancel does. Later ones are inert, and who sent them without end could keep the run from deciding.
    """
    if before:
        return before
    return next((seq for seq, body in enumerate(events, first_seq) if isinstance(body, CancelRequested)), 0)


def ends_claim(outcome: Outcome) -> bool:
    """Tell whether the outcome ends its claim; else the attempt was given up and its claim drains."""
    drains = isinstance(outcome, StepFailed | StepRetrying) and outcome.drains
    return bool(outcome.token) and not drains


def fits(at: datetime, last_at: datetime, now: datetime) -> bool:
    """Tell whether a proposed instant can be a batch's `at`: monotone in position, and not ahead of the world."""
    return last_at <= at <= max(last_at, now + AHEAD)


def is_free(history: Iterable[Event], asked: StepStarted) -> bool:
    """Tell whether an attempt can be started, given all earlier events of its operation.

    It cannot once the operation is settled, nor when it or a later one was started before.
    """
    started = (0, 0)
    for event in history:
        if isinstance(event.body, SETTLING):
            return False
        if isinstance(event.body, StepStarted):
            started = max(started, (event.body.attempt, event.body.dispatch))
    return (asked.attempt, asked.dispatch) > started


@dataclass(frozen=True, slots=True)
class Look:
    """What decides when a run is looked at next: the due as it is, what the writer missed, what the batch does."""

    due: datetime | None
    missed: bool
    wakes: bool
    ends: bool


def due_after(look: Look, batch: Batch, now: datetime) -> datetime | None:
    """Return when to look at the run after the batch: never later than the truth (L12).

    An in-band batch moves it later only if no event that can resume code landed unseen: moved blindly, it would
    take back the wake of that event, and a lost bell would leave it unread for as long as the run sleeps.
    """
    if look.ends:
        return None
    if batch.fence is None:
        return _no_later(look.due, now) if look.wakes else look.due
    if look.missed:
        return _no_later(look.due, now)
    return _near_enough(look.due, batch.due, now)


def _no_later(due: datetime | None, now: datetime) -> datetime:
    return now if due is None else min(due, now)


def _near_enough(due: datetime | None, asked: datetime | None, now: datetime) -> datetime | None:
    """Return the due that is there if it is a little early: not to write the row. One that is past would be swept."""
    if due is None or asked is None:
        return asked
    return due if now < due <= asked <= due + DUE_SLACK else asked


def decided_after(batch: Batch, seq: int, before: int) -> int:
    """Return how far an in-band batch has decided, given the run's last position and how far it was decided before it.

    That is the tail it knew. One that ran ahead (`at`) has fed its own results to the code as well: counted to its
    known tail only, all that the code printed on the way would be printed again by the next replay. One with a
    `hook_conflict` has decided nothing more: what the code asked for after that hook is not in it, and who replays it
    must not take that for a divergence. Nor has a batch decided anything for the code that came before `run_started`:
    those are of nodes that did not know the workflow.
    """
    if any(isinstance(body, HookConflict) for body in batch.events):
        return 0 if any(isinstance(body, RunStarted) for body in batch.events) else before
    return min(batch.known, seq) if batch.at is None else seq + len(batch.events)


def told(batch: Batch) -> bool:
    """Tell whether the writer wants to know what landed after its position."""
    return batch.known != UNREAD
