"""Databases that are not what a node needs: each is refused or warned of with one sentence that says what to do."""

import asyncio

import asyncpg
import pytest

from fencepost.world import PostgresWorld, Unavailable, Unusable
from fencepost.world.postgres.migrating import check_server, newest
from tests.contract import postgres_stores
from tests.contract.logs import Decider, a_run, run_started

S = postgres_stores.SCHEMA


class Database:
    """A migrated database, and a session in it that does what an operator would."""

    def __init__(self, server, name, session):
        self.server = server
        self.name = name
        self.session = session
        self.worlds = []

    @property
    def url(self):
        return self.server.socket_url_of(self.name)

    async def do(self, sql):
        await self.session.execute(sql)

    async def set(self, setting, value):
        await self.do(f"ALTER DATABASE {self.name} SET {setting} = '{value}'")

    async def connect(self, url=None, **options):
        world = await PostgresWorld.connect(url or self.url, **options)
        self.worlds.append(world)
        return world

    async def user(self, name, more=""):
        """Make a user and return the URL for it."""
        await self.do(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN PASSWORD 'secret' {more}")
        return f"postgresql://{name}:secret@127.0.0.1:{self.server.port}/{self.name}"


@pytest.fixture
async def database(postgres_server):
    async with postgres_stores.database(postgres_server) as name:
        session = await asyncpg.connect(postgres_server.socket_url_of(name))
        made = Database(postgres_server, name, session)
        yield made
        for world in made.worlds:
            await world.close()
        await session.close()


async def said(awaitable, kind=Unusable):
    """Return what is said: one sentence, never a password, always what to do."""
    with pytest.raises(kind) as caught:
        await awaitable
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "secret" not in sentence
    assert ":" in sentence
    return sentence


# ---- the schema


async def test_a_database_without_the_schema_names_the_command(postgres_server):
    sentence = await said(PostgresWorld.connect(postgres_server.socket_url))

    assert "holds no fencepost_default: run `fencepost migrate`" in sentence


async def test_an_older_schema_names_the_command(database):
    await database.do(f"DELETE FROM {S}.migrations WHERE number = {newest()}")

    sentence = await said(database.connect())

    assert f"has version {newest() - 1}, older than this one's {newest()}: run `fencepost migrate`" in sentence


async def note(database, number):
    await database.do(f"INSERT INTO {S}.migrations VALUES ({number}, 'x.sql', 1)")


async def test_a_schema_one_newer_is_worked_with(database):
    await note(database, newest() + 1)
    world = await database.connect()

    await world.create(a_run())

    assert (await world.facts()).schema == newest() + 1


async def test_a_schema_two_newer_asks_for_an_upgrade(database):
    await note(database, newest() + 2)

    assert f"has version {newest() + 2}, newer than this one's {newest()}: upgrade fencepost" in await said(
        database.connect()
    )


async def test_a_schema_that_was_made_only_half_is_refused(database):
    await database.do(f"DELETE FROM {S}.facts")

    assert "was made only half" in await said(database.connect())


async def test_a_schema_that_is_taken_away_is_told_and_comes_back(database):
    world = await database.connect()
    await world.create(a_run())
    await database.do(f"ALTER SCHEMA {S} RENAME TO away")

    assert "run `fencepost migrate`" in await said(world.find("run_1"))
    assert "run `fencepost migrate`" in await said(world.create(a_run("run_2")))

    await database.do(f"ALTER SCHEMA away RENAME TO {S}")
    assert (await world.find("run_1")).run_id == "run_1"


# ---- the server and its settings


@pytest.mark.parametrize("mode", ["direct", "pooled"])
async def test_a_read_only_database_is_refused_and_told_by_a_world_that_runs(database, mode):
    world = await database.connect(mode=mode)
    await world.create(a_run())
    await database.set("default_transaction_read_only", "on")
    await end_sessions(database)

    assert "is read-only" in await said(database.connect())
    refused = [await said(call, Unavailable) for call in writes(world)]
    assert all("is read-only and nothing was written: connect to the primary" in sentence for sentence in refused)

    await database.set("default_transaction_read_only", "off")
    assert (await world.create(a_run("run_2"))).existing is False


def writes(world):
    return [world.create(a_run("run_2")), world.leave("inc_1"), world.put_value("run_1", b"x")]


async def end_sessions(database):
    """End the sessions of the worlds, as a server does that is told to; new ones have the new settings."""
    await database.do(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for world in database.worlds:
        for connection in [*world._connections._idle, *world._writers._idle]:
            while not connection.is_closed():  # noqa: ASYNC110  (the driver tells nobody)
                await asyncio.sleep(0.005)  # real time: the end of a session comes by the socket


async def test_synchronous_commit_off_is_warned_of(database):
    await database.set("synchronous_commit", "off")

    world = await database.connect()

    assert any("synchronous_commit=off" in warning and "set it to on" in warning for warning in world.warnings)


async def test_fsync_off_is_warned_of(database):
    assert any("fsync=off" in warning for warning in (await database.connect()).warnings)


async def test_another_isolation_is_warned_of_and_does_no_harm(database):
    await database.set("default_transaction_isolation", "repeatable read")

    world = await database.connect()
    decider = await Decider.of_new(world)
    await decider.append(run_started())

    assert any("default_transaction_isolation='repeatable read'" in warning for warning in world.warnings)
    assert (await world.find("run_1")).status == "running"


async def test_another_isolation_behind_a_pooler_writes_nothing(database):
    await database.set("default_transaction_isolation", "serializable")

    world = await database.connect(mode="pooled")

    assert any("nothing is written" in warning for warning in world.warnings)
    sentence = await said(world.create(a_run()), Unavailable)
    assert "another isolation than read committed and nothing was written: reset" in sentence


async def test_a_server_as_it_should_be_is_warned_of_nothing(database):
    found = (await database.connect()).warnings

    assert [warning for warning in found if "fsync" not in warning] == []


async def test_a_statement_timeout_is_told_by_name(database):
    world = await database.connect()
    await world.create(a_run())
    await database.set("statement_timeout", "20ms")
    await end_sessions(database)
    await database.do("BEGIN")
    await database.do(f"LOCK TABLE {S}.runs IN ACCESS EXCLUSIVE MODE")

    sentence = await said(world.find("run_1"), Unavailable)

    await database.do("COMMIT")
    assert "raise statement_timeout for this user" in sentence


async def test_text_in_another_encoding_is_refused(postgres_server):
    session = await asyncpg.connect(postgres_server.socket_url)
    await session.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")

    sentence = await said(PostgresWorld.connect(postgres_server.socket_url_of("latin")))

    await session.execute("DROP DATABASE latin")
    await session.close()
    assert "keeps text as LATIN1: create a database with ENCODING 'UTF8'" in sentence


def test_an_old_server_is_refused():
    found = {"server": 140012, "encoding": "UTF8", "is_read_only": False}

    with pytest.raises(Unusable, match="runs Postgres 14: 15 or newer is needed"):
        check_server(found, "here")


# ---- users and connections


async def test_a_wrong_password_is_told(database):
    url = (await database.user("somebody")).replace("secret", "guess")

    assert "refuses this user" in await said(database.connect(url))


async def test_a_user_who_may_nothing_is_told(database):
    assert "forbids this user" in await said(database.connect(await database.user("guest")))


async def test_a_database_that_does_not_exist_is_told(postgres_server):
    assert "does not exist: create the database" in await said(
        PostgresWorld.connect(postgres_server.socket_url_of("nowhere"))
    )


async def test_connections_that_run_out_are_told_and_waited_for(database):
    url = await database.user("few", "SUPERUSER")
    world = await database.connect(url)
    await world.now()
    await end_sessions(database)
    await database.do("ALTER ROLE few NOSUPERUSER CONNECTION LIMIT 0")
    await database.do(f"GRANT USAGE ON SCHEMA {S} TO few")
    await end_sessions(database)

    assert "has no connection left: raise its max_connections" in await said(world.now(), Unavailable)
    assert "has no connection left" in await said(database.connect(url), Unavailable)

    await database.do("ALTER ROLE few SUPERUSER CONNECTION LIMIT -1")
    await asyncio.sleep(0.06)  # real time: after a failure nobody knocks for a moment
    assert await world.now()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://localhost/db", "begins with 'mysql'"),
        ("localhost:5432", "write postgresql://"),
        ("postgresql://u:secret@localhost:port/db", "does not fit"),
        ("postgresql://[::1/db", "does not fit"),
        ("postgresql://u:secret@localhost/db?sslmode=sometimes", "does not fit"),
    ],
)
async def test_a_url_that_is_none_is_told(url, words):
    assert words in await said(PostgresWorld.connect(url))


async def test_a_server_that_is_away_is_told():
    sentence = await said(PostgresWorld.connect("postgresql://u:secret@127.0.0.1:1/db"), Unavailable)

    assert "Postgres at 127.0.0.1:1/db does not answer" in sentence


@pytest.mark.parametrize("namespace", ["", "-a", "a b", "a" * 33, 'a"; DROP SCHEMA public; --', "ä"])
async def test_a_namespace_that_is_none_is_told(postgres_server, namespace):
    assert "does not fit" in await said(PostgresWorld.connect(postgres_server.socket_url, namespace=namespace))
