"""Sleeping: nothing at all, ten at once, thirty days, until an instant, and one that passed."""

# workflow time: every sleep here is on a run's own loop

import asyncio
from datetime import timedelta

from fencepost.actors import now, sleep, step, timeout, workflow
from tests.e2e.world_and_bus import BEGIN, PATIENCE_S


@step
async def one() -> int:
    return 1


async def test_a_sleep_of_nothing_is_a_yield_and_leaves_no_event(stack):
    @workflow
    async def yields() -> int:
        await sleep(0)
        await asyncio.sleep(0)
        await sleep("0s")
        return await one()

    run = await stack.start(yields)

    assert await run.result(PATIENCE_S) == 1
    assert "wait_created" not in await stack.kinds(run)


async def test_ten_parallel_sleeps_take_as_long_as_one(stack):
    @workflow
    async def ten() -> float:
        begun = now()
        await asyncio.gather(*(sleep(0.05) for _ in range(10)))
        return (now() - begun).total_seconds()

    took_s = await stack.run(ten)

    assert 0.05 <= took_s < 0.45


async def test_a_sleep_of_thirty_days_ends_after_thirty_days_and_not_before(skipping):
    @workflow
    async def thirty_days() -> float:
        begun = now()
        await sleep("30d")
        return (now() - begun) / timedelta(days=1)

    run = await skipping.start(thirty_days)
    await skipping.saw(run, "wait_created")
    await skipping.skip(days=29, hours=23)
    early = (await run.status()).status
    await skipping.skip(hours=1)

    assert await run.result(PATIENCE_S) == 30
    assert early == "running"


async def test_every_way_to_say_how_long_means_the_same(skipping):
    @workflow
    async def says(which: int) -> float:
        begun = now()
        await [sleep(5400), sleep("1h30m"), sleep("PT1H30M"), sleep(timedelta(minutes=90)), asyncio.sleep(5400)][which]
        return (now() - begun).total_seconds()

    @workflow
    async def says_an_instant() -> float:
        await sleep(BEGIN + timedelta(seconds=5400))
        return (now() - BEGIN).total_seconds()

    @workflow
    async def says_a_naive_instant() -> float:
        await sleep((BEGIN + timedelta(seconds=5400)).replace(tzinfo=None))
        return (now() - BEGIN).total_seconds()

    runs = [await skipping.start(workflow) for workflow in (says_an_instant, says_a_naive_instant)]
    for run in runs:
        await skipping.saw(run, "wait_created")
    await skipping.skip(minutes=90)

    assert [await run.result(PATIENCE_S) for run in runs] == [5400, 5400]


async def test_an_instant_that_passed_holds_nothing_up(stack):
    @workflow
    async def past() -> int:
        await sleep(BEGIN - timedelta(days=36_500))
        await sleep(now() - timedelta(days=1))
        await sleep(now())
        return await one()

    assert await stack.run(past) == 1


async def test_a_negative_sleep_is_refused_in_the_workflow(stack):
    @workflow
    async def negative() -> str:
        try:
            await sleep(-1)
        except ValueError as error:
            return str(error)
        return "slept"

    assert "-1" in await stack.run(negative)


async def test_a_durable_timeout_of_two_days_ends_a_step_that_hangs(skipping, gate):
    @step
    async def hangs() -> None:
        await gate.pause()

    @workflow
    async def impatient() -> str:
        try:
            async with timeout("2d"):
                await hangs()
        except TimeoutError:
            return "after two days"
        return "in time"

    run = await skipping.start(impatient)
    await gate.arrival()
    await skipping.skip(days=2)

    assert await run.result(PATIENCE_S) == "after two days"


async def test_timers_due_together_complete_in_the_order_they_were_set(skipping):
    @workflow
    async def together() -> list[int]:
        order = []

        async def nap(n):
            await sleep("1h")
            order.append(n)

        await asyncio.gather(*(nap(n) for n in range(5)))
        return order

    run = await skipping.start(together)
    await skipping.saw(run, "wait_created", 5)
    await skipping.skip(days=3)

    assert await run.result(PATIENCE_S) == [0, 1, 2, 3, 4]


async def test_a_start_for_later_begins_then(skipping):
    @workflow
    async def later() -> float:
        return (now() - BEGIN) / timedelta(hours=1)

    run = await skipping.start(later, at=BEGIN + timedelta(hours=5))
    waiting = (await run.status()).status
    await skipping.skip(hours=5)

    assert await run.result(PATIENCE_S) >= 0
    assert waiting == "pending"
    assert (await skipping.events(run, "run_started"))[0].at == BEGIN + timedelta(hours=5)


async def test_time_randomness_and_ids_are_the_same_after_a_restart(stack, gate):
    import random as stdlib_random  # noqa: PLC0415  (reached through its module, as users do)
    import time  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    from fencepost.actors import random, uuid4  # noqa: PLC0415

    @step
    async def keep(drawn: list[str]) -> list[str]:
        await gate.pause()
        return drawn

    @workflow
    async def draws() -> list[list[str]]:
        drawn = [now().isoformat(), str(random()), str(uuid4()), str(time.time())]
        drawn += [str(stdlib_random.random()), str(uuid.uuid4())]
        return [drawn, await keep(drawn)]

    run = await stack.start(draws)
    await gate.arrival()
    await stack.restart()
    gate.open()

    drawn, kept = await run.result(PATIENCE_S)
    assert drawn == kept
    assert len(set(drawn)) == 6
