"""Worlds and turns with one law missing. The simulation has to notice each of them, else it proves nothing.

Those of hooks are in `hook_variants`. `SEEN_BY` names for each the checker that has to see it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencepost.actors import Node
from fencepost.actors.dispatch import Worker
from fencepost.actors.operations import Operation, call_site
from fencepost.actors.ownership import Ownership
from fencepost.actors.turn import Turn
from fencepost.world import Checks, Refused, Unavailable
from fencepost.world import events as ev
from tests.simulation import flows
from tests.simulation.cluster import Variant
from tests.simulation.hook_variants import HOOK_VARIANTS, HOOKS_SEEN_BY
from tests.simulation.machine import SimHost
from tests.simulation.world import SimWorld

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fencepost.world import Accepted, Batch, Opened
    from fencepost.world.simulated import SwitchedCore
    from tests.simulation.plan import Plan


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
            self.worker = worker(
                self.app, self.world, self.bus, self.host, self.bodies, queues, self._is_stale, self._timed
            )

    return Other


class NodeKeepsSurplus(Node):
    """See `KeepsSurplus`."""

    def _wire(self) -> None:
        super()._wire()
        self.ownership.__class__ = KeepsSurplus


class AheadUnderTheTick(SimWorld):
    """Takes results and what they led to in one batch under the tick alone: what L4 forbids."""

    def _appended(self, core: SwitchedCore, batch: Batch) -> Accepted:
        if batch.at is None:
            return super()._appended(core, batch)
        checks, core.checks = core.checks, replace(core.checks, whole_log=False, revoked=False)
        try:
            return super()._appended(core, batch)
        finally:
            core.checks = checks


class OneCounter(Turn):
    """Numbers the operations of a run by one counter, whichever task asks: what L7 forbids."""

    def next_path(self) -> str:
        super().next_path()
        self._counted = getattr(self, "_counted", -1) + 1
        return f"0.{self._counted}"


class PastDeadlines(Turn):
    """Counts a timer from the event that was fed last: after an outage it is over at once."""

    def timer(self, handle: asyncio.TimerHandle, delay_s: float) -> None:
        path = self.next_path()
        order = ev.WaitCreated(op=path, until=self.now() + timedelta(seconds=delay_s))
        self.issue(Operation(path, order, self.seq, call_site(), handle=handle))


class AnyNext(Turn):
    """Takes whatever event comes next, whether or not one is missing before it."""

    def _feed(self, event: ev.Event) -> None:
        self.seq = event.seq - 1
        super()._feed(event)


class PositionsBeforeCommit(SimWorld):
    """Gives an event from outside its position before it can be read: those after it are read without it (L2)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._unseen: set[tuple[str, int]] = set()

    def _appended(self, core: SwitchedCore, batch: Batch) -> Accepted:
        accepted = super()._appended(core, batch)
        if batch.fence is None and not accepted.repeated:
            place = (batch.run_id, accepted.first_seq)
            self._unseen.add(place)
            self._loop.call_later(self._random.random() * 0.5, self._unseen.discard, place)
        return replace(accepted, between=self._seen(batch.run_id, accepted.between))

    async def open(self, run_id: str) -> Opened:
        opened = await super().open(run_id)
        return replace(opened, events=self._seen(run_id, opened.events))

    async def more(self, run_id: str, after: int, limit: int = 500) -> tuple[ev.Event, ...]:
        return self._seen(run_id, await super().more(run_id, after, limit))

    def _seen(self, run_id: str, events: Iterable[ev.Event]) -> tuple[ev.Event, ...]:
        return tuple(event for event in events if (run_id, event.seq) not in self._unseen)


class FenceLast(SimWorld):
    """Reads the fence when it has read the log, and not with it: what L3 forbids."""

    async def open(self, run_id: str) -> Opened:
        opened = await super().open(run_id)
        return replace(opened, fence=(await super().open(run_id)).fence)


class WakesNobody(SimWorld):
    """Leaves due as it is when something comes from outside: a lost bell is then lost for good (L12)."""

    def _appended(self, core: SwitchedCore, batch: Batch) -> Accepted:
        due = core.find(batch.run_id).due
        accepted = super()._appended(core, batch)
        if batch.fence is None and core.find(batch.run_id).ended_at is None:
            core.write_due(core.hold(batch.run_id), due)
        return accepted


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
    "claim_asked_anew": Variant(node=with_worker(Anew)),
    "claim_unexpected": Variant(node=with_worker(Unexpected)),
    "slot_kept": Variant(node=with_worker(Greedy)),
    "surplus_kept": Variant(node=NodeKeepsSurplus),
    "clock_unheard": Variant(host=Unheard),
    "ahead_under_the_tick": Variant(world=AheadUnderTheTick),
    "one_counter": Variant(turn=OneCounter),
    "past_deadlines": Variant(turn=PastDeadlines),
    "positions_before_commit": Variant(world=PositionsBeforeCommit, turn=AnyNext),
    "fence_last": Variant(world=FenceLast),
    "wakes_nobody": Variant(world=WakesNobody),
    **HOOK_VARIANTS,
}

SEEN_BY = {
    "fence_off": "batches_follow_one_another",
    "two_events_at_once": "cold replay",
    "claims_off": "the_dead_write_nothing",
    "whole_log_off": "whole_log_means_whole",
    "last_batch_off": "batches_follow_one_another",
    "due_moved_later": "nobody has decided",
    "revoked_off": "decisions_saw_the_cancel",
    "offer_off": "operations_are_legal",
    "at_off": "time_never_goes_back",
    "lapse_off": "has not ended",
    "dead_off": "the_dead_do_not_ask",
    "ended_off": "nothing_follows_the_end",
    "claim_asked_anew": "every_claim_has_its_body",
    "claim_unexpected": "two bodies of",
    "slot_kept": "slots taken",
    "surplus_kept": "every_partition_has_one_owner",
    "clock_unheard": "waits_are_not_early",
    "ahead_under_the_tick": "cold replay",
    "one_counter": "stalled",
    "past_deadlines": "deadlines_begin_with_their_order",
    "positions_before_commit": "payloads_are_read_in_order",
    "fence_last": "batches_know_the_one_before",
    "wakes_nobody": "nobody has decided",
    **HOOKS_SEEN_BY,
}
"""Which checker sees each of them, or a word of what it says."""


def may_show(variant: str, plan: Plan) -> bool:
    """Tell whether a seed has in store what a missing law shows in; others need not be lived through to find one."""
    if variant in HOOK_VARIANTS:
        return bool(plan.letters)
    if variant == "last_batch_off":
        return plan.failover_every_s > 0
    if variant == "one_counter":
        return any(run.flow is flows.deployed for run in plan.runs)
    if variant in {"offer_off", "claim_asked_anew", "claim_unexpected", "slot_kept", "surplus_kept", "clock_unheard"}:
        return plan.together is not None
    return True
