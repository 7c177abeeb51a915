"""The queries: each is prepared, used, and the hot ones go by their index."""

import re
from pathlib import Path

import pytest

import fencepost.world
from fencepost.world import HookNotFound, Read, SimulatedWorld, queries
from fencepost.world.sqlite import schema
from tests.contract.logs import (
    Decider,
    a_member,
    completed,
    conflict,
    created,
    hooked,
    offer,
    outside,
    received,
    run_completed,
    started,
    step_cancelled,
    wait,
    waited,
)

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


def test_every_table_of_every_version_is_explained_at_the_top_of_the_schema():
    text = queries.read(schema.MIGRATIONS[1])
    header = text[: text.index("CREATE TABLE")]

    tables = [
        table for file in schema.MIGRATIONS.values() for table in re.findall(r"CREATE TABLE (\w+)", queries.read(file))
    ]
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
    "claim_by_token": "PRIMARY KEY (run_id=? AND op=?)",
    "draining_of": "INDEX claims_draining (incarnation=?)",
    "offer_of_op": "PRIMARY KEY (run_id=? AND op=?)",
    "offers_in_queue": "INDEX offers_by_queue (queue=?)",
    "lapsed_members": "INDEX members_alive",
    "live_members": "INDEX members_alive",
    "other_takers": "INDEX members_alive",
    "has_lease": "INDEX members_alive",
    "renew_all": "INDEX members_alive",
    "renew_member": "(incarnation=?)",
    "read_member": "(incarnation=?)",
    "partitions_of_app": "PRIMARY KEY (app=?)",
    "take_partitions": "PRIMARY KEY (app=? AND partition=?)",
    "read_hook": "PRIMARY KEY (token=?)",
    "holder_of_token": "PRIMARY KEY (token=?)",
    "unread_of_hook": "PRIMARY KEY (token=?)",
    "close_hook": "PRIMARY KEY (token=?)",
    "close_hooks": "INDEX hooks_open (run_id=?)",
    "count_received": "PRIMARY KEY (token=?)",
    "count_read": "INDEX hooks_open (run_id=? AND op=?)",
    "due_before": "INDEX due_earliest (at<?)",
    "due_before_of": "INDEX due_of_app (app=? AND at<?)",
    "adopt_due": "PRIMARY KEY (kind=? AND id=?)",
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
    assert not any(re.match(r"SCAN (runs|events|due|chains|[a-z]|hooks)$", step) for step in plan), plan


async def test_a_run_without_hooks_touches_no_hook(clock):
    world = SimulatedWorld(clock)
    node = await world.join(a_member())
    said = []
    world.core.connection.set_trace_callback(said.append)

    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node), wait(), created("0.2"))
    await outside(world, completed())
    await decider.append(waited(), step_cancelled("0.2"), conflict("0.3"), due=clock(), offers=(offer("0.4"),))
    with pytest.raises(HookNotFound):
        await outside(world, received())
    await decider.append(run_completed(), reads=(Read("0.9", 1),))

    assert len(said) > 50
    assert [line for line in said if "hooks" in line] == []


async def test_a_run_with_a_hook_is_noticed_to_touch_it(clock):
    world = SimulatedWorld(clock)
    decider = await Decider.of_new(world)
    said = []
    world.core.connection.set_trace_callback(said.append)

    await decider.begin(hooked())

    assert [line for line in said if "hooks" in line] != []


def test_two_queries_of_one_name_are_an_error(tmp_path):
    (tmp_path / "a.sql").write_text("-- name: x\nSELECT 1;\n")
    (tmp_path / "b.sql").write_text("-- name: x\nSELECT 2;\n")

    with pytest.raises(ValueError, match="one name"):
        queries.load(tmp_path)
