"""Hooks in Postgres: who waits for whom over a token, what is true after a wait, and what they cost who has none."""

import asyncio
import shutil

import asyncpg
import pytest

from fencepost.world import Accepted, Batch, HookFull, HookNotFound, PostgresWorld, Read, Taken, migrate
from fencepost.world.postgres import appending
from fencepost.world.postgres.migrating import FOLDER, newest
from fencepost.world.postgres.statements import numbered
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    disposed,
    hooked,
    offer,
    outcome_of,
    outside,
    received,
    run_completed,
    run_started,
    started,
    terminate,
    types,
    whole_log,
)
from tests.contract.postgres_stores import SCHEMA, database
from tests.contract.sessions import holding, waiting

BEFORE_HOOKS = 5
MAX_VALUE_BYTES = 2**20


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
async def sessions(url):
    """Sessions of others: two that write, one that looks at them."""
    opened = [await asyncpg.connect(url) for _ in range(3)]
    yield opened
    for session in opened:
        session.terminate()


async def append_in(session, world, *batches):
    """Append in a session's own transaction."""
    asks = [appending.prepare(batch, MAX_VALUE_BYTES) for batch in batches]
    parameters = {"patient": True, "rounds": [len(asks)], **appending.arrays(asks)}
    statement = world._statements["append"]
    return await session.fetch(statement.text, *statement.arguments(parameters))


# ---- who waits for whom


async def in_order_of_locks(session, count):
    """Return tokens that have locks of their own, in the order in which these are taken."""
    rows = await session.fetch(
        "SELECT DISTINCT ON (number) number, token FROM ("
        "  SELECT hashtextextended(token, 0) & 1023 AS number, token "
        "  FROM unnest(ARRAY(SELECT 'tok' || n FROM generate_series(1, 50) n)) AS u (token)) t "
        "ORDER BY number, token"
    )
    return [row["token"] for row in rows[:count]]


async def test_whoever_makes_several_hooks_locks_their_tokens_in_one_order(world, sessions):
    """Each wants a and z, and is stopped in between at one of its own. In another order each would have one of them.

    a < m1 < m2 < z: the first is stopped at m1, and holds a. The second waits for a, and holds nothing.
    """
    one, other, watch = sessions
    holder = await asyncpg.connect(world._writers.address.url)
    a, m1, m2, z = await in_order_of_locks(watch, 4)
    deciders = [await Decider.of_new(world, run_id) for run_id in ("run_1", "run_2")]
    await watch.execute(f"ALTER FUNCTION {SCHEMA}.append_v2 SET lock_timeout = '30s'")
    wanted = [[z, m1, a], [a, m2, z]]
    batches = [
        decider.batch(*(hooked(f"0.{n}", token) for n, token in enumerate(tokens)))
        for decider, tokens in zip(deciders, wanted, strict=True)
    ]

    await holder.execute("BEGIN")
    await holder.execute(f"SELECT {SCHEMA}.lock_tokens_v1('{{{m1},{m2}}}')")
    first = asyncio.create_task(append_in(one, world, batches[0]))
    await waiting(watch, 1)
    second = asyncio.create_task(append_in(other, world, batches[1]))
    await waiting(watch, 2)
    await holder.execute("COMMIT")
    (won,), (lost,) = await asyncio.gather(first, second)

    assert (won["verdict"], lost["verdict"], lost["said"]) == ("accepted", "taken", '["0.0", "run_1"]')
    holder.terminate()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_who_wants_a_token_that_is_being_taken_waits_and_sees_what_became_of_it(world, sessions, end):
    session, _, watch = sessions
    first, second = [await Decider.of_new(world, run_id) for run_id in ("run_1", "run_2")]
    await session.execute("BEGIN")
    await append_in(session, world, first.batch(hooked()))

    call = asyncio.create_task(outcome_of(second.append(hooked("0.7"))))
    await waiting(watch)
    await session.execute(end)
    answer = await call

    if end == "COMMIT":
        assert (type(answer), answer.op, answer.owner) == (Taken, "0.7", "run_1")
        assert types(await whole_log(world, "run_2")) == ["run_created"]
    assert (await world.hook("tok")).run_id == {"COMMIT": "run_1", "ROLLBACK": "run_2"}[end]


async def test_of_many_nodes_that_want_a_closed_token_at_once_one_gets_it(url, world):
    """And nobody an error: all of them see the same free row, and only a lock tells who is first."""
    nodes = [await PostgresWorld.connect(url) for _ in range(2)]
    owner = await Decider.of_new(world, "run_0")
    await owner.begin(hooked())
    await owner.append(disposed())
    deciders = [await Decider.of_new(nodes[n % 2], f"run_{n}") for n in range(1, 9)]

    answers = await asyncio.gather(*(outcome_of(decider.append(hooked())) for decider in deciders))

    (winner,) = [n for n, answer in enumerate(answers, 1) if isinstance(answer, Accepted)]
    assert {answer.owner for answer in answers if isinstance(answer, Taken)} == {f"run_{winner}"}
    assert [type(answer) for answer in answers].count(Taken) == 7
    assert (await world.hook("tok")).run_id == f"run_{winner}"
    for node in nodes:
        await node.close()


async def test_however_many_tokens_are_wanted_their_locks_fit_into_the_server(sessions):
    session = sessions[0]
    await session.execute("BEGIN")

    await session.execute(f"SELECT {SCHEMA}.lock_tokens_v1(ARRAY(SELECT 'tok' || n FROM generate_series(1, 20000) n))")

    assert await session.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 1024


# ---- lock, then look


CHANGES = {
    "the hook is closed": "UPDATE {0}.hooks SET is_open = false",
    "the token is another run's": "UPDATE {0}.hooks SET run_id = 'run_2'",
    "the token is another operation's": "UPDATE {0}.hooks SET op = '0.1'",
    "the hook is full": "UPDATE {0}.hooks SET received = 1000",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_is_put_while_its_run_is_held_is_judged_by_what_is_true_then(world, sessions, change):
    """One statement would judge by what was true when it began to wait."""
    session, _, watch = sessions
    await (await Decider.of_new(world)).begin(hooked())

    async with holding(session, "run_1"):
        call = asyncio.create_task(outside(world, received()))
        await waiting(watch)
        await session.execute(CHANGES[change].format(SCHEMA))

    with pytest.raises(HookFull if "full" in change else HookNotFound):
        await call
    assert (await world.find("run_1")).seq == 3


async def test_a_dispose_that_comes_late_does_not_touch_the_hook_of_the_next_owner(world, sessions):
    """It only looked at the row: the next owner may be writing it right now."""
    session, _, watch = sessions
    first, second = [await Decider.of_new(world, run_id) for run_id in ("run_1", "run_2")]
    await first.begin(hooked())
    await first.append(disposed())
    await session.execute("BEGIN")
    await append_in(session, world, second.batch(hooked()))

    await first.append(disposed(), hooked("0.1", "brief"))
    await session.execute("COMMIT")

    found = await world.hook("tok")
    assert (found.run_id, found.is_open) == ("run_2", True)
    assert await watch.fetchval(f"SELECT count(*) FROM {SCHEMA}.hooks WHERE is_open") == 2


# ---- what it costs


async def looked_at(world):
    """Return how often the table of hooks was read and written, by whoever has ended a transaction."""
    for connections in (world._connections, world._writers):
        await connections.all(numbered("flush", "SELECT pg_stat_force_next_flush()::text AS flushed"))
    (row,) = await world._connections.all(
        numbered(
            "looked_at",
            "SELECT seq_scan, idx_scan, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables "
            f"WHERE schemaname = '{SCHEMA}' AND relname = 'hooks'",
        )
    )
    return tuple(row)


async def test_a_run_without_hooks_touches_no_hook(world):
    await (await Decider.of_new(world, "run_2")).begin(hooked())
    node = await world.join(a_member())
    before = await looked_at(world)

    decider = await Decider.of_new(world)
    await decider.append(run_started(), created(), started(node), created("0.1"), offers=(offer("0.1"),))
    await world.claim("run_1", "0.1", "t2", node)
    await outside(world, completed())
    await outside(world, cancel("k"))
    await (await Decider.of(world)).append(run_completed())
    await world.create(a_run("run_3"))
    await outside(world, terminate(), run_id="run_3")

    assert await looked_at(world) == before


async def test_what_is_put_is_found_by_the_token_and_leaves_the_row_where_it_is(world):
    decider = await Decider.of_new(world)
    await decider.begin(*(hooked(f"0.{n}", f"tok{n}") for n in range(5)))
    before = await looked_at(world)

    await asyncio.gather(*(outside(world, received(f"d{n}", f"0.{n % 5}", f"tok{n % 5}")) for n in range(40)))
    await decider.append(reads=(Read("0.0", 8), Read("0.1", 3)))

    spent = [after - earlier for after, earlier in zip(await looked_at(world), before, strict=True)]
    assert (spent[0], spent[1] <= 42, spent[2:]) == (0, True, [0, 42, 42, 0])


# ---- nodes and schemas of the version before


@pytest.fixture
def folder_before(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "sql")
    for file in (tmp_path / "sql").glob("*.sql"):
        if int(file.name[:4]) > BEFORE_HOOKS:
            file.unlink()
    return tmp_path / "sql"


async def old_append(session, *batches):
    """Append as a node does that knows no hooks."""
    names = await session.fetchval(
        "SELECT proargnames[:pronargs] FROM pg_proc WHERE proname = 'append_v1' AND pronamespace = $1::regnamespace",
        SCHEMA,
    )
    asks = [appending.prepare(batch, MAX_VALUE_BYTES) for batch in batches]
    given = {"patient": True, "rounds": [len(asks)], **appending.arrays(asks)}
    places = ", ".join(f"${n}" for n in range(1, len(names) + 1))
    return await session.fetch(f"SELECT * FROM {SCHEMA}.append_v1({places})", *(given[name] for name in names))


async def test_a_schema_with_runs_in_it_gets_hooks(postgres_server, folder_before):
    async with database(postgres_server, "template0") as name:
        url = postgres_server.socket_url_of(name)
        await migrate(url, folder=folder_before)
        session = await asyncpg.connect(url)
        await session.execute(
            f"INSERT INTO {SCHEMA}.runs (run_id, app, workflow, partition, input_digest, created_at, seq, last_at, "
            "waking_seq) VALUES ('run_1', 'shop', 'order', 0, 'd', 1, 1, 1, 1); "
            f"INSERT INTO {SCHEMA}.events SELECT 'run_1', 1, NULL, 1, 'run_created', '', '', "
            """'{"type":"run_created","workflow":"order","input":{},"input_digest":"d","app":"shop","seed":"s"}'"""
        )
        (old,) = await old_append(session, Batch("run_1", (cancel("k"),), -1))

        done = await migrate(url)

        assert (old["verdict"], done.applied) == ("accepted", tuple(range(BEFORE_HOOKS + 1, newest() + 1)))
        world = await PostgresWorld.connect(url)
        await (await Decider.of(world)).begin(hooked())
        await outside(world, received())
        assert types(await whole_log(world)) == [
            "run_created",
            "cancel_requested",
            "run_started",
            "hook_created",
            "hook_received",
        ]
        await world.close()
        await session.close()


async def test_what_a_node_without_hooks_writes_still_counts_and_its_end_closes_them(world, sessions):
    decider = await Decider.of_new(world)
    await decider.begin(hooked())

    batches = [Batch("run_1", (cancel("k"),), -1), Batch("run_1", (terminate("t"),), -1), Batch("r", (cancel(),), -1)]
    rows = [row for batch in batches for row in await old_append(sessions[0], batch)]

    assert [row["verdict"] for row in rows] == ["accepted", "accepted", "not_found"]
    assert not (await world.hook("tok")).is_open
