"""A node on a world that tells what deciders send, and lets a test act between deciding and committing."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from fencepost.actors import App, Node, NodeSettings
from fencepost.actors.host import AsyncioHost
from fencepost.actors.messages import Passivate
from fencepost.actors.node import Parts
from fencepost.actors.starting import Envelope, Starter
from fencepost.actors.turn import Turn
from fencepost.bus import InProcessBus
from fencepost.world import UNREAD, Batch, Refused, SimulatedWorld, Unavailable
from fencepost.world import events as ev
from tests.actors.tape import value
from tests.simulation.replay import replays_to_the_same_end

PATIENCE_S = 10


class RacingWorld(SimulatedWorld):
    """`sent`, `taken` and `refused` are in-band batches; `meanwhile(when, act)` acts once, before one arrives."""

    def __init__(self):
        super().__init__(lambda: datetime.now(UTC))
        self.sent, self.taken, self.refused = [], [], []
        self._acts = []
        self._changed = asyncio.Event()

    def meanwhile(self, when, act):
        self._acts.append((when, act))

    async def append(self, batch):
        if batch.fence is not None:
            self.sent.append(batch)
            for entry in [e for e in self._acts if e[0](batch)][:1]:
                self._acts.remove(entry)
                await entry[1](batch)
        try:
            accepted = await super().append(batch)
        except Refused as refusal:
            self.refused.append((batch, type(refusal).__name__))
            raise
        finally:
            self._changed.set()
        if batch.fence is not None:
            self.taken.append(batch)
        return accepted

    async def stall(self, run_id, fence, why):
        await super().stall(run_id, fence, why)
        self._changed.set()

    async def until(self, is_so):
        """Wait until something written makes it so."""
        async with asyncio.timeout(PATIENCE_S):
            while not await is_so():
                self._changed.clear()
                await self._changed.wait()


class CountedTurn(Turn):
    """Counts how often a coroutine was built, shadows aside."""

    built = 0

    def __init__(self, *args, shadow=False, **kwargs):
        super().__init__(*args, shadow=shadow, **kwargs)
        CountedTurn.built += not shadow


class ShiftedHost(AsyncioHost):
    """A host whose clock is ahead of the world's."""

    def __init__(self, ahead_s):
        super().__init__()
        self._ahead_s = ahead_s

    def now(self):
        return datetime.now(UTC) + timedelta(seconds=self._ahead_s)


class Race:
    """What a test holds: the world, the node, and how to start and end a run."""

    def __init__(self, world, node, flows):
        self.world, self.node = world, node
        self._flows = {flow.name: flow for flow in flows}
        self.run_id = ""

    async def start(self, flow, *args):
        kwargs = {} if not args else {"input": msgspec.Raw(msgspec.json.encode(args[0]))}
        created = await Starter(self.world, self.node.host, self.node.app).start(flow.name, Envelope(**kwargs))
        self.run_id = created.run_id
        self.node.tick(self.run_id)

    async def ended(self):
        """Wait for the end of the run and return its last event; its log must replay to the same one."""
        await self.world.until(self._has_ended)
        log, run = await self.log(), await self.world.find(self.run_id)
        assert list(replays_to_the_same_end(self._flows[run.workflow], self.run_id, log, run.decided_seq - 1)) == []
        return log[-1].body

    async def result(self):
        end = await self.ended()
        assert isinstance(end, ev.RunCompleted), end
        return msgspec.json.decode(end.result.json)

    async def run(self, flow, *args):
        await self.start(flow, *args)
        return await self.result()

    async def _has_ended(self):
        return (await self.world.find(self.run_id)).ended_at is not None

    async def stalled(self):
        async def is_stalled():
            return bool((await self.world.find(self.run_id)).stalled)

        await self.world.until(is_stalled)
        return (await self.world.find(self.run_id)).stalled

    async def saw(self, kind, times=1):
        async def has():
            return (await self.kinds()).count(kind) >= times

        await self.world.until(has)

    async def log(self):
        return list(await self.world.more(self.run_id, 0, 10_000))

    async def kinds(self):
        return [ev.kind_of(event.body) for event in await self.log()]

    async def settled(self):
        """Wait until the node has nothing to do."""
        async with asyncio.timeout(PATIENCE_S):
            while self.node._mailboxes.busy:  # noqa: ASYNC110  (nobody says that nothing is left to do)
                # real time: polls what nothing rings for
                await asyncio.sleep(0.002)

    async def sleep(self):
        """Put the run to sleep, so that the next thing it does needs a replay."""
        self.node._mailboxes.post(self.run_id, Passivate())
        await self.settled()
        assert self.run_id not in self.node._actors

    # ---- what lands in between

    async def cancel(self, _batch=None):
        await self.world.append(Batch(self.run_id, (ev.CancelRequested(reason="enough", key="k"),), UNREAD))
        self.node.tick(self.run_id)

    def payload(self, token, plain, delivery="d"):
        """Return an act: somebody puts a payload."""

        async def act(_batch=None):
            opened = await self.world.hook(token)
            body = ev.HookReceived(op=opened.created.op, token=token, delivery=delivery, payload=value(plain))
            await self.world.append(Batch(opened.run_id, (body,), UNREAD))
            self.node.tick(opened.run_id)

        return act

    def completed_outside(self, op, plain):
        """Return an act: somebody else records an outcome of a step under its claim."""

        async def act(_batch=None):
            (claim,) = [c for c in (await self.world.open(self.run_id)).claims if c.op == op]
            body = ev.StepCompleted(op=op, attempt=claim.attempt, token=claim.token, result=value(plain))
            await self.world.append(Batch(self.run_id, (body,), UNREAD))
            self.node.tick(self.run_id)

        return act

    def claimed_outside(self, op, incarnation, token="of-a-worker"):
        async def act(_batch=None):
            await self.world.claim(self.run_id, op, token, incarnation)

        return act


async def lost(_batch):
    """Lose a request on its way."""
    raise Unavailable("the request was lost")


def ahead(batch):
    """Whether a batch holds results and what they led to."""
    return batch.at is not None


def strict(batch):
    """Whether a batch holds a result and waits to see what it leads to."""
    return batch.at is None and any(ev.resumes_code(body) for body in batch.events)


bodies: Counter[str] = Counter()
"""How often the body of each step has begun, by what it was called with."""


@asynccontextmanager
async def racing(*flows, host=None, **settings):
    """Run a node with these workflows; shadows compare every batch."""
    bodies.clear()
    CountedTurn.built = 0
    world = RacingWorld()
    host = host or AsyncioHost()
    parts = Parts(host=host, turn=CountedTurn, serve_bus=False)
    node = Node(
        App("test", flows), world, InProcessBus(), NodeSettings(**{"shadow": True, "grace_s": 0.02} | settings), parts
    )
    await node.start()
    try:
        yield Race(world, node, flows)
    finally:
        await node.stop()
        await host.cancel_all()
