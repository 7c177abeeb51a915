"""Offers and who takes them: steps that wait for a slot or a node, and the worker whose claim is the one."""

import asyncio
from datetime import timedelta

import pytest

from fencepost.world import ClaimLost, Fence, RunEnded, RunNotFound, Superseded, events
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    cancel,
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
    wait,
    whole_log,
)


@pytest.fixture
async def node(world):
    return await world.join(a_member())


@pytest.fixture
async def decider(world):
    """A run whose step 0.0 is on offer."""
    decider = await Decider.of_new(world)
    await decider.begin(created(), wait("0.1"))
    await decider.append(offers=(offer(),), due=BEGIN + timedelta(hours=1))
    return decider


async def is_refused(world, node, op="0.0"):
    """Tell whether a claim is refused and leaves everything as it was."""
    before = await world.open("run_1"), await dues(world)
    with pytest.raises(ClaimLost) as refused:
        await world.claim("run_1", op, "worker", node)
    assert refused.value.ops == (op,)
    return (await world.open("run_1"), await dues(world)) == before


async def offered_to(world, clock, queue):
    """Return which runs a new node of the queue is told of."""
    clock.turn(seconds=1)
    await world.join(a_member("worker", workflows=frozenset(), queues=frozenset({queue})))
    return [run_id for run_id, at in (await dues(world)).items() if at == clock()]


# ---- what is on offer


async def test_an_offer_rings_its_run_when_a_node_of_its_queue_joins(world, clock):
    decider = await Decider.of_new(world)
    await decider.begin(created(queue="gpu"), created("0.1"))
    await decider.append(offers=(offer(queue="gpu"),))

    assert await offered_to(world, clock, "default") == []
    assert await offered_to(world, clock, "gpu") == ["run_1"]


async def test_offers_are_exactly_those_of_the_last_in_band_batch(world, clock):
    decider = await Decider.of_new(world)
    await decider.begin(created(queue="gpu"), created("0.1", queue="tape"))
    await decider.append(offers=(offer(queue="gpu"), offer("0.1", "tape")))
    await outside(world, cancel())
    decider.known += 1
    await decider.append(offers=(offer("0.1", "tape"),))

    assert await offered_to(world, clock, "gpu") == []
    assert await offered_to(world, clock, "tape") == ["run_1"]


@pytest.mark.parametrize("how", ["claimed", "started", "cancelled", "settled", "ended", "withdrawn"])
async def test_an_offer_ends_with_what_it_is_for(world, clock, node, how):
    decider = await Decider.of_new(world)
    await decider.begin(created(queue="gpu"))
    await decider.append(wait("0.1"), offers=(offer(queue="gpu"),))

    match how:
        case "claimed":
            await world.claim("run_1", "0.0", "worker", node)
        case "started":
            await outside(world, started(node))
        case "cancelled":
            await decider.append(step_cancelled())
        case "settled":
            await decider.append(failed())
        case "ended":
            await outside(world, terminate())
        case _:
            await decider.append()

    assert await offered_to(world, clock, "gpu") == []
    assert await world.offers("shop", "gpu", 100) == ()


async def test_a_run_that_ends_offers_nothing_whatever_its_last_batch_names(world, clock, decider):
    await decider.append(run_completed(), offers=(offer(queue="gpu"),))

    assert await offered_to(world, clock, "gpu") == []
    assert await world.offers("shop", "gpu", 100) == ()


async def test_an_offer_says_which_attempt_and_dispatch_a_claim_starts(world, node, decider):
    await decider.append(offers=(offer(attempt=1, dispatch=3), offer("0.7", attempt=2)))

    claimed = await world.claim("run_1", "0.0", "worker", node)

    assert (claimed.attempt, claimed.dispatch) == (1, 3)
    claim = (await claims(world))["worker"]
    assert (claim.op, claim.attempt, claim.dispatch, claim.incarnation) == ("0.0", 1, 3, node)


async def test_an_offer_that_is_made_again_as_another_attempt_replaces_the_first(world, node, decider):
    await decider.append(offers=(offer(attempt=2),))

    claimed = await world.claim("run_1", "0.0", "worker", node)

    assert (claimed.attempt, claimed.dispatch) == (2, 1)


async def test_an_offer_that_is_made_again_for_another_queue_is_told_there(world, clock, decider):
    await decider.append(offers=(offer(queue="gpu"),))

    assert await offered_to(world, clock, "default") == []
    assert await offered_to(world, clock, "gpu") == ["run_1"]


async def test_outside_events_leave_offers_as_they_are(world, node, decider):  # noqa: ARG001  (it offered)
    await outside(world, cancel())

    assert (await world.claim("run_1", "0.0", "worker", node)).attempt == 1


async def test_a_refused_batch_offers_and_withdraws_nothing(world, node, decider):
    with pytest.raises(Superseded):
        await decider.append(offers=(offer("0.7"),), fence=Fence(0, ""))

    assert await is_refused(world, node, "0.7")
    assert await world.offers("shop", "default", 100) == (("run_1", "0.0"),)
    assert (await world.claim("run_1", "0.0", "worker", node)).attempt == 1


async def test_what_is_on_offer_in_a_queue_is_listed_by_app(world):
    for run_id, app in (("run_1", "shop"), ("run_2", "bank"), ("run_3", "shop")):
        decider = await Decider.of_new(world, run_id, app=app)
        await decider.begin(created(queue="gpu"), created("0.1"), created("0.2", queue="gpu"))
        await decider.append(offers=(offer(queue="gpu"), offer("0.1"), offer("0.2", "gpu")))
    shop = [("run_1", "0.0"), ("run_1", "0.2"), ("run_3", "0.0"), ("run_3", "0.2")]

    assert sorted(await world.offers("shop", "gpu", 100)) == shop
    assert sorted(await world.offers("bank", "default", 100)) == [("run_2", "0.1")]
    assert await world.offers("shop", "tape", 100) == ()
    assert set(await world.offers("shop", "gpu", 3)) < set(shop)
    assert len(await world.offers("shop", "gpu", 3)) == 3
    assert await world.offers("shop", "gpu", 0) == ()
    node = await world.join(a_member())
    await world.claim("run_1", "0.0", "worker", node)
    await outside(world, terminate(), run_id="run_3")
    assert await world.offers("shop", "gpu", 100) == (("run_1", "0.2"),)


async def test_an_attempt_that_is_not_free_is_not_offered(world, node, decider):
    """A worker was faster, and the decider had not seen it."""
    await world.claim("run_1", "0.0", "worker", node)

    await decider.append(offers=(offer(), offer("0.7")))

    assert await world.offers("shop", "default", 100) == (("run_1", "0.7"),)


# ---- who takes it


async def test_a_claim_starts_the_attempt_and_returns_what_a_worker_needs(world, node, decider):
    claimed = await world.claim("run_1", "0.0", "worker", node)

    run = await world.find("run_1")
    assert (claimed.workflow, claimed.app, claimed.partition) == ("order", "shop", run.partition)
    assert types(claimed.events) == ["step_created", "step_started"]
    assert bytes(claimed.events[0].body.args.json) == b"[1]"
    log = await whole_log(world)
    assert claimed.events == (log[2], log[-1])
    assert (log[-1].seq, log[-1].tick, log[-1].body) == (decider.known + 1, None, started(node, token="worker"))
    assert (await claims(world))["worker"].alive
    await outside(world, completed(token="worker"))


async def test_of_eight_workers_one_takes_the_offer(world, decider):  # noqa: ARG001  (it offered)
    nodes = [await world.join(a_member(f"n{n}")) for n in range(8)]

    answers = await asyncio.gather(
        *(outcome_of(world.claim("run_1", "0.0", f"t{n}", node)) for n, node in enumerate(nodes))
    )

    assert sum(isinstance(answer, ClaimLost) for answer in answers) == 7
    (claim,) = (await claims(world)).values()
    winner = next(n for n, answer in enumerate(answers) if not isinstance(answer, ClaimLost))
    assert (claim.token, claim.incarnation) == (f"t{winner}", nodes[winner])
    assert types(await whole_log(world)).count("step_started") == 1


async def test_a_claim_whose_answer_was_lost_gets_it_again(world, node, decider):
    first = await world.claim("run_1", "0.0", "worker", node)

    again = await world.claim("run_1", "0.0", "worker", node)

    assert again == first
    assert (await world.find("run_1")).seq == decider.known + 1
    assert list(await claims(world)) == ["worker"]


@pytest.mark.parametrize("how", ["cancelled", "ended"])
async def test_a_claim_whose_answer_was_lost_until_nobody_wants_it_ends(world, clock, node, decider, how):
    """Its body never began, so nobody else would end it."""
    await world.claim("run_1", "0.0", "worker", node)
    decider.known += 1
    await decider.append(step_cancelled() if how == "cancelled" else run_completed(), due=BEGIN + timedelta(hours=1))
    clock.turn(minutes=1)

    for _ in range(2):
        with pytest.raises((ClaimLost, RunEnded)):
            await world.claim("run_1", "0.0", "worker", node)

    assert await claims(world) == {}
    assert await dues(world) == ({"run_1": clock()} if how == "cancelled" else {})


async def test_a_token_is_of_its_operation_only(world, node, decider):
    await world.claim("run_1", "0.0", "worker", node)
    decider.known += 1
    await decider.append(created("0.2"))

    with pytest.raises(ClaimLost):
        await world.claim("run_1", "0.2", "worker", node)


@pytest.mark.parametrize("how", ["withdrawn", "cancelled", "settled", "taken"])
async def test_what_is_not_on_offer_any_more_is_refused_and_nothing_written(world, node, decider, how):
    match how:
        case "withdrawn":
            await decider.append()
        case "cancelled":
            await decider.append(step_cancelled())
        case "settled":
            await decider.append(failed())
        case _:
            await world.claim("run_1", "0.0", "faster", node)

    assert await is_refused(world, node)


async def test_what_never_was_on_offer_is_refused(world, node, decider):
    await decider.append(created("0.2"), offers=(offer(),))

    assert await is_refused(world, node, "0.2")
    assert await is_refused(world, node, "9.9")


async def test_an_offer_that_is_late_starts_nothing_twice(world, node, decider):
    """The decider offers what was started: it had not seen the start."""
    await world.claim("run_1", "0.0", "faster", node)
    await decider.append(offers=(offer(),))

    assert await is_refused(world, node)


async def test_an_offer_of_a_settled_step_starts_nothing(world, node, decider):
    await decider.append(failed())
    await decider.append(offers=(offer(attempt=2),))

    assert await is_refused(world, node)


async def test_a_dead_or_unknown_incarnation_takes_nothing(world, node, decider):  # noqa: ARG001  (it offered)
    await world.leave(node)

    assert await is_refused(world, node)
    assert await is_refused(world, "inc_99")


async def test_an_ended_run_has_nothing_to_take(world, node, decider):  # noqa: ARG001  (it offered)
    await outside(world, terminate())

    with pytest.raises(RunEnded):
        await world.claim("run_1", "0.0", "worker", node)
    assert types(await whole_log(world))[-1] == "run_terminated"


async def test_an_unknown_run_has_nothing_to_take(world, node):
    with pytest.raises(RunNotFound):
        await world.claim("run_9", "0.0", "worker", node)


async def test_a_claim_without_a_token_is_a_bug(world, node, decider):  # noqa: ARG001  (it offered)
    with pytest.raises(ValueError, match="needs a token"):
        await world.claim("run_1", "0.0", "", node)


async def test_a_claim_is_quiet(world, clock, node, decider):
    """It moves no due, and refuses no batch that ran ahead."""
    clock.turn(minutes=1)

    await world.claim("run_1", "0.0", "worker", node)

    assert await dues(world) == {"run_1": BEGIN + timedelta(hours=1)}
    accepted = await decider.append(wait("0.2"), whole_log=True, due=BEGIN + timedelta(hours=2))
    assert types(accepted.between) == ["step_started"]
    assert await dues(world) == {"run_1": BEGIN + timedelta(hours=2)}


async def test_a_start_in_band_is_inert_where_a_claim_was_faster(world, node, decider):
    await world.claim("run_1", "0.0", "worker", node)

    accepted = await decider.append(started(node, token="inline"))

    assert types(accepted.between) == ["step_started"]
    assert list(await claims(world)) == ["worker"]


async def test_of_a_claim_and_a_withdrawal_one_comes_first(world, node):
    for n in range(10):
        decider = await Decider.of_new(world, f"run_{n}")
        await decider.begin(created())
        await decider.append(offers=(offer(),))

        answer, _ = await asyncio.gather(
            outcome_of(world.claim(f"run_{n}", "0.0", "worker", node)), decider.append(step_cancelled())
        )

        present = await claims(world, f"run_{n}")
        assert isinstance(answer, ClaimLost) == ("worker" not in present)
        assert all(claim.draining for claim in present.values())


async def test_the_claimed_events_are_all_of_the_operation_in_order(world, node, decider):
    await world.claim("run_1", "0.0", "t1", node)
    await outside(world, retrying())
    decider.known += 2
    await decider.append(created("0.2"), offers=(offer(attempt=2),))

    claimed = await world.claim("run_1", "0.0", "t2", node)

    assert types(claimed.events) == ["step_created", "step_started", "step_retrying", "step_started"]
    assert {event.body.op for event in claimed.events} == {"0.0"}
    assert claimed.events[-1].body.attempt == claimed.attempt == 2


async def test_a_node_for_steps_only_takes_offers(world, decider):  # noqa: ARG001  (it offered)
    worker = await world.join(a_member("w", workflows=frozenset(), takes=False))

    assert (await world.claim("run_1", "0.0", "worker", worker)).app == "shop"


async def test_claims_of_many_operations_of_a_run_at_once_all_succeed(world, node):
    await world.create(a_run())
    decider = await Decider.of(world)
    ops = [f"0.{n}" for n in range(20)]
    await decider.begin(*(created(op) for op in ops))
    await decider.append(offers=tuple(offer(op) for op in ops))

    await asyncio.gather(*(world.claim("run_1", op, f"t{op}", node) for op in ops))

    log = await whole_log(world)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert {claim.op for claim in (await claims(world)).values()} == set(ops)


# ---- attempts that were given up while their body still runs


@pytest.mark.parametrize("side", ["outside", "in-band"])
async def test_a_retry_that_drains_leaves_its_claim_draining_and_frees_the_next_attempt(world, node, side):
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    body = retrying(drains=True)

    if side == "outside":
        await outside(world, body)
        decider.known += 1
    else:
        await decider.append(body)

    assert (await claims(world))["t1"].draining
    with pytest.raises(ClaimLost):
        await outside(world, completed())
    await decider.append(offers=(offer(attempt=2),))
    assert (await world.claim("run_1", "0.0", "t2", node)).attempt == 2
    assert {token: claim.draining for token, claim in (await claims(world)).items()} == {"t1": True, "t2": False}


async def test_what_drains_is_told_to_its_own_node(world, node):
    other = await world.join(a_member("n2"))
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node), created("0.1"), started(other, "0.1", "t2"))

    assert (await world.share(node)).stopping == frozenset()
    await decider.append(retrying(drains=True), step_cancelled("0.1"))

    assert (await world.share(node)).stopping == {"t1"}
    assert (await world.share(other)).stopping == {"t2"}
    await world.end_claim("run_1", "t1")
    assert (await world.share(node)).stopping == frozenset()


def test_a_retry_that_drains_is_written_and_read_back():
    body = retrying(drains=True)

    assert events.decode_body(events.encode_body(body)) == body
