"""What was asked for and has not come: so that a puller never has more on its way than it meant to.

A message does not say which request it answers, only the end of a request says how much of it was left. Counting by
request alone drifts when several overlap; counting the sum alone keeps a message that got lost on its way for ever.
So the sum is counted, and never exceeds what the requests that may still live asked for.
"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["Requests"]

LATE_S: Final = 1.0
"""How much later than its expiry the end of a request may be heard."""


class Requests:
    """The pull requests of one consumer, by number."""

    def __init__(self, expires_s: float) -> None:
        self._lives_s = expires_s + LATE_S
        self._asked: dict[str, tuple[int, float]] = {}
        self._number = 0
        self._owed = 0

    @property
    def owed(self) -> int:
        """How many messages may be on their way, or be sent any moment."""
        now = time.monotonic()
        while self._asked and next(iter(self._asked.values()))[1] <= now:
            del self._asked[next(iter(self._asked))]
        self._owed = min(self._owed, sum(count for count, _ in self._asked.values()))
        return self._owed

    def ask(self, count: int) -> str:
        """Note a request and return its number."""
        self._number += 1
        self._asked[str(self._number)] = (count, time.monotonic() + self._lives_s)
        self._owed += count
        return str(self._number)

    def take_back(self, number: str) -> None:
        """Forget a request that was not sent."""
        self._owed -= self._asked.pop(number, (0, 0.0))[0]

    def came(self) -> bool:
        """Note a message; False for one that was not asked for, or only before all was forgotten."""
        owed = self.owed
        self._owed = max(0, owed - 1)
        return owed > 0

    def ended(self, number: str, left: str | None) -> bool:
        """Note the end of a request with how many messages it had left; False for one that is forgotten."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return False
        self._owed = max(0, self._owed - (int(left) if left and left.isdecimal() else asked[0]))
        return True

    def forget(self) -> None:
        """Forget all: they died with the connection or the consumer."""
        self._asked.clear()
        self._owed = 0
