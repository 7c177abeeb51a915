"""Worlds and turns with one law missing. The simulation has to notice each of them, else it proves nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fencepost.actors import Node
from fencepost.actors.dispatch import Worker
from fencepost.actors.ownership import Ownership
from fencepost.actors.turn import Turn
from fencepost.world import Checks, Refused, Unavailable
from fencepost.world import events as ev
from tests.simulation.cluster import Variant
from tests.simulation.machine import SimHost
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


class Anew(Worker):
    """Asks with another token when an answer was lost: the claim that stands then is nobody's."""

    async def _claimed(self, offering: Any, token: str) -> Any:
        while True:
            try:
                return await self.world.claim(offering.run_id, offering.op, token, self._incarnation)
            except Unavailable:
                token = self.host.token()
                await asyncio.sleep(0.1)  # real time: none, the simulator's clock is virtual


class Unexpected(Worker):
    """Does not say that it waits for a claim: the run's actor on the same node takes it for one that never began."""

    async def _claimed(self, offering: Any, token: str) -> Any:
        self.bodies.taken(token)
        return await super()._claimed(offering, token)


class Greedy(Worker):
    """Keeps the slot of a claim it did not get."""

    async def _claimed(self, offering: Any, token: str) -> Any:
        try:
            return await super()._claimed(offering, token)
        except Refused:
            self.bodies.slots.used += 1
            raise


class KeepsSurplus(Ownership):
    """Gives nothing back to who came later."""

    async def _ask(self, **how: Any) -> Any:
        return replace(await super()._ask(**how), surplus=frozenset())


class Unheard(SimHost):
    """Never hears the world's clock, however wrong its own is."""

    def tell_time(self, at: Any, asked_s: float) -> None:
        """Keep the wrong clock."""


def with_worker(worker: type[Worker]) -> type[Node]:
    """Return a node with another worker."""

    class Other(Node):
        def _wire(self) -> None:
            super()._wire()
            queues = self.settings.queues
            self.worker = worker(self.app, self.world, self.bus, self.host, self.bodies, queues, self._is_stale)

    return Other


class NodeKeepsSurplus(Node):
    """See `KeepsSurplus`."""

    def _wire(self) -> None:
        super()._wire()
        self.ownership.__class__ = KeepsSurplus


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
    "offer_off": Variant(Checks(offer=False)),
    "at_off": Variant(Checks(at=False)),
    "lapse_off": Variant(Checks(lapse=False)),
    "dead_off": Variant(Checks(dead=False)),
    "ended_off": Variant(Checks(ended=False)),
    "idempotence_off": Variant(Checks(idempotence=False)),
    "claim_asked_anew": Variant(node=with_worker(Anew)),
    "claim_unexpected": Variant(node=with_worker(Unexpected)),
    "slot_kept": Variant(node=with_worker(Greedy)),
    "surplus_kept": Variant(node=NodeKeepsSurplus),
    "clock_unheard": Variant(host=Unheard),
    "ahead_under_the_tick": Variant(world=AheadUnderTheTick),
}
