"""Migrations go forward, by number. A file of an earlier version opens, keeps what it holds, and works."""

import sqlite3
from hashlib import sha256

import pytest

from fencepost.world import ClaimLost, SQLiteWorld, Unusable, events, queries
from fencepost.world.sqlite import schema
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    claims,
    completed,
    created,
    dues,
    hooked,
    offer,
    outside,
    received,
    run_started,
    started,
    types,
    value,
    whole_log,
)

MICRO = 1_000_000
AT = int(BEGIN.timestamp()) * MICRO
EARLIER = {
    1: "e3e2c915d56b6aad1ff5d23743436630c0fc8a23f4f26039745177f653f7658f",
    2: "deaafe049321ab9a2e804eb833ece80d4743d852011a7e39b3d9458257f91d96",
}
"""The digests of what earlier versions execute. It is in files at users', so it is never edited; comments may be."""


@pytest.fixture
def database():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def prepared(database, **more):
    return schema.prepare(database, "here", schema.Constants(), lambda: BEGIN, **more)


def a_version(tmp_path, script):
    file = tmp_path / "next.sql"
    file.write_text(script)
    return {**schema.MIGRATIONS, schema.SCHEMA + 1: file}


def test_a_migration_leads_to_its_version_and_keeps_what_is_there(database, tmp_path):
    before = prepared(database)

    after = prepared(database, migrations=a_version(tmp_path, "CREATE TABLE a (b);\nCREATE TABLE c (d);\n"))

    assert (before.schema, after.schema) == (schema.SCHEMA, schema.SCHEMA + 1)
    assert after.hash_seed == before.hash_seed
    assert database.execute("SELECT count(*) FROM a, c").fetchone() == (0,)


def test_a_migration_that_fails_leaves_the_version_before(database, tmp_path):
    prepared(database)

    with pytest.raises(sqlite3.OperationalError):
        prepared(database, migrations=a_version(tmp_path, "CREATE TABLE a (b);\nCREATE TABLE a (b);\n"))

    assert prepared(database).schema == schema.SCHEMA
    assert database.execute("SELECT name FROM sqlite_master WHERE name = 'a'").fetchall() == []


def test_there_is_no_way_back(database, tmp_path):
    prepared(database, migrations=a_version(tmp_path, "CREATE TABLE a (b);\n"))

    with pytest.raises(Unusable, match="upgrade fencepost"):
        prepared(database)


def test_an_sqlite_that_is_too_old_is_refused(database, monkeypatch):
    monkeypatch.setattr(schema, "OLDEST_SQLITE", (99, 0))

    with pytest.raises(Unusable, match=r"is too old: 99\.0 is needed"):
        prepared(database)


# ---- a file of an earlier version


@pytest.mark.parametrize("version", EARLIER)
def test_an_earlier_version_is_what_it_was(version):
    lines = queries.read(schema.MIGRATIONS[version]).splitlines()
    said = "\n".join(line for line in lines if line and not line.startswith("--"))

    assert sha256(said.encode()).hexdigest() == EARLIER[version]


RUN = """INSERT INTO runs (run_id, chain_id, app, workflow, partition, input_digest, created_at, status, seq, tick,
                          last_batch, last_at, decided_seq, waking_seq, in_band_count, owns)
         VALUES (?, ?, ?, 'order', 7, 'd1', ?, ?, ?, ?, ?, ?, 1, 1, ?, ?)"""
EVENT = "INSERT INTO events (run_id, seq, tick, at, type, op, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
MEMBER = """INSERT INTO members (number, incarnation, name, app, code, code_ordinal, workflows, queues, joined_at)
            VALUES (1, 'inc_1', 'n1', 'shop', 'c1', 3, '["order"]', '["default"]', ?)"""

LETTER = """INSERT INTO letters (at, kind, subject, code, reason, body, headers)
            VALUES (?, 'start', 's', 'c', 'r', x'', '{}')"""


def begun(run_id):
    """Return the log of a run with two steps, the first of which runs on `inc_1`."""
    first = events.RunCreated(workflow="order", input=value({"n": 1}), seed="s", app="shop")
    return run_id, [first, run_started(), created(), created("0.1"), started("inc_1")]


def insert_run(file, run_id, log, *, chain_id="", app="shop", status="running"):
    in_band = len(log) - 1
    tick, batch = (1, "b1") if in_band else (0, "")
    owns = 3 if in_band else 0
    file.execute(RUN, (run_id, chain_id, app, AT, status, len(log), tick, batch, AT, in_band, owns))
    for seq, body in enumerate(log, 1):
        data = events.encode_body(body).decode()
        file.execute(EVENT, (run_id, seq, tick if seq > 1 else None, AT, events.kind_of(body), body.op, data))


@pytest.fixture
def path(tmp_path):
    """A file as version 1 left it: a running and a pending run, a claim, offers, dues, a chain, a node, a letter."""
    path = tmp_path / "world.db"
    file = sqlite3.connect(path, isolation_level=None)
    schema.prepare(file, "here", schema.Constants(hash_seed=42), lambda: BEGIN, {1: schema.MIGRATIONS[1]})
    run_id, log = begun("run_1")
    insert_run(file, run_id, log, chain_id="order-7")
    insert_run(file, "run_2", log[:1], app="bank", status="pending")
    file.execute("INSERT INTO chains VALUES ('order-7', 'run_1')")
    file.execute(MEMBER, (AT,))
    file.execute("INSERT INTO claims VALUES ('run_1', '0.0', 1, 1, 't1', 'inc_1', 0)")
    file.executemany("INSERT INTO offers VALUES ('run_1', ?, 'default')", [("0.0",), ("0.1",)])
    file.executemany("INSERT INTO due VALUES ('run', ?, 7, ?)", [("run_1", AT + MICRO), ("run_2", AT)])
    file.execute(LETTER, (AT,))
    file.close()
    return path


@pytest.fixture
async def migrated(path, clock):
    world = await SQLiteWorld.connect(path, clock=clock)
    yield world
    await world.close()


async def test_a_file_of_version_1_keeps_all_that_it_holds(migrated):
    facts = await migrated.facts()

    assert (facts.schema, facts.hash_seed, facts.created_at) == (schema.SCHEMA, 42, BEGIN)
    run = await migrated.find("order-7")
    assert (run.run_id, run.app, run.status, run.seq, run.tick) == ("run_1", "shop", "running", 5, 1)
    assert types(await whole_log(migrated)) == [events.kind_of(body) for body in begun("run_1")[1]]
    assert (await migrated.count())["dead"] == 1


async def test_what_was_due_in_a_file_of_version_1_is_due_in_its_app(migrated):
    assert list(await dues(migrated, app="shop")) == ["run_1"]
    assert list(await dues(migrated, app="bank")) == ["run_2"]


async def test_a_node_that_was_in_a_file_of_version_1_is_dead(migrated):
    assert not (await claims(migrated))["t1"].alive
    with pytest.raises(ClaimLost):
        await outside(migrated, completed())


async def test_work_goes_on_in_a_file_of_version_1(migrated, clock):
    clock.turn(seconds=1)
    node = await migrated.join(a_member(code="c2"))

    share = await migrated.share(node)

    assert (len(share.owned), share.alive) == (32, {node})
    assert (await dues(migrated))["run_1"] <= clock()
    decider = await Decider.of(migrated)
    await decider.append(started(node, token="t2", dispatch=2), offers=(offer("0.1", dispatch=4),))
    assert (await migrated.claim("run_1", "0.1", "t3", node)).dispatch == 4
    assert set(await claims(migrated)) == {"t1", "t2", "t3"}
    assert (await migrated.create(a_run("run_3"))).app == "shop"


async def test_what_was_on_offer_in_a_file_of_version_1_is_the_first_attempt_if_that_is_free(migrated):
    node = await migrated.join(a_member())

    assert (await migrated.claim("run_1", "0.1", "t2", node)).attempt == 1
    with pytest.raises(ClaimLost):
        await migrated.claim("run_1", "0.0", "t3", node)


async def test_code_is_counted_on_from_a_file_of_version_1(migrated):
    node = await migrated.join(a_member(code="c2"))
    older = await migrated.join(a_member("n2", code="c1"))

    assert (await migrated.share(node)).newer
    assert not (await migrated.share(older)).newer


@pytest.mark.parametrize("version", EARLIER)
async def test_a_run_of_an_earlier_version_makes_hooks_and_is_put_to(path, clock, version):
    file = sqlite3.connect(path, isolation_level=None)
    until = {number: script for number, script in schema.MIGRATIONS.items() if number <= version}
    assert schema.prepare(file, "here", schema.Constants(), lambda: BEGIN, until).schema == version
    file.close()
    world = await SQLiteWorld.connect(path, clock=clock)
    decider = await Decider.of(world)

    await decider.append(hooked("0.2"))
    await outside(world, received(op="0.2"))

    found = await world.hook("tok")
    assert (found.run_id, found.app, found.partition, found.unread) == ("run_1", "shop", 7, 1)
    await world.close()
