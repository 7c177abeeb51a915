"""Step slots of a node: first come, first served. A waiting step holds nothing (L13)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Slots:
    """`size` slots; who does not get one is called when one was reserved for it."""

    def __init__(self, size: int, reserved: Callable[[str, str], None]) -> None:
        self.size = size
        self.used = 0
        self._reserved = reserved
        self._waiting: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._held: set[tuple[str, str]] = set()

    @property
    def waiting(self) -> int:
        """How many steps wait for a slot."""
        return len(self._waiting)

    def take(self, run_id: str, op: str) -> bool:
        """Take a slot, or the one reserved for this step; else get in line (once) and return False."""
        key = (run_id, op)
        if key in self._held:
            self._held.discard(key)
            return True
        if self.used < self.size and not self._waiting:
            self.used += 1
            return True
        self._waiting.setdefault(key)
        return False

    def reclaim(self) -> None:
        """Count a slot for a claim that was made and never used: it has to run now, over the size if need be."""
        self.used += 1

    def give_back(self) -> None:
        """Free a slot and reserve it for who waits longest."""
        self.used -= 1
        self._hand_on()

    def forget(self, run_id: str) -> None:
        """Drop a run from the line and free what is reserved for it: it ended, or its actor sleeps."""
        for key in [k for k in self._waiting if k[0] == run_id]:
            del self._waiting[key]
        for key in [k for k in self._held if k[0] == run_id]:
            self._held.discard(key)
            self.give_back()

    def _hand_on(self) -> None:
        if self._waiting and self.used < self.size:
            key, _ = self._waiting.popitem(last=False)
            self.used += 1
            self._held.add(key)
            self._reserved(*key)
