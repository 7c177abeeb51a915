"""Histories by the command: exported from a node that runs, replayed and looked at without one."""

import asyncio
import json
import os
import pty
import subprocess
from dataclasses import dataclass

import pytest

from fencepost import Client
from fencepost.cli import entry
from tests.e2e.command import FENCEPOST, Dev, environment, fencepost, target

pytestmark = pytest.mark.timeout(60)

APP = """
import asyncio
from fencepost import hook, step, workflow

@step
async def double(text: str) -> str:
    return 2 * text

@step
async def other(text: str) -> str:
    return text

@workflow
async def large(text: str) -> int:
    return len(await double(text))

@workflow
async def many(n: int) -> int:
    for _ in range(n):
        await asyncio.gather(*(double("a") for _ in range(50)))
    return n

@workflow
async def waits(order: str) -> str:
    got = await double(order)
    return got + await hook("go", str)
"""
LARGE = 700_000
"""Over half of what one answer may hold."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dev in which a run with large values, a long one and one that waits have been started."""
    folder = target(tmp_path_factory.mktemp("histories") / "shop", app=APP)
    (folder / "large.json").write_text(json.dumps("x" * LARGE))
    with Dev(folder) as dev:
        dev.wait_for("serving")
        for name, *given in (("waits", "-i", '"secret"'), ("large", "-i", "@large.json"), ("many", "-i", "4")):
            done = fencepost("start", name, *given, "--id", name, *(["--wait"] * (name != "waits")), folder=folder)
            assert done.returncode == 0, done.stderr
        (folder / "kept").mkdir()
        for name in ("waits", "large", "many"):
            done = fencepost("runs", "export", name, "--out", f"kept/{name}.json", folder=folder)
            assert done.returncode == 0, done.stderr
        yield folder, dev


@pytest.fixture
def run(place):
    return lambda *words, **more: fencepost(*words, folder=place[0], **more)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def here(place, monkeypatch, capsys):
    """Run a command that loads no code of users in this process: that is quicker."""
    monkeypatch.chdir(place[0])
    for name in [name for name in os.environ if name.startswith("FENCEPOST_")]:
        monkeypatch.delenv(name)

    def run(*words):
        code = entry.run([*words])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def changed(place):
    """The same program with another step in one workflow, and without another workflow."""
    folder = place[0].parent / "changed"
    text = APP.replace("got = await double(order)", "got = await other(order)").replace("def many", "def few")
    return target(folder, app=text)


def documents(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_export_is_one_document_with_every_event_and_large_values_in_place(place, here):
    to_stdout = here("runs", "export", "large")
    kept = place[0] / "kept/large.json"

    document = json.loads(kept.read_bytes())
    created, *_, completed = document["events"]
    [returned] = [e["body"]["result"]["json"] for e in document["events"] if e["body"]["type"] == "step_completed"]
    assert json.loads(to_stdout.out) == document
    assert [e["seq"] for e in document["events"]] == [*range(1, document["run"]["events"] + 1)]
    assert created["body"]["input"]["json"] == {"text": "x" * LARGE}
    assert returned == "x" * 2 * LARGE
    assert completed["body"]["result"]["json"] == 2 * LARGE
    assert kept.stat().st_mode & 0o077 == 0


def test_the_seed_goes_out_with_an_export_and_no_other_way(place, here):
    [seed] = [e["body"]["seed"] for e in json.loads((place[0] / "kept/waits.json").read_text())["events"][:1]]

    shown = [here("runs", *words, "waits", "--json").out for words in (("events",), ("show",))]
    shown.append(here("runs", "show", "waits", "--timeline", "--payloads", "--json").out)

    assert len(seed) == 32
    assert all("waits" in text and seed not in text for text in shown)
    assert [seed in str(page) for page in asyncio.run(pages(place[1].file["url"]))] == [False, True]


async def pages(url):
    """Ask for a history as it comes, and with its seed."""
    async with Client.connect(url) as client:
        return [await client._asking.ask("history", dict, id="waits", **more) for more in ({}, {"seed": True})]


def test_histories_replay_against_the_code_that_wrote_them(run):
    kept = run("replay", ".", "kept", "--json", "--hash-seed", "7")
    fetched = run("replay", "app.py", "--runs", "9", "--run", "waits")

    assert (kept.returncode, {d["id"]: d["state"] for d in documents(kept)}) == (
        0,
        dict.fromkeys(("waits", "large", "many"), "same"),
    )
    assert (fetched.returncode, fetched.stdout.count("same ")) == (0, 4), fetched.stderr
    assert "4 histories: 4 same" in fetched.stderr


def test_a_changed_program_is_told_from_the_one_that_wrote_the_log(run, changed):
    done = run("replay", changed, "kept", "--json")
    people = run("replay", changed, "kept/waits.json")

    by_id = {d["id"]: d for d in documents(done)}
    assert done.returncode == people.returncode == 1
    assert by_id["large"]["state"] == "same"
    assert (by_id["many"]["state"], by_id["many"]["message"]) == (
        "unknown",
        "the target has no workflow 'many', it has few, large, waits",
    )
    assert (by_id["waits"]["event"], by_id["waits"]["log"], by_id["waits"]["code"]) == (
        3,
        "step 'double'",
        "step 'other'",
    )
    assert by_id["waits"]["site"] == f"{changed}/app.py:25"
    assert "the log has: step 'double', at 0.0" in people.stdout


def test_a_timeline_is_the_same_from_a_node_and_from_a_file(here):
    from_node = here("runs", "show", "waits", "--timeline")
    from_file = here("runs", "show", "--file", "kept/waits.json", "--timeline")

    assert from_file.out == from_node.out
    assert "hook go made" in from_file.out
    assert "secret" not in from_file.out
    assert "secret" in here("runs", "show", "waits", "--timeline", "--payloads").out


def test_a_run_is_shown_from_its_file(here):
    done = here("runs", "show", "--file", "kept/many.json", "--json")
    waits = here("runs", "show", "--file", "kept/waits.json")

    shown = json.loads(done.out)
    assert (shown["status"], shown["result"], shown["workflow"]) == ("completed", 4, "many")
    assert "hook" in waits.out


def test_a_timeline_is_drawn_on_a_terminal(place):
    screen, other = pty.openpty()

    subprocess.run(
        [FENCEPOST, "runs", "show", "--file", "kept/waits.json", "--timeline"],
        cwd=place[0],
        env=environment(COLUMNS="100", NO_COLOR="1", TERM="dumb"),
        stdout=other,
        check=True,
        timeout=30,
    )
    os.close(other)
    shown = os.read(screen, 65536).decode()
    os.close(screen)

    assert "───" in shown
    assert "step double attempt 1 completed" in shown


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("replay", "."), 2, "there is nothing to replay: give history files or folders, --run ID or --runs N"),
        (("replay", "nowhere", "kept"), 2, "there is no file, folder or module 'nowhere'"),
        (("runs", "export", "nobody"), 1, "there is no run 'nobody'"),
        (("runs", "export", "waits", "-o", "no/where.json"), 2, "no/where.json cannot be written: No such file"),
        (("runs", "export", "waits", "-o", "kept"), 2, "kept cannot be written: it is no file"),
        (("runs", "show"), 2, "give either the ID of a run or --file HISTORY"),
        (("runs", "show", "waits", "--payloads"), 2, "--payloads goes with --timeline"),
        (("runs", "show", "--file", "app.py"), 2, "app.py is no JSON, or was cut off"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(here, words, code, says):
    done = here(*words)

    assert (done.code, done.err.count("\n")) == (code, 1), done.err
    assert says in done.err


def test_what_cannot_be_read_is_told_and_is_a_wrong_usage(run):
    done = run("replay", ".", "absent.json", "--run", "nobody")

    assert (done.returncode, done.stderr) == (2, "2 histories: 2 cannot be read\n")
    assert "absent.json cannot be read: No such file or directory" in done.stdout
    assert "there is no run 'nobody'" in done.stdout
