"""Time limits: of an attempt, of a step as a whole, of a run; and bodies that do not care."""

import asyncio
import time

import pytest

from fencepost.actors import Retry, StepTimeout, step, step_info, workflow
from fencepost.errors import RunFailed
from tests.e2e.world_and_bus import PATIENCE_S, eventually


async def nothing_runs(stack):
    return not (await stack.client.info())["steps_running"]


@step
async def after() -> str:
    return "went on"


async def test_each_attempt_has_its_own_timeout_and_the_last_one_fails_the_step(stack):
    starts = []

    @step(timeout=0.03, retry=Retry(times=1, first=0.01))
    async def hangs() -> None:
        starts.append(1)
        # real time: cut short by the timeout
        await asyncio.sleep(60)

    @workflow
    async def waits() -> str:
        try:
            await hangs()
        except StepTimeout as error:
            return str(error)
        return "came back"

    assert "0.03 s" in await stack.run(waits)
    assert len(starts) == 2


async def test_a_step_timeout_is_a_timeout_error_too(stack):
    @step(timeout=0.02, retry=0)
    async def hangs() -> None:
        # real time: cut short by the timeout
        await asyncio.sleep(60)

    @workflow
    async def waits() -> str:
        try:
            await hangs()
        except TimeoutError:
            return "caught"
        return "came back"

    assert await stack.run(waits) == "caught"


async def test_the_total_timeout_ends_a_step_however_many_attempts_are_left(stack):
    @step(total_timeout=0.1, retry=Retry(times=1000, first=0.01, factor=1, max=0.01))
    async def never_works() -> None:
        raise ValueError("no")

    @workflow
    async def waits() -> None:
        await never_works()

    run = await stack.start(waits)
    failed = await stack.ended(run)

    assert isinstance(failed.cause, StepTimeout)
    assert "total_timeout" in str(failed)
    assert 1 <= len(await stack.events(run, "step_retrying")) < 15


async def test_the_total_timeout_ends_a_running_attempt(stack, gate):
    @step(total_timeout=0.05)
    async def hangs() -> None:
        await gate.pause()

    @workflow
    async def waits() -> str:
        try:
            await hangs()
        except StepTimeout:
            return await after()
        return "came back"

    assert await stack.run(waits) == "went on"


async def test_the_total_timeout_counts_through_a_restart(stack, gate):
    @step(total_timeout=0.4)
    async def hangs() -> None:
        await gate.pause()

    @workflow
    async def waits() -> None:
        await hangs()

    run = await stack.start(waits)
    begun = time.monotonic()
    await gate.arrival()
    await stack.restart()

    assert isinstance((await stack.ended(run)).cause, StepTimeout)
    assert time.monotonic() - begun < 3


async def test_a_sync_step_that_never_returns_is_given_up_its_slot_stays_taken_and_the_run_goes_on(local, gate):
    await local.restart(step_slots=2)

    @step(timeout=0.05, retry=0)
    def never_returns() -> None:
        gate.block()

    @workflow
    async def goes_on() -> str:
        try:
            await never_returns()
        except StepTimeout:
            return await after()
        return "came back"

    assert await local.run(goes_on) == "went on"
    assert (await local.client.info())["steps_running"] == 1

    gate.open()
    await eventually(lambda: nothing_runs(local))


async def test_what_a_body_returns_after_its_timeout_is_not_recorded(stack, gate):
    @step(timeout=0.05, retry=0)
    def too_late() -> str:
        gate.block()
        return "late"

    @workflow
    async def waits() -> str:
        try:
            return await too_late()
        except StepTimeout:
            return await after()

    run = await stack.start(waits)
    await gate.arrival()
    await stack.saw(run, "step_failed")
    gate.open()

    assert await run.result(PATIENCE_S) == "went on"
    assert len(await stack.events(run, "step_completed")) == 1


async def test_a_sync_body_can_see_that_it_was_told_to_stop(stack):
    seen = []

    @step(timeout=0.03, retry=0)
    def looks() -> None:
        until = time.monotonic() + 5
        while not step_info().cancelled and time.monotonic() < until:
            # real time: polls what nothing rings for
            time.sleep(0.005)
        seen.append(step_info().cancelled)

    @workflow
    async def waits() -> None:
        await looks()

    with pytest.raises(RunFailed, match="timeout"):
        await stack.run(waits)
    await eventually(lambda: seen)

    assert seen == [True]


async def test_a_run_that_takes_longer_than_its_timeout_fails_with_that_code(stack, gate):
    cleaned = []

    @step
    async def hangs() -> None:
        try:
            await gate.pause()
        finally:
            cleaned.append(1)

    @workflow(timeout=0.1)
    async def too_slow() -> None:
        await hangs()

    with pytest.raises(RunFailed, match=r"0\.1 s") as failed:
        await stack.run(too_slow)
    await eventually(lambda: cleaned)

    assert failed.value.code == "timeout"


async def test_the_timeout_of_a_run_counts_through_a_sleep(skipping):
    from fencepost.actors import sleep  # noqa: PLC0415

    @workflow(timeout="2h")
    async def sleeps() -> None:
        await sleep("1d")

    run = await skipping.start(sleeps)
    await skipping.saw(run, "wait_created")
    await skipping.skip(hours=2)

    assert (await skipping.ended(run)).code == "timeout"
