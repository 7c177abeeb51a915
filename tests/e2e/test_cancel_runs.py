"""Cancelling and terminating: at any moment, once, with cleanup, and against code that does not want to end."""

import asyncio

import pytest

from fencepost.actors import sleep, step, timeout, workflow
from fencepost.errors import RunCancelled, RunTerminated
from tests.e2e.world_and_bus import BEGIN, PATIENCE_S, eventually


@step
async def note(text: str) -> str:
    return text


async def test_a_cancel_before_the_first_tick_ends_the_run_without_its_code(skipping):
    entered = []

    @workflow
    async def never_begun() -> None:
        entered.append(1)

    run = await skipping.start(never_begun, at=BEGIN.replace(year=2031))
    changed = await run.cancel("not needed")

    with pytest.raises(RunCancelled, match="not needed"):
        await run.result(PATIENCE_S)
    assert changed
    assert entered == []
    assert await skipping.kinds(run) == ["run_created", "cancel_requested", "run_cancelled"]


async def test_a_cancel_during_a_step_tells_the_body_and_lets_the_code_clean_up(stack, gate):
    told = []

    @step
    async def works() -> None:
        try:
            await gate.pause()
        except asyncio.CancelledError:
            told.append(1)
            raise

    @workflow
    async def cleans_up() -> None:
        try:
            await works()
        finally:
            await note("cleaned")

    run = await stack.start(cleans_up)
    await gate.arrival()
    await run.cancel("enough")

    error = await stack.ended(run)
    await eventually(lambda: told)
    assert isinstance(error, RunCancelled)
    assert error.reason == "enough"
    assert len(await stack.events(run, "step_completed")) == 1
    assert len(await stack.events(run, "step_cancelled")) == 1


async def test_a_cancel_during_a_sleep_wakes_the_run(stack):
    @workflow
    async def sleeps() -> None:
        await sleep("30d")

    run = await stack.start(sleeps)
    await stack.saw(run, "wait_created")
    await run.cancel()

    assert isinstance(await stack.ended(run), RunCancelled)


async def test_a_second_cancel_is_inert_and_does_not_kill_the_cleanup(stack, gate):
    @step
    async def cleanup() -> str:
        await gate.pause()
        return "cleaned"

    @workflow
    async def cleans_up() -> None:
        try:
            await sleep("30d")
        finally:
            await cleanup()

    run = await stack.start(cleans_up)
    await stack.saw(run, "wait_created")
    await run.cancel("first")
    await gate.arrival()
    await run.cancel("second")
    gate.open()

    error = await stack.ended(run)
    assert isinstance(error, RunCancelled)
    assert error.reason == "first"
    assert len(await stack.events(run, "step_completed")) == 1


async def test_a_cancel_after_the_end_changes_nothing(stack):
    @workflow
    async def done() -> int:
        return 1

    run = await stack.start(done)
    await run.result(PATIENCE_S)
    before = await stack.kinds(run)

    assert not await run.cancel()
    assert not await run.terminate()
    assert await stack.kinds(run) == before
    assert await run.result(PATIENCE_S) == 1


async def test_code_that_returns_after_a_cancel_completes_with_what_it_returned(stack):
    @workflow
    async def settles() -> str:
        try:
            await sleep("30d")
        except asyncio.CancelledError:
            return await note("settled instead")
        return "slept"

    run = await stack.start(settles)
    await stack.saw(run, "wait_created")
    await run.cancel()

    assert await run.result(PATIENCE_S) == "settled instead"


async def test_code_that_swallows_a_cancel_is_terminated_after_its_grace(stack):
    @workflow(cancel_grace=0.1)
    async def stubborn() -> None:
        while True:
            try:
                await sleep("30d")
            except asyncio.CancelledError:
                continue

    run = await stack.start(stubborn)
    await stack.saw(run, "wait_created")
    await run.cancel()

    error = await stack.ended(run)
    assert isinstance(error, RunTerminated)
    assert "cancel_grace" in error.reason


async def test_the_grace_counts_through_a_restart(skipping):
    @workflow(cancel_grace="1h")
    async def stubborn() -> None:
        while True:
            try:
                await sleep("30d")
            except asyncio.CancelledError:
                continue

    run = await skipping.start(stubborn)
    await skipping.saw(run, "wait_created")
    await run.cancel()
    await skipping.saw(run, "wait_created", 2)
    await skipping.restart()
    await skipping.skip(minutes=59)
    early = (await run.status()).status
    await skipping.skip(minutes=1)

    assert isinstance(await skipping.ended(run), RunTerminated)
    assert early == "running"


async def test_a_termination_ends_the_run_at_once_without_its_code(stack, gate):
    stopped = []

    @step
    async def works() -> None:
        try:
            await gate.pause()
        finally:
            stopped.append(1)

    @workflow
    async def cleans_up() -> None:
        try:
            await works()
        finally:
            await note("cleaned")

    run = await stack.start(cleans_up)
    await gate.arrival()
    await run.terminate("now")

    error = await stack.ended(run)
    await eventually(lambda: stopped)
    assert isinstance(error, RunTerminated)
    assert error.reason == "now"
    assert (await stack.kinds(run))[-1] == "run_terminated"
    assert "step_completed" not in await stack.kinds(run)


async def test_a_cancel_while_the_node_is_away_is_heard_when_one_is_back(stack, gate):
    @step
    async def works() -> None:
        await gate.pause()

    @workflow
    async def waits() -> None:
        await works()

    run = await stack.start(waits)
    await gate.arrival()
    await run.cancel("meanwhile")
    await stack.restart()

    assert isinstance(await stack.ended(run), RunCancelled)


async def test_a_cancelled_run_cancels_all_its_branches_and_their_cleanup_runs(stack, gate):
    @step
    async def works(_n: int) -> None:
        await gate.pause()

    @workflow
    async def branches() -> None:
        async def branch(n):
            try:
                await works(n)
            finally:
                await note(f"cleaned {n}")

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(branch(n))

    run = await stack.start(branches)
    await gate.arrival(3)
    await run.cancel()

    assert isinstance(await stack.ended(run), RunCancelled)
    assert len(await stack.events(run, "step_cancelled")) == 3
    assert len(await stack.events(run, "step_completed")) == 3


async def test_on_cancel_wait_lets_the_body_end_before_the_await_raises(stack, gate):
    @step(on_cancel="wait")
    async def must_finish() -> str:
        await gate.pause()
        return "finished"

    @workflow
    async def waits() -> None:
        try:
            await must_finish()
        finally:
            await note("after it")

    run = await stack.start(waits)
    await gate.arrival()
    await run.cancel()
    await stack.saw(run, "cancel_requested")
    gate.open()

    assert isinstance(await stack.ended(run), RunCancelled)
    kinds = await stack.kinds(run)
    assert kinds.count("step_completed") == 2
    assert "step_cancelled" not in kinds


async def test_on_cancel_abandon_leaves_the_body_alone(stack, gate):
    told, ended = [], []

    @step(on_cancel="abandon")
    async def left_alone() -> None:
        try:
            await gate.pause()
        except asyncio.CancelledError:
            told.append(1)
            raise
        ended.append(1)

    @workflow
    async def gives_up() -> str:
        try:
            async with timeout(0.03):
                await left_alone()
        except TimeoutError:
            return await note("gave up")
        return "waited"

    assert await stack.run(gives_up) == "gave up"
    gate.open()
    await eventually(lambda: ended or told)
    assert told == []


async def test_a_task_that_the_code_cancels_itself_does_not_cancel_the_run(stack, gate):
    @step
    async def works() -> None:
        await gate.pause()

    @workflow
    async def cancels_a_branch() -> str:
        branch = asyncio.create_task(works())
        await note("first")
        branch.cancel()
        try:
            await branch
        except asyncio.CancelledError:
            return await note("went on")
        return "no"

    assert await stack.run(cancels_a_branch) == "went on"
