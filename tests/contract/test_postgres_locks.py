"""The lock order: each test makes two transactions that end in a deadlock, or lose a wake, if somebody changed it."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from fencepost.world import Accepted, ClaimLost, Unavailable
from fencepost.world.postgres import appending
from fencepost.world.postgres.connecting import Connections
from fencepost.world.postgres.statements import numbered
from tests.contract import postgres_stores
from tests.contract.logs import BEGIN, Decider, a_member, a_run, created, dues, offer, pass_time, run_started, started

S = postgres_stores.SCHEMA
MAX_VALUE_BYTES = 2**20
LEASE = timedelta(seconds=2)


@pytest.fixture
async def world(postgres_server, tmp_path, clock):
    stores = postgres_stores.postgres(postgres_server, tmp_path, clock, mode="direct", max_value_bytes=MAX_VALUE_BYTES)
    async with stores as opened:
        yield opened


@pytest.fixture
async def other(world, postgres_server):
    """Another session, in a transaction of its own."""
    database = await world.behind.fetchval("SELECT current_database()")
    connection = await asyncpg.connect(postgres_server.socket_url_of(database))
    await connection.execute("BEGIN")
    yield connection
    await connection.close()


async def lock(session, run_id):
    await session.fetchval(f"SELECT run_id FROM {S}.runs WHERE run_id = $1 FOR UPDATE", run_id)


async def blocked(session, waiting):
    """Wait until somebody waits for a lock, or the call has ended."""
    while not waiting.done():
        if await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            return
        await asyncio.sleep(0.005)  # real time: the server tells nobody when a session begins to wait


async def two_claimed(world):
    """Make two runs with a claim of one node each."""
    node = await world.join(a_member())
    for run_id in ("run_1", "run_2"):
        await world.create(a_run(run_id))
        await (await Decider.of(world, run_id)).append(run_started(), created(), started(node, token=run_id))
    return node


async def test_who_settles_a_dead_node_locks_its_runs_in_ascending_order(world, other):
    node = await two_claimed(world)
    await lock(other, "run_1")

    leaving = asyncio.create_task(world.leave(node))
    await blocked(other, leaving)
    await lock(other, "run_2")  # it waits for ever if the other way round: leave would hold it
    await other.execute("COMMIT")
    await leaving

    assert set(await dues(world)) == {"run_1", "run_2"}


async def test_who_joins_locks_runs_in_ascending_order(world, other):
    await world.join(a_member(app="another"))
    for run_id in ("run_1", "run_2"):
        await world.create(a_run(run_id))
        await world.stall(run_id, None, "stuck")
    await world.join(a_member(code="c0"))
    for run_id in ("run_1", "run_2"):
        await world.stall(run_id, None, "stuck again")
    await lock(other, "run_1")

    joining = asyncio.create_task(world.join(a_member(code="c1")))
    await blocked(other, joining)
    await lock(other, "run_2")
    await other.execute("COMMIT")
    await joining

    assert set(await dues(world)) == {"run_1", "run_2"}


async def test_who_leaves_does_not_hold_its_member_while_it_waits_for_a_run(world, other):
    """A claim's writer has the run and asks for the member; with both in one transaction each waits for the other."""
    node = await two_claimed(world)
    await lock(other, "run_1")

    leaving = asyncio.create_task(world.leave(node))
    await blocked(other, leaving)
    is_alive = await other.fetchval(
        f"SELECT number FROM {S}.members WHERE incarnation = $1 AND left_at IS NULL FOR KEY SHARE", node
    )
    await other.execute("COMMIT")
    await leaving

    assert is_alive is None
    assert set(await dues(world)) == {"run_1", "run_2"}


@asynccontextmanager
async def append_held(world, batch):
    """Append, and hold the transaction open until the end of the block."""
    one = Connections(world.world._connections.address, 1)
    await one.all(numbered("begin", "BEGIN"))
    asked = appending.prepare(batch, MAX_VALUE_BYTES)
    yield await appending.Appends(one, world.world._statements).flush([asked], patient=True)
    await one.all(numbered("commit", "COMMIT"))
    await one.close()


async def test_a_claim_that_is_being_written_while_its_node_is_ended_is_settled(world, other):
    node = await world.join(a_member())
    await world.create(a_run())
    decider = await Decider.of(world)
    await decider.append(run_started(), created())

    async with append_held(world, decider.batch(started(node))) as accepted:
        leaving = asyncio.create_task(world.leave(node))
        await blocked(other, leaving)
    await leaving

    assert isinstance(accepted[0], Accepted)
    assert await dues(world) == {"run_1": BEGIN}


async def test_an_offer_is_not_taken_by_a_node_that_is_being_ended(world, other):
    node = await world.join(a_member())
    await world.create(a_run())
    decider = await Decider.of(world)
    await decider.append(run_started(), created(), offers=(offer(),))
    await other.execute(f"SELECT FROM {S}.members WHERE incarnation = '{node}' FOR UPDATE")
    await other.execute(f"UPDATE {S}.members SET left_at = 1 WHERE incarnation = '{node}'")

    taking = asyncio.create_task(world.claim("run_1", "0.0", "t1", node))
    await blocked(other, taking)
    await other.execute("COMMIT")

    with pytest.raises(ClaimLost):
        await taking


async def test_a_run_of_no_app_that_is_being_created_while_its_node_joins_is_adopted(world, other):
    await other.execute(f"SELECT {S}.unknown_workflows_v1(false)")
    await other.execute(
        f"INSERT INTO {S}.runs (run_id, app, workflow, partition, input_digest, created_at, seq, last_at, waking_seq) "
        "VALUES ('run_1', '', 'order', 0, 'd', 1, 1, 1, 1)"
    )
    await other.execute(f"INSERT INTO {S}.due VALUES ('run', 'run_1', '', 0, 1)")

    joining = asyncio.create_task(world.join(a_member()))
    await blocked(other, joining)
    await other.execute("COMMIT")
    await joining

    assert list(await dues(world, app="shop")) == ["run_1"]
    assert (await world.find("run_1")).app == "shop"


async def test_a_start_waits_for_who_joins_if_nobody_may_know_its_workflow(world, other):
    await other.execute(f"SELECT {S}.unknown_workflows_v1(true)")

    creating = asyncio.create_task(world.create(a_run(app="")))
    await blocked(other, creating)
    waits = not creating.done()
    await world.create(a_run("run_2"))  # one that is known waits for nobody
    await other.execute("COMMIT")
    await creating

    assert waits
    assert set(await dues(world)) == {"run_1", "run_2"}


async def test_two_nodes_that_share_lock_partitions_in_ascending_order(world, other):
    node = await world.join(a_member())
    await world.share(node)
    await other.execute(f"SELECT FROM {S}.partitions WHERE partition = 0 FOR UPDATE")

    sharing = asyncio.create_task(world.share(node))
    await blocked(other, sharing)
    await other.execute(f"SELECT FROM {S}.partitions WHERE partition = 31 FOR UPDATE")
    await other.execute("COMMIT")

    assert len((await sharing).owned) == 32


async def test_a_share_does_not_wait_for_a_node_that_writes_a_claim(world, other, clock):
    slow = await world.join(a_member(lease=LEASE))
    node = await world.join(a_member(name="n2"))
    await world.share(node)
    await other.execute(f"SELECT FROM {S}.members WHERE incarnation = '{slow}' FOR KEY SHARE")
    await pass_time(world, clock, node, seconds=3)

    held = await world.share(node)
    await other.execute("COMMIT")
    after = await world.share(node)

    assert (slow in held.alive, slow in after.alive) == (True, False)


async def test_a_run_that_stays_locked_is_told_by_name(world, other):
    await world.create(a_run())
    await lock(other, "run_1")

    with pytest.raises(Unavailable, match="lock"):
        await world.unstall("run_1")
