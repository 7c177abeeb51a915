"""The harness itself: links break as they say, judges see what is wrong, nothing that was started survives."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import msgspec
import psutil
import pytest

from fencepost.actors.failures import describe
from fencepost.world import events as ev
from tests.chaos import judges
from tests.chaos.delays import Delay, Faults, delays
from tests.chaos.judges import Finished
from tests.chaos.nodes import Node
from tests.chaos.processes import MARK, marked, marking
from tests.chaos.proxies import Proxy
from tests.chaos.stack import LEASE_S

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
VALUE = ev.Value(json=msgspec.Raw(b"{}"))
ERROR = describe(ValueError("no"))


def at(seconds):
    return BEGIN + timedelta(seconds=seconds)


def finished(*entries):
    """Return a run with events at these seconds."""
    log = [ev.Event(seq, seq, at(seconds), body) for seq, (seconds, body) in enumerate(entries, 1)]
    row = {"run_id": "run_1", "seq": len(log), "status": "running", "tick": len(log), "ended_at": None}
    return Finished(row, log)


def started(seconds, dispatch=1, token="t1", incarnation="inc_1"):
    return seconds, ev.StepStarted(op="1", attempt=1, token=token, incarnation=incarnation, dispatch=dispatch)


def lost(seconds):
    return seconds, ev.StepRetrying(op="1", attempt=1, delay_s=0.0, error=ERROR, lost=1)


def completed(seconds, token="t1"):
    return seconds, ev.StepCompleted(op="1", attempt=1, token=token, result=VALUE)


CREATED = (0, ev.RunCreated(workflow="checkout", input=VALUE, seed="s"))
RUNS = (0, ev.RunStarted())
STEP = (0, ev.StepCreated(op="1", name="charge", args=VALUE))


# ---- delays


def pauses(run, **faults):
    return [round(delay.seconds, 3) for delay in delays("run_1", run.log, Faults(**faults))]


def test_a_pause_counts_from_the_fault():
    run = finished(CREATED, (7, ev.RunStarted()))

    assert pauses(run) == [7.0]
    assert pauses(run, done=[(at(5), "killed")]) == [2.0]


def test_time_in_which_nobody_could_go_on_is_no_pause():
    run = finished(CREATED, (7, ev.RunStarted()))

    assert pauses(run, away=[(at(-1), at(2)), (at(4), at(5))]) == [4.0]


def test_a_lost_step_waits_from_the_fault_that_killed_it():
    run = finished(CREATED, RUNS, STEP, started(0), lost(9))

    assert pauses(run, done=[(at(1), "killed"), (at(6), "killed"), (at(10), "killed")]) == [3.0]


def test_a_timer_is_waited_for_when_it_is_due():
    run = finished(CREATED, RUNS, (0, ev.WaitCreated(op="1", delay_s=3)), (5, ev.WaitCompleted(op="1")))

    assert pauses(run) == [2.0]


def test_the_longest_pause_is_the_greatest():
    assert max(Delay(2.0, "b", BEGIN, ""), Delay(10.0, "a", BEGIN, "")).seconds == 10.0


# ---- judges


@pytest.mark.parametrize(
    ("run", "left", "says"),
    [
        (finished(CREATED, STEP, started(1), completed(5)), at(3), "step_completed at 4 is inc_1's, who had left"),
        (finished(CREATED, STEP, started(5)), at(3), "step_started at 3 is inc_1's, who had left"),
        (finished(CREATED, STEP, started(1), lost(2)), None, "1 is called lost at 4, before inc_1 had left"),
        (finished(CREATED, STEP, started(1), lost(2)), at(9), "1 is called lost at 4, before inc_1 had left"),
    ],
)
def test_what_the_dead_write_is_found(run, left, says):
    assert list(judges.the_dead_write_nothing([run], {"inc_1": left})) == [f"run_1: {says}"]


def test_what_the_living_write_is_fine():
    runs = [finished(CREATED, STEP, started(1), completed(2)), finished(CREATED, STEP, started(1), lost(9))]

    assert list(judges.the_dead_write_nothing(runs[:1], {"inc_1": None})) == []
    assert list(judges.the_dead_write_nothing(runs[1:], {"inc_1": at(8)})) == []


def test_a_body_that_began_without_a_start_is_found():
    run = finished(CREATED, RUNS, STEP, started(1))
    ledger = {"charges": [{"key": "run_1:1", "asked": 2}], "shipments": [], "notifications": []}

    assert list(judges.bodies_began_under_their_starts([run], ledger)) == [
        "charges run_1:1: asked 2 times, started 1 times"
    ]


def test_a_log_that_breaks_a_law_is_found():
    run = finished(CREATED, RUNS, STEP, completed(1))

    assert list(judges.logs_keep_the_laws([run])) == [
        "run_1: outcomes_hold_the_latest_claim: step_completed 1 at 4 comes under a claim that is over"
    ]


def test_a_row_that_says_something_else_than_its_log_is_found():
    run = finished(CREATED, RUNS)
    run.row["seq"] = 3

    assert list(judges.rows_say_what_logs_say([run])) == ["run_1: its row says 3 running, its log 2 running"]


def test_errors_and_tracebacks_of_nodes_are_found(tmp_path):
    log = tmp_path / "n1.log"
    log.write_text(
        '{"level": "error", "event": "it blocks its node"}\n{"level": "error", "event": "a bug"}\n'
        '{"level": "warning", "event": "odd", "trace": "Traceback (most recent call last)"}\n'
        "Task exception was never retrieved\n"
    )

    found = list(judges.nodes_said_nothing_odd([Node("n1", log, {})], ("it blocks",)))

    assert [what[:17] for what in found] == ["node n1 said {'le"] * 2 + ["node n1 said {'ev"]


def test_a_deadlock_in_postgres_is_found():
    assert list(judges.postgres_said_nothing_odd("LOG:  fine\nERROR:  deadlock detected\n")) == [
        "Postgres said ERROR:  deadlock detected"
    ]


# ---- links


@pytest.fixture
async def link():
    """A proxy to a server that says everything again."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)

    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()


async def connected(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"a")
    assert await reader.read(1) == b"a"
    return reader, writer


async def test_a_cut_link_resets_old_and_new_connections(link):
    reader, _ = await connected(link)

    link.turn("cut")

    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    with pytest.raises((ConnectionResetError, AssertionError)):
        await connected(link)


async def test_a_held_link_delivers_when_it_is_healed(link):
    reader, writer = await connected(link)

    link.turn("hold")
    writer.write(b"b")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    link.turn("flow")

    assert await reader.read(1) == b"b"
    writer.close()


async def test_a_link_that_swallowed_resets_when_it_is_healed(link):
    reader, writer = await connected(link)

    link.turn("swallow")
    writer.write(b"b")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    link.turn("flow")

    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    _, writer = await connected(link)
    writer.close()


# ---- processes


def test_what_carries_the_mark_is_ended_even_when_it_is_stopped_and_nobodys_child():
    waits = "import signal; signal.pause()"
    forks = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{waits}'], start_new_session=True)"

    with marking("harness-test"):
        subprocess.run([sys.executable, "-c", forks], check=True, stdin=subprocess.PIPE)
        (orphan,) = [one for one in marked("harness-test") if one.environ()[MARK] == "harness-test"]
        orphan.suspend()

    assert not psutil.pid_exists(orphan.pid) or orphan.status() == psutil.STATUS_ZOMBIE


def test_leases_are_longer_than_the_clocks_of_a_judge_are_wrong():
    assert judges.CLOCKS_S < LEASE_S
