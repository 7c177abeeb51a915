"""The way to Postgres: lost and found again without end, a pooler may stand in it, what goes over it is escaped."""

import asyncio

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from fencepost.world import PostgresServer, PostgresWorld, Unavailable, migrate
from fencepost.world.postgres.connecting import Address, Connections
from fencepost.world.postgres.journal import Lost
from fencepost.world.postgres.statements import as_json_rows, literal, numbered, rows_of_copy
from tests import made_postgres
from tests.contract import postgres_stores
from tests.contract.logs import a_run, cancel, outside, whole_log
from tests.contract.pgbouncer import NotToBeHad, PgBouncer

SLEEP = numbered("sleep", "SELECT pg_sleep(:seconds::float8)::text AS slept")
PID = numbered("pid", "SELECT pg_backend_pid() AS pid")


@pytest.fixture
async def connections(postgres_server):
    opened = Connections(Address(postgres_server.socket_url, "the test"), 2)
    yield opened
    await opened.close()


async def test_connections_are_opened_when_needed_and_used_again(connections):
    alone = {(await connections.one(PID))["pid"] for _ in range(5)}
    together = {row["pid"] for row in await asyncio.gather(*(connections.one(PID) for _ in range(9)))}

    assert (len(alone), len(together)) == (1, 2)


async def test_a_caller_that_leaves_takes_its_connection_with_it_and_nobody_elses(connections):
    before = (await connections.one(PID))["pid"]
    leaving = asyncio.create_task(connections.one(SLEEP, seconds=30.0))
    await asyncio.sleep(0.02)  # real time: the statement is on its way

    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

    assert (await connections.one(PID))["pid"] != before


async def test_a_connection_whose_statement_was_refused_is_kept(connections):
    before = (await connections.one(PID))["pid"]

    with pytest.raises(asyncpg.DivisionByZeroError):
        await connections.one(numbered("bad", "SELECT 1 / 0 AS one"))

    assert (await connections.one(PID))["pid"] == before


async def test_a_session_the_server_ends_under_a_statement_leaves_its_caller_not_knowing(connections, postgres_server):
    operator = await asyncpg.connect(postgres_server.socket_url)
    pid = (await connections.one(PID))["pid"]
    asking = asyncio.create_task(connections.one(SLEEP, seconds=30.0))
    while not await operator.fetchval("SELECT query ~ 'pg_sleep' FROM pg_stat_activity WHERE pid = $1", pid):
        pass

    await operator.execute(f"SELECT pg_terminate_backend({pid})")

    with pytest.raises(Lost, match="terminating connection due to administrator command"):
        await asking
    assert (await connections.one(PID))["pid"] != pid
    await operator.close()


async def test_after_a_failure_nobody_knocks_for_a_moment():
    connections = Connections(Address("postgresql://u@127.0.0.1:1/db", "the test"), 2)

    refused = await asyncio.gather(*(connections.one(PID) for _ in range(50)), return_exceptions=True)

    assert {type(error) for error in refused} == {Unavailable}
    knocks = {id(error.__cause__) for error in refused if isinstance(error.__cause__, OSError)}
    assert 1 <= len(knocks) <= 2


async def test_who_has_closed_is_told(connections):
    await connections.close()

    with pytest.raises(Unavailable, match="was closed"):
        await connections.one(PID)


# ---- a server that dies


@pytest.fixture
async def server(tmp_path, postgres_made):
    folder = made_postgres.copied(postgres_made, tmp_path / "pg")
    async with PostgresServer(folder, settings={"fsync": "off"}) as started:
        await migrate(started.url)
        yield started


@pytest.mark.parametrize("mode", ["direct", "pooled"])
async def test_a_server_that_is_killed_and_started_again_is_found_again(server, mode):
    world = await PostgresWorld.connect(server.url, mode=mode)
    await world.create(a_run())
    await outside(world, cancel(key="k"))

    await server.kill()
    with pytest.raises(Unavailable, match="does not answer"):
        await world.now()
    with pytest.raises(Unavailable):
        await world.create(a_run("run_2"))
    await server.start()
    await asyncio.sleep(0.06)  # real time: after a failure nobody knocks for a moment

    assert len(await whole_log(world)) == 2
    assert not (await world.create(a_run("run_2"))).existing
    await world.close()


async def test_a_world_can_be_closed_while_the_server_is_away(server):
    world = await PostgresWorld.connect(server.url)
    await world.now()
    await server.kill()

    await world.close()
    await world.close()

    with pytest.raises(Unavailable, match="was closed"):
        await world.now()


# ---- a pooler


async def test_a_server_without_a_pooler_is_spoken_to_directly(postgres_server):
    async with postgres_stores.database(postgres_server) as name:
        world = await PostgresWorld.connect(postgres_server.socket_url_of(name))
        assert world.mode == "direct"
        await world.close()


async def test_a_pooler_is_found_out(pgbouncer):
    async with postgres_stores.database(pgbouncer) as name:
        world = await PostgresWorld.connect(pgbouncer.url_of(name))
        assert world.mode == "pooled"
        await world.close()


async def test_a_pooler_that_takes_nobody_more_is_told(postgres_server):
    pooler = PgBouncer(postgres_server, clients=1)
    try:
        pooler.start()
    except NotToBeHad as why:
        pooler.stop()
        pytest.skip(str(why))
    async with postgres_stores.database(pooler) as name:
        first = Connections(Address(pooler.url_of(name), "the pooler", "pooled"), 1)
        await first.one(PID)

        with pytest.raises(Unavailable, match="no connection left"):
            await PostgresWorld.connect(pooler.url_of(name))
        await first.close()
    pooler.stop()


# ---- what goes over it


@pytest.fixture(scope="session")
def loop_of_its_own():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


TEXT = some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = some.one_of(
    TEXT,
    some.integers(-(2**63), 2**63 - 1),
    some.booleans(),
    some.none(),
    some.lists(TEXT | some.none()),
    some.binary(),
)
CASTS = {str: "text", bool: "boolean", int: "bigint", bytes: "bytea", list: "text[]", type(None): "text"}


@pytest.fixture(scope="session")
def sessions(postgres_server, loop_of_its_own):
    async def connect(conforming):
        session = await asyncpg.connect(postgres_server.socket_url)
        await session.execute(f"SET standard_conforming_strings = {conforming}; SET escape_string_warning = off")
        return session

    opened = [loop_of_its_own.run_until_complete(connect(setting)) for setting in ("on", "off")]
    yield opened
    for session in opened:
        loop_of_its_own.run_until_complete(session.close())


@given(value=VALUES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_literal_means_its_value_whatever_the_server_is_set_to(sessions, loop_of_its_own, value):
    column = "body" if isinstance(value, bytes) else "plain"
    query = f"SELECT {literal(value)}::{CASTS[type(value)]} AS {column}"
    for session in sessions:
        assert loop_of_its_own.run_until_complete(copied(session, query))[column] == value


async def copied(session, query):
    chunks = []

    async def keep(chunk):
        chunks.append(chunk)

    await session.copy_from_query(as_json_rows(query), output=keep, format="binary")
    return rows_of_copy(b"".join(chunks))[0]


def test_what_postgres_cannot_keep_is_refused_before_it_is_sent():
    with pytest.raises(ValueError, match="NUL"):
        literal("a\0b")
    with pytest.raises(TypeError, match="float"):
        literal(1.5)


def test_rows_that_came_as_json_are_read_by_name_and_in_order():
    row = rows_of_copy(b"\0" * 19 + b"\0\1\0\0\0\x0f" + b'{"a":1,"b":"x"}' + b"\xff\xff")[0]

    first, second = row
    assert (row["a"], first, second, list(row.keys())) == (1, 1, "x", ["a", "b"])
