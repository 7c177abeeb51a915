"""What lands between deciding ahead and committing: refused, rebuilt once, nothing done or said twice."""

import asyncio
import logging
from dataclasses import replace

import pytest

from fencepost.actors.ahead import CALM_BATCHES
from fencepost.actors.define import step, workflow
from fencepost.world import Member
from fencepost.world import events as ev
from tests.actors.attempts import Gate
from tests.actors.racing import CountedTurn, ShiftedHost, ahead, bodies, lost, racing, strict

log = logging.getLogger("racing")


@step
async def add(x: int) -> int:
    bodies[f"add {x}"] += 1
    return x + 1


@step(queue="elsewhere")
async def remote() -> int:
    return 1


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def parked(gate):
    """A step whose body stands at a gate, so that a test decides how and when it ends."""

    @step
    async def parked() -> int:
        bodies["parked"] += 1
        await gate.apass_through()
        return -1

    return parked


@pytest.fixture
def first_wins(parked):
    """A workflow that does other things depending on which of two steps is first in the log."""

    @workflow
    async def first_wins() -> list[int]:
        order = []
        for outcome in asyncio.as_completed([add(1), parked()]):
            result = await outcome
            print(f"next is {result}")  # noqa: T201  (what must be said once)
            log.warning("next is %s", result)
            order.append(await add(result * 10))
        return order

    return first_wins


def told(capsys, caplog):
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("next")], [m for m in caplog.messages if m.startswith("next")]


async def test_a_cancel_that_lands_first_is_what_the_code_sees_first():
    @workflow
    async def careful() -> int:
        try:
            return await add(1) + await add(2)
        except asyncio.CancelledError:
            return await add(100)

    async with racing(careful) as race:
        race.world.meanwhile(ahead, race.cancel)
        await race.start(careful)

        assert await race.result() == 101
        assert [why for _, why in race.world.refused] == ["StaleLog"]
        assert CountedTurn.built == 2
        assert bodies == {"add 1": 1, "add 100": 1}
        kinds = await race.kinds()
        assert kinds.index("cancel_requested") < kinds.index("step_completed")


async def test_an_outcome_that_lands_first_wins_and_no_body_runs_twice(first_wins, capsys, caplog):
    async with racing(first_wins) as race:
        race.world.meanwhile(ahead, race.completed_outside("0.1.0", 7))
        await race.start(first_wins)

        assert await race.result() == [71, 21]
        assert [why for _, why in race.world.refused] == ["StaleLog"]
        assert CountedTurn.built == 2
        assert bodies == {"add 1": 1, "parked": 1, "add 70": 1, "add 20": 1}
        assert told(capsys, caplog) == (["next is 7", "next is 2"],) * 2


async def test_the_batch_after_a_refusal_holds_results_alone(first_wins):
    async with racing(first_wins) as race:
        race.world.meanwhile(ahead, race.completed_outside("0.1.0", 7))
        await race.start(first_wins)
        await race.ended()

        (refused, _), taken = race.world.refused[0], race.world.taken
        assert [ev.kind_of(body) for body in taken[1].events] == ["step_completed", "step_created", "step_started"]
        assert taken[1].events[0] == refused.events[0]
        assert taken[1].events[1].args.json != refused.events[1].args.json  # it answers the outcome that landed
        assert not any(ahead(batch) for batch in taken)


async def test_a_run_goes_ahead_again_after_sixteen_calm_batches(parked):
    @workflow
    async def long() -> int:
        other = asyncio.ensure_future(parked())
        x = 0
        while x < CALM_BATCHES:
            x = await add(x)
        return x + await other

    async with racing(long) as race:
        race.world.meanwhile(ahead, race.completed_outside("0.0.0", 7))
        await race.start(long)

        assert await race.result() == CALM_BATCHES + 7
        sent = [ahead(batch) for batch in race.world.sent]
        refused_at = sent.index(True)
        assert sent[refused_at + 1 :][:CALM_BATCHES] == [False] * CALM_BATCHES
        assert all(sent[refused_at + 1 + CALM_BATCHES :])
        assert CountedTurn.built == 2


@workflow
async def beside() -> list[int]:
    return list(await asyncio.gather(then_add(), remote()))


async def then_add() -> int:
    x = await add(1)
    print(f"next is {x}")  # noqa: T201  (what must be said once)
    return await add(10)


async def a_worker(race):
    return await race.world.join(Member("worker", "test", "c", frozenset(), frozenset({"elsewhere"}), takes=False))


async def test_a_quiet_event_that_lands_first_only_moves_the_batch(capsys):
    async with racing(beside, host=ShiftedHost(0.2)) as race:
        worker = await a_worker(race)
        race.world.meanwhile(ahead, race.claimed_outside("0.1.0", worker))
        await race.start(beside)
        await race.saw("step_completed", 2)
        await race.completed_outside("0.1.0", 5)()

        assert await race.result() == [11, 5]
        assert race.world.refused == []
        assert CountedTurn.built == 1
        kinds = await race.kinds()
        assert kinds[4:8] == ["step_started", "step_started", "step_completed", "step_created"]
        assert capsys.readouterr().out.count("next is 2") == 1


async def test_a_quiet_event_later_than_the_proposed_time_refuses_the_batch_and_nothing_is_lost():
    async with racing(beside) as race:
        worker = await a_worker(race)
        race.world.meanwhile(ahead, race.claimed_outside("0.1.0", worker))
        await race.start(beside)
        await race.saw("step_completed", 2)
        await race.completed_outside("0.1.0", 5)()

        assert await race.result() == [11, 5]
        assert [why for _, why in race.world.refused] == ["StaleLog"]
        assert bodies == {"add 1": 1, "add 10": 1}


async def test_a_step_that_a_worker_took_first_is_not_started_here(gate):
    @step
    async def busy() -> int:
        await gate.apass_through()
        return 1

    @workflow
    async def crowded() -> list[int]:
        return list(await asyncio.gather(busy(), add(1)))

    async with racing(crowded, host=ShiftedHost(0.2), step_slots=1) as race:
        worker = await race.world.join(Member("worker", "test", "c", frozenset(), takes=False))
        await race.start(crowded)
        await race.saw("step_created", 2)
        race.world.meanwhile(ahead, race.claimed_outside("0.1.0", worker))
        gate.open()
        await race.saw("step_started", 3)
        await race.settled()
        assert bodies == {}
        await race.completed_outside("0.1.0", 9)()

        assert await race.result() == [1, 9]
        assert race.node.bodies.slots.used == 0


# ---- outcomes nobody knows


async def test_an_answer_that_is_lost_costs_a_rebuild_and_nothing_is_said_or_done_twice(
    first_wins, gate, capsys, caplog
):
    async with racing(first_wins) as race:
        answer_lost = _loses_one_answer(race.world)
        await race.start(first_wins)
        await race.saw("step_completed", 2)
        gate.open()

        assert await race.result() == [21, -9]
        assert answer_lost.is_set()
        assert bodies == {"add 1": 1, "parked": 1, "add 20": 1, "add -10": 1}
        assert told(capsys, caplog) == (["next is 2", "next is -1"],) * 2


async def test_a_request_that_is_lost_is_tried_again_strictly(first_wins, gate, capsys, caplog):
    async with racing(first_wins) as race:
        race.world.meanwhile(ahead, lost)
        await race.start(first_wins)
        await race.saw("step_completed", 2)
        gate.open()

        assert await race.result() == [21, -9]
        assert [strict(batch) for batch in race.world.sent[1:3]] == [False, True]
        assert bodies == {"add 1": 1, "parked": 1, "add 20": 1, "add -10": 1}
        assert told(capsys, caplog) == (["next is 2", "next is -1"],) * 2


def _loses_one_answer(world):
    """Let the first batch that ran ahead commit, and its answer be lost."""
    done, usual = asyncio.Event(), world.after

    async def after(method):
        await usual(method)
        if method == "append" and ahead(world.sent[-1]) and not done.is_set():
            done.set()
            await lost(None)

    world.after = after
    return done


async def test_a_cancelled_append_drops_what_ran_ahead(first_wins):
    async with racing(first_wins) as race:
        reached, never = asyncio.Event(), asyncio.Event()

        async def hang(_batch):
            reached.set()
            await never.wait()

        race.world.meanwhile(ahead, hang)
        await race.start(first_wins)
        await reached.wait()
        actor = race.node._actors[race.run_id]
        slots = race.node.bodies.slots
        assert (actor._awake.turn.is_ahead, slots.used) == (True, 2)

        await race.node.host.cancel_all()

        assert actor._awake is None
        assert [message.op for message in actor._ended] == ["0.0.0"]


async def test_what_was_said_ahead_is_not_said_again_by_a_replay(first_wins, gate, capsys, caplog):
    async with racing(first_wins) as race:
        await race.start(first_wins)
        await race.saw("step_completed", 2)
        await race.settled()
        race.node._actors[race.run_id].drop()
        gate.open()

        assert await race.result() == [21, -9]
        assert told(capsys, caplog) == (["next is 2", "next is -1"],) * 2


async def test_another_node_does_not_say_again_what_was_said_ahead(parked, capsys):
    @workflow
    async def says() -> None:
        print(f"next is {await add(1)}")  # noqa: T201  (what must be said once)
        await parked()

    async with racing(says) as race:
        await race.start(says)
        await race.saw("step_created", 2)
        await race.settled()
        assert "next is 2" in capsys.readouterr().out
        run = await race.world.find(race.run_id)

        turn = CountedTurn(says, race.run_id, decided_seq=run.decided_seq)
        for event in await race.log():
            turn.feed(event)

        assert "next is 2" not in capsys.readouterr().out
        turn.evict()


async def test_a_batch_the_world_must_not_have_taken_is_not_believed(parked):
    @workflow
    async def forks() -> None:
        for outcome in asyncio.as_completed([add(1), parked()]):
            await (add(9) if await outcome == 2 else remote())

    async with racing(forks) as race:
        race.world.core.checks = replace(race.world.core.checks, whole_log=False, at=False)
        race.world.meanwhile(ahead, race.completed_outside("0.1.0", 7))
        await race.start(forks)

        assert "the code now asks for step 'remote'" in await race.stalled()
        assert CountedTurn.built == 2
        assert bodies == {"add 1": 1, "parked": 1}
