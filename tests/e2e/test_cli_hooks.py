"""`fencepost resume`: payloads from the command line, and what `runs show` tells of hooks."""

import io
import json
import signal
import sys

import pytest

from fencepost.cli.entry import run as command
from tests.e2e.command import Dev, target

pytestmark = pytest.mark.timeout(60)

APP = """
from pydantic import BaseModel

from fencepost import hook, workflow

class Approval(BaseModel):
    ok: bool
    by: str = ""

@workflow
async def asks(token: str) -> str:
    return (await hook(token, Approval)).by

@workflow
async def counts(token: str) -> list:
    box = hook(token)
    return [await box, await box, await box, await box]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = target(tmp_path_factory.mktemp("hooks"), app=APP)
    with Dev(folder) as dev:
        dev.wait_for("serving")
        yield folder
        dev.stop(signal.SIGTERM)


@pytest.fixture
def run(place, monkeypatch, capsys):
    """Run a command in this process, which starts none anew; return its exit code and what it said where."""
    monkeypatch.chdir(place)

    def run(*words):
        code = command(words)
        return code, *capsys.readouterr()

    return run


def started(run, workflow, token):
    code, _, said = run("start", workflow, "--input", json.dumps(token), "--id", token)
    assert code == 0, said
    return token


def test_payloads_come_from_the_line_a_file_stdin_or_are_null(run, place, monkeypatch):
    token = started(run, "counts", "box/1")
    (place / "payload.json").write_text('\ufeff{"from": "file"}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"stdin"\n')))

    _, told, _ = run("resume", token, "--payload", "[1]", "--wait", "20s", "--delivery", "d1")
    _, again, _ = run("resume", token, "--payload", "[1]", "--delivery", "d1", "--json")
    run("resume", token, "--payload", "@payload.json")
    _, shown, _ = run("runs", "show", token)
    run("resume", token, "--payload", "-")
    last = run("resume", token)

    document = json.loads(again)
    assert told == f"box/1: put ({document['id']}), run {document['run_id']}\n"
    assert (document["repeated"], document["delivery"]) == (True, "d1")
    assert "waits for:   hook box/1 (0.0): open since" in shown
    assert "2 came, " in shown
    assert last[0] == 0
    events = [json.loads(line) for line in run("runs", "events", token, "--json", "--follow")[1].splitlines()]
    (result,) = [event["data"]["result"]["json"] for event in events if event["type"] == "run_completed"]
    assert result == [[1], {"from": "file"}, "stdin", None]


def test_what_is_refused_is_one_sentence_with_the_exit_code_of_its_kind(run):
    token = started(run, "asks", "approve:1")
    answers = [
        run("resume", token, "--payload", "{}", "--wait", "20"),
        run("resume", "nobody", "--payload", "1"),
        run("resume", "", "--payload", "1"),
        run("resume", token, "--delivery", "a\tb"),
        run("resume", token, "--payload", "yes"),
        run("resume", token, "--payload", "@nowhere.json"),
        run("resume", token, "--wait", "soon"),
    ]

    assert [(code, told) for code, told, _ in answers] == [(1, "")] * 4 + [(2, "")] * 3
    said = [sentence.strip() for _, _, sentence in answers]
    assert "the payload does not fit: field 'ok': Field required" in said[0]
    assert "no hook 'nobody' is open: it was not made yet, was disposed, or its run has ended" in said[1]
    assert "the token of a hook is empty: give 1 to 255 characters" in said[2]
    assert "the id of a delivery 'a\\tb' holds a character that cannot be shown" in said[3]
    assert "--payload is no JSON" in said[4]
    assert "a text needs quotes of its own" in said[4]
    assert "--payload nowhere.json: No such file" in said[5]
    assert "--wait 'soon'" in said[6]
    assert all("\n" not in sentence for sentence in said)
