"""What the pages tell people to do, done: whole programs are run, the quickstart from its first line to its last."""

import asyncio
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from tests.e2e.command import Dev, environment, fencepost, free_port

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "docs/quickstart.md"
REAL_STACK = "\n## The real stack"
"""Where `test_docs_stack.py` goes on."""
WRITTEN_URL = "nats://127.0.0.1:4222"
PATIENCE_S = 60
NOT_HERE = ("python3 -m venv", "pip install")
"""Commands of the quickstart that the tests of the wheel stand for."""

pytestmark = pytest.mark.timeout(120)


def blocks(page: Path, language: str) -> list[str]:
    return blocks_in(page.read_text(encoding="utf-8"), language)


def blocks_in(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_in(text: str) -> list[str]:
    return [line for block in blocks_in(text, "console") for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE)]


def whole_programs():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(blocks(page, "python")):
            if block.startswith("# runs\n"):
                yield pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")


def python(folder: Path, *words: str) -> str:
    """Run Python in a folder, with warnings as errors, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("block", [*whole_programs()])
def test_a_program_in_a_page_runs_as_it_stands(tmp_path, block):
    (tmp_path / "page.py").write_text(block, encoding="utf-8")

    python(tmp_path, "page.py")


def test_the_readmes_program_is_an_app_that_can_be_run(tmp_path):
    (program,) = blocks(ROOT / "README.md", "python")
    (tmp_path / "app.py").write_text(program, encoding="utf-8")

    assert python(tmp_path, "-c", "import app; print(*app.app.workflows)") == "checkout\n"


def test_the_order_to_start_by_hand_fits_and_is_not_in_the_file():
    orders = ROOT / "examples/orders"
    one_more = json.loads((orders / "one_more.json").read_text())
    known = (orders / "orders.jsonl").read_text(encoding="utf-8", errors="replace")

    order = runpy.run_path(str(orders / "app.py"))["Order"].model_validate(one_more)

    assert order.total == sum(line.quantity * line.unit_price for line in order.lines)
    assert [name for name in (order.id, "order-9002", "order-9003") if name in known] == []


# ---- the quickstart


@pytest.fixture
def project(tmp_path):
    """The quickstart's files, each under the name in its first line."""
    for block in blocks(QUICKSTART, "python"):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name, f"no file name in the first line of: {block[:60]}"
        (tmp_path / name[1]).write_text(block, encoding="utf-8")
    return tmp_path


class Terminal:
    """Where the quickstart's commands are typed, beside the one where `dev` runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        self.dev = None
        self.answers: list[str] = []

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        if self.dev:
            self.dev.__exit__(*problem)

    @property
    def url(self) -> str:
        return self.dev.file["url"]

    def type(self, line: str) -> None:
        program, *words = shlex.split(line)
        match program, words:
            case "fencepost", ["dev"]:
                self.dev = Dev(self.folder, "--port", self.port)
                self.dev.wait_for("serving")
            case "fencepost", _:
                done = fencepost(*words, folder=self.folder)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            case "nats", _:
                self.answers.append(asyncio.run(self.send(*words)))
            case "kill", ["-9", "PID"]:
                os.kill(self.dev.process.pid, 9)
                self.dev.end()
                self.dev.__exit__()
            case _:
                raise AssertionError(f"the quickstart says what this test cannot do: {line}")

    async def send(self, dash_s: str, url: str, verb: str, *words: str) -> str:
        """Do what the nats command does: `-s URL req|pub [-H NAME:VALUE] SUBJECT BODY`."""
        assert (dash_s, url) == ("-s", WRITTEN_URL)
        *given, subject, body = words
        headers = dict([given[1].split(":", 1)]) if given else None
        connection = await nats.connect(self.url)
        try:
            if verb == "req":
                return (await connection.request(subject, body.encode(), timeout=10, headers=headers)).data.decode()
            await connection.publish(subject, body.encode(), headers=headers)
            await connection.flush()
            return ""
        finally:
            await connection.close()

    def events(self, run: str) -> list[dict]:
        said = fencepost("runs", "events", run, "--follow", "--json", folder=self.folder)
        return [json.loads(line) for line in said.stdout.splitlines()]


def test_the_quickstart_does_what_it_says(project):
    lines = commands_in(QUICKSTART.read_text(encoding="utf-8").partition(REAL_STACK)[0])
    client = (project / "start_one.py").read_text()

    with Terminal(project) as terminal:
        for line in lines:
            if not line.startswith(NOT_HERE):
                terminal.type(line)
        (project / "start_one.py").write_text(client.replace(WRITTEN_URL, terminal.url))
        printed = python(project, "start_one.py")
        ends = {f"order-{n}": terminal.events(f"order-{n}") for n in range(1, 9)}

    assert printed.startswith("['receipt run_")
    kinds = {id_: [event["type"] for event in log] for id_, log in ends.items()}
    assert {id_: kind[-1] for id_, kind in kinds.items()} == {
        id_: "run_failed" if id_ == "order-2" else "run_completed" for id_ in ends
    }
    assert kinds["order-8"].count("step_completed") == 2
    asked, published, stored, named = terminal.answers
    assert json.loads(asked)["id"] == "order-4"
    assert json.loads(asked)["existing"] is False
    assert json.loads(stored)["stream"] == "FP_default_START"
    assert published == named == ""


def test_the_quickstarts_node_in_a_program_goes_on_from_its_file(project):
    first = python(project, "embedded.py")

    again = python(project, "embedded.py")

    assert first.startswith("['receipt run_")
    assert again == first


def test_the_quickstarts_tests_pass(project):
    python(project, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "test_checkout.py")
