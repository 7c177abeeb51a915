"""Claims: who may record an outcome."""

import asyncio

import pytest

from fencepost.world import ClaimLost, RunEnded, RunNotFound, Superseded, events
from tests.contract.logs import (
    Decider,
    a_member,
    claims,
    completed,
    created,
    dues,
    failed,
    offer,
    outcome_of,
    outside,
    retrying,
    run_completed,
    started,
    step_cancelled,
    terminate,
    types,
    whole_log,
)


@pytest.fixture
async def node(world):
    return await world.join(a_member())


@pytest.fixture
async def decider(world, node):
    """A run whose step 0.0 runs under the claim t1."""
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    return decider


async def test_a_started_attempt_has_a_claim(world, node, decider):  # noqa: ARG001  (it started the attempt)
    (claim,) = (await world.open("run_1")).claims

    assert (claim.op, claim.attempt, claim.dispatch, claim.token) == ("0.0", 1, 1, "t1")
    assert (claim.incarnation, claim.draining, claim.alive) == (node, False, True)


@pytest.mark.parametrize("outcome", [completed(), retrying(), failed(token="t1")], ids=events.kind_of)
async def test_an_outcome_by_claim_is_taken_once_from_outside(world, decider, outcome):
    await outside(world, outcome)

    assert await claims(world) == {}
    with pytest.raises(ClaimLost) as refused:
        await outside(world, outcome)
    assert refused.value.ops == ("0.0",)
    assert (await world.find("run_1")).seq == decider.known + 1


async def test_an_outcome_by_claim_is_taken_in_band(world, decider):
    await decider.append(completed(), run_completed())

    assert await claims(world) == {}
    assert (await world.find("run_1")).status == "completed"


@pytest.mark.parametrize(
    "outcome",
    [completed(token="t2"), completed(attempt=2), completed("0.1"), completed("0.0.0")],
    ids=["token", "attempt", "op", "deeper op"],
)
async def test_an_outcome_of_something_else_is_refused(world, decider, outcome):
    with pytest.raises(ClaimLost):
        await decider.append(outcome)
    with pytest.raises(ClaimLost):
        await outside(world, outcome)

    assert list(await claims(world)) == ["t1"]


async def test_one_claim_takes_one_outcome_also_within_a_batch(world, decider):
    with pytest.raises(ClaimLost):
        await decider.append(retrying(), completed())

    assert list(await claims(world)) == ["t1"]


async def test_a_verdict_lets_the_claim_drain_and_the_late_outcome_is_refused(world, decider):
    await decider.append(failed())

    assert (await claims(world))["t1"].draining
    with pytest.raises(ClaimLost):
        await outside(world, completed())


async def test_a_failure_without_a_claim_drains_every_attempt_of_its_operation(world, node, decider):
    await decider.append(retrying(drains=True), started(node, token="t2", attempt=2))
    await decider.append(created("0.1"), started(node, "0.1", "t3"))

    await decider.append(failed(attempt=1))

    assert {token: claim.draining for token, claim in (await claims(world)).items()} == {
        "t1": True,
        "t2": True,
        "t3": False,
    }


async def test_a_cancelled_step_drains(world, decider):
    await decider.append(step_cancelled())

    assert (await claims(world))["t1"].draining
    with pytest.raises(ClaimLost):
        await outside(world, completed())


async def test_a_failure_by_claim_that_drains_keeps_its_claim_draining(world, decider):
    await outside(world, failed(token="t1", drains=True))

    assert (await claims(world))["t1"].draining
    assert (await world.find("run_1")).seq == decider.known + 1


async def test_the_end_drains_every_claim(world, node, decider):
    await decider.append(created("0.1"), started(node, "0.1", "t2"))

    await outside(world, terminate())

    assert {token: claim.draining for token, claim in (await claims(world)).items()} == {"t1": True, "t2": True}
    with pytest.raises(RunEnded):
        await outside(world, completed())


async def test_a_body_that_ended_without_an_outcome_ends_its_claim_and_rings(world, clock, decider):
    await decider.append(due=None)
    clock.turn(seconds=60)

    assert await world.end_claim("run_1", "t1") is True

    assert await claims(world) == {}
    assert await dues(world) == {"run_1": clock()}
    assert await world.end_claim("run_1", "t1") is False
    with pytest.raises(RunNotFound):
        await world.end_claim("run_9", "t1")


async def test_ending_a_claim_works_after_the_end_and_rings_nobody(world, decider):
    await decider.append(run_completed())

    assert await world.end_claim("run_1", "t1") is True

    assert await claims(world) == {}
    assert await dues(world) == {}


async def test_a_dead_incarnation_can_record_nothing(world, node, decider):
    await world.leave(node)

    assert not (await claims(world))["t1"].alive
    with pytest.raises(ClaimLost):
        await outside(world, completed())
    with pytest.raises(ClaimLost):
        await decider.append(completed())


async def test_a_dead_or_unknown_incarnation_can_start_nothing(world, node):
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await world.leave(node)

    for incarnation in (node, "inc_99"):
        with pytest.raises(ClaimLost):
            await outside(world, started(incarnation))
        with pytest.raises(ClaimLost):
            await decider.append(started(incarnation))


async def test_a_lost_attempt_is_taken_over_with_a_token_of_its_own(world, node, decider):
    await world.leave(node)
    heir = await world.join(a_member("n2"))

    await decider.append(retrying(token="", lost=1), started(heir, token="t2", dispatch=2))

    assert list(await claims(world)) == ["t2"]
    with pytest.raises(ClaimLost):
        await outside(world, completed())
    await outside(world, completed(token="t2"))


async def test_a_takeover_of_one_that_still_runs_leaves_it_draining(world, node, decider):
    await decider.append(retrying(token="", lost=1), started(node, token="t2", dispatch=2))

    assert {token: claim.draining for token, claim in (await claims(world)).items()} == {"t1": True, "t2": False}


async def test_what_drains_on_a_dead_node_is_gone(world, node, decider):
    await decider.append(step_cancelled())

    await world.leave(node)

    assert await claims(world) == {}


async def test_two_workers_cannot_claim_one_attempt(world, node):
    decider = await Decider.of_new(world)
    await decider.begin(created())

    answers = await asyncio.gather(*(outcome_of(outside(world, started(node, token=f"t{n}"))) for n in range(8)))

    assert sum(isinstance(answer, ClaimLost) for answer in answers) == 7
    assert len(await claims(world)) == 1
    assert types(await whole_log(world)).count("step_started") == 1


async def test_a_worker_cannot_claim_what_is_settled_or_over(world, node, decider):
    await outside(world, retrying())
    with pytest.raises(ClaimLost):
        await outside(world, started(node, token="again"))
    await outside(world, started(node, token="t2", attempt=2))
    decider.known += 2
    await decider.append(step_cancelled())

    with pytest.raises(ClaimLost):
        await outside(world, started(node, token="t3", attempt=3))


async def test_a_start_in_band_is_inert_where_a_worker_was_faster(world, node):
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await outside(world, started(node, token="worker"))

    accepted = await decider.append(started(node, token="inline"))

    assert types(accepted.between) == ["step_started"]
    assert list(await claims(world)) == ["worker"]
    with pytest.raises(ClaimLost):
        await decider.append(completed(token="inline"))


async def test_of_an_outcome_and_the_death_of_its_node_one_comes_first(world):
    """The claim is looked at under the lock, so no outcome lands after the death."""
    for n in range(20):
        run_id = f"run_{n}"
        node = await world.join(a_member())
        decider = await Decider.of_new(world, run_id)
        await decider.begin(created(), started(node))

        answer, _ = await asyncio.gather(outcome_of(outside(world, completed(), run_id=run_id)), world.leave(node))

        present = await claims(world, run_id)
        assert isinstance(answer, ClaimLost) == ("t1" in present)
        assert all(not claim.alive for claim in present.values())


async def test_a_superseded_decider_starts_nothing(world, node):
    loser, winner = await Decider.of_new(world), await Decider.of(world)
    await winner.begin(created())

    with pytest.raises(Superseded):
        await loser.append(created(), started(node), offers=(offer(),))

    assert await claims(world) == {}
