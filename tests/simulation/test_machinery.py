"""The simulator's own parts: the loop kills, pauses, jumps; the line loses; looks see a run nobody would wake."""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from fencepost.world import Batch, Checks, Fence, NewRun, Read, Unavailable
from fencepost.world import events as ev
from tests.simulation.looks import Looks
from tests.simulation.loop import NothingToDo, SimLoop
from tests.simulation.world import SimWorld

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
INPUT = ev.Value(json=msgspec.Raw(b"{}"))


@pytest.fixture
def loop():
    made = SimLoop(Random(1), shuffle=True)
    yield made
    made.close()


@pytest.fixture
def world(loop):
    made = SimWorld(loop, lambda: BEGIN + timedelta(seconds=loop.now_s), Checks(), Random(1))
    yield made
    made.core.connection.close()


async def ticks(heard):
    try:
        while True:
            await asyncio.sleep(1)
            heard.append(asyncio.get_running_loop().time())
    finally:
        heard.append("cleaned up")


# ---- the loop


def test_time_jumps_to_the_next_timer(loop):
    async def main():
        await asyncio.sleep(3600)
        return loop.now_s

    assert loop.run(main()) == 3600


def test_of_a_killed_process_nothing_runs_again_not_even_its_cleanup(loop):
    heard, proc = [], loop.start("n1")

    async def main():
        proc.run(lambda: loop.create_task(ticks(heard)))
        await asyncio.sleep(2.5)
        loop.kill(proc)
        await asyncio.sleep(10)

    loop.run(main())

    assert heard == [1.0, 2.0]


def test_a_process_dies_at_the_handle_it_was_told_to(loop):
    killed, proc = [], loop.start("n1")
    loop.killed = killed.append

    async def main():
        proc.run(lambda: loop.create_task(ticks([])))
        proc.dies_after = 5
        await asyncio.sleep(100)

    loop.run(main())

    assert killed == [proc]


def test_a_paused_process_goes_on_where_it_stood(loop):
    heard, proc = [], loop.start("n1")

    async def main():
        proc.run(lambda: loop.create_task(ticks(heard)))
        await asyncio.sleep(1.5)
        proc.paused = True
        await asyncio.sleep(10)
        assert heard == [1.0]
        proc.paused = False
        await asyncio.sleep(2.0)

    loop.run(main())

    assert heard == [1.0, 11.5, 12.5]


def test_a_wait_for_nothing_is_told(loop):
    async def main():
        await loop.create_future()

    with pytest.raises(NothingToDo):
        loop.run(main())


def test_an_error_nobody_looked_at_is_a_failure(loop):
    async def main():
        loop.create_task(failing(), name="a service")
        await asyncio.sleep(1)

    async def failing():
        raise ValueError("no")

    loop.run(main())

    assert loop.failures() == ["task 'a service' raised ValueError('no')"]


# ---- the line


def asked(loop, proc, question):
    """Ask the world as a process, and return what came of it."""

    async def main():
        task = proc.run(lambda: loop.create_task(question))
        await asyncio.wait([task], timeout=60)
        return task

    return loop.run(main())


def new_run():
    return NewRun("run_1", "flow", "sim", INPUT, "digest", "seed")


def test_an_answer_is_lost_and_the_commit_stands(loop, world):
    world.line.loses_answer = 1.0

    task = asked(loop, loop.start("n1"), world.create(new_run()))

    assert isinstance(task.exception(), Unavailable)
    assert world.core.find("run_1").seq == 1


def test_a_lost_request_changes_nothing(loop, world):
    world.line.loses_request = 1.0

    task = asked(loop, loop.start("n1"), world.create(new_run()))

    assert isinstance(task.exception(), Unavailable)
    assert world.core.count()["pending"] == 0


def test_a_request_arrives_although_its_sender_died(loop, world):
    world.line.delay_s = 5.0
    proc = loop.start("n1")

    async def main():
        proc.run(lambda: loop.create_task(world.create(new_run())))
        await asyncio.sleep(0.001)
        loop.kill(proc)
        await asyncio.sleep(120)

    loop.run(main())

    assert world.core.find("run_1").seq == 1


# ---- the looks


@pytest.fixture
def looks(loop, world):
    found = Looks(world, skew_s=0.0)
    world.looks.append(found.look)
    loop.run(world.create(new_run()))
    return found


def batch(*bodies, tick=0, due=None, known=1):
    return Batch("run_1", bodies, known, Fence(tick, f"b{tick}" if tick else ""), f"b{tick + 1}", due=due)


def test_a_run_that_something_wakes_is_fine(loop, world, looks):
    loop.run(world.append(batch(ev.RunStarted(), ev.WaitCreated(op="0.0", delay_s=3600), due=BEGIN + HOUR)))

    assert looks.broken == []


def test_a_run_that_nothing_wakes_is_seen(loop, world, looks):
    loop.run(world.append(batch(ev.RunStarted())))

    assert "nothing would wake it" in looks.broken[0]


def test_a_result_nobody_has_decided_on_has_to_be_due(loop, world, looks):
    loop.run(world.append(batch(ev.RunStarted(), ev.WaitCreated(op="0.0"), due=BEGIN)))

    loop.run(world.append(batch(ev.WaitCompleted(op="0.0"), tick=1, known=3, due=BEGIN + HOUR)))

    assert "nobody has decided on event 4" in looks.broken[0]


def waiting(*reads):
    made = ev.HookCreated(op="0.0", token="t")
    return Batch("run_1", (ev.RunStarted(), made), 1, Fence(0, ""), "b1", reads=tuple(reads))


def test_a_run_that_waits_for_an_open_hook_only_is_fine(loop, world, looks):
    loop.run(world.append(waiting()))

    assert looks.broken == []


def test_a_run_whose_hook_is_closed_waits_for_nothing(loop, world, looks):
    loop.run(world.append(waiting()))

    loop.run(world.append(batch(ev.HookDisposed(op="0.0", token="t"), tick=1, known=3)))

    assert "nothing would wake it" in looks.broken[0]


def test_more_read_than_came_is_seen(loop, world, looks):
    loop.run(world.append(waiting(Read("0.0", 1))))

    assert "1 payloads of t were read, and 0 have come" in looks.broken[0]
