"""A second coroutine that replays what the first one lives through, and is compared with it (development and tests).

Code that depends on something outside its log (a global, a cache, the hash seed) is found on the first tick where it
matters instead of in the first outage. The shadow is kept alive and built anew whenever the log has doubled, so that
its cost stays linear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .operations import Diverged, Operation, describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fencepost.world import events as ev

    from .define import Workflow
    from .turn import Turn


class Shadow:
    """See the module. Holds the whole log of its run in memory."""

    def __init__(self, make: type[Turn], workflow: Workflow[Any, Any], run_id: str) -> None:
        self._make, self._workflow, self._run_id = make, workflow, run_id
        self._log: list[ev.Event] = []
        self._turn = self._fresh()
        self._rebuild_at = 4

    def _fresh(self) -> Turn:
        return self._make(self._workflow, self._run_id, shadow=True)

    def take(self, events: Iterable[ev.Event]) -> None:
        """Take in what is durable and was fed to the live coroutine, to be followed with what comes next."""
        self._log += events

    def follow(self, events: Iterable[ev.Event], live: Turn) -> None:
        """Feed what the live coroutine was fed, and compare what both have asked for since.

        Raises:
            Diverged: they differ; both sides and the line.
        """
        self.take(events)
        if len(self._log) >= self._rebuild_at:
            self._rebuild_at *= 2
            self._turn.evict()
            self._turn = self._fresh()
        for event in self._log[self._turn.seq :]:
            self._turn.feed(event)
        self._compare(live)

    def _compare(self, live: Turn) -> None:
        mine, theirs = self._turn.ops.by_path, live.ops.by_path
        for path in mine.keys() | theirs.keys() if len(mine) != len(theirs) else ():
            if path not in mine or path not in theirs:
                raise self._differ(path, theirs.get(path), mine.get(path))
        for path, operation in self._turn.ops.open.items():
            if describe(operation.order) != describe(theirs[path].order):
                raise self._differ(path, theirs[path], operation)
        if (self._turn.terminal is None) != (live.terminal is None):
            raise self._differ("0", None, None)

    def _differ(self, path: str, live: Operation | None, replayed: Operation | None) -> Diverged:
        return Diverged(
            f"replaying the same log gave something else at {path}: the run asked for {_shown(live)}, "
            f"the replay for {_shown(replayed)}; the code depends on something that is not in its log"
        )

    def evict(self) -> None:
        """Put the shadow to sleep with its run."""
        self._turn.evict()


def _shown(operation: Operation | None) -> str:
    return "nothing" if operation is None else f"{describe(operation.order)}{operation.place}"
