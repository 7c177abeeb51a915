"""What people who try the command first meet: several parameters, tracebacks, waiting, misspelt names, refusals."""

import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from tests.e2e.command import FENCEPOST, Dev, environment, fencepost, target

pytestmark = pytest.mark.timeout(60)

APP = """
from fencepost import FatalError, Retry, sleep, step, workflow

class Odd:
    pass

@step
async def odd() -> Odd: ...

@step(retry=Retry(times=4, first="10ms", factor=1))
async def charge(n: int) -> int:
    try:
        {}["card"]
    except KeyError as error:
        raise RuntimeError("provider down") from error

@step(retry=Retry(times=9, first="1h", max="2h"))
async def later(n: int) -> int:
    raise RuntimeError("not yet")

@workflow
async def fan(n: int, name: str = "none") -> str:
    return f"{n} {name}"

@workflow
async def pay(n: int) -> int:
    return await charge(n)

@workflow
async def waits(n: int) -> int:
    return await later(n)

@workflow
async def naps(order: dict) -> None:
    await sleep("1h")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dev whose state is elsewhere."""
    folder = target(tmp_path_factory.mktemp("people") / "shop", app=APP)
    state = folder.parent / "elsewhere"
    with Dev(folder, "--state", str(state)) as dev:
        hint = dev.wait_for("serving")
        yield folder, state, hint, dev
        dev.stop(signal.SIGTERM)


@pytest.fixture
def run(place):
    folder, state, *_ = place
    return lambda *words, **more: fencepost(*words, "--dir", state, folder=folder.parent, **more)


def documents(done):
    return [json.loads(line) for line in done.stdout.split("\n") if line]


# ---- several parameters


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (["-i", '{"n": 3}'], '"3 none"\n'),
        (["-i", '{"n": 3, "name": "x"}'], '"3 x"\n'),
        (["-i", '{"kwargs": {"n": 3, "name": "x"}}'], '"3 x"\n'),
        (["--arg", "n=3", "--arg", "name=x"], '"3 x"\n'),
        (["--arg", "n=3", "--arg", 'name="4"'], '"3 4"\n'),
    ],
)
def test_a_workflow_of_several_parameters_takes_them_by_name(run, given, result):
    done = run("start", "fan", *given, "--wait")

    assert (done.returncode, done.stdout) == (0, result), done.stderr


def test_every_line_may_give_several_parameters(run):
    done = run("start", "fan", "-i", "-", "--wait", given='{"n": 1}\n{"kwargs": {"n": 2}}\n{"n": 3, "name": "x"}\n')

    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "3 completed"), done.stderr


def test_the_one_parameter_of_a_workflow_is_the_input_whatever_its_keys_are(run):
    odd = '{"kwargs": {"order": 1}}'

    done = run("start", "naps", "-i", odd, "--id", "kwargs-inside")
    events = run("runs", "events", "kwargs-inside", "--json")

    assert done.returncode == 0
    assert documents(events)[0]["data"]["input"]["json"] == {"order": json.loads(odd)}


def test_what_does_not_fit_several_parameters_is_told_by_name(run):
    no_object = run("start", "fan", "-i", "3")
    unknown = run("start", "fan", "-i", '{"m": 3}')

    assert (no_object.returncode, unknown.returncode) == (1, 1)
    assert "with n, name" in no_object.stderr
    assert "fan has no parameter 'm'" in unknown.stderr


# ---- why it failed, and what it waits for


def test_a_failure_is_shown_with_its_frames_and_causes_when_asked_for(run):
    waited = run("start", "pay", "-i", "1", "--id", "pay-1", "--wait", "-v")
    brief = run("runs", "show", "pay-1")
    shown = run("runs", "show", "pay-1", "-v")
    data = run("runs", "show", "pay-1", "-v", "--json")

    assert "RuntimeError: provider down" in brief.stdout
    assert "File" not in brief.stdout
    for text in (waited.stderr, shown.stdout, documents(data)[0]["traceback"]):
        assert re.search(r'app.py", line \d+, in pay', text)
        assert re.search(r"in step charge, attempt \d+: RuntimeError: provider down", text)
        assert re.search(r"caused by KeyError: 'card'\n +File .*in charge", text)


def test_what_a_run_waits_for_is_shown(run):
    run("start", "naps", "-i", "{}", "--id", "naps-1")
    run("start", "waits", "-i", "1", "--id", "waits-1", "--timeout", "1")

    timer, step = run("runs", "show", "naps-1"), run("runs", "show", "waits-1")
    [data] = documents(run("runs", "show", "waits-1", "--json"))

    assert re.search(r"waits for: +a timer \(.*\), due in 59m", timer.stdout)
    assert re.search(r"waits for: +step later \(.*\): waiting to be tried again in ", step.stdout)
    assert (data["steps"][0]["name"], data["timers"]) == ("later", [])


def test_a_wait_ends_with_its_timeout_and_says_how_far_the_run_is(run):
    done = run("start", "naps", "-i", "{}", "--id", "naps-2", "--timeout", "500ms")
    wrong = run("start", "naps", "-i", "{}", "--timeout", "soon")

    assert done.returncode == 1
    assert "run naps-2 is running: the time to wait is over, the run goes on" in done.stderr
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_misspelt_workflow_is_not_waited_for(run):
    began_s = time.monotonic()
    done = run("start", "nasp", "-i", "{}", "--wait")

    assert done.returncode == 1
    assert time.monotonic() - began_s < 20
    assert "knows no workflow 'nasp': did you mean 'naps'?" in done.stderr
    assert "is pending" in done.stderr


# ---- refusals


def test_refused_lines_are_told_in_their_order(run):
    lines = [f'{{"n": "no {number}"}}' if number % 3 else "no json" for number in range(1, 31)]

    done = run("start", "fan", "-i", "-", given="\n".join(lines))

    told = [int(number) for number in re.findall(r"line (\d+):", done.stderr)]
    assert told == list(range(1, 31))


def test_a_refused_letter_an_empty_stdin_and_an_id_that_cannot_be_shown_are_named(run):
    letters = run("dead", "replay", "one", "two")
    nothing = run("start", "fan", "-i", "-", given="")
    control = run("start", "fan", "-i", '{"n": 1}', "--id", "a\tb")

    assert [line.split()[1] for line in letters.stderr.splitlines()] == ["one:", "two:"]
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert control.returncode == 1
    assert "the id 'a\\tb' holds a control character" in control.stderr


# ---- dev


def test_the_hint_of_a_dev_whose_state_is_elsewhere_finds_it(place):
    folder, state, hint, _ = place
    text = (folder / "dev.err").read_text()

    words = ["start", "fan", "--url", hint["url"], "--arg", "n=1", "--json"]
    started = fencepost(*words, folder=folder.parent)

    assert started.returncode == 0, started.stderr
    assert "Traceback" not in text
    assert json.loads((state / "dev.json").read_text())["url"] == hint["url"]


@pytest.fixture
def spoken(tmp_path):
    """A dev that speaks to people, with its hint of how to start a run."""
    folder = target(tmp_path / "shop", app=APP)
    words = [FENCEPOST, "dev", str(folder), "--state", str(tmp_path / "state")]
    with (
        (tmp_path / "err").open("wb") as errors,
        subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True) as dev,
    ):
        try:
            yield dev, next((line for line in dev.stdout if "fencepost start" in line), "")
        finally:
            dev.send_signal(signal.SIGTERM)
            dev.stdout.read()


def test_hints_that_cannot_be_used_and_what_fails_are_told_by_dev(spoken, tmp_path):
    _, hint = spoken
    words = hint.replace(" n=JSON", " n=1").replace("ID", "one").split()[1:]

    done = fencepost(*words, folder=tmp_path)
    failed = fencepost("start", "pay", "-i", "1", "--wait", *words[2:4], folder=tmp_path)

    told = (tmp_path / "err").read_text()
    assert (done.returncode, failed.returncode) == (0, 1), done.stderr
    assert "--url nats://" in hint
    assert re.search(r"^the type hint of odd\(\) result cannot be used, .*Odd", told, re.MULTILINE)
    assert re.search(r"step tried again .*attempt=3", told)
    assert not re.search(r"attempt=2\b", told)
    assert re.search(r"run failed .*provider down", told)
    assert "{" not in told


@pytest.mark.parametrize("name", ["/nonexist", "no/where.py", "nowhere", "app.py"])
def test_a_target_that_cannot_run_leaves_no_folder(tmp_path, name):
    (tmp_path / "app.py").write_text("import nothing_of_that_name")

    done = fencepost("dev", name, folder=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]


def test_a_list_fits_a_terminal_of_80_columns_with_ids_that_can_be_copied(run, place):
    folder, state, *_ = place
    run("start", "fan", "-i", '{"n": 1}', "--id", "an-id-that-is-much-longer-than-any-list-could-show-in-a-column")
    run("start", "naps", "-i", "{}", "--id", "k" * 30)
    screen, other = pty.openpty()

    done = subprocess.run(
        [FENCEPOST, "runs", "ls", "--limit", "2", "--dir", str(state)],
        cwd=folder,
        env=environment(COLUMNS="80", NO_COLOR="1", TERM="dumb"),
        stdout=other,
        check=True,
        timeout=30,
    )
    os.close(other)
    shown = os.read(screen, 65536).decode()
    os.close(screen)

    assert done.returncode == 0
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "k" * 30 in shown
    assert re.search(r"an-id-that-is-mu.*… *", shown)
    assert "completed" in shown
