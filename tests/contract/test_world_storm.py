"""Many writers at once: positions are dense and in commit order, and every read is a prefix."""

import asyncio

import pytest

from fencepost.world import PAGE, Superseded
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    outcome_of,
    outside,
    started,
    types,
    wait,
    whole_log,
)


async def prefixes(world, run_id, writers):
    """Read the log while the writers are at it and return how far each read came."""
    lengths = []
    while not writers.done():
        log = await whole_log(world, run_id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        lengths.append(len(log))
        await asyncio.sleep(0)
    return lengths


async def test_200_writers_on_one_run_leave_a_dense_log(world):
    await world.create(a_run())

    writers = asyncio.gather(*(outside(world, cancel(key=f"k{n}")) for n in range(200)))
    lengths = await prefixes(world, "run_1", writers)

    log = await whole_log(world)
    assert [event.seq for event in log] == list(range(1, 202))
    assert sorted(answer.first_seq for answer in writers.result()) == list(range(2, 202))
    assert {event.body.key for event in log[1:]} == {f"k{n}" for n in range(200)}
    assert lengths == sorted(lengths)
    for answer in writers.result():
        assert log[answer.first_seq - 1].at == answer.at


async def test_200_writers_on_many_runs_leave_dense_logs(world):
    run_ids = [f"run_{n}" for n in range(20)]
    for run_id in run_ids:
        await world.create(a_run(run_id))

    await asyncio.gather(*(outside(world, cancel(key=f"k{n}"), run_id=run_id) for n in range(10) for run_id in run_ids))

    for run_id in run_ids:
        assert [event.seq for event in await whole_log(world, run_id)] == list(range(1, 12))


async def test_deciders_and_others_in_one_storm_agree(world):
    """Refusals take nothing of their neighbours with them, though all of them may share a commit."""
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(*(body for n in range(50) for body in (created(f"0.{n}"), started(node, f"0.{n}", f"t{n}"))))
    good = [outside(world, completed(f"0.{n}", f"t{n}")) for n in range(50)]
    bad = [outside(world, completed(f"0.{n}", "stolen")) for n in range(50)]
    stale = [world.append(decider.batch(wait("1.0"))) for _ in range(50)]

    answers = await asyncio.gather(
        *(outcome_of(call) for group in zip(good, bad, stale, strict=True) for call in group)
    )

    refused = [answer for answer in answers if isinstance(answer, Exception)]
    log = await whole_log(world)
    assert len(refused) == 50 + 49
    assert sum(isinstance(answer, Superseded) for answer in refused) == 49
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert types(log).count("step_completed") == 50
    assert types(log).count("wait_created") == 1
    assert (await world.open("run_1")).claims == ()


async def test_pages_are_stable_while_events_arrive(world):
    await world.create(a_run())
    for n in range(30):
        await outside(world, cancel(key=f"k{n}"))

    seen = []
    while page := await world.more("run_1", seen[-1].seq if seen else 0, 7):
        seen.extend(page)
        if len(seen) < 30:
            await outside(world, cancel(key=f"late{len(seen)}"))

    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen == await whole_log(world)
    assert await world.more("run_1", 10_000) == ()
    assert await world.more("run_1", 0, 0) == ()


async def test_a_page_is_bounded(world):
    decider = await Decider.of_new(world)
    await decider.begin(*(wait(f"0.{n}") for n in range(PAGE + 10)))

    opened = await world.open("run_1")
    rest = await world.more("run_1", PAGE)

    assert len(opened.events) == PAGE
    assert [event.seq for event in rest] == list(range(PAGE + 1, PAGE + 13))


async def test_a_caller_that_is_cancelled_does_not_cancel_its_neighbours(world):
    await world.create(a_run())
    tasks = [asyncio.create_task(outside(world, cancel(key=f"k{n}"))) for n in range(20)]
    await asyncio.sleep(0)

    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)

    log = await whole_log(world)
    assert all(not isinstance(answer, BaseException) for answer in answers[1::2])
    assert {f"k{n}" for n in range(1, 20, 2)} <= {event.body.key for event in log[1:]}
    assert [event.seq for event in log] == list(range(1, len(log) + 1))


async def test_after_closing_everything_says_so(world):
    await world.create(a_run())
    await world.close()

    for call in (world.open("run_1"), outside(world, cancel()), world.count()):
        with pytest.raises(Exception, match="was closed"):
            await call
    await world.close()
