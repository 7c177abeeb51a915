"""Running ahead: a batch decided for an instant is taken with that instant, or refused and nothing is patched."""

from datetime import timedelta

import pytest

from fencepost.world import Batch, ClaimLost, Fence, RunEnded, StaleLog, Superseded
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    cancel,
    completed,
    created,
    dues,
    outcome_of,
    outside,
    run_completed,
    started,
    types,
    wait,
    waited,
    whole_log,
)

JUST = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def decider(world, clock):
    """A run whose last event is of ten seconds after the beginning; it is a minute after now."""
    decider = await Decider.of_new(world)
    clock.turn(seconds=10)
    await decider.begin(wait())
    clock.turn(seconds=50)
    return decider


async def is_stale(world, decider, at):
    """Tell whether a batch for an instant is refused and changes nothing."""
    before = await world.open("run_1"), await dues(world)
    refused = await outcome_of(decider.append(waited(), wait("0.2"), whole_log=True, at=at, due=BEGIN))
    assert (await world.open("run_1"), await dues(world)) == before or not isinstance(refused, StaleLog)
    return isinstance(refused, StaleLog) and refused.between == ()


@pytest.mark.parametrize("since", [10, 10.000001, 37.123456, 59.999999, 60, 60.5, 61])
async def test_a_proposed_instant_is_taken_as_it_is(world, decider, since):
    at = BEGIN + timedelta(seconds=since)

    accepted = await decider.append(waited(), wait("0.2"), whole_log=True, at=at)

    assert accepted.at == at
    assert [event.at for event in (await whole_log(world))[-2:]] == [at, at]
    assert (await world.find("run_1")).last_at == at


@pytest.mark.parametrize("at", [BEGIN + 10 * SECOND - JUST, BEGIN, BEGIN - timedelta(days=1)])
async def test_an_instant_before_the_last_event_is_stale(world, decider, at):
    assert await is_stale(world, decider, at)


@pytest.mark.parametrize("ahead", [SECOND + JUST, 2 * SECOND, timedelta(days=1)])
async def test_an_instant_more_than_a_second_ahead_of_the_world_is_stale(world, clock, decider, ahead):
    assert await is_stale(world, decider, clock() + ahead)


async def test_the_bound_moves_with_the_clock_of_the_world(world, clock, decider):
    at = clock() + 2 * SECOND
    assert await is_stale(world, decider, at)

    clock.turn(seconds=1)

    assert not await is_stale(world, decider, at)


async def test_what_follows_an_instant_ahead_is_never_before_it(world, clock, decider):
    at = clock() + SECOND
    await decider.append(waited(), whole_log=True, at=at)

    assert (await outside(world, cancel())).at == at
    clock.turn(seconds=5)
    assert (await outside(world, cancel())).at == clock()


async def test_the_instant_of_the_last_event_always_fits(world, clock, decider):
    """Also where a failover put the clock back: who proposes it can do no better."""
    last_at = (await world.find("run_1")).last_at
    clock.turn(hours=-1)

    assert (await decider.append(waited(), whole_log=True, at=last_at)).at == last_at
    assert await is_stale(world, decider, last_at + JUST)


async def test_what_was_decided_ahead_counts_as_decided(world, clock, decider):
    await decider.append(waited(), wait("0.2"), whole_log=True)
    behind = await world.find("run_1")
    await decider.append(waited("0.2"), wait("0.3"), whole_log=True, at=clock())
    ahead = await world.find("run_1")

    assert (behind.decided_seq, behind.seq) == (3, 5)
    assert (ahead.decided_seq, ahead.seq) == (7, 7)


async def test_due_goes_by_the_clock_and_not_by_an_instant_ahead(world, clock, decider):
    """Else a run that should be looked at now would be a second later."""
    await decider.append(waited(), whole_log=True, at=clock() + SECOND, due=None)

    await outside(world, cancel())

    assert await dues(world) == {"run_1": clock()}


async def test_due_goes_by_a_clock_that_was_put_back(world, clock, decider):
    await decider.append(due=None)
    clock.turn(hours=-5)

    await outside(world, cancel())

    assert await dues(world) == {"run_1": clock()}


async def test_without_a_proposed_instant_it_is_the_clock(clock, decider):
    assert (await decider.append(waited(), whole_log=True)).at == clock()


async def test_an_instant_is_for_results_with_their_consequences(world, decider):
    """In one batch: the step's outcome, what code did with it, and the end."""
    node = await world.join(a_member())
    await decider.append(created(), started(node))
    at = BEGIN + 90 * SECOND - 30 * SECOND

    await decider.append(completed(), created("0.2"), started(node, "0.2", "t2"), whole_log=True, at=at)
    await decider.append(completed("0.2", "t2"), run_completed(), whole_log=True, at=at)

    log = await whole_log(world)
    assert [event.at for event in log[-5:]] == [at] * 5
    run = await world.find("run_1")
    assert (run.status, run.ended_at, run.last_at) == ("completed", at, at)


async def test_an_instant_does_not_excuse_from_the_whole_log(world, clock, decider):
    await outside(world, cancel())

    with pytest.raises(StaleLog) as refused:
        await decider.append(waited(), whole_log=True, at=clock())

    assert types(refused.value.between) == ["cancel_requested"]


async def test_a_stale_instant_tells_what_landed(world, clock, decider):
    node = await world.join(a_member())
    await decider.append(created())
    await outside(world, started(node))

    with pytest.raises(StaleLog) as refused:
        await decider.append(waited(), whole_log=True, at=clock() + timedelta(hours=1))

    assert types(refused.value.between) == ["step_started"]


async def test_what_else_is_wrong_is_still_told(clock, decider):
    with pytest.raises(Superseded):
        await decider.append(waited(), whole_log=True, at=clock(), fence=Fence(0, ""))
    with pytest.raises(ClaimLost):
        await decider.append(completed(), whole_log=True, at=clock())
    await decider.append(run_completed())
    with pytest.raises(RunEnded):
        await decider.append(waited(), whole_log=True, at=clock())


@pytest.mark.parametrize("fields", [{"at": BEGIN}, {"at": BEGIN.replace(tzinfo=None), "whole_log": True}])
async def test_an_instant_nobody_may_propose_is_a_bug(world, decider, fields):
    before = await world.open("run_1")

    with pytest.raises(ValueError):  # noqa: PT011  (each says something else)
        await world.append(Batch("run_1", (waited(),), decider.known, decider.fence, "b", **fields))

    assert await world.open("run_1") == before
