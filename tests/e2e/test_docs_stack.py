"""What the pages say of Postgres and several nodes, done on real servers: the quickstart, the rights, the questions."""

import asyncio
import contextlib
import json
import shlex
import subprocess

import asyncpg
import pytest

from fencepost import App, Node, Settings, step, workflow
from fencepost.errors import RunFailed
from tests import made_postgres
from tests.e2e.command import Dev, environment, fencepost, free_port
from tests.e2e.node_process import NodeProcess
from tests.e2e.test_docs import PATIENCE_S, QUICKSTART, REAL_STACK, ROOT, WRITTEN_URL, blocks, commands_in

NODES = ROOT / "docs/guides/nodes.md"
OPERATIONS = ROOT / "docs/operations.md"

pytestmark = pytest.mark.timeout(180)


async def asked(url, *statements):
    """Run statements as a user and return the rows of the last one."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetch(statements[-1])
    finally:
        await connection.close()


# ---- the quickstart


@pytest.fixture
def project(tmp_path, postgres_made):
    made_postgres.copied(postgres_made, tmp_path / ".fencepost" / "postgres")
    (program,) = [block for block in blocks(QUICKSTART, "python") if block.startswith("# app.py\n")]
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    return tmp_path


def exported(lines, folder):
    """Return the settings that a shell has after these lines."""
    told = subprocess.run(
        ["bash", "-c", "\n".join(["set -eu", *lines, "env -0"])],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    variables = dict(line.split("=", 1) for line in told.stdout.split("\0") if "=" in line)
    return {name: value for name, value in variables.items() if name.startswith("FENCEPOST_")}


async def shared_out(url, question):
    """Ask which nodes live until the partitions are in three hands."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = await asked(url, question)
            if sorted(row["partitions"] for row in rows) == [10, 11, 11]:
                return rows
            await asyncio.sleep(0.1)  # real time: nodes look twice a second


def test_the_real_stack_of_the_quickstart_does_what_it_says(project):
    section = QUICKSTART.read_text(encoding="utf-8").partition(REAL_STACK)[2].partition("\n## ")[0]
    install, dev, *lines = commands_in(section)
    shell = [line for line in lines if not line.startswith("fencepost ")]
    migrate, node, *others = [line for line in lines if line.startswith("fencepost ")]
    (question,) = blocks(OPERATIONS, "sql")

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Dev(project, "--stack", "--port", str(free_port())))
        first.wait_for("serving")
        around = exported([line.replace(WRITTEN_URL, first.file["url"]) for line in shell], project)
        migrated = fencepost(*shlex.split(migrate)[1:], folder=project, **around)
        url = around.pop("FENCEPOST_NATS_URL")
        nodes = [stack.enter_context(NodeProcess(project, url, **around)) for _ in range(2)]
        joined = {one.wait_for("ready")["incarnation"] for one in nodes}
        done = [fencepost(*shlex.split(line)[1:], folder=project) for line in others]
        log = fencepost("runs", "events", "order-10", "--follow", "--json", folder=project).stdout
        members = asyncio.run(shared_out(around["FENCEPOST_DATABASE_URL"], question))

    assert (install.split()[:2], dev, node) == (["pip", "install"], "fencepost dev --stack", "fencepost node app.py")
    assert [each.stderr for each in (migrated, *done) if each.returncode] == []
    assert "nothing to do" in migrated.stdout
    assert json.loads(log.splitlines()[-1])["type"] == "run_completed"
    assert joined < {member["incarnation"] for member in members}


# ---- the rights of a node

SCHEMA = "fencepost_default"
FORBIDDEN = [
    f"UPDATE {SCHEMA}.events SET data = ''",
    f"DELETE FROM {SCHEMA}.events",
    f"TRUNCATE {SCHEMA}.runs",
    f"UPDATE {SCHEMA}.facts SET hash_seed = 0",
    f"DROP TABLE {SCHEMA}.due",
    f"CREATE TABLE {SCHEMA}.mine (a integer)",
    "CREATE TABLE public.mine (a integer)",
    "CREATE SCHEMA mine",
    "SELECT * FROM fencepost_second.runs",
]


@step
async def enlarge(text: str) -> str:
    return text * 200_000  # more than a log holds itself: it is kept beside it


@step(retry=0)
async def refuse() -> None:
    raise ValueError("no")


@workflow
async def large(text: str) -> int:
    return len(await enlarge(text))


@workflow
async def bad() -> None:
    await refuse()


class Roles:
    """A database whose users are made as the page says."""

    def __init__(self, server):
        self.superuser = self.to(server.url, "postgres", server.password)
        self.owner = self.to(server.url, "fencepost_owner", "change me")
        self.node = self.to(server.url, "fencepost_node", "change me too")

    @staticmethod
    def to(url, user, password):
        where = url.rpartition("@")[2].removesuffix("/postgres")
        return f"postgres://{user}:{password.replace(' ', '%20')}@{where}/shop"


@pytest.fixture(scope="module")
def roles(postgres, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    as_superuser, as_owner = blocks(NODES, "sql")
    made = Roles(postgres)
    asyncio.run(asked(postgres.url, "CREATE DATABASE shop"))
    asyncio.run(asked(made.superuser, as_superuser, "SELECT 1"))
    for namespace in ("default", "second"):
        done = fencepost("migrate", "-n", namespace, folder=folder, FENCEPOST_DATABASE_URL=made.owner)
        assert done.returncode == 0, done.stderr
    asyncio.run(asked(made.owner, as_owner, "SELECT 1"))
    return made


async def refused(url, statement):
    try:
        await asked(url, statement)
    except asyncpg.InsufficientPrivilegeError:
        return True
    return False


def settings_of(url, **more):
    return Settings.load(database_url=url, bus="inprocess", log_level="error", **more)


async def test_the_rights_of_the_guide_are_enough_for_a_node_and_no_more(roles):
    app = App("rights", [large, bad])

    async with Node(app, settings=settings_of(roles.node, dispatch="bus")) as node:
        client = node.client()
        length = await (await client.start(large, "x", attributes={"of": "rights"})).result(timeout="30s")
        with pytest.raises(RunFailed):
            await (await client.start(bad)).result(timeout="30s")
        await (await client.start("nobody_knows_it", id="waits")).cancel("not wanted")
    await asked(roles.owner, f"CREATE TABLE {SCHEMA}.later (a integer)")
    await asked(roles.node, f"INSERT INTO {SCHEMA}.later VALUES (1)")
    allowed = [statement for statement in FORBIDDEN if not await refused(roles.node, statement)]

    assert length == 200_000
    assert allowed == []


def test_a_nodes_user_who_migrates_is_told_that_it_may_not(roles, tmp_path):
    done = fencepost("migrate", folder=tmp_path, FENCEPOST_DATABASE_URL=roles.node)

    assert done.returncode == 1
    assert "forbids this user what is to be done" in done.stderr
