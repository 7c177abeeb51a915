"""When the cleanup of a cancelled run began: from then on its `cancel_grace` is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fencepost.world import events as ev

if TYPE_CHECKING:
    from datetime import datetime


class Grace:
    """The grace is counted from the first thing a decider did about the cancel.

    Counted from the cancel itself, a cancel during an outage longer than the grace would leave it no time at all.
    """

    def __init__(self, decided_seq: int) -> None:
        self._decided_seq = decided_seq
        self._state: Literal["not asked", "asked", "counts"] = "not asked"
        self._since: datetime | None = None

    def take(self, event: ev.Event, now: datetime) -> datetime | None:
        """Take in one event of the log, and return when the grace began; None while nobody has cancelled."""
        if isinstance(event.body, ev.CancelRequested) and self._state == "not asked":
            self._since = max(event.at, now) if event.seq > self._decided_seq else event.at
            self._state = "asked"
        elif self._state == "asked" and event.tick is not None:
            self._since = event.at
            self._state = "counts"
        return self._since
