"""Cold replay of stored logs: the same, or where and how the code of now differs from what was written."""

# workflow time: no real time passes in this file

import asyncio
import inspect
import re
from datetime import timedelta

import pytest

from fencepost.actors.author import sleep
from fencepost.actors.define import step, workflow
from fencepost.actors.errors import StepFailed
from fencepost.actors.hooks import hook
from fencepost.actors.replaying import replayed, surely_decided
from fencepost.world import events as ev
from tests.actors.tape import BEGINNING, Tape, value

ERROR = ev.ErrorData(type="builtins:ValueError", message="no")


@step
async def charge(n: int) -> int:
    return n


@step
async def refund(n: int) -> int:
    return n


@workflow(name="pay")
async def pay(n: int) -> dict:
    got = await charge(n)
    await sleep("1h")
    return {"got": [got]}


def paid():
    tape = Tape(pay, 1)
    tape.step("charge", 7)
    tape.fire()
    assert tape.turn.ended is not None
    return tape


def judged(code, tape, **more):
    return replayed(code, "run_test", tape.log, **more)


def at(*bodies, tick=None):
    """Return events: `tick` is one for all, or a list."""
    ticks = tick if isinstance(tick, list) else [tick] * len(bodies)
    times = (BEGINNING + timedelta(seconds=n) for n in range(len(bodies)))
    return [ev.Event(n, t, when, body) for n, (t, when, body) in enumerate(zip(ticks, times, bodies, strict=True), 1)]


# ---- the same


def test_a_finished_log_and_one_that_lives_replay():
    finished, lives = paid(), Tape(pay, 1)
    lives.step("charge", 7)

    assert judged(pay, finished).state == "same"
    assert judged(pay, lives, decided=len(lives.log)).state == "same"


def test_arguments_and_lines_and_texts_of_errors_where_objects_lie_may_change():
    @workflow(name="pay")
    async def fails(n: int) -> None:
        await charge(n)
        raise ValueError(str(object()))

    @workflow(name="pay")
    async def fails_elsewhere(n: int) -> None:
        await charge(n + 1)
        raise ValueError(str(object()))

    tape = Tape(fails, 1)
    tape.step("charge")

    assert judged(fails_elsewhere, tape).state == "same"


def test_a_log_with_a_hook_replays():
    @workflow
    async def waits() -> int:
        async with hook("go", int) as go:
            return await go + await charge(1)

    tape = Tape(waits)
    tape.payload("go", 4)
    tape.step("charge", 3)

    assert tape.result == 7
    assert judged(waits, tape).state == "same"


def test_nothing_is_said_twice(capsys):
    @workflow
    async def talks() -> None:
        print("once")  # noqa: T201
        await sleep("1h")

    tape = Tape(talks)

    assert judged(talks, tape, decided=0).state == "same"
    assert capsys.readouterr().out == "once\n"


# ---- where it differs


def test_another_operation_is_told_with_its_event_both_sides_and_the_line():
    @workflow(name="pay")
    async def pays_back(n: int) -> dict:
        return {"got": [await refund(n)]}

    found = judged(pays_back, paid())

    line = inspect.getsourcelines(pays_back.fn)[1] + 2
    assert (found.state, found.event, found.op) == ("diverged", 3, "0.0")
    assert (found.log, found.code) == ("step 'charge'", "step 'refund'")
    assert found.site == f"{__file__}:{line}"
    assert "the log has step 'charge', the code now asks for step 'refund'" in found.why


def test_an_operation_that_is_no_more_is_told_with_what_the_code_does_instead():
    @workflow(name="pay")
    async def hasty(n: int) -> dict:
        return {"got": [await charge(n)]}

    found = judged(hasty, paid())

    assert (found.event, found.log) == (5, "a timer")
    assert found.code == "nothing there: it ended as completed"


def test_a_new_operation_beside_the_old_ones_is_told():
    @workflow(name="pay")
    async def one(n: int) -> None:
        await asyncio.gather(charge(n))
        await sleep("1h")

    @workflow(name="pay")
    async def two(n: int) -> None:
        await asyncio.gather(charge(n), refund(n))
        await sleep("1h")

    tape = Tape(one, 1)
    found = judged(two, tape, decided=len(tape.log))

    assert (found.state, found.event, found.log) == ("diverged", 1, "nothing")
    assert (found.op, found.code) == ("0.1.0", "step 'refund'")


def test_a_line_is_one_of_the_workflow_and_not_of_who_replays_it():
    @workflow(name="pay")
    async def bare_task(n: int) -> dict:
        return {"got": [await asyncio.create_task(refund(n))]}

    @workflow(name="pay")
    async def task(n: int) -> dict:
        return {"got": [await asyncio.create_task(charge(n))]}

    tape = Tape(task, 1)
    found = judged(bare_task, tape, decided=0)

    line = inspect.getsourcelines(bare_task.fn)[1] + 2
    assert found.state == "diverged"
    assert re.findall(r"\.py:(\d+)", f"{found.site} {found.why}") == [str(line)] * 2


def test_another_result_is_told_by_where_it_differs_and_not_by_what_it_is():
    @workflow(name="pay")
    async def more(n: int) -> dict:
        got = await charge(n)
        await sleep("1h")
        return {"got": [got + 4711]}

    found = judged(more, paid())

    assert (found.event, found.log) == (7, "the run completed")
    assert found.code == "it ends as completed with another result, at $.got[0]"
    assert "4718" not in str(found)


def test_code_that_goes_on_where_the_run_ended_is_told():
    @workflow(name="pay")
    async def longer(n: int) -> dict:
        got = await charge(n)
        await sleep("1h")
        await refund(n)
        return {"got": [got]}

    found = judged(longer, paid())

    assert (found.state, found.code) == ("diverged", "it goes on, with step 'refund'")
    assert found.site.startswith(__file__)


def test_a_failure_in_place_of_a_result_is_told():
    @workflow(name="pay")
    async def fails(n: int) -> dict:
        await charge(n)
        await sleep("1h")
        raise ValueError("no")

    assert judged(fails, paid()).code == "it ends as failed (user_error: ValueError)"


def test_code_that_cannot_go_on_is_stuck():
    @workflow(name="pay")
    async def waits_for_nothing(n: int) -> dict:
        await charge(n)
        await asyncio.Event().wait()

    found = judged(waits_for_nothing, paid())

    assert (found.state, found.event) == ("stuck", 4)
    assert "waits for nothing" in found.why


# ---- ends that are not the code's


@pytest.mark.parametrize("end", [ev.RunTerminated(), ev.RunFailed(code="timeout", error=ERROR)])
def test_a_judgement_is_not_compared_with_what_the_code_would_have_done(end):
    tape = Tape(pay, 1)
    log = [*tape.log, ev.Event(len(tape.log) + 1, None, tape.at, end)]

    assert replayed(pay, "run_test", log).state == "same"


def test_a_run_that_was_cancelled_before_it_began_replays():
    log = [*Tape(pay, 1).log[:1], *at(None, ev.CancelRequested(), ev.RunCancelled(), tick=[None, None, 1])[1:]]

    assert replayed(pay, "run_test", log).state == "same"


def test_a_step_that_fails_is_rebuilt():
    @workflow
    async def catches() -> str:
        try:
            return str(await charge(1))
        except StepFailed as error:
            return str(error)

    tape = Tape(catches)
    tape.together(ev.StepFailed(op="0.0", attempt=1, code="user_error", error=ERROR))

    assert judged(catches, tape).state == "same"


# ---- how far a log has decided


CREATED = ev.RunCreated(workflow="pay", input=value(1), seed="s")
STARTED, STEP, DONE = (
    ev.RunStarted(),
    ev.StepCreated(op="0.0", name="a", args=value(1)),
    ev.RunCompleted(result=value(1)),
)
RESULT = ev.StepCompleted(op="0.0", attempt=1, token="t", result=value(1))


@pytest.mark.parametrize(
    ("bodies", "ticks", "decided"),
    [
        ([CREATED], [None], 0),
        ([CREATED, STARTED, STEP], [None, 1, 1], 1),
        ([CREATED, STARTED, STEP, RESULT, STEP], [None, 1, 1, 2, 3], 4),
        ([CREATED, STARTED, STEP, RESULT, DONE], [None, 1, 1, 2, 3], 3),
        ([CREATED, STARTED, STEP, RESULT, STEP], [None, 1, 1, None, 2], 3),  # it may not have been read
        ([CREATED, STARTED, STEP, RESULT, STEP, STEP], [None, 1, 1, None, 2, 3], 5),
        ([CREATED, STARTED, STEP, ev.HookConflict(op="0.1", token="a", owner="b")], [None, 1, 1, 2], 1),
    ],
)
def test_a_log_tells_how_far_its_batches_have_surely_decided(bodies, ticks, decided):
    assert surely_decided(at(*bodies, tick=ticks)) == decided
