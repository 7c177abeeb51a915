"""Hooks on a real actor: what lands between deciding and committing, conflicts, crashes in between."""

import asyncio

import pytest

from fencepost.actors.ahead import CALM_BATCHES
from fencepost.actors.author import sleep
from fencepost.actors.define import step, workflow
from fencepost.actors.errors import HookConflict
from fencepost.actors.hooks import hook
from fencepost.world import events as ev
from tests.actors.racing import CountedTurn, ahead, bodies, lost, racing


@step
async def add(x: int) -> int:
    bodies[f"add {x}"] += 1
    return x + 1


@step
async def mail(to: str) -> str:
    bodies[f"mail {to}"] += 1
    return to


@workflow
async def owner() -> int:
    return await hook("shared", int)


@workflow
async def rival() -> list[str | int]:
    inbox = hook("shared", int)
    try:
        return ["mine", await inbox]
    except HookConflict as conflict:
        return ["theirs", await add(1), await mail(conflict.token)]


def holds(kind):
    return lambda batch: any(isinstance(body, kind) for body in batch.events)


async def owned(race):
    await race.start(owner)
    await race.saw("hook_created")
    return race.run_id


async def test_a_payload_that_lands_before_a_batch_that_ran_ahead_is_what_the_code_sees_first():
    @workflow
    async def raced() -> list[int]:
        inbox, order = hook("in", int), list[int]()

        async def read() -> None:
            order.append(await inbox)

        async def work() -> None:
            order.append(await add(1))
            order.append(await add(len(order)))

        await asyncio.gather(read(), work())
        return order

    async with racing(raced) as race:

        async def deliver(batch):
            await race.payload("in", 70)(batch)

        race.world.meanwhile(ahead, deliver)
        await race.start(raced)

        assert await race.result() == [70, 2, 3]
        assert [why for _, why in race.world.refused] == ["StaleLog"]
        assert bodies == {"add 1": 1, "add 2": 1}


async def test_of_two_runs_that_want_a_token_the_second_is_told_and_goes_on():
    async with racing(owner, rival) as race:
        first = await owned(race)
        await race.start(rival)

        assert await race.result() == ["theirs", 2, "shared"]
        assert [why for _, why in race.world.refused] == ["Taken"]
        (conflict,) = [e.body for e in await race.log() if isinstance(e.body, ev.HookConflict)]
        assert conflict.owner == first
        assert CountedTurn.built == 2  # nothing had to be rebuilt


async def test_nothing_that_assumed_the_hook_is_begun():
    @workflow
    async def hasty() -> str:
        inbox = hook("shared", int)
        try:
            await mail(inbox.token)
        except HookConflict:
            return "not sent"
        return "sent"

    async with racing(owner, hasty) as race:
        await owned(race)
        await race.start(hasty)

        assert await race.result() == "not sent"
        assert bodies == {}


@pytest.mark.parametrize("lose", [1, 2])
async def test_a_node_that_loses_the_world_around_a_conflict_finds_its_way(lose):
    @workflow
    async def beside() -> list[str | int]:
        async def other() -> int:
            return await add(10)

        branch = asyncio.create_task(other())
        try:
            await hook("shared", int)  # asked for before the step of the branch, which is not taken back
        except HookConflict:
            return ["theirs", await add(1), await branch]
        return ["mine"]

    async with racing(owner, beside) as race:
        await owned(race)
        seen = []

        def nth(batch):
            seen.append(batch)
            return len(seen) == lose + 1

        race.world.meanwhile(nth, lost)
        await race.start(beside)

        assert await race.result() == ["theirs", 2, 11]


async def test_a_payload_to_a_stalled_run_is_read_when_it_goes_on():
    broken = True

    @workflow
    async def picky() -> int:
        inbox = hook("in", int)
        await add(1)
        if broken:
            await asyncio.Event().wait()
        await sleep(0.01)
        return await inbox + await add(2)

    async with racing(picky, shadow=False) as race:
        await race.start(picky)
        assert "waits for nothing" in await race.stalled()
        decided = (await race.world.find(race.run_id)).decided_seq

        await race.payload("in", 5)()
        await race.settled()
        row = await race.world.find(race.run_id)
        assert (row.decided_seq, row.due, bool(row.stalled)) == (decided, None, True)

        broken = False
        await race.world.unstall(race.run_id)
        race.node.tick(race.run_id)
        assert await race.result() == 8


async def test_each_refusal_asks_for_twice_as_many_calm_batches():
    @workflow
    async def long() -> int:
        inbox, seen = hook("in", int), 0

        async def read() -> None:
            nonlocal seen
            async for _ in inbox:
                seen += 1

        reading = asyncio.create_task(read())
        x = 0
        while x < 4 * CALM_BATCHES:
            x = await add(x)
        reading.cancel()
        return seen

    async with racing(long) as race:
        for n in range(2):
            race.world.meanwhile(ahead, race.payload("in", n, delivery=f"d{n}"))
        await race.start(long)

        assert await race.result() == 2
        sent = [ahead(batch) for batch in race.world.sent]
        first = sent.index(True)
        second = sent.index(True, first + 1)
        third = sent.index(True, second + 1)
        assert second - first == CALM_BATCHES + 1
        assert third - second == 2 * CALM_BATCHES + 1


async def test_the_world_is_told_what_the_code_has_taken():
    @workflow
    async def reading() -> int:
        inbox = hook("in", int)
        total = 0
        for _ in range(3):
            total += await inbox
        await add(total)
        return total

    async with racing(reading) as race:
        await race.start(reading)
        await race.saw("hook_created")
        for n in (1, 2):
            await race.payload("in", n, delivery=f"d{n}")()
        await race.settled()

        assert (await race.world.hook("in")).unread == 0
        await race.payload("in", 3, delivery="d3")()
        assert await race.result() == 6


async def test_who_waits_for_a_hook_alone_has_nothing_that_rings_it():
    async with racing(owner) as race:
        await owned(race)
        await race.settled()

        assert (await race.world.find(race.run_id)).due is None
        await race.payload("shared", 3)()
        assert await race.result() == 3
