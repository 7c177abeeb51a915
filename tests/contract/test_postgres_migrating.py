"""Migrations: by command, all or nothing, one at a time; and namespaces that know nothing of each other."""

import asyncio
import shutil

import asyncpg
import pytest

from fencepost.world import PostgresWorld, RunNotFound, Unusable, migrate
from fencepost.world.postgres.migrating import FOLDER, files, newest
from tests.contract import postgres_stores
from tests.contract.logs import a_member, a_run


@pytest.fixture
async def url(postgres_server):
    async with postgres_stores.database(postgres_server, "template0") as name:
        yield postgres_server.socket_url_of(name)


async def schemas(url):
    session = await asyncpg.connect(url)
    found = await session.fetchval(
        "SELECT array_agg(nspname ORDER BY nspname) FROM pg_namespace WHERE nspname ~ '^fence'"
    )
    await session.close()
    return found or []


def test_migrations_have_numbers_without_a_hole():
    assert list(files()) == list(range(1, newest() + 1))


async def test_a_migration_makes_the_namespace_and_again_does_nothing(url):
    first = await migrate(url, "one", partitions=8, hash_seed=7)
    second = await migrate(url, "one", partitions=16, hash_seed=9)

    assert first.applied == tuple(files())
    assert second.applied == ()
    assert first.facts == second.facts
    assert (first.facts.namespace, first.facts.partitions, first.facts.hash_seed) == ("one", 8, 7)
    assert first.facts.schema == newest()


async def test_a_seed_that_is_not_given_is_drawn(url):
    seeds = {(await migrate(url, name)).facts.hash_seed for name in ("a", "b", "c")}

    assert len(seeds) == 3


async def test_a_dry_run_tells_what_it_would_do_and_does_nothing(url):
    would = await migrate(url, "one", dry_run=True)

    assert would.applied == tuple(files())
    assert await schemas(url) == []


async def test_many_who_migrate_at_once_do_it_once(url):
    done = await asyncio.gather(*(migrate(url, "one") for _ in range(4)))

    assert sorted(len(one.applied) for one in done) == [0, 0, 0, newest()]
    assert len({one.facts for one in done}) == 1


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "sql")
    return tmp_path / "sql"


async def test_a_migration_that_fails_leaves_nothing(url, folder):
    (folder / f"{newest() + 1:04}_bad.sql").write_text("CREATE TABLE {schema}.good (); CREATE TABEL {schema}.bad ();")

    with pytest.raises(asyncpg.PostgresSyntaxError):
        await migrate(url, "one", folder=folder)
    assert await schemas(url) == []


async def test_a_later_migration_that_fails_leaves_what_was_there(url, folder):
    await migrate(url, "one")
    (folder / f"{newest() + 1:04}_good.sql").write_text("CREATE TABLE {schema}.good ();")
    (folder / f"{newest() + 2:04}_bad.sql").write_text("SELECT 1 / 0;")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(url, "one", folder=folder)

    world = await PostgresWorld.connect(url, namespace="one")
    assert (await world.facts()).schema == newest()
    await world.close()


async def test_a_later_migration_goes_on_from_what_is_there_while_nodes_work(url, folder):
    await migrate(url, "one")
    world = await PostgresWorld.connect(url, namespace="one")
    await world.create(a_run())
    (folder / f"{newest() + 1:04}_later.sql").write_text("ALTER TABLE {schema}.runs ADD COLUMN later text;")

    later = await migrate(url, "one", folder=folder)

    assert later.applied == (newest() + 1,)
    assert (await world.open("run_1")).run.run_id == "run_1"
    await world.create(a_run("run_2"))
    await world.close()


async def test_a_newer_schema_is_not_migrated(url, folder):
    (folder / f"{newest() + 1:04}_later.sql").write_text("SELECT 1;")
    await migrate(url, "one", folder=folder)

    with pytest.raises(Unusable, match=f"has version {newest() + 1}, newer than this one's {newest()}: upgrade"):
        await migrate(url, "one")


@pytest.mark.parametrize("mode", ["direct", "pooled"])
async def test_two_namespaces_in_one_database_know_nothing_of_each_other(url, mode):
    await migrate(url, "one")
    await migrate(url, "One-2")
    one, two = [await PostgresWorld.connect(url, namespace=name, mode=mode) for name in ("one", "One-2")]

    await one.create(a_run("run_1", chain_id="order-7"))
    await two.create(a_run("run_2", chain_id="order-7"))
    nodes = [await world.join(a_member()) for world in (one, two)]
    shares = [await world.share(node) for world, node in zip((one, two), nodes, strict=True)]

    assert ((await one.find("order-7")).run_id, (await two.find("order-7")).run_id) == ("run_1", "run_2")
    with pytest.raises(RunNotFound):
        await one.open("run_2")
    assert [len(share.owned) for share in shares] == [32, 32]
    assert [share.alive for share in shares] == [{nodes[0]}, {nodes[1]}]
    assert await schemas(url) == ["fencepost_One-2", "fencepost_one"]
    await one.close()
    await two.close()
