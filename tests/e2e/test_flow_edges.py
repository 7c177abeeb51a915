"""Rare moments: odd exceptions, odd ids, stray wakes, storms of cancels, stops in the middle."""

import asyncio
import time

import pytest

from fencepost.actors import Retry, StepFailed, sleep, step, workflow
from fencepost.errors import InvalidInput, RunCancelled, RunFailed
from tests.e2e.world_and_bus import PATIENCE_S


@step
async def one() -> int:
    return 1


@pytest.mark.parametrize("raised", [StopIteration("x"), StopAsyncIteration("x")], ids=["StopIteration", "StopAsync"])
async def test_a_step_that_raises_what_ends_an_iteration_fails_and_can_be_caught(stack, raised):
    @step(retry=0)
    def stops() -> None:
        raise raised

    @workflow
    async def catches() -> str:
        try:
            await stops()
        except Exception as error:  # noqa: BLE001  (which one is the question)
            return f"{type(error).__name__} {error}"
        return "nothing"

    said = await stack.run(catches)

    assert type(raised).__name__ in said


async def test_a_step_that_raises_cancelled_error_by_itself_has_failed(stack):
    starts = []

    @step(retry=Retry(times=1, first=0.01))
    async def cancels_itself() -> None:
        starts.append(1)
        raise asyncio.CancelledError("by itself")

    @step(retry=Retry(times=1, first=0.01))
    def cancels_itself_too() -> None:
        starts.append(1)
        raise asyncio.CancelledError("by itself")

    @workflow
    async def catches() -> int:
        failed = 0
        for cancels in (cancels_itself, cancels_itself_too):
            try:
                await cancels()
            except StepFailed:
                failed += 1
        return failed

    assert await stack.run(catches) == 2
    assert len(starts) == 4


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration("x")], ids=repr)
async def test_a_workflow_that_raises_what_would_end_a_process_fails_alone(stack, raised):
    @workflow
    async def quits() -> None:
        await one()
        raise raised

    @workflow
    async def behaves() -> int:
        return await one()

    with pytest.raises(RunFailed):
        await stack.run(quits)
    assert await stack.run(behaves) == 1


async def test_a_workflow_that_cancels_itself_ends_as_cancelled(stack):
    @workflow
    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RunCancelled):
        await stack.run(gives_up)


async def test_code_that_catches_everything_can_be_put_to_sleep_and_goes_on(local):
    await local.restart(idle_s=0.02)

    @workflow
    async def greedy() -> int:
        tries = 0
        while tries < 3:
            try:
                await sleep(0.1)
            except BaseException:  # noqa: BLE001  (wrong on purpose)
                continue
            tries += 1
        return tries + await one()

    assert await local.run(greedy) == 4


async def test_a_log_longer_than_a_page_is_loaded_whole_after_a_kill(stack, gate):
    @step
    async def held() -> int:
        await gate.pause()
        return 1

    @workflow
    async def long() -> int:
        total = sum(await asyncio.gather(*(one() for _ in range(200))))
        return total + await held()

    run = await stack.start(long)
    await gate.arrival()
    await stack.restart()
    gate.open()

    assert await run.result(PATIENCE_S) == 201
    assert [event.seq for event in await stack.events(run)] == list(range(1, (await run.status()).events + 1))


@pytest.mark.parametrize("id_", ["a b.c*>", "é😀", "x" * 512, "../..", "' or 1=1 --"], ids=ascii)
async def test_an_id_may_be_any_text(local, id_):
    @workflow
    async def plain() -> int:
        return 1

    run = await local.start(plain, id=id_)

    assert await run.result(PATIENCE_S) == 1
    assert (await local.client.run(id_).status()).id == id_


@pytest.mark.parametrize("id_", ["x" * 513, "run_mine", "\ud800", "\0", "two\nlines"], ids=ascii)
async def test_an_id_that_cannot_be_one_is_refused_in_one_sentence(local, id_):
    @workflow
    async def plain() -> int:
        return 1

    with pytest.raises((InvalidInput, ValueError)) as refused:
        await local.start(plain, id=id_)

    assert len(str(refused.value).splitlines()) == 1


async def test_stray_wakes_change_nothing(stack):
    starts = []

    @step
    async def counted(n: int) -> int:
        starts.append(n)
        return n

    @workflow
    async def works() -> None:
        for n in range(10):
            await counted(n)
            await sleep(0.005)

    run = await stack.start(works)
    done = asyncio.create_task(run.result(PATIENCE_S))
    while not done.done():
        stack.node.tick(run.run_id)
        stack.node.tick("run_of_nobody")
        # real time: a step that takes a moment
        await asyncio.sleep(0.001)
    await done
    before = await stack.kinds(run)
    stack.node.tick(run.run_id)
    await stack.idle()

    assert starts == list(range(10))
    assert await stack.kinds(run) == before


async def test_a_lost_wake_is_made_good_by_the_sweeper_and_counted(skipping):
    @workflow
    async def works() -> int:
        await sleep("1h")
        return await one()

    run = await skipping.start(works)
    await skipping.saw(run, "wait_created")
    skipping.turn(hours=1, seconds=3)
    found = await skipping.node.sweeper.sweep()

    assert await run.result(PATIENCE_S) == 1
    assert found == 1
    assert (await skipping.client.info())["repairs"] == 1


async def test_cancels_at_any_moment_end_every_run_and_stall_none(stack):
    @step
    async def part(n: int) -> int:
        # real time: steps that end out of order
        await asyncio.sleep(0.001 * (n % 3))
        return n

    @workflow
    async def works(n: int) -> int:
        try:
            await asyncio.gather(*(part(n + i) for i in range(3)))
            await sleep(0.005)
            return await part(n)
        finally:
            await part(0)

    runs = [await stack.start(works, n) for n in range(30)]
    for run in runs:
        await run.cancel()
    ends = [await stack.ended(run) for run in runs]

    assert {type(end) for end in ends} <= {RunCancelled, type(None)}
    for run, end in zip(runs, ends, strict=True):
        assert (await stack.kinds(run))[-1] == ("run_completed" if end is None else "run_cancelled")


async def test_killed_during_the_cleanup_of_a_cancel_the_cleanup_is_finished(stack, gate):
    @step
    async def cleanup() -> None:
        await gate.pause()

    @workflow
    async def cleans_up() -> None:
        try:
            await sleep("30d")
        finally:
            await cleanup()
            await one()

    run = await stack.start(cleans_up)
    await stack.saw(run, "wait_created")
    await run.cancel("enough")
    await gate.arrival()
    await stack.restart()
    await gate.arrival()
    gate.open()

    assert (await stack.ended(run)).reason == "enough"
    assert len(await stack.events(run, "step_completed")) == 2


async def test_a_node_that_is_stopped_lets_running_steps_end_and_records_them(stack, gate):
    await stack.restart(grace_s=5.0)
    starts = []

    @step
    async def held() -> int:
        starts.append(1)
        await gate.pause()
        return 1

    @workflow
    async def works() -> int:
        return await held() + await one()

    run = await stack.start(works)
    await gate.arrival()
    stopping = asyncio.create_task(stack.deploy(works))
    await asyncio.sleep(0)
    gate.open()
    await stopping

    assert await run.result(PATIENCE_S) == 2
    assert len(starts) == 1
    assert "step_retrying" not in await stack.kinds(run)


async def test_an_async_step_that_blocks_its_loop_holds_up_no_run_without_steps(stack):
    @step
    async def blocks() -> int:
        # real time: the loop is held up
        time.sleep(0.3)  # noqa: ASYNC251  (wrong on purpose)
        return 1

    @workflow
    async def slow() -> int:
        return await blocks()

    @workflow
    async def quick() -> float:
        await sleep(0.01)
        return 2

    run = await stack.start(slow)
    await stack.saw(run, "step_started")
    begun = time.monotonic()
    await stack.run(quick)

    assert time.monotonic() - begun < 0.25
    assert await run.result(PATIENCE_S) == 1


async def test_a_result_that_is_a_coroutine_or_a_generator_is_refused_clearly(stack):
    @step(retry=0)
    def lazy():
        return (n for n in range(3))

    @workflow
    async def asks() -> None:
        await lazy()

    with pytest.raises(RunFailed, match="lazy"):
        await stack.run(asks)


async def test_two_runs_wait_for_each_other_through_nothing_but_their_own_logs(stack):
    @workflow
    async def many(n: int) -> int:
        return sum(await asyncio.gather(*(one() for _ in range(n))))

    runs = await asyncio.gather(*(stack.start(many, n) for n in range(20)))

    assert [await run.result(PATIENCE_S) for run in runs] == list(range(20))
