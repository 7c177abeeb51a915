"""Step slots of a node: first come, first served between runs, so that a fan-out of thousands holds nobody up.

A waiting step holds nothing (L13). Within a run its steps go in the order they got in line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Slots:
    """`size` slots; who does not get one is called when one was reserved for it.

    `grew` is called when there is room for steps of other nodes' runs: a free slot that nobody here waits for.
    """

    def __init__(self, size: int, reserved: Callable[[str, str], None]) -> None:
        self.size = size
        self.used = 0
        self.grew: Callable[[], None] = _nobody
        self._reserved = reserved
        self._line: OrderedDict[str, dict[str, None]] = OrderedDict()
        self._held: dict[str, set[str]] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many steps wait for a slot."""
        return sum(len(ops) for ops in self._line.values())

    @property
    def room(self) -> int:
        """How many steps of other nodes' runs could be taken now."""
        return 0 if self._closed or self._line else max(0, self.size - self.used)

    def take_room(self) -> bool:
        """Take a slot nobody here waits for."""
        if not self.room:
            return False
        self.used += 1
        return True

    def take(self, run_id: str, op: str) -> bool:
        """Take a slot, or the one reserved for this step; else get in line (once) and return False.

        A place in line outlives the actor that took it: who waits can sleep, and is called when it is its turn.
        """
        if self._closed:
            return False
        if op in self._held.get(run_id, ()):
            self._unhold(run_id, op)
            return True
        if self.used < self.size and not self._line:
            self.used += 1
            return True
        self._line.setdefault(run_id, {}).setdefault(op)
        return False

    def close(self) -> None:
        """Give no slot any more: the node stops."""
        self._closed = True

    def reclaim(self) -> None:
        """Count a slot for a claim that was made and never used: it has to run now, over the size if need be."""
        self.used += 1

    def give_back(self) -> None:
        """Free a slot and reserve it for the run that waits longest; it goes to the end of the line for its next."""
        self.used -= 1
        if self._line and self.used < self.size:
            run_id, ops = self._line.popitem(last=False)
            op = next(iter(ops))
            del ops[op]
            if ops:
                self._line[run_id] = ops
            self.used += 1
            self._held.setdefault(run_id, set()).add(op)
            self._reserved(run_id, op)
        elif self.room:
            self.grew()

    def keep_only(self, run_id: str, ops: Collection[str]) -> None:
        """Take a run's other steps out of the line: nobody wants them, and a slot reserved for one would be lost."""
        waiting = self._line.get(run_id, {})
        wanted = {op: None for op in waiting if op in ops}
        if wanted:
            self._line[run_id] = wanted
        elif waiting:
            del self._line[run_id]
            if self.room:
                self.grew()
        for op in [op for op in self._held.get(run_id, ()) if op not in ops]:
            self._unhold(run_id, op)
            self.give_back()

    def _unhold(self, run_id: str, op: str) -> None:
        held = self._held[run_id]
        held.discard(op)
        if not held:
            del self._held[run_id]


def _nobody() -> None:
    """Tell nobody that there is room."""
