"""A refused tick leaves nothing, is tried again once at a time, and what comes from outside costs no more."""

import asyncio

import pytest

from fencepost.actors import run as running
from fencepost.actors.author import sleep
from fencepost.actors.define import step, workflow
from fencepost.actors.errors import HookConflict
from fencepost.actors.hooks import hook
from fencepost.world import Batch, HookNotFound
from fencepost.world import events as ev
from tests.actors.racing import CountedTurn, bodies, lost, racing

CREATING = (ev.StepCreated, ev.WaitCreated, ev.HookCreated)


@step
async def add(x: int) -> int:
    bodies[f"add {x}"] += 1
    return x + 1


@step
async def mail(to: str) -> str:
    bodies[f"mail {to}"] += 1
    return to


@workflow
async def owner() -> str:
    return await hook("late", str)


@workflow
async def forks() -> str:
    first = asyncio.ensure_future(hook("first", str))
    added = asyncio.ensure_future(add(1))
    await asyncio.wait({first, added}, return_when=asyncio.FIRST_COMPLETED)
    if first.done():
        return first.result()
    early, late = asyncio.ensure_future(mail("early")), asyncio.ensure_future(hook("late", str))
    others = [asyncio.ensure_future(mail("late")), asyncio.ensure_future(sleep("1h"))]
    try:
        return await asyncio.wait_for(late, 0.01)
    except TimeoutError:
        return f"nobody wrote, {await early}, {await others[0]}"
    except HookConflict as conflict:
        await asyncio.wait({*others, early}, timeout=0.01)
        return f"{conflict.token} is another's, {await early}"


def of_many_kinds(batch):
    """Whether it holds hooks, steps and timers together, results before them or not."""
    return {type(body) for body in batch.events} >= {*CREATING, ev.StepStarted}


async def another_decides(race):
    opened = await race.world.open(race.run_id)
    await race.world.append(Batch(race.run_id, (), opened.run.seq, opened.fence, "another"))


def is_mine(batch):
    return batch.batch_id != "another"


REFUSED_BY = {
    "a payload that landed first": (["StaleLog"], "hello"),
    "another decider": (["Superseded"], "nobody wrote, early, late"),
    "a token that is taken": (["Taken", "Taken"], "late is another's, early"),  # ahead, and then strictly
    "a line that is cut": ([], "nobody wrote, early, late"),
}


async def refuse(race, how):
    """Return what is to happen before the batch arrives."""
    if how == "a token that is taken":
        await race.start(owner)
        await race.saw("hook_created")
    acts = {
        "a payload that landed first": race.payload("first", "hello"),
        "another decider": lambda _batch: another_decides(race),
        "a line that is cut": lost,
    }
    return acts.get(how)


@pytest.mark.parametrize("how", REFUSED_BY)
async def test_of_a_tick_with_hooks_steps_and_timers_that_is_refused_nothing_remains(how):
    why, result = REFUSED_BY[how]
    found = {}

    async with racing(forks, owner) as race:
        act = await refuse(race, how)

        async def refused(batch):
            found["refused"] = [body.op for body in batch.events if isinstance(body, CREATING)]
            race.world.meanwhile(is_mine, look)
            if act is not None:
                await act(batch)

        async def look(_batch):
            found["log"] = [event.body.op for event in await race.log()]
            found["claimed"] = [claim.op for claim in (await race.world.open(race.run_id)).claims]
            found["bodies"] = dict(bodies)
            try:
                found["owner"] = (await race.world.hook("late")).run_id
            except HookNotFound:
                found["owner"] = "nobody"

        race.world.meanwhile(of_many_kinds, refused)
        await race.start(forks)

        assert await race.result() == result
        assert [reason for _, reason in race.world.refused] == why
        assert len(found["refused"]) == len(CREATING) + 1 + 1  # two steps, and two timers
        assert not {*found["refused"]} & {*found["log"]}
        assert not {*found["refused"]} & {*found["claimed"]}
        assert found["bodies"] == {"add 1": 1}
        assert found["owner"] != race.run_id
        assert max(bodies.values()) == 1
        assert race.node.bodies.slots.used == 0


async def test_ten_refusals_lead_to_one_retry_at_a_time(monkeypatch):
    monkeypatch.setattr(running, "RETRY_S", (0.0,))  # real time would be ten seconds

    @workflow
    async def plain() -> int:
        return await add(1) + len(await hook("t", str))

    async with racing(plain) as race:
        sent_meanwhile = []

        async def refuse_and_ring(_batch):
            before = len(race.world.sent)
            if len(race.world.refused) < 10:
                race.world.meanwhile(is_mine, refuse_and_ring)
                await another_decides(race)
            for _ in range(10):
                race.node.tick(race.run_id)
                await asyncio.sleep(0)
            sent_meanwhile.append(sum(map(is_mine, race.world.sent[before:])))

        race.world.meanwhile(is_mine, refuse_and_ring)
        await race.start(plain)
        await race.saw("hook_created")
        await race.payload("t", "abc")()

        assert await race.result() == 5
        assert [why for _, why in race.world.refused] == ["Superseded"] * 10
        assert sum(map(is_mine, race.world.sent)) == 10 + sum(map(is_mine, race.world.taken))
        assert CountedTurn.built <= 11
        assert set(sent_meanwhile) == {0}
        assert bodies == {"add 1": 1}


# ---- what a step costs

STEPS, WINDOW = 200, 60


@workflow
async def long() -> int:
    box, seen = hook("in", int), 0

    async def read() -> None:
        nonlocal seen
        async for _ in box:
            seen += 1

    reading = asyncio.create_task(read())
    for n in range(STEPS):
        await add(n)
    reading.cancel()
    return seen


def counting(race, monkeypatch):
    """Count, for each step that is recorded: batches sent, events fed, events read, coroutines built."""
    fed = read = 0
    costs = []
    usual_feed, usual_more, usual_ahead = CountedTurn.feed, race.world.more, CountedTurn.feed_ahead

    def feed(self, event):
        nonlocal fed
        fed += 1
        usual_feed(self, event)

    def feed_ahead(self, event):
        nonlocal fed
        fed += 1
        usual_ahead(self, event)

    async def more(*args, **kwargs):
        nonlocal read
        page = await usual_more(*args, **kwargs)
        read += len(page)
        return page

    async def note(_batch):
        costs.append((len(race.world.sent), fed, read, CountedTurn.built))
        race.world.meanwhile(records_a_step, note)

    monkeypatch.setattr(CountedTurn, "feed", feed)
    monkeypatch.setattr(CountedTurn, "feed_ahead", feed_ahead)
    monkeypatch.setattr(race.world, "more", more)
    race.world.meanwhile(records_a_step, note)
    return costs


def records_a_step(batch):
    return any(isinstance(body, ev.StepCompleted) for body in batch.events)


def spent(costs, first, last):
    return [after - before for before, after in zip(costs[first], costs[last], strict=True)]


def after(race, count):
    """Wait for so many more batches."""
    at = len(race.world.sent) + count
    return lambda _: len(race.world.sent) >= at


@pytest.mark.parametrize("every", [0, 2, 15])
async def test_a_step_costs_the_same_at_the_end_as_at_the_beginning_also_beside_payloads(monkeypatch, every):
    """Payloads land before every so many-th batch: two is about 100 of them a second."""
    async with racing(long, shadow=False) as race:
        costs, put = counting(race, monkeypatch), 0

        async def put_one(batch):
            nonlocal put
            put += 1
            race.world.meanwhile(after(race, every), put_one)
            await race.payload("in", put, delivery=f"d{put}")(batch)

        if every:
            race.world.meanwhile(after(race, every), put_one)
        await race.start(long)

        assert await race.result() <= put
        early, late = spent(costs, 20, 20 + WINDOW), spent(costs, -1 - WINDOW, -1)
        assert all(end <= 1.2 * begin + 5 for begin, end in zip(early, late, strict=True)), (early, late)
        events = len(await race.log())
        assert costs[-1][1] <= 2 * events  # all that was fed, what was rebuilt too
        assert CountedTurn.built <= 4
