"""`fencepost node` on its own: what it needs, what it says, and its incarnation in Postgres."""

import asyncio
import contextlib
import signal
import time
from datetime import timedelta

import psutil
import pytest

from fencepost.bus import NatsServer
from fencepost.world import IncarnationDead, Member, PostgresServer, PostgresWorld, migrate
from tests import made_postgres
from tests.e2e.command import fencepost, free_port
from tests.e2e.node_process import APP, NodeProcess

pytestmark = pytest.mark.timeout(90)
POLL_S = 0.02


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def namespace(folder):
    return f"n{abs(hash(folder)) % 10**9}"


@pytest.fixture
def around(nats, postgres, namespace):
    """The environment of nodes and clients in a namespace of the test's."""
    asyncio.run(migrate(postgres.url, namespace))
    return {
        "FENCEPOST_NATS_URL": nats.url,
        "FENCEPOST_DATABASE_URL": postgres.url,
        "FENCEPOST_NAMESPACE": namespace,
        "FENCEPOST_LEASE": "2s",
        "FENCEPOST_LOOP_DEAD_AFTER": "4s",
    }


@pytest.fixture
def node(folder, around):
    """Starts nodes that the test's end stops."""
    with contextlib.ExitStack() as stack:

        def started(*words, **more):
            environment = {**around, **more}
            url = environment.pop("FENCEPOST_NATS_URL")
            return stack.enter_context(NodeProcess(folder, url, *words, **environment))

        yield started


@pytest.fixture
def run(folder, around):
    """Runs a command of a client to its end."""
    return lambda *words: fencepost(*words, folder=folder, **around)


def in_world(postgres, namespace, ask):
    """Ask the world itself."""

    async def asked():
        world = await PostgresWorld.connect(postgres.url, namespace=namespace)
        try:
            return await ask(world)
        finally:
            await world.close()

    return asyncio.run(asked())


async def alive(world):
    """Join for a moment, to be told who lives."""
    me = await world.join(Member("looks", "looks", "", frozenset(), lease=timedelta(seconds=30), takes=False))
    try:
        return (await world.share(me)).alive - {me}
    finally:
        await world.leave(me)


def begun(run, folder, name, seconds):
    """Start a run and return when the body of its step has begun."""
    started = run("start", "marked", "--id", name, "--arg", f"name={name}", "--arg", f"seconds={seconds}")
    assert started.returncode == 0, started.stderr
    while not (folder / name).exists():
        time.sleep(POLL_S)  # real time: another process writes it


def until_ended(process):
    """Return when a process has ended, also when nobody has looked at it yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(POLL_S)  # real time: another process ends it


# ---- the incarnation


def test_the_supervisor_keeps_the_incarnation_while_the_process_is_blocked(node, run, postgres, namespace):
    serving = node(FENCEPOST_LOOP_DEAD_AFTER="10s")
    incarnation = serving.wait_for("ready")["incarnation"]
    node("--steps-only").ready()  # it would declare the other one dead

    run("start", "spins", "--id", "blocks")
    serving.wait_for("a turn blocks its node")
    serving.wait_for("run stalled")

    assert incarnation in in_world(postgres, namespace, alive)


def test_a_killed_process_is_left_at_once_and_another_node_goes_on(node, run, folder, postgres, namespace):
    first, second = node(FENCEPOST_LEASE="60s"), node(FENCEPOST_LEASE="60s", FENCEPOST_NODE_NAME="other")
    child, _ = first.ready(), second.ready()
    begun(run, folder, "a", 1)

    child.kill()
    first.wait_for("died, another one starts")
    first.ready()
    ended = run("start", "marked", "--id", "a", "--arg", "name=a", "--arg", "seconds=1", "--wait")

    assert ended.returncode == 0, ended.stderr
    assert len(in_world(postgres, namespace, alive)) == 2


def test_a_signal_leaves_nothing_alive(node, postgres, namespace):
    serving = node(FENCEPOST_LEASE="60s")
    serving.ready()

    code = serving.end(signal.SIGTERM)

    assert code == 0
    assert in_world(postgres, namespace, alive) == frozenset()


def test_an_incarnation_that_was_declared_dead_is_followed_by_a_new_one(node, run, postgres, namespace):
    serving = node(FENCEPOST_LEASE="60s")
    dead = serving.wait_for("ready")["incarnation"]

    in_world(postgres, namespace, lambda world: world.leave(dead))
    again = serving.wait_for("ready")
    done = run("start", "twice", "-i", "21", "--wait")

    assert again["incarnation"] != dead
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    with pytest.raises(IncarnationDead):
        in_world(postgres, namespace, lambda world: world.renew(dead))


def test_a_supervisor_that_stands_still_longer_than_its_lease_begins_anew(node, run, postgres, namespace):
    serving = node()
    child = serving.ready()
    parent = psutil.Process(serving.process.pid)

    parent.suspend()
    until_ended(child)
    parent.resume()
    serving.ready()
    done = run("start", "twice", "-i", "21", "--wait")

    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert len(in_world(postgres, namespace, alive)) == 1


def test_a_node_process_whose_supervisor_is_killed_leaves(node, postgres, namespace):
    serving = node(FENCEPOST_LEASE="60s")
    child = serving.ready()

    serving.process.kill()
    gone, _ = psutil.wait_procs([child], timeout=10)

    assert gone == [child]
    assert in_world(postgres, namespace, alive) == frozenset()


def test_all_nodes_run_with_the_hash_seed_of_the_namespace(node, postgres, namespace):
    child = node().ready()

    facts = in_world(postgres, namespace, lambda world: world.facts())

    assert child.environ()["PYTHONHASHSEED"] == str(facts.hash_seed)


def test_a_node_for_steps_only_takes_no_partitions_and_knows_no_workflow(node, run):
    ready = node("--steps-only", "--queues", "default,gpu").wait_for("ready")
    node(FENCEPOST_QUEUES="other").ready()

    done = run("start", "twice", "-i", "21", "--wait", "--timeout", "30s")

    assert (ready["workflows"], ready["queues"]) == ([], ["default", "gpu"])
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_database_that_goes_and_comes_back_is_waited_for(folder, nats, postgres_made, tmp_path):
    own = PostgresServer(made_postgres.copied(postgres_made, tmp_path / "own"))
    asyncio.run(own.start())
    try:
        asyncio.run(migrate(own.url, "away"))
        around = {"FENCEPOST_DATABASE_URL": own.url, "FENCEPOST_NAMESPACE": "away", "FENCEPOST_LEASE": "2s"}
        with NodeProcess(folder, nats.url, **around) as serving:
            serving.ready()

            asyncio.run(own.kill())
            serving.wait_for("the lease cannot be renewed now")
            asyncio.run(own.start())
            done = fencepost(
                "start", "twice", "-i", "21", "--wait", folder=folder, FENCEPOST_NATS_URL=nats.url, **around
            )

            assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
            assert serving.end(signal.SIGTERM) == 0
    finally:
        asyncio.run(own.kill())


# ---- what it needs


def test_a_database_without_the_schema_names_the_command(folder, nats, postgres):
    done = fencepost(
        "node", "app.py", folder=folder, FENCEPOST_NATS_URL=nats.url, FENCEPOST_DATABASE_URL=postgres.url,
        FENCEPOST_NAMESPACE="nowhere",
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "holds no fencepost_nowhere: run `fencepost migrate`" in done.stderr


def test_what_cannot_be_reached_is_named_without_its_password(folder, around):
    port = free_port()
    database = f"postgres://user:secret@127.0.0.1:{port}/db"

    no_database = fencepost("node", "app.py", folder=folder, **{**around, "FENCEPOST_DATABASE_URL": database})
    no_nats = fencepost("node", "app.py", folder=folder, **{**around, "FENCEPOST_NATS_URL": f"nats://127.0.0.1:{port}"})

    assert (no_database.returncode, no_nats.returncode) == (3, 3)
    assert f"127.0.0.1:{port}" in no_database.stderr
    assert f"127.0.0.1:{port}" in no_nats.stderr
    assert "secret" not in no_database.stderr
    assert "Traceback" not in no_database.stderr + no_nats.stderr


def test_it_waits_for_what_is_not_there_yet_if_asked_to(node, tmp_path):
    port = free_port()
    waiting = node("--wait", FENCEPOST_NATS_URL=f"nats://127.0.0.1:{port}")
    waiting.wait_for("another one starts")

    async def until_ready():
        async with NatsServer(tmp_path / "nats", port=port):
            return await asyncio.to_thread(waiting.wait_for, "ready")

    assert asyncio.run(until_ready())["url"] == f"nats://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("code", "says"),
    [("import nothing_of_that_name", "ModuleNotFoundError"), ("x = 1", "no workflow"), ("def (", "invalid syntax")],
)
def test_code_that_does_not_load_is_one_sentence_and_no_loop(folder, around, code, says):
    (folder / "app.py").write_text(f"import fencepost\n{code}\n")

    done = fencepost("node", "app.py", folder=folder, **around)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_code_that_ends_the_process_when_it_is_imported_is_tried_three_times(folder, around):
    (folder / "app.py").write_text("import os\nos._exit(7)\n")

    done = fencepost("node", "app.py", folder=folder, **around)

    assert done.returncode == 1
    assert "ended with code 7 3 times in a row before it served" in done.stderr


def test_a_node_is_not_for_the_bus_inside_a_process(folder, around):
    done = fencepost("node", "app.py", folder=folder, **around, FENCEPOST_BUS="inprocess")

    assert (done.returncode, done.stderr) == (
        2,
        "fencepost: fencepost node is reached over NATS: leave FENCEPOST_BUS as it is\n",
    )


def test_what_code_prints_does_not_mix_with_json(folder, node):
    (folder / "app.py").write_text(APP + "\nprint('by the code')\n")
    serving = node()
    serving.ready()

    assert serving.told("by the code") != []
