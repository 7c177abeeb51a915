"""The commands that talk to a node: what they print, and their exit codes."""

import json
import signal

import pytest

from tests.e2e.command import Dev, fencepost, target, ten_lines

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = target(
        tmp_path_factory.mktemp("commands") / "shop", lines=[*ten_lines(), '{"id": "bad", "n": -1}', "garbage"]
    )
    with Dev(folder) as dev:
        dev.wait_for("serving")
        yield folder
        assert dev.stop(signal.SIGTERM) == 0


@pytest.fixture
def run(shop):
    return lambda *words, **more: fencepost(*words, folder=shop, **more)


def documents(done):
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def test_a_second_dev_on_the_same_state_is_refused_by_name(shop, run):
    node = json.loads((shop / ".fencepost" / "dev.json").read_text())["node"]

    done = run("dev", ".")

    assert done.returncode == 1
    assert f"already running here as pid {node['pid']}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_start_answers_when_the_run_is_durable_and_once_per_id(run):
    first = run("start", "twice", "--input", '{"n": 4}', "--id", "four", "--json")
    again = run("start", "twice", "--input", '{"n": 4}', "--id", "four", "--json")
    other = run("start", "twice", "--input", '{"n": 5}', "--id", "four")

    [started], [found] = documents(first), documents(again)
    assert (first.returncode, started["id"], started["existing"]) == (0, "four", False)
    assert (again.returncode, found["run_id"], found["existing"]) == (0, started["run_id"], True)
    assert other.returncode == 1
    assert "fencepost: id 'four' belongs to" in other.stderr


def test_start_waits_for_the_result_and_fails_with_the_run(shop, run):
    (shop / "one.json").write_text('\ufeff{"id": 7, "n": 8}')
    good = run("start", "twice", "--input", "@one.json", "--id", "one-{id}", "--wait")
    bad = run("start", "twice", "--input", '{"n": -8}', "--wait", "--json")

    assert (good.returncode, good.stdout) == (0, "16\n")
    assert "one-7" in good.stderr
    assert bad.returncode == 1
    assert documents(bad)[0]["error"] == "FatalError: below zero"


def test_start_takes_lines_and_reports_each_bad_one_with_its_number(run):
    good = '{"id": "x-1", "n": 1}\n\n{"id": "x\u2028-3", "n": 3}\r\n'
    lines = good + '{"id": "x-2", "n":\n{"n": 3}\n{"id": "x-4", "n": 4}'

    done = run("start", "twice", "--input", "-", "--id", "{id}", "--attribute", "from=test", given=lines)
    listed = run("runs", "ls", "--attribute", "from=test", "--json")

    assert done.returncode == 1
    assert done.stdout == "5 lines: 3 started, 0 there already, 2 refused\n"
    assert "line 4: it is no JSON" in done.stderr
    assert "line 5: it has no field 'id'" in done.stderr
    assert {found["id"] for found in documents(listed)} == {"x-1", "x\u2028-3", "x-4"}


def test_start_of_lines_waits_for_all_of_them(shop, run):
    (shop / "many.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(50)))

    done = run("start", "twice", "--input", "@many.jsonl", "--wait")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "50 completed\n50 lines: 50 started, 0 there already, 0 refused\n"


def test_a_name_that_no_node_knows_is_said_and_waits(run):
    done = run("start", "twcie", "--input", '{"n": 1}', "--id", "misspelt")
    shown = run("runs", "show", "misspelt", "--json")

    assert done.returncode == 0
    assert "knows no workflow 'twcie': did you mean 'twice'?" in done.stderr
    assert documents(shown)[0]["status"] == "pending"


def test_runs_are_listed_shown_and_their_logs_printed(run):
    plain = run("runs", "ls", "--status", "failed", "--workflow", "twice", "--limit", "100")
    shown = run("runs", "show", "bad")
    events = run("runs", "events", "order-1", "--json", "--after", "1")

    titles, *rows = plain.stdout.splitlines()
    assert titles.split() == ["ID", "WORKFLOW", "STATUS", "EVENTS", "CREATED", "NEXT"]
    assert "bad" in [row.split()[0] for row in rows]
    assert "FatalError: below zero" in shown.stdout
    assert [event["type"] for event in documents(events)][::4] == ["run_started", "run_completed"]
    assert run("runs", "show", "nobody").returncode == 1


def test_a_run_is_cancelled_and_its_log_followed_to_the_end(run):
    run("start", "slow", "--input", '{"n": 1, "s": 600}', "--id", "long")

    cancelled = run("runs", "cancel", "long", "nobody", "--reason", "enough")
    followed = run("runs", "events", "long", "--follow")
    ended = run("runs", "terminate", "long", "--json")

    assert cancelled.returncode == 1
    assert cancelled.stdout == "long: asked to stop\n"
    assert "there is no run 'nobody'" in cancelled.stderr
    assert "run_cancelled" in followed.stdout.splitlines()[-1]
    assert documents(ended)[0] | {"run_id": ""} == {"id": "long", "run_id": "", "changed": False, "status": "cancelled"}


def test_a_stalled_run_is_found_resumed_and_ends_the_waiting(run):
    waited = run("start", "stuck", "--input", "{}", "--id", "stuck-1", "--wait")
    resumed = run("runs", "resume", "stuck-1")

    assert waited.returncode == 1
    assert "run stuck-1 is stalled: " in waited.stderr
    assert resumed.stdout == "stuck-1: goes on\n"


def test_dead_letters_are_listed_shown_and_replayed(run):
    [letter] = documents(run("dead", "ls", "--json"))
    shown = run("dead", "show", letter["id"])
    replayed = run("dead", "replay", letter["id"])

    assert letter["reason"].startswith("in.jsonl line 12: it is no JSON")
    assert shown.stdout.endswith("\ngarbage\n")
    assert replayed.returncode == 1
    assert "not JSON" in replayed.stderr
    assert run("dead", "show", "nobody").returncode == 1


def test_doctor_looks_at_everything_and_changes_nothing(run):
    done = run("doctor", "--json")

    states = {check["what"]: check["state"] for check in documents(done)}
    assert done.returncode == 0
    assert set(states.values()) == {"ok", "warn"}
    assert {"dev", "server", "jetstream", "node", "clock", "stream FP_default_START"} <= set(states)


def test_the_dev_of_a_folder_is_found_from_below_above_and_by_name(shop, tmp_path):
    below = shop / "deep" / "er"
    below.mkdir(parents=True)

    found = [
        fencepost("runs", "ls", "--json", folder=below),
        fencepost("runs", "ls", "--json", folder=shop.parent),
        fencepost("runs", "ls", "--json", "--dir", shop, folder=tmp_path),
    ]

    assert [done.returncode for done in found] == [0, 0, 0]
    assert fencepost("runs", "ls", "--dir", tmp_path, folder=tmp_path).returncode == 3
