"""Worlds and turns with one law missing. The simulation has to notice each of them, else it proves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fencepost.actors.turn import Turn
from fencepost.world import Checks
from fencepost.world import events as ev
from tests.simulation.cluster import Variant
from tests.simulation.world import SimWorld

if TYPE_CHECKING:
    from fencepost.world import Accepted, Batch
    from fencepost.world.simulated import SwitchedCore


class TwoEventsAtOnce(Turn):
    """Feeds two events before it runs the code until it is quiet: what L6 forbids."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held = False

    def _feed(self, event: ev.Event) -> None:
        self._held = ev.resumes_code(event.body) and not self._held and event.seq > 1
        super()._feed(event)

    def _run(self) -> None:
        if not self._held:
            super()._run()

    def orders(self) -> list[ev.EventBody]:
        self._held = False
        self._run()
        return super().orders()


class AheadUnderTheTick(SimWorld):
    """Takes results and what they led to in one batch under the tick alone: what L4 forbids (ATTACKS A1)."""

    def _appended(self, core: SwitchedCore, batch: Batch) -> Accepted:
        if batch.at is None:
            return super()._appended(core, batch)
        checks, core.checks = core.checks, replace(core.checks, whole_log=False, revoked=False)
        try:
            return super()._appended(core, batch)
        finally:
            core.checks = checks


VARIANTS = {
    "": Variant(),
    "fence_off": Variant(Checks(fence=False)),
    "two_events_at_once": Variant(turn=TwoEventsAtOnce),
    "claims_off": Variant(Checks(claim=False)),
    "whole_log_off": Variant(Checks(whole_log=False, revoked=False)),
    "last_batch_off": Variant(Checks(last_batch=False)),
    "due_moved_later": Variant(Checks(due_kept=False)),
    "revoked_off": Variant(Checks(revoked=False)),
    "ahead_under_the_tick": Variant(world=AheadUnderTheTick),
}
