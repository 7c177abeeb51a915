"""`fencepost dev` with real processes: feeding, crashes, leftovers, ports, signals."""

import json
import re
import shutil
import signal
import socket

import psutil
import pytest

from tests.e2e.command import KEEPS_FACTS, Dev, fencepost, free_port, target, ten_lines

pytestmark = pytest.mark.timeout(60)


def facts_of(folder):
    return json.loads((folder / "facts.json").read_text())


@pytest.fixture
def summary(tmp_path):
    folder = target(
        tmp_path / "shop", dev='summary = "summary.py"', lines=[*ten_lines(), '{"id": "order-10"', '"no id"']
    )
    (folder / "summary.py").write_text(KEEPS_FACTS)
    return folder


def test_once_feeds_every_line_waits_for_its_run_and_ends_with_the_summary(summary):
    done = fencepost("dev", "shop", "--once", "--port", free_port(), folder=summary.parent)

    assert done.returncode == 0, done.stderr
    facts = facts_of(summary)
    assert (facts["fed"], facts["repeated"]) == (12, 0)
    assert {run["id"]: run["status"] for run in facts["runs"]} == {f"order-{n}": "completed" for n in range(10)}
    assert [refused["line"] for refused in facts["refused"]] == [11, 12]
    assert sorted(letter["body"] for letter in facts["dead"]) == ['"no id"', '{"id": "order-10"']
    assert not (summary / ".fencepost" / "dev.json").exists()

    # Feeding the same file again starts and buries nothing twice.
    again = fencepost("dev", "shop", "--once", folder=summary.parent)

    facts = facts_of(summary)
    assert again.returncode == 0
    assert (facts["fed"], facts["repeated"], len(facts["runs"]), len(facts["dead"])) == (12, 10, 10, 2)


def test_without_a_summary_program_once_says_what_became_of_the_lines_and_fails_with_them(tmp_path):
    folder = target(
        tmp_path / "shop", lines=['{"id": "a", "n": 1}', '{"id": "b", "n": -1}', '{"id": "a", "n": 2}', '{"id": "c"']
    )

    done = fencepost("dev", folder, "--once", folder=tmp_path)

    assert done.returncode == 1
    assert "4 lines fed, 0 of them known already, 2 refused" in done.stdout
    assert "b: FatalError: below zero" in done.stdout
    assert "line 3: id 'a' belongs to" in done.stdout
    assert "line 4: it is no JSON" in done.stdout


def test_after_a_kill_9_the_next_start_stops_what_was_left_and_every_run_ends(tmp_path):
    folder = target(
        tmp_path / "shop",
        workflow="slow",
        lines=ten_lines(s=2),
        dev='run = ["python program.py"]\nsummary = "summary.py"',
    )
    (folder / "program.py").write_text("import time\ntime.sleep(600)\n")
    (folder / "summary.py").write_text(KEEPS_FACTS)
    with Dev(folder, "--once") as first:
        first.wait_for("fed")
        left = [psutil.Process(one["pid"]) for one in first.file["processes"]]
        first.stop(signal.SIGKILL)
    assert [process.is_running() for process in left] == [True, True]

    with Dev(folder, "--once") as second:
        note = second.wait_for("note", "left behind")
        code = second.end()

    assert "nats-server" in note["text"]
    assert "program" in note["text"]
    assert code == 0
    assert psutil.wait_procs(left, timeout=5)[1] == []
    assert {run["status"] for run in facts_of(folder)["runs"]} == {"completed"}
    assert facts_of(folder)["repeated"] == 10


def test_a_stranger_who_got_a_noted_pid_is_left_alone_and_numbers_that_can_be_none_of_ours_are_passed_over(tmp_path):
    folder = target(tmp_path / "shop", lines=ten_lines())
    (folder / ".fencepost").mkdir()
    me = {"name": "program", "pid": psutil.Process().pid, "created": 1.0}
    nobody = {"name": "p", "pid": -1, "created": 0.0}
    noted = {"url": "nats://h:99999999", "namespace": "x", "target": "", "state": "", "monitoring": "", "node": None}
    (folder / ".fencepost" / "dev.json").write_text(json.dumps({**noted, "processes": [me, nobody]}))

    done = fencepost("dev", folder, "--once", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "left behind" not in done.stderr


def test_a_taken_port_is_avoided_unless_it_was_asked_for(tmp_path):
    folder = target(tmp_path / "shop", lines=ten_lines())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        asked = fencepost("dev", folder, "--once", "--port", port, folder=tmp_path)
        (folder / ".fencepost" / "dev.json").write_text(
            json.dumps(
                {
                    "url": f"nats://127.0.0.1:{port}",
                    "namespace": "default",
                    "target": "",
                    "state": "",
                    "monitoring": "",
                    "node": None,
                    "processes": [],
                }
            )
        )
        free = fencepost("dev", folder, "--once", folder=tmp_path)

    assert asked.returncode == 1
    assert asked.stderr.strip() == (
        f"fencepost: port {port} is taken by another program: give another one, or stop that program"
    )
    assert free.returncode == 0, free.stderr


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_everything(tmp_path, how, code):
    folder = target(tmp_path / "shop", dev='run = ["python program.py"]')
    (folder / "program.py").write_text("import time\ntime.sleep(600)\n")
    with Dev(folder) as dev:
        dev.wait_for("serving")
        started = [psutil.Process(one["pid"]) for one in dev.file["processes"]]

        stopped = dev.stop(how)

    assert stopped == code
    assert [process.is_running() for process in started] == [False, False]
    assert not (folder / ".fencepost" / "dev.json").exists()


def test_a_state_folder_that_is_removed_under_dev_ends_it_with_a_sentence(tmp_path):
    folder = target(tmp_path / "shop")
    with Dev(folder) as dev:
        dev.wait_for("serving")
        shutil.rmtree(folder / ".fencepost")

        code = dev.end()

    assert code == 1
    assert "was removed or replaced under the running dev" in (folder / "dev.err").read_text()


def test_a_nats_server_that_dies_with_its_store_is_started_again_and_runs_go_on(tmp_path):
    folder = target(tmp_path / "shop")
    with Dev(folder) as dev:
        url = dev.wait_for("ready")["url"]
        dev.wait_for("serving")
        psutil.Process(dev.file["processes"][0]["pid"]).kill()
        shutil.rmtree(folder / ".fencepost" / "nats" / "store")

        dev.wait_for("note", "runs again")
        done = fencepost("start", "twice", "-i", '{"n": 21}', "--wait", folder=folder)

        assert dev.file["url"] == url
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_store_of_nats_server_that_is_spoilt_is_set_aside(tmp_path):
    folder = target(tmp_path / "shop", lines=ten_lines())
    fencepost("dev", folder, "--once", folder=tmp_path)
    store = folder / ".fencepost" / "nats" / "store"
    next(store.glob("jetstream/*/streams/FP_default_START/meta.inf")).unlink()

    done = fencepost("dev", folder, "--once", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert f"moved to {store}-spoilt" in done.stderr


def test_a_program_that_dies_is_reported_and_started_again_and_one_that_finishes_is_not(tmp_path):
    folder = target(tmp_path / "shop", dev='run = ["python program.py"]')
    (folder / "program.py").write_text(
        "import pathlib\nagain = pathlib.Path('again')\nprint('no luck')\n"
        "code = 0 if again.exists() else 3\nagain.touch()\nraise SystemExit(code)\n"
    )

    with Dev(folder) as dev:
        died = dev.wait_for("note", "ended with code 3")
        dev.wait_for("note", "program has finished")

    assert died["text"].endswith("again in 0.2 s: no luck")
    assert (folder / ".fencepost" / "program.log").read_text() == "no luck\nno luck\n"


def test_lines_feed_a_workflow_of_several_parameters(tmp_path):
    app = "from fencepost import workflow\n\n@workflow\nasync def both(id: str, n: int) -> int:\n    return n\n"
    folder = target(tmp_path / "shop", app=app, workflow="both", lines=['{"id": "a", "n": 1}', '{"id": "b"}'])

    done = fencepost("dev", folder, "--once", folder=tmp_path)

    assert done.returncode == 1
    assert re.search(r"completed +1\n", done.stdout), done.stdout
    assert "line 2: both needs the parameter 'n'" in done.stdout


def test_what_goes_wrong_in_hundreds_of_runs_is_a_few_lines_and_a_count(tmp_path):
    folder = target(tmp_path / "shop", lines=[f'{{"id": "o-{n}", "n": -1}}' for n in range(200)])

    with Dev(folder) as dev:
        dev.wait_for("fed")
        dev.wait_for("serving")
        error = (folder / "dev.err").read_text()
        while "more failed runs" not in error:  # told a second after the first
            error = (folder / "dev.err").read_text()

    events = [json.loads(line)["event"] for line in error.splitlines()]
    assert "run failed" in events
    assert events.count("run failed") < 60


def test_a_stalled_run_ends_the_waiting_with_its_reason(tmp_path):
    folder = target(tmp_path / "shop", workflow="stuck", lines=['{"id": "a"}'])

    done = fencepost("dev", folder, "--once", folder=tmp_path)

    assert done.returncode == 1
    assert "run a is stalled: " in done.stderr


def test_all_starts_of_a_world_have_the_hash_seed_of_the_first(tmp_path):
    body = "@workflow\nasync def seeded(order: dict) -> int:\n    return hash(order['id'])\n"
    app = f"from fencepost import workflow\n\n{body}"
    folder = target(tmp_path / "shop", app=app, workflow="seeded", lines=['{"id": "a"}'])
    hashes = []
    for number in range(2):
        with Dev(folder) as dev:
            dev.wait_for("serving")
            given = json.dumps({"id": "order"})
            hashes.append(fencepost("start", "seeded", "-i", given, "--id", number, "--wait", folder=folder).stdout)

    assert hashes[0].strip().lstrip("-").isdecimal()
    assert hashes[0] == hashes[1]
