"""Due and members: everything live has a row that will wake it, never later than the truth."""

from datetime import timedelta

import pytest

from fencepost.world import RunEnded, Superseded
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    dues,
    outside,
    run_completed,
    started,
    step_cancelled,
    terminate,
    wait,
)

HOUR = timedelta(hours=1)


async def test_a_new_run_is_due_now_or_when_it_should_begin(world):
    await world.create(a_run("run_1"))
    await world.create(a_run("run_2", due=BEGIN + HOUR))

    assert await dues(world) == {"run_1": BEGIN, "run_2": BEGIN + HOUR}
    assert (await world.find("run_2")).due == BEGIN + HOUR


async def test_due_lists_what_is_due_earliest_first_by_partition_and_bounded(world):
    for n in range(6):
        await world.create(a_run(f"run_{n}", due=BEGIN + n * HOUR))

    everything = await world.due(None, None, BEGIN + 4 * HOUR, 100)
    partitions = {due.id: due.partition for due in everything}
    mine = [partitions["run_1"], partitions["run_3"]]

    assert [due.id for due in everything] == [f"run_{n}" for n in range(5)]
    assert {due.kind for due in everything} == {"run"}
    assert [due.id for due in await world.due(None, None, BEGIN + 9 * HOUR, 2)] == ["run_0", "run_1"]
    assert {due.id for due in await world.due(None, mine, BEGIN + 9 * HOUR, 100)} >= {"run_1", "run_3"}
    assert {due.partition for due in await world.due(None, mine, BEGIN + 9 * HOUR, 100)} == set(mine)
    assert await world.due(None, [], BEGIN + 9 * HOUR, 100) == ()
    assert await world.due(None, None, BEGIN - HOUR, 100) == ()
    assert set(partitions.values()) <= set(range((await world.facts()).partitions))


async def test_due_is_of_an_app_and_its_partitions_and_what_is_nobodys_is_everybodys(world):
    for n in range(6):
        await world.create(a_run(f"run_{n}", app="bank" if n % 2 else "shop", due=BEGIN + n * HOUR))
    await world.create(a_run("run_6", app="", workflow="refund"))
    until = BEGIN + 9 * HOUR

    everything = await world.due(None, None, until, 100)

    assert {due.id: due.app for due in everything} == {
        **{f"run_{n}": "bank" if n % 2 else "shop" for n in range(6)},
        "run_6": "",
    }
    assert [due.id for due in await world.due("shop", None, until, 100)] == ["run_0", "run_6", "run_2", "run_4"]
    assert [due.id for due in await world.due("shop", None, BEGIN + HOUR, 100)] == ["run_0", "run_6"]
    assert [due.id for due in await world.due("bank", None, until, 2)] == ["run_6", "run_1"]
    assert [due.id for due in await world.due("", None, until, 100)] == ["run_6"]
    assert [due.id for due in await world.due("nobody", None, until, 100)] == ["run_6"]
    partitions = {due.id: due.partition for due in everything}
    of_run_2 = await world.due("shop", [partitions["run_2"]], until, 100)
    assert "run_2" in {due.id for due in of_run_2}
    assert {due.app for due in of_run_2} <= {"shop", ""}
    assert {due.partition for due in of_run_2} == {partitions["run_2"]}
    assert await world.due("bank", set(range(32)) - set(partitions.values()), until, 100) == ()


async def test_due_keeps_its_app_however_it_is_moved(world, clock):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    moves = [
        lambda: decider.append(due=BEGIN + HOUR),
        lambda: outside(world, cancel()),
        lambda: world.leave(node),
        lambda: world.end_claim("run_1", "t1"),
    ]

    for move in moves:
        await move()
        clock.turn(hours=1)
        assert list(await dues(world, app="shop")) == ["run_1"]
        assert await dues(world, app="") == {}


async def test_an_in_band_batch_says_when_to_look_again(world):
    decider = await Decider.of_new(world)
    await decider.begin()

    await decider.append(wait(), due=BEGIN + HOUR)
    assert await dues(world) == {"run_1": BEGIN + HOUR}

    await decider.append(due=BEGIN + 2 * HOUR)
    assert await dues(world) == {"run_1": BEGIN + 2 * HOUR}

    await decider.append(due=BEGIN + HOUR)
    assert await dues(world) == {"run_1": BEGIN + HOUR}

    await decider.append(due=None)
    assert await dues(world) == {}
    assert (await world.find("run_1")).due is None


async def test_due_may_stand_up_to_15_seconds_early(world):
    decider = await Decider.of_new(world)
    await decider.append(due=BEGIN + HOUR)

    await decider.append(due=BEGIN + HOUR + timedelta(seconds=14))

    (at,) = (await dues(world)).values()
    assert BEGIN + HOUR <= at <= BEGIN + HOUR + timedelta(seconds=14)


async def test_due_is_not_moved_later_over_an_event_its_writer_has_not_seen(world, clock):
    """Else a payload whose bell is lost lies unread for as long as the run sleeps."""
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await decider.append(due=BEGIN + 72 * HOUR)
    clock.turn(hours=1)
    await outside(world, completed())
    clock.turn(hours=1)

    await decider.append(wait(), due=BEGIN + 72 * HOUR)

    assert await dues(world) == {"run_1": BEGIN + HOUR}
    decider.known = (await world.find("run_1")).seq
    await decider.append(due=BEGIN + 72 * HOUR)
    assert await dues(world) == {"run_1": BEGIN + 72 * HOUR}


async def test_an_unseen_event_makes_a_run_due_now_that_had_no_due(world, clock):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    assert await dues(world) == {}
    clock.turn(hours=1)

    await outside(world, completed())
    clock.turn(hours=1)
    await decider.append(due=None)

    assert await dues(world) == {"run_1": BEGIN + HOUR}


async def test_a_waking_event_from_outside_makes_the_run_due_now(world, clock):
    decider = await Decider.of_new(world)
    await decider.append(due=BEGIN + 72 * HOUR)
    clock.turn(hours=1)

    await outside(world, cancel())

    assert await dues(world) == {"run_1": clock()}


async def test_a_quiet_event_moves_no_due(world, clock):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await decider.append(due=BEGIN + 72 * HOUR)
    clock.turn(hours=1)

    await outside(world, started(node))
    await decider.append(due=BEGIN + 80 * HOUR)

    assert await dues(world) == {"run_1": BEGIN + 80 * HOUR}


async def test_a_refused_batch_moves_no_due(world):
    winner, loser = await Decider.of_new(world), await Decider.of(world)
    await winner.append(due=BEGIN + HOUR)

    with pytest.raises(Superseded):
        await loser.append(due=BEGIN + 72 * HOUR)

    assert await dues(world) == {"run_1": BEGIN + HOUR}


@pytest.mark.parametrize("end", ["in-band", "outside"])
async def test_what_ended_is_never_due(world, end):
    decider = await Decider.of_new(world)
    if end == "in-band":
        await decider.append(run_completed(), due=BEGIN + HOUR)
    else:
        await outside(world, terminate())

    assert await dues(world) == {}


async def test_time_never_runs_backwards_in_a_log(world, clock):
    decider = await Decider.of_new(world)
    clock.turn(hours=1)
    await decider.begin()
    clock.turn(hours=-5)

    accepted = await decider.append(wait())

    assert accepted.at == BEGIN + HOUR
    assert (await world.find("run_1")).last_at == BEGIN + HOUR
    assert await world.now() == BEGIN - 4 * HOUR


# ---- stalled


async def test_a_stalled_run_is_shown_and_not_due(world):
    decider = await Decider.of_new(world)
    await decider.begin()

    await world.stall("run_1", decider.fence, "line 7 asks for another step")

    run = await world.find("run_1")
    assert (run.status, run.stalled, run.due) == ("running", "line 7 asks for another step", None)


async def test_only_the_decider_can_stall(world):
    loser, winner = await Decider.of_new(world), await Decider.of(world)
    await winner.begin()

    with pytest.raises(Superseded):
        await world.stall("run_1", loser.fence, "why")

    assert (await world.find("run_1")).stalled == ""


async def test_a_stalled_run_goes_on_when_it_is_told_to(world, clock):
    decider = await Decider.of_new(world)
    await world.stall("run_1", decider.fence, "why")
    clock.turn(hours=1)

    assert await world.unstall("run_1") is True

    assert (await world.find("run_1")).stalled == ""
    assert await dues(world) == {"run_1": clock()}
    assert await world.unstall("run_1") is False
    await decider.begin()


async def test_a_stalled_run_can_be_ended_from_outside(world):
    decider = await Decider.of_new(world)
    await world.stall("run_1", decider.fence, "why")

    await outside(world, terminate())

    run = await world.find("run_1")
    assert (run.status, run.stalled) == ("terminated", "")
    with pytest.raises(RunEnded):
        await world.unstall("run_1")


# ---- nodes


async def test_every_incarnation_has_an_id_of_its_own(world):
    ids = [await world.join(a_member()) for _ in range(3)]

    assert len(set(ids)) == 3


async def test_who_leaves_rings_the_runs_it_held(world, clock):
    node, other = await world.join(a_member()), await world.join(a_member("n2"))
    for run_id, holder in (("run_1", node), ("run_2", other), ("run_3", node)):
        decider = await Decider.of_new(world, run_id)
        await decider.begin(created(), started(holder))
    await decider.append(run_completed())
    clock.turn(hours=1)

    await world.leave(node)

    assert await dues(world) == {"run_1": clock()}
    clock.turn(hours=1)
    await world.leave(node)
    await world.leave("inc_99")
    assert await dues(world) == {"run_1": clock() - HOUR}


async def test_who_joins_is_told_of_claims_of_the_dead(world, clock):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await world.leave(node)
    clock.turn(minutes=1)

    await world.join(a_member("n2"))

    assert (await dues(world))["run_1"] <= clock()


async def test_a_batch_that_does_not_know_of_a_death_moves_due_no_later(world, clock):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await world.leave(node)
    clock.turn(minutes=1)

    await decider.append(due=BEGIN + HOUR)

    assert await dues(world) == {"run_1": BEGIN}


async def test_a_claim_that_lives_or_drained_rings_nobody_who_joins(world):
    node, dead = await world.join(a_member()), await world.join(a_member("n2"))
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node), created("0.1"), started(dead, "0.1", "t2"))
    await decider.append(step_cancelled("0.1"), due=BEGIN + HOUR)
    await world.leave(dead)
    await decider.append(due=BEGIN + 2 * HOUR)

    await world.join(a_member("n3"))

    assert (await dues(world))["run_1"] >= BEGIN
    assert [claim.token for claim in (await world.open("run_1")).claims] == ["t1"]


async def test_pending_runs_of_a_workflow_nobody_knew_go_to_who_joins_with_it(world, clock):
    await world.join(a_member(workflows=frozenset()))
    for run_id in ("run_1", "run_2"):
        decider = await Decider.of_new(world, run_id, workflow="refund")
        await decider.append(due=None)
    await (await Decider.of(world, "run_2")).begin()
    clock.turn(hours=1)

    await world.join(a_member("n2", app="refunds", workflows=frozenset({"refund"})))

    assert (await world.find("run_1")).app == "refunds"
    assert (await world.find("run_2")).app == "shop"
    assert await dues(world) == {"run_1": clock()}
    assert await dues(world, app="refunds") == {"run_1": clock()}


async def test_a_due_moves_to_the_app_that_adopts_its_run_and_stays_when_it_was(world):
    await world.create(a_run("run_1", workflow="refund", due=BEGIN + HOUR))
    await world.create(a_run("run_2", due=BEGIN + HOUR))

    await world.join(a_member("n2", app="refunds", workflows=frozenset({"refund"})))

    assert await dues(world, app="refunds") == {"run_1": BEGIN + HOUR}
    assert await dues(world, app="shop") == {"run_2": BEGIN + HOUR}


async def test_pending_runs_stay_with_their_app_while_it_knows_their_workflow(world):
    await world.join(a_member())
    await world.create(a_run())

    await world.join(a_member("n2", app="other"))

    assert (await world.find("run_1")).app == "shop"


async def test_a_run_that_should_begin_later_still_does_when_somebody_joins(world):
    await world.create(a_run(due=BEGIN + HOUR))

    await world.join(a_member())

    assert await dues(world) == {"run_1": BEGIN + HOUR}


async def test_stalled_runs_go_on_with_other_code_of_their_app(world, clock):
    await world.join(a_member(code="c1"))
    decider = await Decider.of_new(world)
    await world.stall("run_1", decider.fence, "why")
    clock.turn(hours=1)

    await world.join(a_member("n2", code="c1"))
    await world.join(a_member("n3", code="c2", app="other", workflows=frozenset()))
    assert (await world.find("run_1")).stalled == "why"

    await world.join(a_member("n4", code="c2"))
    assert (await world.find("run_1")).stalled == ""
    assert await dues(world) == {"run_1": clock()}
