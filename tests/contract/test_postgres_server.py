"""A Postgres of our own: started, stopped, killed, started again on the same data, several at once, as root too."""

import asyncio
import socket

import asyncpg
import pytest

from fencepost.world import PostgresServer, Unusable
from tests import made_postgres

QUICK = {"fsync": "off"}


async def do(url, sql):
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.fixture
async def server(tmp_path):
    made = PostgresServer(tmp_path / "pg", settings=QUICK)
    yield made
    await made.kill()


@pytest.fixture
def folder(tmp_path, postgres_made):
    """Has data already, as at every start but the first."""
    return made_postgres.copied(postgres_made, tmp_path / "pg")


@pytest.mark.usefixtures("folder")
async def test_its_data_outlives_a_stop_and_a_kill_and_its_port_stays(server):
    await server.start()
    port, password = server.port, server.password
    await do(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")

    await server.stop()
    await server.start()
    await server.kill()
    await server.start()

    assert await do(server.url, "SELECT answer FROM kept") == 42
    assert (server.port, server.password) == (port, password)


async def test_it_is_reached_by_tcp_with_a_password_and_by_its_socket(server):
    await server.start()

    assert await do(server.socket_url, "SELECT 1") == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        await do(server.url.replace(server.password, "guess"), "SELECT 1")
    assert oct((server.folder / "password").stat().st_mode & 0o777) == "0o600"


async def test_settings_and_connections_are_as_asked(folder):
    async with PostgresServer(folder, max_connections=7, settings={**QUICK, "work_mem": "8MB"}) as server:
        assert await do(server.url, "SHOW max_connections") == "7"
        assert await do(server.url, "SHOW work_mem") == "8MB"


async def test_several_run_at_once(tmp_path, folder):
    async with (
        PostgresServer(folder, settings=QUICK) as one,
        PostgresServer(tmp_path / "b", settings=QUICK) as two,
    ):
        assert one.port != two.port
        assert await do(one.url, "SELECT 1") == await do(two.url, "SELECT 1") == 1


async def test_one_that_was_left_behind_is_ended(server, folder):
    await server.start()
    left_behind = server.pid
    await do(server.url, "CREATE TABLE kept ()")

    async with PostgresServer(folder, port=server.port, settings=QUICK) as again:
        assert again.pid != left_behind
        assert await do(again.url, "SELECT count(*) FROM kept") == 0


async def test_a_port_that_is_taken_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = PostgresServer(tmp_path, port=other.getsockname()[1])
        with pytest.raises(Unusable, match="is taken by another program: give another one"):
            await server.start()


async def test_a_setting_it_does_not_take_is_told_in_its_own_words(folder):
    server = PostgresServer(folder, settings={"max_connections": "many"})

    with pytest.raises(Unusable, match=r'ended at once: .*invalid value for parameter "max_connections"'):
        await server.start()
    assert server.pid is None


@pytest.mark.usefixtures("folder")
async def test_it_cannot_be_started_twice(server):
    await server.start()

    with pytest.raises(Unusable, match="is started already"):
        await server.start()


async def test_a_folder_nobody_else_may_enter_stays_closed(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with PostgresServer(closed / "pg", settings=QUICK) as server:
        closed.chmod(0o700)  # as a test runner does with its own folders while the server runs
        await do(server.url, "CHECKPOINT")
        assert await do(server.url, "SELECT 1") == 1

    assert oct(closed.stat().st_mode & 0o777) == "0o700"


async def test_a_folder_with_a_long_path_is_fine(tmp_path):
    async with PostgresServer(tmp_path / ("long" * 20), settings=QUICK) as server:
        assert await do(server.socket_url, "SELECT 1") == 1


async def test_data_that_were_made_only_half_are_made_again(server):
    (server.folder / "making").mkdir(parents=True)
    (server.folder / "making" / "PG_VERSION").write_text("18")

    await server.start()

    assert await do(server.url, "SELECT 1") == 1


async def test_it_may_be_stopped_while_it_starts(server):
    starting = asyncio.create_task(server.start())
    while server.pid is None:  # noqa: ASYNC110  (a process says nothing when it appears)
        await asyncio.sleep(0.005)  # real time: another process is to appear

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert server.pid is None
