"""The queries: each is prepared, used, and the hot ones go by their index. Migrations go forward, by number."""

import re
import sqlite3
from pathlib import Path

import pytest

import fencepost.world
from fencepost.world import SimulatedWorld, Unusable, queries
from fencepost.world.sqlite import schema
from tests.contract.logs import BEGIN

FOLDER = Path(fencepost.world.__file__).parent
QUERIES = queries.load(queries.FOLDER / "sqlite")


@pytest.fixture
def connection(clock):
    world = SimulatedWorld(clock)
    yield world.core.connection
    world.core.connection.close()


def explained(connection, name):
    """Return the plan of a query, with NULL for every parameter."""
    parameters = dict.fromkeys(re.findall(r":(\w+)", QUERIES[name]))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", parameters).fetchall()
    return [row["detail"] for row in rows]


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_can_be_prepared(connection, name):
    explained(connection, name)


def test_every_query_is_used():
    code = "".join(file.read_text("utf-8") for file in FOLDER.rglob("*.py"))

    assert [name for name in QUERIES if f'"{name}"' not in code] == []


def test_every_table_is_explained_at_the_top_of_the_schema():
    text = queries.read(queries.FOLDER / "sqlite" / "schema.sql")
    header = text[: text.index("CREATE TABLE")]

    tables = re.findall(r"CREATE TABLE (\w+)", text)
    assert [table for table in tables if not re.search(rf"^--   {table}\b", header, re.MULTILINE)] == []


HOT = {
    "lock_run": "PRIMARY KEY (run_id=?)",
    "advance_run": "PRIMARY KEY (run_id=?)",
    "events_after": "PRIMARY KEY (run_id=? AND seq>?)",
    "events_of_op": "INDEX events_by_op (run_id=? AND op=? AND seq<?)",
    "event_by_key": "INDEX events_by_key (run_id=? AND type=? AND key=?)",
    "position_before": "PRIMARY KEY (run_id=?)",
    "claims_of_op": "PRIMARY KEY (run_id=? AND op=?)",
    "claims_of_run": "PRIMARY KEY (run_id=?)",
    "end_claim_of_op": "PRIMARY KEY (run_id=? AND op=?)",
    "end_drained_of_run": "INDEX members_alive",
    "is_alive": "(incarnation=?)",
    "due_before": "INDEX due_earliest (at<?)",
    "ring_claimed_by_dead": "PRIMARY KEY (run_id=?)",
    "ring_offered": "INDEX offers_by_queue (queue=?)",
    "ring_pending": "INDEX runs_by_status (status=?)",
    "ring_stalled": "INDEX runs_stalled",
    "find_run": "PRIMARY KEY (run_id=?)",
    "starter_by_chain": "PRIMARY KEY (chain_id=?)",
    "list_newest": "INDEX runs_newest",
    "list_live": "INDEX runs_live",
    "list_stalled": "INDEX runs_stalled",
    "list_by_status": "INDEX runs_by_status",
    "count_runs": "INDEX runs_by_status",
    "letter_by_source": "INDEX letters_by_source (source=?)",
    "list_letters": "INTEGER PRIMARY KEY",
    "get_value": "(run_id=? AND ref=?)",
}


@pytest.mark.parametrize("name", HOT)
def test_hot_queries_go_by_their_index_and_sort_nothing(connection, name):
    plan = explained(connection, name)

    assert any(HOT[name] in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan
    assert not any(re.match(r"SCAN (runs|events|due|chains)$", step) for step in plan), plan


def test_two_queries_of_one_name_are_an_error(tmp_path):
    (tmp_path / "a.sql").write_text("-- name: x\nSELECT 1;\n")
    (tmp_path / "b.sql").write_text("-- name: x\nSELECT 2;\n")

    with pytest.raises(ValueError, match="one name"):
        queries.load(tmp_path)


# ---- migrations


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
