"""One law of hooks missing, each in its own way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fencepost.actors.decide import Decider
from fencepost.actors.delivering import Deliverer
from fencepost.actors.inbox import Inbox, Reads
from fencepost.world import Checks, Read
from fencepost.world import events as ev
from fencepost.world.sqlite import log as appending
from tests.simulation.cluster import Variant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fencepost.actors.operations import Operation


class Trusting(Deliverer):
    """Hands the payload of a delivery to the run that is awake on its node, instead of letting it read the log (L1)."""

    node: Any = None

    async def _put(self, asked: Any) -> Any:
        hook, seq, repeated = await super()._put(asked)
        actor = self.node._actors.get(hook.run_id)
        if actor is not None and actor._awake is not None:
            turn = actor._awake.turn
            payload = ev.Value(json=asked.payload)
            body = ev.HookReceived(op=hook.created.op, token=asked.token, delivery=asked.delivery, payload=payload)
            with suppress(Exception):
                turn.feed(ev.Event(turn.seq + 1, None, self._host.now(), body))
        return hook, seq, repeated


_without_taken = Decider._without_taken


def beside(self: Decider, orders: list[ev.EventBody]) -> list[ev.EventBody]:
    """Write what was asked for after a hook that is another's, in the batch that says so (decision 20)."""
    conflicts = [body for body in _without_taken(self, orders) if isinstance(body, ev.HookConflict)]
    return [next((body for body in conflicts if body.op == order.op), order) for order in orders]


def decided_by_conflict(batch: Any, seq: int, _before: int) -> int:
    """Count a batch with a conflict as one that has decided all it knew."""
    return min(batch.known, seq) if batch.at is None else seq + len(batch.events)


_news = Reads.news


def one_more(self: Reads, hooks: Iterable[Operation]) -> tuple[Read, ...]:
    """Say that one payload more was read than was."""
    return tuple(Read(read.op, read.count + 1) for read in _news(self, hooks))


_take = Inbox.take


def newest(self: Inbox) -> Any:
    """Take the payload that came last."""
    self.arrived.rotate(1)
    return _take(self)


def kept(self: Inbox) -> Any:
    """Take the payload that came first, and leave it there when others wait behind it."""
    first = self.arrived[0]
    try:
        return _take(self)
    finally:
        if self.arrived:
            self.arrived.appendleft(first)


HOOK_VARIANTS = {
    "delivery_recorded_twice": Variant(Checks(idempotence=False)),
    "hook_open_off": Variant(Checks(hook_open=False)),
    "tokens_not_exclusive": Variant(Checks(taken=False)),
    "hook_end_off": Variant(Checks(hook_end=False)),
    "bell_trusted": Variant(deliverer=Trusting),
    "beside_a_conflict": Variant(patches=((Decider, "_without_taken", beside),)),
    "conflict_decides": Variant(patches=((appending, "decided_after", decided_by_conflict),)),
    "reads_overcounted": Variant(patches=((Reads, "news", one_more),)),
    "newest_first": Variant(patches=((Inbox, "take", newest),)),
    "taken_twice": Variant(patches=((Inbox, "take", kept),)),
}

HOOKS_SEEN_BY = {
    "delivery_recorded_twice": "a_delivery_is_recorded_once",
    "hook_open_off": "payloads_come_while_open",
    "tokens_not_exclusive": "a_token_has_one_owner",
    "hook_end_off": "a_token_has_one_owner",
    "bell_trusted": "payloads_are_read_in_order",
    "beside_a_conflict": "nothing_goes_beside_a_conflict",
    "conflict_decides": "stalled",
    "reads_overcounted": "were read, and",
    "newest_first": "payloads_are_read_in_order",
    "taken_twice": "payloads_are_read_in_order",
}
"""Which checker sees each of them, or a word of what it says."""
