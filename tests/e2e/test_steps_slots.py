"""Slots and queues: who runs when there is not enough room, and what waits where it can be seen."""

import asyncio

from fencepost.actors import Retry, sleep, step, workflow
from tests.e2e.world_and_bus import PATIENCE_S


async def test_with_one_slot_two_runs_take_turns_and_nobody_starves(stack):
    await stack.restart(step_slots=1)
    order, running = [], []

    @step
    async def turn(who: str) -> None:
        running.append(who)
        assert len(running) == 1
        order.append(who)
        # real time: a step that takes a moment
        await asyncio.sleep(0.002)
        running.remove(who)

    @workflow
    async def takes_turns(who: str) -> None:
        for _ in range(5):
            await turn(who)

    runs = [await stack.start(takes_turns, who) for who in ("a", "b")]
    for run in runs:
        await run.result(PATIENCE_S)

    assert sorted(order) == ["a"] * 5 + ["b"] * 5
    assert "a" in order[5:] or "b" in order[:5]


async def test_a_gather_wider_than_the_slots_finishes(stack):
    await stack.restart(step_slots=3)
    now, most = [], []

    @step
    async def part(n: int) -> int:
        now.append(n)
        most.append(len(now))
        # real time: a step that takes a moment
        await asyncio.sleep(0.002)
        now.remove(n)
        return n

    @workflow
    async def wide() -> int:
        return sum(await asyncio.gather(*(part(n) for n in range(30))))

    assert await stack.run(wide) == sum(range(30))
    assert max(most) == 3


async def test_what_sleeps_or_backs_off_holds_no_slot(stack):
    await stack.restart(step_slots=1)

    @step(retry=Retry(times=1, first=60, max=60))
    async def backs_off() -> None:
        raise ValueError("later")

    @step
    async def one() -> int:
        return 1

    @workflow
    async def waits(how: str) -> None:
        await (sleep("1h") if how == "sleep" else backs_off())

    @workflow
    async def works() -> int:
        return await one()

    sleeping, failing = await stack.start(waits, "sleep"), await stack.start(waits, "back off")
    await stack.saw(sleeping, "wait_created")
    await stack.saw(failing, "step_retrying")

    assert await stack.run(works) == 1


async def test_a_waiting_step_of_a_run_that_was_cancelled_leaves_the_line(stack, gate):
    await stack.restart(step_slots=1)
    starts = []

    @step
    async def held(who: str) -> str:
        starts.append(who)
        await gate.pause()
        return who

    @workflow
    async def works(who: str) -> str:
        return await held(who)

    first = await stack.start(works, "first")
    await gate.arrival()
    second, third = await stack.start(works, "second"), await stack.start(works, "third")
    await stack.saw(second, "step_created")
    await stack.saw(third, "step_created")
    await second.cancel()
    await stack.ended(second)
    gate.open()

    assert await first.result(PATIENCE_S) == "first"
    assert await third.result(PATIENCE_S) == "third"
    assert starts == ["first", "third"]


async def test_slots_are_free_again_after_a_kill(stack, gate):
    await stack.restart(step_slots=1)

    @step
    async def held(n: int) -> int:
        await gate.pause()
        return n

    @workflow
    async def works(n: int) -> int:
        return await held(n)

    runs = [await stack.start(works, n) for n in range(3)]
    await gate.arrival()
    await stack.restart()
    await gate.arrival()
    gate.open()

    assert [await run.result(PATIENCE_S) for run in runs] == [0, 1, 2]
    info = await stack.client.info()
    assert (info["steps_running"], info["steps_waiting"]) == (0, 0)


async def test_steps_of_a_queue_nobody_serves_wait_visibly_and_run_when_a_node_with_it_joins(stack):
    @step(queue="gpu")
    async def train() -> str:
        return "trained"

    @step
    async def ordinary() -> str:
        return "passed by"

    @workflow
    async def needs_gpu() -> list[str]:
        other = await ordinary()
        return [other, await train()]

    @workflow
    async def unrelated() -> str:
        return await ordinary()

    run = await stack.start(needs_gpu)
    await stack.saw(run, "step_created", 2)
    status = await run.status()
    beside = await stack.run(unrelated)
    await stack.restart(queues=frozenset({"default", "gpu"}))

    assert beside == "passed by"
    assert (status.status, status.stalled) == ("running", "")
    assert await run.result(PATIENCE_S) == ["passed by", "trained"]


async def test_a_run_that_waits_for_a_queue_can_be_cancelled(stack):
    @step(queue="nobody")
    async def never() -> None:
        pass

    @workflow
    async def waits() -> None:
        await never()

    run = await stack.start(waits)
    await stack.saw(run, "step_created")
    await run.cancel("no such queue")

    assert (await stack.ended(run)).reason == "no such queue"


async def test_sync_steps_beyond_the_threads_wait_their_turn_and_their_timeout_begins_with_them(local, gate):
    await local.restart(threads=1)

    @step
    def blocks() -> str:
        gate.block()
        return "first"

    @step(timeout=0.5, retry=0)
    def quick() -> str:
        return "second"

    @workflow
    async def both() -> list[str]:
        return await asyncio.gather(blocks(), quick())

    run = await local.start(both)
    await gate.arrival()
    await local.saw(run, "step_started", 2)
    # real time: longer than the timeout of what waits
    await asyncio.sleep(0.6)  # longer than the timeout of what waits: nothing to wait for instead
    gate.open()

    assert await run.result(PATIENCE_S) == ["first", "second"]
