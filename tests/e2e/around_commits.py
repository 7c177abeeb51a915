"""What tests of races share: something that happens around a commit, and what every history has to keep."""

import asyncio

from fencepost.fetching import fetched
from fencepost.testing import assert_replays
from fencepost.world import UNREAD, Batch, Unavailable
from fencepost.world import events as ev
from tests.simulation import checkers, hook_checkers
from tests.simulation.checkers import Seen

LAWS = (
    checkers.positions_are_dense,
    checkers.time_never_goes_back,
    checkers.a_run_begins_once,
    checkers.operations_are_legal,
    checkers.nothing_follows_the_end,
    checkers.waits_are_not_early,
    checkers.attempts_are_counted,
    checkers.deadlines_begin_with_their_order,
    hook_checkers.hooks_are_made_once,
    hook_checkers.payloads_come_while_open,
    hook_checkers.a_delivery_is_recorded_once,
)
"""What can be told from a log alone."""


def holds(*kinds):
    return lambda batch: batch.fence is not None and any(isinstance(body, kinds) for body in batch.events)


class Between:
    """Does something before or after a batch that fits is committed, once; then the node may be dead for the world."""

    def __init__(self, stack, fits, act, *, first, dies):
        self._cable, self._fits, self._act = stack.cable, fits, act
        self._first, self._dies = first, dies
        self._through = stack.cable.append
        self.done = asyncio.Event()
        stack.cable.append = self._append

    async def _append(self, batch):
        if self.done.is_set() or not self._fits(batch):
            return await self._through(batch)
        self.done.set()
        if self._first:
            await self._act()
        else:
            accepted = await self._through(batch)
            await self._act()
        if self._dies:
            self._cable.cut()
            raise Unavailable("the node has died")
        return await self._through(batch) if self._first else accepted


def puts(stack, token, text, delivery="d"):
    """Return an act: a payload is put by whoever reaches the world, and nobody is rung."""

    async def act():
        world = stack.world
        opened = await world.hook(token)
        data = ev.as_json(text)
        value = ev.Value(json=data)
        if len(text) > 100_000:
            value = ev.Value(ref=await world.put_value(opened.run_id, bytes(data)), size_bytes=len(bytes(data)))
        body = ev.HookReceived(op=opened.created.op, token=token, delivery=delivery, payload=value)
        await world.append(Batch(opened.run_id, (body,), UNREAD))

    return act


async def history_of(stack, run, flow):
    """Return the whole history of a run that has ended: it keeps the laws, and replays to the same end."""
    history = await fetched(stack.client._asking, run.run_id)
    seen = Seen(run.run_id, history.events)
    assert [f"{law.__name__}: {what}" for law in LAWS for what in law(seen)] == []
    assert_replays(history, flow)
    return history
