"""What contract tests write logs with: short names for events, a decider that keeps its fence, a clock to turn."""

import asyncio
from datetime import UTC, datetime, timedelta

from fencepost.world import Batch, Member, NewRun, Offer, events

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=2)


class Clock:
    """A clock that stands still until it is turned."""

    def __init__(self):
        self.at = BEGIN

    def __call__(self):
        return self.at

    def turn(self, **span):
        self.at += timedelta(**span)
        return self.at


def value(plain=None):
    return events.Value(events.as_json(plain))


def a_run(run_id="run_1", **changes):
    """Return a run to create."""
    usual = {"workflow": "order", "app": "shop", "input": value({"n": 1}), "input_digest": "d1", "seed": "s"}
    return NewRun(run_id, **(usual | changes))


def a_member(name="n1", **changes):
    """Return a node that knows the workflow of `a_run`."""
    usual = {"app": "shop", "code": "c1", "workflows": frozenset({"order"})}
    return Member(name, **(usual | changes))


def error(message="boom"):
    return events.ErrorData("builtins:ValueError", message)


def run_started():
    return events.RunStarted()


def created(op="0.0", **fields):
    return events.StepCreated(op=op, name="charge", args=value([1]), **fields)


def started(node, op="0.0", token="t1", attempt=1, dispatch=1):
    return events.StepStarted(op=op, attempt=attempt, token=token, incarnation=node, dispatch=dispatch)


def completed(op="0.0", token="t1", attempt=1, result="ok"):
    return events.StepCompleted(op=op, attempt=attempt, token=token, result=value(result))


def retrying(op="0.0", token="t1", attempt=1, **fields):
    return events.StepRetrying(op=op, attempt=attempt, token=token, delay_s=1.0, **fields)


def failed(op="0.0", token="", attempt=1, **fields):
    return events.StepFailed(op=op, attempt=attempt, code="timeout", error=error(), token=token, **fields)


def step_cancelled(op="0.0"):
    return events.StepCancelled(op=op)


def offer(op="0.0", queue="default", attempt=1, dispatch=1):
    return Offer(op, queue, attempt, dispatch)


def wait(op="0.1", delay_s=60.0):
    return events.WaitCreated(op=op, delay_s=delay_s)


def waited(op="0.1"):
    return events.WaitCompleted(op=op)


def hooked(op="0.0", token="tok", **fields):
    return events.HookCreated(op=op, token=token, **fields)


def disposed(op="0.0", token="tok"):
    return events.HookDisposed(op=op, token=token)


def conflict(op="0.0", token="tok", owner="run_1"):
    return events.HookConflict(op=op, token=token, owner=owner)


def received(delivery="d1", op="0.0", token="tok", payload=None, **fields):
    return events.HookReceived(op=op, token=token, delivery=delivery, payload=value(payload), **fields)


def cancel(key="", reason=""):
    return events.CancelRequested(key=key, reason=reason)


def terminate(key="", reason=""):
    return events.RunTerminated(key=key, reason=reason)


def run_completed(result=None):
    return events.RunCompleted(result=value(result))


def run_failed():
    return events.RunFailed(code="user_error", error=error())


def types(log):
    return [events.kind_of(event.body) for event in log]


async def whole_log(world, run_id="run_1", page=500):
    """Return all events of a run, read in pages."""
    log = list((await world.open(run_id)).events)
    while more := await world.more(run_id, log[-1].seq, page):
        log.extend(more)
    return log


async def claims(world, run_id="run_1"):
    return {claim.token: claim for claim in (await world.open(run_id)).claims}


async def dues(world, until=None, app=None):
    """Return what is due until an instant, or ever, of an app or of all: id → when."""
    found = await world.due(app, None, until or BEGIN + timedelta(days=36500), 10_000)
    return {due.id: due.at for due in found}


async def pass_time(world, clock, watcher, **span):
    """Turn the clock while a node asks for its share often enough that the world never seems to have been away."""
    left = timedelta(**span)
    while left > STEP:
        clock.at += STEP
        left -= STEP
        await world.share(watcher)
    clock.at += left


async def outside(world, *bodies, run_id="run_1", known=-1, **fields):
    """Append without a fence."""
    return await world.append(Batch(run_id, bodies, known, **fields))


async def outcome_of(awaitable):
    """Return the answer or the error."""
    (found,) = await asyncio.gather(awaitable, return_exceptions=True)
    return found


class Decider:
    """Writes in-band and keeps the fence and the position it knows, as an actor does."""

    def __init__(self, world, opened):
        self.world = world
        self.run_id = opened.run.run_id
        self.fence = opened.fence
        self.known = opened.run.seq
        self._batches = 0

    @classmethod
    async def of(cls, world, run_id="run_1"):
        return cls(world, await world.open(run_id))

    @classmethod
    async def of_new(cls, world, run_id="run_1", **changes):
        await world.create(a_run(run_id, **changes))
        return await cls.of(world, run_id)

    def batch(self, *bodies, known=None, fence=None, name="", **fields):
        self._batches += 1
        name = name or f"{id(self)}:{self._batches}"
        position = self.known if known is None else known
        return Batch(self.run_id, bodies, position, fence or self.fence, name, **fields)

    async def append(self, *bodies, **fields):
        accepted = await self.world.append(self.batch(*bodies, **fields))
        self.fence = accepted.fence
        self.known = accepted.first_seq + len(bodies) - 1
        return accepted

    async def begin(self, *bodies):
        return await self.append(run_started(), *bodies, whole_log=True)
