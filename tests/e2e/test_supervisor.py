"""`fencepost node` under kills, stops and code that blocks: real processes over a file and a real nats-server."""

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import psutil
import pytest

from fencepost.bus import NatsServer
from tests.e2e.command import fencepost
from tests.e2e.node_process import APP, NodeProcess

pytestmark = pytest.mark.timeout(90)
POLL_S = 0.02
LOOP_DEAD = {"FENCEPOST_LOOP_DEAD_AFTER": "3s"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def namespace(folder):
    return {"FENCEPOST_NAMESPACE": f"t{abs(hash(folder)) % 10**9}"}


@pytest.fixture
def node(folder, nats, namespace):
    """Starts nodes that the test's end stops."""
    with contextlib.ExitStack() as stack:
        yield lambda *words, **more: stack.enter_context(NodeProcess(folder, nats.url, *words, **namespace, **more))


@pytest.fixture
def run(folder, nats, namespace):
    """Runs a command of a client to its end."""
    return lambda *words: fencepost(*words, folder=folder, FENCEPOST_NATS_URL=nats.url, **namespace)


def begun(run, folder, name, seconds):
    """Start a run and return when the body of its step has begun."""
    started = run("start", "marked", "--id", name, "--arg", f"name={name}", "--arg", f"seconds={seconds}")
    assert started.returncode == 0, started.stderr
    until_written(folder / name)


def until_written(path: Path) -> None:
    while not path.exists() or not path.read_text():
        time.sleep(POLL_S)  # real time: another process writes it


def test_a_node_serves_and_a_signal_lets_its_steps_end(node, run, folder):
    serving = node(FENCEPOST_GRACE="20s")
    ready = serving.wait_for("ready")
    begun(run, folder, "a", 1)

    code = serving.end(signal.SIGTERM)

    assert code == 0
    assert (folder / "a").read_text() == "began\nended\n"
    assert (ready["workflows"], ready["queues"]) == (
        ["chews", "keeps_the_gil", "marked", "spins", "twice"],
        ["default"],
    )
    assert not psutil.pid_exists(ready["pid"])


def test_the_least_rights_in_nats_are_enough_for_a_node_and_a_command(folder, tmp_path_factory):
    rights = Path(__file__).parents[2] / "deploy" / "nats" / "permissions.conf"
    server = NatsServer(tmp_path_factory.mktemp("nats"), config=rights.read_text())
    asyncio.run(server.start())
    as_node = server.url.replace("nats://", "nats://node:n@")
    as_client = server.url.replace("nats://", "nats://client:c@")

    with NodeProcess(folder, as_node, FENCEPOST_NATS_INBOX_PREFIX="_INBOX_node") as serving:
        serving.ready()
        inbox = {"FENCEPOST_NATS_URL": as_client, "FENCEPOST_NATS_INBOX_PREFIX": "_INBOX_client"}
        done = fencepost("start", "twice", "-i", "21", "--wait", folder=folder, **inbox)
    asyncio.run(server.kill())

    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_second_signal_ends_it_now(node, run, folder):
    serving = node(FENCEPOST_GRACE="60s")
    child = serving.ready()
    begun(run, folder, "a", 50)

    serving.process.send_signal(signal.SIGINT)
    serving.wait_for("stopping")
    code = serving.end(signal.SIGINT)

    assert code == 130
    assert not child.is_running()
    assert (folder / "a").read_text() == "began\n"


def test_a_node_process_that_is_killed_is_followed_by_another_that_goes_on(node, run, folder):
    serving = node()
    child = serving.ready()
    begun(run, folder, "a", 1)

    child.kill()
    died = serving.wait_for("died, another one starts")
    serving.ready()
    done = run("start", "twice", "-i", "21", "--wait")
    ended = run("start", "marked", "--id", "a", "--arg", "name=a", "--arg", "seconds=1", "--wait")

    assert died["how"] == "was ended by SIGKILL"
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert ended.returncode == 0, ended.stderr
    assert (folder / "a").read_text() == "began\nbegan\nended\n"


def test_what_an_isolated_step_still_does_ends_before_another_node_does_it_again(node, run, folder):
    serving = node()
    child = serving.ready()
    assert run("start", "chews", "--id", "a", "--arg", "name=a").returncode == 0
    until_written(folder / "a")
    body = psutil.Process(int((folder / "a").read_text()))

    child.kill()
    serving.ready()

    assert not body.is_running()


def test_one_that_stands_by_takes_over(node):
    serving = node(FENCEPOST_STANDBY="true")
    child = serving.ready()
    parent = psutil.Process(serving.process.pid)
    while len(parent.children()) < 2:
        time.sleep(POLL_S)  # real time: another process starts it
    (spare,) = [one for one in parent.children() if one.pid != child.pid]

    child.kill()

    assert serving.ready().pid == spare.pid


def test_a_node_process_ends_when_its_supervisor_is_killed_and_the_next_node_goes_on(node, run, folder):
    first = node()
    child = first.ready()
    begun(run, folder, "a", 1)

    first.process.kill()
    gone, _ = psutil.wait_procs([child], timeout=10)
    node().ready()
    ended = run("start", "marked", "--id", "a", "--arg", "name=a", "--arg", "seconds=1", "--wait")

    assert gone == [child]
    assert ended.returncode == 0, ended.stderr


def test_a_node_process_that_is_asked_to_end_by_somebody_else_drains_and_is_followed(node, run, folder):
    serving = node(FENCEPOST_GRACE="20s")
    child = serving.ready()
    begun(run, folder, "a", 1)

    child.terminate()
    serving.wait_for("has ended, another one starts")
    serving.ready()

    assert (folder / "a").read_text() == "began\nended\n"


def test_a_node_process_that_stands_still_is_killed_and_followed(node, run):
    serving = node(**LOOP_DEAD)
    child = serving.ready()

    child.suspend()
    told = serving.wait_for("gave no sign")
    serving.ready()
    done = run("start", "twice", "-i", "21", "--wait")

    assert told["run"] is None
    assert not child.is_running()
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_run_that_keeps_the_gil_twice_is_stalled_and_the_others_go_on(node, run):
    serving = node(**LOOP_DEAD)
    serving.ready()
    run("start", "keeps_the_gil", "--id", "blocks")

    first = serving.wait_for("gave no sign")
    second = serving.wait_for("gave no sign")
    stalled = serving.wait_for("run stalled")
    serving.ready()
    done = run("start", "twice", "-i", "21", "--wait")
    shown = run("runs", "show", "blocks").stdout

    assert first["run"] == second["run"] == stalled["run"]
    assert "keeps_the_gil" in first["stack"]
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "its code blocked a node for 3 s twice in a row at " in shown
    assert "move what blocks into a @step" in shown


def test_a_turn_that_blocks_in_python_is_stopped_without_the_process(node, run):
    serving = node(FENCEPOST_LOOP_DEAD_AFTER="8s")
    child = serving.ready()

    ended = run("start", "spins", "--wait")

    assert ended.returncode == 1
    assert child.is_running()
    assert serving.end(signal.SIGTERM) == 0
    assert serving.told("gave no sign") == []
