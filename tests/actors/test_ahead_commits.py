"""What running ahead saves, and what a batch that ran ahead holds."""

import asyncio
from datetime import timedelta

import pytest

from fencepost.actors.author import now, sleep
from fencepost.actors.define import step, workflow
from fencepost.actors.retry import Retry
from fencepost.world import Offer
from fencepost.world import events as ev
from tests.actors.racing import ahead, bodies, racing, strict


@step
async def add(x: int) -> int:
    bodies[f"add {x}"] += 1
    return x + 1


@step(retry=Retry(times=1, first=0))
async def shaky(x: int) -> int:
    bodies["shaky"] += 1
    if bodies["shaky"] == 1:
        raise ValueError("not yet")
    return x


@step
async def large(size: int) -> str:
    return "x" * size


@step(queue="elsewhere")
async def remote() -> int:
    return 1


@workflow
async def nothing() -> int:
    return 7


@workflow
async def chain(n: int) -> int:
    x = 0
    for _ in range(n):
        x = await add(x)
    return x


def kinds(batch):
    return [ev.kind_of(body) for body in batch.events]


@pytest.mark.parametrize("run_ahead", [True, False])
async def test_a_run_without_steps_is_one_commit_after_its_creation(run_ahead):
    async with racing(nothing, run_ahead=run_ahead) as race:
        assert await race.run(nothing) == 7

        assert [kinds(batch) for batch in race.world.taken] == [["run_started", "run_completed"]]


@pytest.mark.parametrize("n", [1, 5])
async def test_a_chain_of_steps_is_one_commit_more_than_it_has_steps(n):
    async with racing(chain) as race:
        assert await race.run(chain, n) == n

        assert len(race.world.sent) == n + 1
        assert kinds(race.world.taken[0]) == ["run_started", "step_created", "step_started"]
        assert all(ahead(batch) and batch.whole_log for batch in race.world.taken[1:])
        assert kinds(race.world.taken[-1]) == ["step_completed", "run_completed"]


async def test_with_the_setting_off_each_step_costs_two():
    async with racing(chain, run_ahead=False) as race:
        assert await race.run(chain, 5) == 5

        assert len(race.world.sent) == 11
        assert not any(ahead(batch) for batch in race.world.sent)


async def test_a_timer_goes_on_in_the_commit_that_completes_it():
    @workflow
    async def naps() -> None:
        await sleep(0.02)
        await sleep(0.02)

    async with racing(naps) as race:
        await race.run(naps)

        assert [kinds(batch) for batch in race.world.taken] == [
            ["run_started", "wait_created"],
            ["wait_completed", "wait_created"],
            ["wait_completed", "run_completed"],
        ]


async def test_a_retry_without_delay_starts_in_the_commit_that_records_the_failure():
    @workflow
    async def tries() -> int:
        return await shaky(3)

    async with racing(tries) as race:
        assert await race.run(tries) == 3

        assert [kinds(batch) for batch in race.world.taken][1:] == [
            ["step_retrying", "step_started"],
            ["step_completed", "run_completed"],
        ]
        assert race.world.taken[1].due is None


async def test_the_code_is_told_the_time_its_results_have_in_the_log():
    @workflow
    async def clock() -> str:
        await add(1)
        return now().isoformat()

    async with racing(clock) as race:
        told = await race.run(clock)

        at = {ev.kind_of(event.body): event.at for event in await race.log()}
        assert told == at["step_completed"].isoformat()
        assert race.world.taken[-1].at == at["step_completed"]


async def test_a_large_result_is_kept_apart_and_a_replay_finds_it():
    @workflow
    async def heavy() -> int:
        text = await large(200_000)
        await sleep(0.05)
        return len(text)

    async with racing(heavy) as race:
        await race.start(heavy)
        await race.saw("wait_created")
        await race.settled()
        await race.sleep()
        await race.world.until(race._has_ended)

        (completed,) = [e.body for e in await race.log() if isinstance(e.body, ev.StepCompleted)]
        assert completed.result.ref
        assert bytes((await race.log())[-1].body.result.json) == b"200000"


async def test_what_nobody_here_serves_is_offered_with_the_names_of_its_attempt():
    @workflow
    async def handed() -> int:
        await add(1)
        return await remote()

    async with racing(handed) as race:
        await race.start(handed)
        await race.saw("step_created", 2)

        batch = race.world.taken[-1]
        assert kinds(batch) == ["step_completed", "step_created"]
        assert batch.offers == (Offer("0.1", "elsewhere", 1, 1),)


async def test_a_decided_run_says_so_up_to_its_own_results():
    @workflow
    async def waits() -> None:
        await add(1)
        await sleep(60)

    async with racing(waits) as race:
        await race.start(waits)
        await race.saw("wait_created")
        await race.settled()

        run = await race.world.find(race.run_id)
        assert run.decided_seq == run.seq == 6
        assert run.due == race.world.taken[-1].at + timedelta(seconds=60)
        assert len(race.world.sent) == 2


async def test_a_body_that_gets_stuck_ahead_is_stalled_when_its_result_is_durable():
    @workflow
    async def stuck() -> None:
        await add(1)
        await asyncio.get_running_loop().create_future()

    async with racing(stuck) as race:
        await race.start(stuck)

        assert "waits for nothing" in await race.stalled()
        assert (await race.kinds())[-1] == "step_completed"
        assert [strict(batch) for batch in race.world.sent] == [False, True]


async def test_a_run_with_too_many_events_ends_with_the_result_that_was_too_much():
    @workflow(max_events=6)
    async def long() -> None:
        for n in range(100):
            await add(n)

    async with racing(long) as race:
        await race.start(long)

        end = await race.ended()
        assert (end.code, kinds(race.world.taken[-1])[-2:]) == ("max_events", ["step_completed", "run_failed"])
