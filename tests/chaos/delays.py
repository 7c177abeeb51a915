"""How long runs stood still although they could have gone on: from the fault to the next event, or from event to event.

A run of the example does one thing after the other, so after each event of its log there is an instant from which the
next one could have come: at once, when a timer or a retry is due, or when a body under way ends. Time in which nobody
could do anything (the database is away) does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from fencepost.world import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.world.events import Event

BODY_S = 4.5
"""What a body may take: three seconds of patience with the provider, on a busy machine."""


@dataclass
class Faults:
    """What was done, and when. `away` holds the spans in which no run could go on."""

    done: list[tuple[datetime, str]] = field(default_factory=list)
    away: list[tuple[datetime, datetime]] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.done.append((now(), what))

    @property
    def first(self) -> datetime | None:
        """When it began; None when nothing was done."""
        return self.done[0][0] if self.done else None

    def last_before(self, at: datetime) -> datetime | None:
        """Return the last fault before an instant."""
        return max((when for when, _ in self.done if when <= at), default=None)

    def away_s(self, begin: datetime, end: datetime) -> float:
        """Return how much of a span nobody could do anything. The spans do not overlap."""
        parts = (min(end, until) - max(begin, since) for since, until in self.away)
        return sum(max(part, timedelta(0)).total_seconds() for part in parts)


@dataclass(frozen=True, order=True)
class Delay:
    """A run that stood still for so long before an event."""

    seconds: float
    run_id: str
    at: datetime
    what: str


def now() -> datetime:
    return datetime.now(UTC)


def delays(run_id: str, log: list[Event], faults: Faults) -> Iterator[Delay]:
    """Yield every pause of a run that ended after the first fault (of all, when there was none)."""
    for before, after in pairwise(log):
        begin = ready_at(before, after, faults)
        if faults.first is not None:
            begin = max(begin, faults.first)
        if after.at > begin:
            seconds = (after.at - begin).total_seconds() - faults.away_s(begin, after.at)
            yield Delay(seconds, run_id, after.at, f"{ev.kind_of(before.body)} → {ev.kind_of(after.body)}")


def ready_at(event: Event, following: Event, faults: Faults) -> datetime:
    """Return from when on the following event could have come."""
    match event.body:
        case ev.WaitCreated(delay_s=delay_s) | ev.StepRetrying(delay_s=delay_s):
            return event.at + timedelta(seconds=delay_s)
        case ev.StepStarted() if is_loss(following):
            return max(event.at, faults.last_before(following.at) or event.at)
        case ev.StepStarted():
            return event.at + timedelta(seconds=BODY_S)
        case _:
            return event.at


def is_loss(event: Event) -> bool:
    return isinstance(event.body, ev.StepRetrying | ev.StepFailed) and not event.body.token
