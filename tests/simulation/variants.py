"""Worlds and turns with one law missing. The simulation has to notice each of them, else it proves nothing."""

from __future__ import annotations

from typing import Any

from fencepost.actors.turn import Turn
from fencepost.world import Checks
from fencepost.world import events as ev
from tests.simulation.cluster import Variant


class TwoEventsAtOnce(Turn):
    """Feeds two events before it runs the code until it is quiet: what L6 forbids."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held = False

    def feed(self, event: ev.Event) -> None:
        self._held = ev.resumes_code(event.body) and not self._held and event.seq > 1
        super().feed(event)

    def _run(self) -> None:
        if not self._held:
            super()._run()

    def orders(self) -> list[ev.EventBody]:
        self._held = False
        self._run()
        return super().orders()


VARIANTS = {
    "": Variant(),
    "fence_off": Variant(Checks(fence=False)),
    "two_events_at_once": Variant(turn=TwoEventsAtOnce),
    "claims_off": Variant(Checks(claim=False)),
    "whole_log_off": Variant(Checks(whole_log=False, revoked=False)),
    "last_batch_off": Variant(Checks(last_batch=False)),
    "due_moved_later": Variant(Checks(due_kept=False)),
    "revoked_off": Variant(Checks(revoked=False)),
}
