"""The queries and functions: each can be prepared, is used, and the hot ones go by their index among many rows."""

import asyncio
import json
import re
from pathlib import Path

import asyncpg
import pytest

import fencepost.world
from fencepost.world import Batch, PostgresWorld, Read, RunQuery, queries
from fencepost.world.postgres.migrating import files
from fencepost.world.postgres.statements import as_json_rows, load, numbered
from tests.contract import postgres_stores
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    disposed,
    hooked,
    offer,
    outside,
    received,
    run_completed,
    run_started,
    started,
)

FOLDER = Path(fencepost.world.__file__).parent
STATEMENTS = load(postgres_stores.SCHEMA)
MIGRATIONS = "".join(queries.read(file) for migration in files().values() for file in migration)

MANY = Path(__file__).with_name("many_rows.sql")

TOUCH_NOTHING = {"now_us_v1", "refuse_update_v1", "unknown_workflows_v1", "check_isolation_v1", "lock_tokens_v1"}
"""Functions that name no table."""


@pytest.fixture
async def behind(postgres_server):
    async with postgres_stores.DATABASES.one(postgres_server) as (_name, connection):
        yield connection


@pytest.fixture(scope="session")
def filled(postgres_server):
    """A database with many rows, which is only read."""

    async def make():
        database = postgres_stores.database(postgres_server)
        name = await database.__aenter__()
        connection = await asyncpg.connect(postgres_server.socket_url_of(name))
        await connection.execute(queries.read(MANY))
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
        return name

    return asyncio.run(make())


@pytest.fixture
async def many(postgres_server, filled):
    connection = await asyncpg.connect(postgres_server.socket_url_of(filled))
    yield connection
    await connection.close()


@pytest.fixture
async def world(postgres_server, filled, clock):
    async with postgres_stores.database(postgres_server, filled) as name:
        behind = await asyncpg.connect(postgres_server.socket_url_of(name))
        opened = await PostgresWorld.connect(postgres_server.socket_url_of(name))
        yield postgres_stores.OnClock(opened, clock, behind)
        await opened.close()
        await behind.close()


async def test_every_query_can_be_prepared(behind):
    failed = []
    for name, statement in STATEMENTS.items():
        try:
            await behind.prepare(statement.text)
        except Exception as error:  # noqa: BLE001  (all of them are told at once)
            failed.append(f"{name}: {error}")

    assert failed == []


async def test_every_function_says_where_it_looks(behind):
    rows = await behind.fetch(
        "SELECT proname, pg_get_functiondef(oid) AS text FROM pg_proc WHERE pronamespace = $1::regnamespace",
        postgres_stores.SCHEMA,
    )

    looks = rf'SET search_path|"?{postgres_stores.SCHEMA}"?\.\w'
    vague = [row["proname"] for row in rows if not re.search(looks, row["text"])]
    assert len(rows) > 15
    assert set(vague) <= TOUCH_NOTHING


def test_every_query_is_used():
    code = "".join(file.read_text("utf-8") for file in (FOLDER / "postgres").rglob("*.py"))

    assert [name for name in STATEMENTS if f'"{name}"' not in code] == []


def test_every_function_is_used_and_carries_a_version():
    calls = MIGRATIONS + "".join(statement.text for statement in STATEMENTS.values())
    functions = re.findall(r"CREATE FUNCTION \{schema\}\.(\w+)", MIGRATIONS)

    assert [name for name in functions if not re.search(r"_v\d+$", name)] == []
    assert [name for name in functions if len(re.findall(rf"\b{name}\(", calls)) < 2] == []


def test_every_table_is_explained_at_the_top_of_the_file_that_makes_it():
    texts = [queries.read(file) for migration in files().values() for file in migration]
    made = [(text.partition("CREATE TABLE")[0], re.findall(r"CREATE TABLE \{schema\}\.(\w+)", text)) for text in texts]

    assert sum(len(tables) for _, tables in made) > 10
    assert [
        table for header, tables in made for table in tables if not re.search(rf"^--   {table}\b", header, re.MULTILINE)
    ] == []


def test_a_query_has_its_parameters_numbered_in_the_order_they_come():
    statement = numbered(
        "q", "-- a remark: not :this\nSELECT a::text FROM t WHERE a = :b::text AND c = :a::text OR d = :b"
    )

    assert statement.text == "SELECT a::text FROM t WHERE a = $1::text AND c = $2::text OR d = $1"
    assert statement.arguments({"a": 1, "b": 2}) == [2, 1]
    assert statement.with_literals({"a": "$1", "b": "it's"}) == (
        "SELECT a::text FROM t WHERE a = E'it''s'::text AND c = E'$1'::text OR d = E'it''s'"
    )


# ---- plans

HOT = {
    "open_run": (
        {"run_id": "old_77", "limit": 500},
        {"runs_pkey", "due_pkey", "claims_pkey", "events_pkey", "attributes_pkey"},
    ),
    "events_after": ({"run_id": "old_77", "after": 2, "limit": 500}, {"runs_pkey", "events_pkey"}),
    "position_before": ({"run_id": "old_77", "at": 10**9}, {"runs_pkey", "events_pkey"}),
    "find_hook": ({"token": "tok_77"}, {"hooks_pkey", "runs_pkey", "events_pkey"}),
    "get_value": ({"run_id": "old_77", "ref": "a" * 64, "offset": 0, "limit": 9}, {"blobs_pkey"}),
    "find_run": ({"id": "chain_77"}, {"runs_pkey", "chains_pkey", "due_pkey"}),
    "list_newest": ({"before": "old_77", "workflow": "", "limit": 50}, {"runs_newest", "runs_pkey"}),
    "list_by_status": ({"status": "running", "before": "", "workflow": "", "limit": 50}, {"runs_by_status"}),
    "list_live": ({"before": "", "workflow": "", "limit": 50}, {"runs_live"}),
    "list_stalled": ({"before": "", "workflow": "", "limit": 50}, {"runs_stalled"}),
    "list_by_attribute": (
        {"name": "customer", "value": "c7", "status": "", "before": "", "workflow": "", "limit": 50},
        {"attributes_by_value", "runs_pkey"},
    ),
    "due_before": ({"app": "shop", "partitions": [1, 2], "before": 4 * 10**15 + 500, "limit": 500}, {"due_earliest"}),
    "list_offers": ({"app": "shop", "queue": "queue_7", "limit": 100}, {"offers_by_queue", "runs_pkey"}),
    "list_letters": ({"before": 2**62, "limit": 50}, {"letters_pkey"}),
    "read_letter": ({"number": 77}, {"letters_pkey"}),
}


def nodes(plan):
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
@pytest.mark.parametrize("name", HOT)
async def test_a_hot_query_goes_by_its_index(many, name, pooled):
    values, indexes = HOT[name]
    text = STATEMENTS[name].with_literals(values)

    plan = json.loads(await many.fetchval(f"EXPLAIN (FORMAT JSON) {as_json_rows(text) if pooled else text}"))[0]["Plan"]

    used = {node.get("Index Name") for node in nodes(plan)} - {None}
    walked = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert used >= indexes
    assert set(walked) <= {"facts"}


async def test_what_is_due_of_one_partition_costs_the_same_however_much_waits_in_others(many):
    change = many.transaction()
    await change.start()
    await many.execute(
        f"INSERT INTO {postgres_stores.SCHEMA}.due "
        "SELECT 'run', 'late_' || n, 'shop', 9, 1 FROM generate_series(1, 20000) n"
    )
    text = STATEMENTS["due_before"].with_literals(
        {"app": "shop", "partitions": [1], "before": 4 * 10**15 + 500, "limit": 500}
    )

    plan = json.loads(await many.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"))[0]["Plan"]

    await change.rollback()
    assert plan["Actual Rows"] > 0
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 100


SMALL = {"facts", "pulse", "clock", "partitions", "migrations"}
"""A few rows each, however much there is to do."""


async def walks(world):
    """Return how often each table was walked from end to end, by whoever has ended a transaction."""
    for connections in (world.world._connections, world.world._writers):
        await connections.all(numbered("flush", "SELECT pg_stat_force_next_flush()::text AS flushed"))
    rows = await world.behind.fetch(
        "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = $1", postgres_stores.SCHEMA
    )
    return {row["relname"]: row["seq_scan"] for row in rows if row["relname"] not in SMALL}


async def test_nothing_a_node_does_all_the_time_walks_a_table(world):
    node = await world.join(a_member())
    before = await walks(world)

    await world.create(a_run(chain_id="mine", attributes={"customer": "c7"}))
    decider = await Decider.of(world)
    await decider.append(run_started(), created(), created("0.1"), due=BEGIN, offers=(offer("0.1", "queue_7"),))
    await decider.append(started(node), due=BEGIN, offers=(offer("0.1", "queue_7"),))
    await world.claim("run_1", "0.1", "t2", node)
    await outside(world, completed())
    await outside(world, cancel(key="k"))
    await world.end_claim("run_1", "t2")
    hooks = await Decider.of_new(world, "run_2")
    await hooks.begin(hooked(), hooked("0.1", "tok2"))
    await outside(world, received("d1"), received("d2"), run_id="run_2")
    await outside(world, received("d3"), run_id="run_2")
    await hooks.append(disposed(), hooked("0.2"), reads=(Read("0.1", 1),))
    await world.hook("tok2")
    await hooks.append(run_completed())
    for _ in range(3):
        await world.share(node)
        await world.renew(node)
        await world.due("shop", [1, 2, 3], BEGIN, 100)
        await world.offers("shop", "queue_7", 100)
        await world.open("run_1")
        await world.more("run_1", 3)
        await world.find("mine")
    await world.runs(RunQuery())
    await (await Decider.of(world)).append(run_completed())

    assert await walks(world) == before


async def test_an_append_leaves_the_row_of_its_run_where_it_is(world):
    await world.create(a_run())
    decider = await Decider.of(world)
    await decider.append(run_started(), due=BEGIN)
    before = await updates(world)

    for n in range(40):
        await decider.append(created(f"0.{n}"), due=BEGIN)
    await world.append(Batch("run_1", (cancel(key="k"),), -1))

    updated, hot = (after - earlier for after, earlier in zip(await updates(world), before, strict=True))
    assert (updated, hot) == (41, 41)


async def updates(world):
    await world.world._writers.all(numbered("flush", "SELECT pg_stat_force_next_flush()::text AS flushed"))
    return tuple(
        await world.behind.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'runs'",
            postgres_stores.SCHEMA,
        )
    )
