"""The file under a SQLite world: bad ones are refused in one sentence, untouched; a good one outlives its process."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import psutil
import pytest

from fencepost.world import ClaimLost, SQLiteWorld, Unavailable, Unusable
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    dues,
    outcome_of,
    outside,
    started,
    types,
    wait,
    whole_log,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "world.db"


@pytest.fixture
async def opened(path, clock):
    """Return what opens the world and see that everything is closed."""
    worlds = []

    async def connect(where=path, **fields):
        world = await SQLiteWorld.connect(where, clock=clock, **fields)
        worlds.append(world)
        return world

    yield connect
    for world in worlds:
        await world.close()


@pytest.fixture
async def made(opened):
    """Make a world with a run in it, closed again."""
    world = await opened()
    await world.create(a_run())
    await world.close()


async def refusal(opened, path):
    """Return the sentence a file is refused with, and see that it is left as it was."""
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(Unusable) as refused:
        await opened(path)
    assert (path.read_bytes() if path.is_file() else b"") == before
    return str(refused.value)


def raw(path):
    return sqlite3.connect(path, isolation_level=None)


# ---- what is no file of ours


async def test_a_file_that_is_no_database_is_refused(opened, path):
    path.write_text("orders, 2030\n" * 500)

    assert await refusal(opened, path) == f"{path} is no SQLite database: give fencepost a file of its own"


async def test_the_database_of_another_program_is_refused(opened, path):
    connection = raw(path)
    connection.execute("CREATE TABLE runs (run_id TEXT)")
    connection.close()

    assert "is the database of another program" in await refusal(opened, path)


@pytest.mark.usefixtures("made")
async def test_a_newer_schema_is_refused(opened, path):
    connection = raw(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()

    sentence = await refusal(opened, path)

    assert sentence == f"{path} has schema 7, newer than this version's 3: upgrade fencepost"


@pytest.mark.usefixtures("made")
async def test_another_namespace_is_refused(opened, path):
    with pytest.raises(Unusable, match="holds the namespace 'default', not 'test'"):
        await opened(path, namespace="test")

    assert (await (await opened()).find("run_1")).run_id == "run_1"


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("damage", ["schema", "pages", "cut"])
async def test_a_damaged_file_is_refused_or_fails_in_one_sentence(opened, path, damage):
    whole = path.read_bytes()
    match damage:
        case "schema":
            path.write_bytes(whole[:100] + b"\xa5" * 3996 + whole[4096:])
        case "pages":
            path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
        case _:
            path.write_bytes(whole[: len(whole) // 3])

    with pytest.raises(Unusable, match="is damaged: put a backup in its place"):
        await opened()


@pytest.mark.usefixtures("made")
async def test_damage_found_later_fails_what_meets_it_and_nothing_else(opened, path):
    connection = raw(path)
    root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()[0]
    connection.close()
    whole = bytearray(path.read_bytes())
    whole[(root - 1) * 4096 : root * 4096] = b"\xa5" * 4096
    path.write_bytes(whole)
    world = await opened()

    with pytest.raises(Unusable, match="is damaged"):
        await world.open("run_1")
    with pytest.raises(Unusable, match="is damaged"):
        await outside(world, cancel())

    assert (await world.find("run_1")).seq == 1


async def test_a_folder_is_refused(opened, tmp_path):
    with pytest.raises(Unusable, match="is a folder: name a file in it"):
        await opened(tmp_path)


async def test_a_folder_that_does_not_exist_is_refused(opened, tmp_path):
    with pytest.raises(Unusable, match="does not exist: create it, or name another file"):
        await opened(tmp_path / "no" / "world.db")


async def test_an_empty_file_becomes_a_world(opened, path):
    path.touch()

    assert (await (await opened()).facts()).namespace == "default"


READ_ONLY = """
    import asyncio, os, sys
    from fencepost.world import SQLiteWorld, Unusable

    async def story(path, user):
        await (await SQLiteWorld.connect(":memory:")).close()  # whatever has to be imported is, from here on
        if os.geteuid() == 0:
            os.setuid(user)
        try:
            await SQLiteWorld.connect(path)
        except Unusable as refused:
            print(refused)

    asyncio.run(story(sys.argv[1], int(sys.argv[2])))
"""


def as_somebody_else(path):
    """Try to open a file as a user whom permissions bind (root is not one) and return what is said."""
    command = [sys.executable, "-c", textwrap.dedent(READ_ONLY), str(path), "65534"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def made_read_only(folder, what):
    """Take the right to write from the file or from its folder."""
    path = folder / "world.db"
    path.chmod(0o444 if what == "file" else 0o666)
    path.with_name("world.db.lock").unlink()
    folder.chmod(0o777 if what == "file" else 0o555)
    return path


@pytest.mark.skipif(os.name != "posix", reason="permissions of another kind")
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_what_is_read_only_is_refused(opened, what):
    with tempfile.TemporaryDirectory() as folder:
        await (await opened(f"{folder}/world.db")).close()
        path = made_read_only(Path(folder), what)

        said = await asyncio.to_thread(as_somebody_else, path)

    assert said.startswith(str(path))
    assert "writable for this user" in said


# ---- one process at a time


@pytest.mark.usefixtures("made")
async def test_a_second_node_on_the_file_is_refused_while_the_first_lives(opened, path):
    first = await opened()

    with pytest.raises(Unusable) as refused:
        await opened()

    assert str(refused.value) == (f"{path} is in use by another process: stop it, or give this one a file of its own")
    await first.close()
    assert (await (await opened()).find("run_1")).run_id == "run_1"


async def test_a_refused_file_can_be_opened_once_it_is_put_right(opened, path):
    path.write_text("no database" * 100)
    with pytest.raises(Unusable):
        await opened()
    path.unlink()

    assert (await (await opened()).facts()).schema == 3


def connecting_once():
    """Return a `sqlite3.connect` that opens what it is asked for once, and then what no file can be."""
    connect = sqlite3.connect
    left = ["once"]
    return lambda where, **fields: connect(where if left and left.pop() else "/", **fields)


@pytest.mark.usefixtures("made")
async def test_nothing_is_left_open_when_only_the_second_connection_fails(opened, path, monkeypatch):
    with monkeypatch.context() as crowded:
        crowded.setattr(sqlite3, "connect", connecting_once())

        with pytest.raises(Unusable):
            await opened()

    assert not [thread for thread in threading.enumerate() if thread.name in {"fencepost-write", "fencepost-read"}]
    assert not [file for file in psutil.Process().open_files() if file.path.startswith(str(path))]
    assert (await (await opened()).find("run_1")).run_id == "run_1"


async def test_who_opens_the_file_ends_the_incarnations_that_were_there(opened, clock):
    world = await opened()
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(await world.join(a_member())))
    await world.close()

    again = await opened()

    assert not (await again.open("run_1")).claims[0].alive
    with pytest.raises(ClaimLost):
        await outside(again, completed())
    clock.turn(hours=1)
    await again.join(a_member("n2"))
    assert await dues(again) == {"run_1": clock()}


async def test_who_opens_the_file_frees_the_partitions_that_were_taken(opened):
    world = await opened()
    await world.share(await world.join(a_member(code="c1")))
    await world.close()

    again = await opened()

    share = await again.share(await again.join(a_member(code="older")))
    assert len(share.owned) == 32
    assert len(share.alive) == 1


async def test_a_world_where_nobody_has_a_lease_is_not_written_by_a_share_that_changes_nothing(opened, clock):
    world = await opened()
    node = await world.join(a_member())
    await world.share(node)

    def changes(core):
        return core.connection.total_changes

    before = await world._writer.run(changes)
    for _ in range(3):
        clock.turn(seconds=1)
        await world.share(node)

    assert await world._writer.run(changes) == before


# ---- what is kept


async def test_everything_is_there_when_the_file_is_opened_again(opened):
    world = await opened(partitions=7, hash_seed=42)
    await (await Decider.of_new(world, chain_id="order-7")).begin(wait())
    before = await world.open("run_1"), await world.facts()
    await world.close()

    again = await opened(partitions=9)

    assert (await again.open("run_1"), await again.facts()) == before
    assert (before[1].partitions, before[1].hash_seed) == (7, 42)


async def test_a_commit_is_synced_before_it_is_answered(opened):
    world = await opened()

    def pragmas(core):
        return [core.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert await world._writer.run(pragmas) == ["wal", 2]


# ---- trouble while it runs


async def room(world, pages):
    """Let the file grow to so many pages at most; 0 lets it grow."""

    def limit(core):
        return core.connection.execute(f"PRAGMA max_page_count = {pages or 2**30}").fetchone()[0]

    return await world._writer.run(limit)


async def test_on_a_full_disk_nothing_is_half_done_and_work_goes_on_when_there_is_room(opened):
    world = await opened()
    decider = await Decider.of_new(world)
    await decider.begin()
    before = await world.open("run_1")
    await room(world, 1)
    large = [world.append(decider.batch(*(wait("0." + "9" * 3000) for _ in range(500))))]
    large += [outside(world, cancel(key=f"k{n}", reason="x" * 9000)) for n in range(20)]

    answers = await asyncio.gather(*map(outcome_of, large))

    assert {type(answer) for answer in answers} == {Unavailable}
    assert str(answers[0]).startswith("the disk under ")
    assert "is full and nothing was written" in str(answers[0])
    assert await world.open("run_1") == before
    await room(world, 0)
    assert (await outside(world, cancel(key="k0", reason="x" * 9000))).first_seq == 3


async def test_who_fits_on_a_full_disk_is_not_refused_with_who_does_not(opened):
    world = await opened()
    await world.create(a_run())
    await room(world, 1)

    answers = await asyncio.gather(
        *(outcome_of(outside(world, cancel(key=f"k{n}", reason="x" * (100_000 if n % 2 else 1)))) for n in range(10))
    )

    refused = [isinstance(answer, Unavailable) for answer in answers]
    assert refused == [False, True] * 5
    log = await whole_log(world)
    assert [event.seq for event in log] == list(range(1, 7))


async def test_a_program_that_holds_the_file_delays_and_does_not_tear(opened, path):
    """Hold the row, end the claim, let go; the outcome under it is refused."""
    world = await opened()
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(await world.join(a_member())))
    other = raw(path)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(outcome_of(outside(world, completed())))
    await world.open("run_1")

    other.execute("DELETE FROM claims")
    other.execute("COMMIT")
    other.close()

    assert isinstance(await waiting, ClaimLost)
    assert types(await whole_log(world))[-1] == "step_started"


async def test_a_log_cannot_be_rewritten_by_hand(opened, path):
    world = await opened()
    await world.create(a_run())
    other = raw(path)

    with pytest.raises(sqlite3.IntegrityError, match="a log is never rewritten"):
        other.execute("UPDATE events SET data = '{}'")
    other.close()


@pytest.mark.parametrize(
    "change",
    [
        "status = 'exploded'",
        "status = 'completed'",
        "ended_at = 1",
        "seq = 0",
        "tick = -1",
        "waking_seq = 99",
        "decided_seq = 99",
        "status = 'failed', ended_at = 1, stalled = 'why'",
    ],
)
async def test_the_tables_spell_the_states_a_run_can_have(opened, path, change):
    world = await opened()
    await world.create(a_run())
    other = raw(path)

    with pytest.raises(sqlite3.IntegrityError):
        other.execute(f"UPDATE runs SET {change}")
    other.close()
