"""Killed in the middle, started again: every run finishes once, and effects that were recorded are not repeated."""

import asyncio

import pytest

from fencepost.actors import Retry, sleep, step, step_info, timeout, workflow
from tests.e2e.world_and_bus import PATIENCE_S, eventually

OUTCOMES = {"step_completed", "step_failed", "step_retrying"}


def kinds_in(batch):
    return {str(body.__struct_config__.tag) for body in batch.events}


@pytest.fixture
def effects():
    return []


@pytest.fixture
def effect(effects):
    @step
    async def effect(n: int) -> int:
        effects.append(n)
        return n

    return effect


async def test_killed_during_a_sleep_it_goes_on_after_it(stack, effects, effect):
    @workflow
    async def sleeps() -> int:
        await effect(1)
        await sleep(0.15)
        return await effect(2)

    run = await stack.start(sleeps)
    await stack.saw(run, "wait_created")
    await stack.restart()

    assert await run.result(PATIENCE_S) == 2
    assert effects == [1, 2]
    assert len(await stack.events(run, "wait_created")) == 1


async def test_a_deadline_is_fixed_once_and_no_restart_moves_it(skipping, effect):
    @workflow
    async def sleeps() -> int:
        await sleep("10d")
        return await effect(1)

    run = await skipping.start(sleeps)
    await skipping.saw(run, "wait_created")
    due = (await run.status()).due
    for _ in range(3):
        await skipping.skip(days=3)
        await skipping.restart()
    later = (await run.status()).due
    await skipping.skip(days=1)

    assert await run.result(PATIENCE_S) == 1
    assert due == later


async def test_a_sleep_that_ran_out_while_no_node_was_there_ends_at_the_next_start(skipping, effect):
    @workflow
    async def sleeps() -> int:
        await sleep("10d")
        return await effect(1)

    run = await skipping.start(sleeps)
    await skipping.saw(run, "wait_created")
    await skipping.kill()
    skipping.turn(days=11)
    await skipping.begin()

    assert await run.result(PATIENCE_S) == 1


async def test_killed_during_a_step_it_is_repeated_under_the_same_attempt_number_as_lost(stack, gate, effects, effect):
    seen = []

    @step(retry=0)
    async def held() -> int:
        seen.append((step_info().attempt, step_info().idempotency_key))
        await gate.pause()
        return 2

    @workflow
    async def works() -> int:
        await effect(1)
        n = await held()
        return await effect(n)

    run = await stack.start(works)
    await gate.arrival()
    await stack.restart()
    await gate.arrival()
    gate.open()

    assert await run.result(PATIENCE_S) == 2
    assert effects == [1, 2]
    assert seen == [seen[0], seen[0]]
    (lost,) = await stack.events(run, "step_retrying")
    assert (lost.data["lost"], lost.data["attempt"]) == (1, 1)
    started = [e.data for e in await stack.events(run, "step_started") if e.op == lost.op]
    assert [(data["attempt"], data.get("dispatch", 1)) for data in started] == [(1, 1), (1, 2)]


async def test_three_deploys_during_a_long_step_are_not_three_failures(stack, gate):
    @step(retry=0)
    async def held() -> int:
        await gate.pause()
        return step_info().attempt

    @workflow
    async def works() -> int:
        return await held()

    run = await stack.start(works)
    for _ in range(2):
        await gate.arrival()
        await stack.restart()
    await gate.arrival()
    gate.open()

    assert await run.result(PATIENCE_S) == 1


async def test_killed_during_a_gather_only_the_open_branches_are_repeated(stack, gate):
    starts = []

    @step
    async def part(n: int) -> int:
        starts.append(n)
        if n % 2:
            await gate.pause()
        return n

    @workflow
    async def gathers() -> list[int]:
        return await asyncio.gather(*(part(n) for n in range(4)))

    run = await stack.start(gathers)
    await gate.arrival(2)
    await stack.saw(run, "step_completed", 2)
    await stack.restart()
    await gate.arrival(2)
    gate.open()

    assert await run.result(PATIENCE_S) == [0, 1, 2, 3]
    assert sorted(starts) == [0, 1, 1, 2, 3, 3]


async def test_killed_between_a_race_and_its_loser_the_winner_stays_the_winner(stack, gate):
    @step
    async def fast() -> str:
        return "fast"

    @step
    async def slow() -> str:
        await gate.pause()
        return "slow"

    @step
    async def held() -> None:
        await gate.pause()

    @workflow
    async def races() -> str:
        done, _ = await asyncio.wait(
            {asyncio.create_task(fast()), asyncio.create_task(slow())}, return_when=asyncio.FIRST_COMPLETED
        )
        winner = done.pop().result()
        await held()
        return winner

    run = await stack.start(races)
    await gate.arrival(2)
    gate.open()
    await stack.restart()

    assert await run.result(PATIENCE_S) == "fast"


async def test_killed_during_a_timeout_block_the_block_still_ends_on_time(stack, gate):
    @step
    async def held() -> None:
        await gate.pause()

    @workflow
    async def impatient() -> str:
        try:
            async with timeout(0.2):
                await held()
        except TimeoutError:
            return "on time"
        return "late"

    run = await stack.start(impatient)
    await gate.arrival()
    await stack.restart()

    assert await run.result(PATIENCE_S) == "on time"


@pytest.mark.parametrize("kind", ["run_started", "step_completed", "wait_completed", "run_completed"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_commit_it_finishes_and_recorded_effects_stay_single(stack, effects, effect, kind, after):
    @workflow
    async def all_of_it() -> int:
        await effect(1)
        await sleep(0.02)
        return await effect(2)

    stack.app.add(all_of_it)
    stack.cable.fail_once("append", lambda batch: kind in kinds_in(batch), after=after, cut=True)
    run = await stack.start(all_of_it)
    async with asyncio.timeout(PATIENCE_S):
        await stack.cable.failed.wait()
    await stack.restart()

    assert await run.result(PATIENCE_S) == 2
    assert sorted(set(effects)) == [1, 2]
    recorded = await stack.events(run, "step_completed")
    assert len(recorded) == 2
    assert len(effects) <= 3
    assert len(await stack.events(run, "run_completed")) == 1


async def test_a_write_of_a_result_that_fails_once_is_repeated_and_not_the_step(stack, effects, effect):
    @workflow
    async def works() -> int:
        return await effect(1)

    stack.app.add(works)
    stack.cable.fail_once("append", lambda batch: bool(kinds_in(batch) & OUTCOMES))
    run = await stack.start(works)

    assert await run.result(PATIENCE_S) == 1
    assert effects == [1]
    assert len(await stack.events(run, "step_started")) == 1


@pytest.mark.parametrize("kind", ["run_started", "step_started", "step_completed", "run_completed"])
async def test_an_answer_of_the_world_that_is_lost_changes_nothing(stack, effects, effect, kind):
    @workflow
    async def works() -> int:
        return await effect(1) + await effect(2)

    stack.app.add(works)
    stack.cable.fail_once("append", lambda batch: kind in kinds_in(batch), after=True)
    run = await stack.start(works)

    assert await run.result(PATIENCE_S) == 3
    assert effects == [1, 2]
    assert len(await stack.events(run, "step_completed")) == 2


async def test_a_failed_read_at_activation_is_tried_again(stack, effects, effect):
    @workflow
    async def works() -> int:
        return await effect(1)

    stack.app.add(works)
    stack.cable.fail_once("open")
    stack.cable.fail_once("open")

    assert await stack.run(works) == 1
    assert effects == [1]


async def test_a_retry_backoff_that_ran_out_while_no_node_was_there_goes_on_at_the_next_start(skipping):
    starts = []

    @step(retry=Retry(times=1, first="1h", max="1h", jitter=0))
    async def fails_once() -> int:
        starts.append(1)
        if len(starts) == 1:
            raise ValueError("no")
        return len(starts)

    @workflow
    async def works() -> int:
        return await fails_once()

    run = await skipping.start(works)
    await skipping.saw(run, "step_retrying")
    await skipping.kill()
    skipping.turn(hours=2)
    await skipping.begin()

    assert await run.result(PATIENCE_S) == 2


async def test_fifty_runs_under_three_kills_all_finish_with_each_recorded_effect_once(stack):
    @step
    async def add(total: int) -> int:
        # real time: polls what nothing rings for
        await asyncio.sleep(0.005)
        return total + 1

    @workflow
    async def counts(n: int) -> int:
        for _ in range(5):
            n = await add(n)
            await sleep(0.01)
        return n

    runs = [await stack.start(counts, n) for n in range(50)]
    for _ in range(3):
        await stack.saw(runs[25], "step_completed")
        await stack.restart()

    assert [await run.result(30) for run in runs] == [n + 5 for n in range(50)]
    for run in runs[::10]:
        assert len(await stack.events(run, "step_completed")) == 5


async def nothing_is_live(stack):
    return not (await stack.client.info())["live_runs"]


async def test_an_idle_run_sleeps_out_of_memory_and_wakes_with_its_state(stack, effect):
    await stack.restart(idle_s=0.04)

    @workflow
    async def naps() -> list[int]:
        local = [await effect(1)]
        await sleep(0.3)
        return [*local, await effect(2)]

    run = await stack.start(naps)
    await stack.saw(run, "wait_created")
    await eventually(lambda: nothing_is_live(stack))

    assert await run.result(PATIENCE_S) == [1, 2]
