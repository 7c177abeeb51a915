"""Step slots of a node: first come, first served. A waiting step holds nothing (L13)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Slots:
    """`size` slots; who does not get one is called when one was reserved for it."""

    def __init__(self, size: int, reserved: Callable[[str, str], None]) -> None:
        self.size = size
        self.used = 0
        self._reserved = reserved
        self._waiting: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._held: set[tuple[str, str]] = set()
        self._by_run: dict[str, dict[str, None]] = {}

    @property
    def waiting(self) -> int:
        """How many steps wait for a slot."""
        return len(self._waiting)

    def take(self, run_id: str, op: str) -> bool:
        """Take a slot, or the one reserved for this step; else get in line (once) and return False.

        A place in line outlives the actor that took it: who waits can sleep, and is called when it is its turn.
        """
        key = (run_id, op)
        if key in self._held:
            self._held.discard(key)
            self._leave(key)
            return True
        if self.used < self.size and not self._waiting:
            self.used += 1
            return True
        self._waiting.setdefault(key)
        self._by_run.setdefault(run_id, {}).setdefault(op)
        return False

    def reclaim(self) -> None:
        """Count a slot for a claim that was made and never used: it has to run now, over the size if need be."""
        self.used += 1

    def give_back(self) -> None:
        """Free a slot and reserve it for who waits longest."""
        self.used -= 1
        self._hand_on()

    def keep_only(self, run_id: str, ops: Collection[str]) -> None:
        """Take a run's other steps out of the line: nobody wants them, and a slot reserved for one would be lost."""
        for op in [op for op in self._by_run.get(run_id, ()) if op not in ops]:
            key = (run_id, op)
            self._leave(key)
            if key in self._held:
                self._held.discard(key)
                self.give_back()
            else:
                del self._waiting[key]

    def _leave(self, key: tuple[str, str]) -> None:
        run_id, op = key
        ops = self._by_run[run_id]
        del ops[op]
        if not ops:
            del self._by_run[run_id]

    def _hand_on(self) -> None:
        if self._waiting and self.used < self.size:
            key, _ = self._waiting.popitem(last=False)
            self.used += 1
            self._held.add(key)
            self._reserved(*key)
