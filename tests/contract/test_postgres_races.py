"""Several sessions at one Postgres: what each sees after it has waited, and who waits for whom."""

import asyncio

import asyncpg
import pytest

from fencepost.world import Batch, ClaimLost, Offer, RunNotFound, Superseded, Unavailable
from fencepost.world.postgres import PostgresWorld, appending, creating
from fencepost.world.postgres.journal import Bounds
from fencepost.world.postgres.writing import Writing
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    dues,
    outside,
    started,
    types,
    wait,
    whole_log,
)
from tests.contract.postgres_stores import SCHEMA, database
from tests.contract.sessions import holding, waiting

MANY = 200


@pytest.fixture
async def url(postgres_server):
    """A database of the test's own: sessions and functions are changed here."""
    async with database(postgres_server) as name:
        yield postgres_server.socket_url_of(name)


@pytest.fixture
async def world(url):
    opened = await PostgresWorld.connect(url)
    yield opened
    await opened.close()


@pytest.fixture
async def session(url):
    """A session of somebody else's."""
    opened = await asyncpg.connect(url)
    yield opened
    opened.terminate()


@pytest.fixture
async def watch(url):
    """A session that looks at the others."""
    opened = await asyncpg.connect(url)
    yield opened
    opened.terminate()


def writing(world, **bounds):
    """Return the write path of a world with bounds of its own."""
    return Writing(world._writers, world._statements, partitions=32, max_value_bytes=2**24, bounds=Bounds(**bounds))


@pytest.fixture
async def decider(world):
    """A run whose step 0.0 runs under the claim t1 of a node, and whose 0.1 is on offer."""
    decider = await Decider.of_new(world)
    decider.node = await world.join(a_member())
    await decider.begin(created(), started(decider.node), created("0.1"))
    await decider.append(offers=(Offer("0.1", "default", 1, 1),))
    return decider


# ---- lock, then look


CHANGES = {
    "the claim is gone": "DELETE FROM {0}.claims",
    "the claim drains": "UPDATE {0}.claims SET draining = true",
    "the claim is another's": "UPDATE {0}.claims SET token = 't2'",
    "its node has left": "UPDATE {0}.members SET left_at = 1",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_an_outcome_that_waited_for_the_run_is_judged_by_what_is_true_then(
    world, session, watch, decider, change
):
    """One statement would judge by what was true when it began to wait."""
    async with holding(session, "run_1"):
        call = asyncio.create_task(outside(world, completed()))
        await waiting(watch)
        await session.execute(CHANGES[change].format(SCHEMA))

    with pytest.raises(ClaimLost):
        await call
    assert (await world.find("run_1")).seq == decider.known


async def test_an_offer_that_was_withdrawn_while_its_claim_waited_is_not_taken(world, session, watch, decider):
    async with holding(session, "run_1"):
        call = asyncio.create_task(world.claim("run_1", "0.1", "t2", decider.node))
        await waiting(watch)
        await session.execute(f"DELETE FROM {SCHEMA}.offers")

    with pytest.raises(ClaimLost):
        await call


async def test_a_decision_that_waited_for_the_run_is_fenced_by_what_is_true_then(session, watch, decider):
    async with holding(session, "run_1"):
        call = asyncio.create_task(decider.append(wait("0.2")))
        await waiting(watch)
        await session.execute(f"UPDATE {SCHEMA}.runs SET tick = tick + 1, last_batch = 'other'")

    with pytest.raises(Superseded):
        await call


async def test_an_append_between_two_pages_makes_the_fence_of_the_first_one_old(world, decider):
    loaded = await Decider.of(world)
    await decider.append(wait("0.2"))
    more = await world.more("run_1", loaded.known)
    loaded.known = more[-1].seq

    with pytest.raises(Superseded):
        await loaded.append(wait("0.3"))


async def test_who_starts_an_attempt_and_who_ends_its_node_see_each_other(world, session, watch, decider):
    """Else a claim of a dead node stands there, and nobody ever looks at its run."""
    batch = decider.batch(created("0.2"), started(decider.node, "0.2", "t2"))
    await session.execute("BEGIN")
    await append_in(session, world, [batch])
    leaving = asyncio.create_task(world.leave(decider.node))
    await waiting(watch)

    assert "run_1" not in await dues(world, await world.now())
    await session.execute("COMMIT")

    await leaving
    assert "run_1" in await dues(world, await world.now())
    assert {claim.token: claim.alive for claim in (await world.open("run_1")).claims} == {"t1": False, "t2": False}


async def test_an_attempt_is_not_started_by_a_node_whose_end_is_under_way(session, watch, decider):
    await session.execute("BEGIN")
    await session.fetch(f"SELECT {SCHEMA}.end_incarnation_v1($1)", decider.node)
    call = asyncio.create_task(decider.append(created("0.2"), started(decider.node, "0.2", "t2")))
    await waiting(watch)
    await session.execute("COMMIT")

    with pytest.raises(ClaimLost):
        await call


# ---- who waits for whom


async def test_a_session_that_stopped_inside_a_transaction_holds_up_only_its_run(world, session):
    for n in range(50):
        await world.create(a_run(f"run_{n}"))
    node = writing(world, pauses_s=(0.0, 0.0))

    async with holding(session, "run_7"):
        calls = [outside(node, cancel(), run_id=f"run_{n}") for n in range(50)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        again = [outside(node, cancel("again"), run_id=f"run_{n}") for n in range(50) if n != 7]
        await asyncio.gather(*again)

    assert isinstance(answers.pop(7), Unavailable)
    assert [answer.first_seq for answer in answers] == [2] * 49
    assert (await world.find("run_7")).seq == 1
    assert (await outside(node, cancel(), run_id="run_7")).first_seq == 2


@pytest.mark.parametrize("call", ["stall", "unstall", "end_claim"])
async def test_what_is_done_to_one_run_waits_for_it_and_gives_up_in_the_end(world, session, decider, call):
    node = writing(world, pauses_s=(0.0,))
    given = {"stall": (decider.fence, "why"), "unstall": (), "end_claim": ("t1",)}[call]

    async with holding(session, "run_1"):
        with pytest.raises(Unavailable, match="lock"):
            await getattr(node, call)("run_1", *given)

    await getattr(node, call)("run_1", *given)


async def append_in(session, world, batches, *, patient=False):
    """Call the function in a session's own transaction."""
    statement = world._statements["append"]
    asks = [appending.prepare(batch, 2**24) for batch in batches]
    parameters = {"patient": patient, "rounds": [len(asks)], **appending.arrays(asks)}
    return await session.fetch(statement.text, *statement.arguments(parameters))


async def cancel_in(session, world, run_ids):
    return await append_in(session, world, [Batch(run_id, (cancel(),), -1) for run_id in run_ids], patient=True)


async def claim_in(session, world, run_ids):
    given = {"ops": "0.0", "tokens": "t", "incarnations": "n", "heads": ""}
    return await call_in(session, world._statements["claim"], run_ids, given, patient=True)


async def find_in(session, world, run_ids):
    given = {"ticks": 0, "batch_ids": "b", "knowns": 1}
    return await call_in(session, world._statements["find_appended"], run_ids, given)


async def call_in(session, statement, run_ids, given, **others):
    """Call a function for runs, with the same of everything for each."""
    columns = {name: [value] * len(run_ids) for name, value in given.items()}
    return await session.fetch(statement.text, *statement.arguments({"run_ids": run_ids, **columns, **others}))


async def settle_in(session, _world, run_ids):
    """Lock as `settle_v1` and `join_v1` do."""
    return await session.fetch(f"SELECT {SCHEMA}.lock_runs_v1($1)", run_ids)


LOCKERS = {"append": cancel_in, "claim": claim_in, "find": find_in, "settle": settle_in}
PATIENT = ("append_v2", "claim_v1", "find_appended_v1")


@pytest.fixture
async def callers(url):
    opened = [await asyncpg.connect(url) for _ in range(2)]
    yield opened
    for caller in opened:
        caller.terminate()


@pytest.mark.parametrize("first", LOCKERS)
@pytest.mark.parametrize("second", LOCKERS)
async def test_whoever_locks_several_runs_locks_them_in_one_order(callers, world, session, watch, first, second):  # noqa: PLR0917  (who takes part)
    """Each wants a and z, and is stopped in between at a run of its own. In another order each would have one of them.

    a < m1 < m2 < z: the first is stopped at m1, and holds a. The second waits for a, and holds nothing.
    """
    for run_id in ("a", "m1", "m2", "z"):
        await world.create(a_run(run_id))
    for function in PATIENT:
        await session.execute(f"ALTER FUNCTION {SCHEMA}.{function} SET lock_timeout = '30s'")

    async with holding(session, "m1", "m2"):
        one = asyncio.create_task(LOCKERS[first](callers[0], world, ["z", "m1", "a"]))
        await waiting(watch, 1)
        other = asyncio.create_task(LOCKERS[second](callers[1], world, ["a", "m2", "z"]))
        await waiting(watch, 2)

    await asyncio.gather(one, other)


async def create_in(session, world, node, chain_ids):
    """Create runs in one call, in this order."""
    asks = [creating.prepare(a_run(f"run_{node}{chain_id}", chain_id=chain_id), 2**24) for chain_id in chain_ids]
    statement = world._statements["create"]
    parameters = world._writing._creations._outlet.parameters(asks)
    return await session.fetch(statement.text, *statement.arguments(parameters))


async def test_whoever_makes_several_ids_makes_them_in_one_order(callers, world, session, watch):
    """As with runs: a session that is about to make m1 and m2 stops both creations halfway."""
    await session.execute(f"ALTER FUNCTION {SCHEMA}.create_v1 SET lock_timeout = '30s'")
    await session.execute("BEGIN")
    await session.execute(f"INSERT INTO {SCHEMA}.chains VALUES ('m1', 'x'), ('m2', 'x')")
    one = asyncio.create_task(create_in(callers[0], world, 1, ["z", "m1", "a"]))
    await waiting(watch, 1)
    other = asyncio.create_task(create_in(callers[1], world, 2, ["a", "m2", "z"]))
    await waiting(watch, 2)
    await session.execute("ROLLBACK")

    made = [tuple(row)[:2] for rows in await asyncio.gather(one, other) for row in rows]

    first = [("created", "run_1z"), ("created", "run_1m1"), ("created", "run_1a")]
    assert made == [*first, ("existing", "run_1a"), ("created", "run_2m2"), ("existing", "run_1z")]


async def test_who_creates_a_chain_that_is_being_made_gets_what_was_made(world, session, watch):
    await session.execute("BEGIN")
    await session.execute(f"INSERT INTO {SCHEMA}.chains VALUES ('order-7', 'run_0')")
    call = asyncio.create_task(world.create(a_run("run_1", chain_id="order-7")))
    await waiting(watch)
    await session.execute(
        f"INSERT INTO {SCHEMA}.runs (run_id, chain_id, app, workflow, partition, input_digest, created_at, seq, "
        "last_at, waking_seq) VALUES ('run_0', 'order-7', 'shop', 'order', 0, 'd1', 1, 1, 1, 1)"
    )
    await session.execute("COMMIT")

    created_ = await call

    assert (created_.run_id, created_.existing) == ("run_0", True)
    with pytest.raises(RunNotFound):
        await world.find("run_1")


# ---- storms of several nodes


@pytest.fixture
async def nodes(url):
    opened = [await PostgresWorld.connect(url) for _ in range(3)]
    yield opened
    for world in opened:
        await world.close()


async def prefixes(world, run_id, writers):
    """Read the log while the writers are at it; every read is a prefix."""
    lengths = [0]
    while not writers.done():
        log = await whole_log(world, run_id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert len(log) >= lengths[-1]
        lengths.append(len(log))
    return lengths


@pytest.mark.parametrize("runs", [1, 20])
async def test_200_writers_of_three_nodes_leave_dense_logs(nodes, runs):
    run_ids = [f"run_{n}" for n in range(runs)]
    for run_id in run_ids:
        await nodes[0].create(a_run(run_id))

    writers = asyncio.gather(*(outside(nodes[n % 3], cancel(f"k{n}"), run_id=run_ids[n % runs]) for n in range(MANY)))
    lengths = await prefixes(nodes[1], "run_0", writers)

    answers = writers.result()
    for place, run_id in enumerate(run_ids):
        log = await whole_log(nodes[2], run_id)
        firsts = {f"k{n}": answer.first_seq for n, answer in enumerate(answers) if n % runs == place}
        assert {event.body.key: event.seq for event in log[1:]} == firsts
        assert [event.seq for event in log] == list(range(1, MANY // runs + 2))
        assert [event.at for event in log] == sorted(event.at for event in log)
    assert len(lengths) > 1


async def test_of_deciders_on_three_nodes_one_wins_each_tick(nodes):
    """All of them read the same fence and write at once, again and again."""
    await nodes[0].create(a_run())

    for tick in range(1, 11):
        deciders = [await Decider.of(node) for node in nodes for _ in range(3)]
        calls = [decider.append(wait(f"{tick}.{n}")) for n, decider in enumerate(deciders)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, Superseded) for answer in answers) == 8
        assert (await nodes[0].find("run_1")).tick == tick

    assert types(await whole_log(nodes[0])) == ["run_created", *["wait_created"] * 10]
