"""`fencepost dev --stack` with real processes: Postgres beside nats-server, both from their wheels."""

import json
import re
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from tests import made_postgres
from tests.e2e.command import KEEPS_FACTS, Dev, fencepost, target, ten_lines

pytestmark = pytest.mark.timeout(120)
ORDERS = Path(__file__).parents[2] / "examples" / "orders"


def facts_of(folder):
    return json.loads((folder / "facts.json").read_text())


def statuses(facts):
    return {run["id"]: run["status"] for run in facts["runs"]}


def process_of(dev, name):
    (found,) = [one["pid"] for one in dev.file["processes"] if one["name"] == name]
    return psutil.Process(found)


def made(folder, seconds):
    """Make a shop whose runs take so long."""
    target(folder, workflow="slow", lines=ten_lines(s=seconds), dev='summary = "summary.py"')
    (folder / "summary.py").write_text(KEEPS_FACTS)
    return folder


@pytest.fixture
def quick(tmp_path):
    return made(tmp_path / "shop", seconds=0.01)


@pytest.fixture
def shop(tmp_path, postgres_made):
    """Has a Postgres that was never used, and runs that are still there when something dies."""
    folder = made(tmp_path / "shop", seconds=2)
    made_postgres.copied(postgres_made, folder / ".fencepost" / "postgres")
    return folder


def test_once_gives_what_it_gives_without_the_stack(quick):
    with_stack = fencepost("dev", "shop", "--once", "--stack", folder=quick.parent)
    theirs = facts_of(quick)
    without = fencepost("dev", "shop", "--once", folder=quick.parent)
    ours = facts_of(quick)

    assert (with_stack.returncode, without.returncode) == (0, 0), with_stack.stderr + without.stderr
    assert statuses(theirs) == statuses(ours) == {f"order-{n}": "completed" for n in range(10)}
    assert (quick / ".fencepost" / "postgres" / "data").is_dir()
    assert not (quick / ".fencepost" / "dev.json").exists()


def test_the_data_is_kept_feeding_again_starts_nothing_twice_and_a_lost_note_of_the_seed_is_made_again(
    quick, postgres_made
):
    made_postgres.copied(postgres_made, quick / ".fencepost" / "postgres")
    fencepost("dev", "shop", "--once", "--stack", folder=quick.parent)
    note = quick / ".fencepost" / "postgres" / "hash_seed"
    seed = note.read_text()
    note.unlink()

    again = fencepost("dev", "shop", "--once", "--stack", folder=quick.parent, PYTHONHASHSEED="7")

    assert again.returncode == 0, again.stderr
    assert (facts_of(quick)["repeated"], len(facts_of(quick)["runs"])) == (10, 10)
    assert note.read_text() == seed


def test_after_a_kill_9_of_dev_the_next_start_goes_on_at_once(shop):
    with Dev(shop, "--stack", "--once") as first:
        first.wait_for("fed")
        left = [psutil.Process(one["pid"]) for one in first.file["processes"]]
        joined = first.file["incarnation"]
        first.stop(signal.SIGKILL)

    with Dev(shop, "--stack", "--once") as second:
        note = second.wait_for("note", "left behind")
        ready = second.wait_for("ready")
        code = second.end()

    assert code == 0
    assert "nats-server" in note["text"]
    assert "postgres" in note["text"]
    assert ready["node"] != joined
    assert psutil.wait_procs(left, timeout=5)[1] == []
    assert {run["status"] for run in facts_of(shop)["runs"]} == {"completed"}


def test_a_postgres_that_dies_is_started_again_and_runs_go_on(shop):
    with Dev(shop, "--stack", "--once") as dev:
        dev.wait_for("fed")
        port = dev.file["database_port"]
        process_of(dev, "postgres").kill()

        dev.wait_for("note", "Postgres had stopped and runs again")
        assert dev.file["database_port"] == port
        code = dev.end()

    assert code == 0, (shop / "dev.err").read_text()
    assert {run["status"] for run in facts_of(shop)["runs"]} == {"completed"}


def test_doctor_finds_the_postgres_of_dev_and_a_signal_stops_everything(shop):
    with Dev(shop, "--stack") as dev:
        dev.wait_for("ready")
        started = [psutil.Process(one["pid"]) for one in dev.file["processes"]]
        done = fencepost("doctor", "--json", folder=shop)

        code = dev.stop(signal.SIGTERM)

    checks = {check["what"]: check for check in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stdout
    assert re.search(r"postgres:…@127.0.0.1:\d+/postgres, schema \d+, 32 partitions", checks["postgres"]["found"])
    assert checks["postgres clock"]["state"] == "ok"
    assert code == 0
    assert {process.is_running() for process in started} == {False}
    assert len(started) == 2


def test_data_that_is_removed_under_dev_ends_it_with_a_sentence(shop):
    with Dev(shop, "--stack") as dev:
        dev.wait_for("ready")
        (shop / ".fencepost" / "postgres" / "data").rename(shop / "gone")

        code = dev.end()

    assert code == 1
    assert "was removed or replaced under the running dev" in (shop / "dev.err").read_text()


def test_without_the_extra_one_sentence_names_it(tmp_path, monkeypatch, capsys):
    from fencepost.cli.entry import run  # noqa: PLC0415  (in this process, to hide the wheel from it)

    folder = target(tmp_path / "shop")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("_FENCEPOST_SEEDED", "0")
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)

    code = run(["dev", str(folder), "--stack"])

    assert code == 1
    assert 'Postgres is not installed: `pip install "fencepost[stack]"`' in capsys.readouterr().err
    assert not (folder / ".fencepost").exists()


def test_the_orders_end_as_they_do_without_the_stack(tmp_path, postgres_made):
    folder = tmp_path / "orders"
    shutil.copytree(ORDERS, folder, ignore=shutil.ignore_patterns(".fencepost", "__pycache__"))
    made_postgres.copied(postgres_made, folder / ".fencepost" / "postgres")

    done = fencepost("dev", "orders", "--stack", "--once", folder=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
