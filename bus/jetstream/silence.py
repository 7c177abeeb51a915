"""Whose silence it is: the server's, or this process's that did not listen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

__all__ = ["TICK_S", "Silence"]

TICK_S: Final = 0.25
BLOCKED_S: Final = 0.5
"""A tick that is later than this was held up by this process, not by the server."""


@dataclass(slots=True)
class Silence:
    """How long the server was silent, with the time taken out in which this process did not listen."""

    heard: float = field(default_factory=time.monotonic)
    ticked: float = field(default_factory=time.monotonic)
    blocked_from: float = 0.0
    blocked_to: float = -1.0

    def hear(self) -> None:
        """Note that the server said something."""
        self.heard = time.monotonic()

    def tick(self) -> None:
        """Note that this process listens; call it every `TICK_S`."""
        now = time.monotonic()
        late = now - self.ticked - TICK_S
        if late > BLOCKED_S:
            self.blocked_from, self.blocked_to = self.ticked, now
            self.heard += late
        self.ticked = now

    def seconds(self) -> float:
        """Return the seconds since something was heard."""
        # Between a block and the tick after it, only what was known at the tick before counts.
        return max(0.0, min(time.monotonic(), self.ticked + TICK_S + BLOCKED_S) - self.heard)

    def arrival(self) -> float:
        """Return when a message that is seen now may have arrived: after a block, as early as its beginning."""
        now = time.monotonic()
        if now - self.blocked_to < BLOCKED_S:
            return self.blocked_from
        return self.ticked if now - self.ticked > TICK_S + BLOCKED_S else now
