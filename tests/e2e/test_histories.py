"""Histories as documents, as timelines and in users' tests: without a server."""

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest

from fencepost import histories, timelines
from fencepost.actors import step, workflow
from fencepost.errors import LoadError
from fencepost.histories import History, RunOfHistory
from fencepost.testing import assert_replays
from fencepost.world import events as ev
from tests.actors.tape import BEGINNING, Tape, value


@step
async def charge(n: int) -> int:
    return n


@workflow(name="pay")
async def pay(n: int) -> int:
    return await charge(n)


def history_of(log, **more):
    fields = {"run_id": "run_test", "id": "order-1", "workflow": "pay", "status": "completed", "events": len(log)}
    return History(RunOfHistory(created_at=BEGINNING, last_at=BEGINNING, **{**fields, **more}), list(log))


def paid(result=10**30):
    tape = Tape(pay, 1)
    tape.step("charge", 0)
    tape.turn.evict()
    log = [*tape.log]
    log[-2] = ev.Event(4, 2, log[-2].at, ev.StepCompleted(op="0.0", attempt=1, token="t", result=raw(result)))
    log[-1] = ev.Event(5, 3, log[-1].at, ev.RunCompleted(result=raw(result)))
    return history_of(log)


def raw(number):
    return ev.Value(json=msgspec.Raw(str(number).encode()))


def lines(*bodies):
    """Return a log: each body with its tick, a second apart."""
    return [
        ev.Event(seq, tick, BEGINNING + timedelta(seconds=seq - 1), body) for seq, (tick, body) in enumerate(bodies, 1)
    ]


# ---- the document


def test_a_history_comes_back_as_it_was_with_every_digit_of_a_number():
    history = paid()

    data = histories.dumped(history)
    again = histories.parsed(data, "x")

    assert again.run == history.run
    assert [ev.encode_body(e.body) for e in again.events] == [ev.encode_body(e.body) for e in history.events]
    assert b"1000000000000000000000000000000" in data
    assert json.loads(data)["fencepost_history"] == 1
    assert len(data.splitlines()) == 4 + len(history.events)


def changed(change):
    document = json.loads(histories.dumped(paid(7)))
    change(document)
    return json.dumps(document).encode()


WRONG = {
    "is no JSON, or was cut off": histories.dumped(paid())[:-9],
    "is no history: `fencepost runs export`": b'{"fencepost_history": "1"}',
    "of a newer version (format 2, this one reads 1)": changed(lambda d: d.update(fencepost_history=2)),
    "there is a gap, event 3 is missing": changed(lambda d: d["events"].pop(2)),
    "event 3 comes twice": changed(lambda d: d["events"].insert(3, d["events"][2])),
    "it was cut off: it has 3 of 5 events": changed(lambda d: d.update(events=d["events"][:3])),
    "does not begin with run_created": changed(lambda d: d.update(events=[])),
    "event 3 creates the run once more": changed(lambda d: d["events"][2].update(body=d["events"][0]["body"])),
    "it goes on after its end at 4": changed(lambda d: d["events"][3].update(body=d["events"][4]["body"])),
    "its event 4 is of the unknown type 'step_levitated'": changed(
        lambda d: d["events"][3]["body"].update(type="step_levitated")
    ),
    "its event 4 does not fit its type 'step_completed'": changed(lambda d: d["events"][3]["body"].pop("attempt")),
    "the large value of event 4 is not in it": changed(lambda d: d["events"][3]["body"].update(result={"ref": "a"})),
    "Expected `datetime`": changed(lambda d: d["events"][3].update(at="2026-01-01T00:00:00")),
    "missing required field `workflow`": changed(lambda d: d["run"].pop("workflow")),
}


@pytest.mark.parametrize("says", WRONG)
def test_what_is_no_history_is_refused_in_one_sentence(says):
    with pytest.raises(LoadError, match=r"^order\.json [^\n]+$") as refusal:
        histories.parsed(WRONG[says], "order.json")

    assert says in str(refusal.value)


# ---- in a user's test


def test_a_users_test_passes_while_the_workflow_does_what_its_history_says(tmp_path):
    file = tmp_path / "order.json"
    file.write_bytes(histories.dumped(paid()))

    assert_replays(file, pay)
    assert_replays(paid(), pay)


def test_a_users_test_fails_with_the_event_and_the_line():
    @workflow(name="pay")
    async def twice(n: int) -> int:
        return await charge(n) + await charge(n)

    with pytest.raises(AssertionError, match=r"^order-1 at event 5: .* it goes on, with step 'charge'.*py:\d+"):
        assert_replays(paid(), twice)


def test_of_a_run_that_lives_all_has_to_be_there_up_to_where_its_code_had_decided():
    @workflow(name="pay")
    async def both(n: int) -> None:
        await asyncio.gather(charge(n), charge(n))

    @workflow(name="pay")
    async def one(n: int) -> None:
        await asyncio.gather(charge(n))

    tape = Tape(one, 1)
    log = tape.log
    tape.turn.evict()

    assert_replays(history_of(log, decided_seq=0), both)
    with pytest.raises(AssertionError, match=r"at event 1: .* where the log has nothing"):
        assert_replays(history_of(log, decided_seq=1), both)


def test_a_history_without_its_seed_cannot_be_replayed():
    history = paid()
    history.events[0] = ev.Event(1, None, BEGINNING, ev.RunCreated(workflow="pay", input=value(1), seed=""))

    with pytest.raises(LoadError, match="it has no seed"):
        assert_replays(history, pay)


# ---- the timeline

ERROR = ev.ErrorData(type="shop:Declined", message="card 4711")
LOG = lines(
    (None, ev.RunCreated(workflow="pay", input=value("secret"), seed="seed4711", app="shop")),
    (1, ev.RunStarted(code="c0de", python="3.11")),
    (1, ev.StepCreated(op="0.0", name="charge", args=value("secret"), queue="gpu")),
    (None, ev.StepStarted(op="0.0", attempt=1, token="t1", incarnation="inc_7")),
    (None, ev.StepRetrying(op="0.0", attempt=1, token="t1", delay_s=90, error=ERROR)),
    (2, ev.StepStarted(op="0.0", attempt=2, token="t2", incarnation="inc_8", dispatch=3)),
    (3, ev.StepRetrying(op="0.0", attempt=2, delay_s=0.25, lost=1)),
    (None, ev.StepCompleted(op="0.0", attempt=2, token="t2", result=value("secret"))),
    (4, ev.WaitCreated(op="0.1", delay_s=3 * 86_400)),
    (4, ev.HookCreated(op="0.2", token="go", model="shop:Approval", reply=ev.HookReply())),
    (4, ev.HookConflict(op="0.3", token="taken", owner="run_2")),
    (None, ev.HookReceived(op="0.2", token="go", delivery="d1", payload=value("secret"))),
    (5, ev.WaitCompleted(op="0.1")),
    (5, ev.HookDisposed(op="0.2", token="go")),
    (None, ev.CancelRequested(reason="enough")),
    (6, ev.RunFailed(code="user_error", error=ERROR)),
)
SAID = """
0 outside|run of pay made for app shop
1 decider tick 1|run begins on code c0de, Python 3.11
2 decider tick 1|step charge asked for in queue gpu
3 worker inc_7|step charge attempt 1 begins
4 worker inc_7|step charge attempt 1 failed after 1s (Declined), next in 90s
5 decider tick 2|step charge attempt 2 begins, taken over 1 times
6 decider tick 3|step charge attempt 2 was lost, next in 250ms
7 worker inc_8|step charge attempt 2 completed after 2s
8 decider tick 4|timer of 3d
9 decider tick 4|webhook go made for Approval
10 decider tick 4|hook taken not made: run_2 has it
11 outside|hook go got delivery d1 after 2s
12 decider tick 5|timer ran out after 4s
13 decider tick 5|hook go disposed after 4s
14 outside|cancel asked for: enough
15 decider tick 6|run failed after 15s (user_error: Declined)
"""


def test_a_timeline_says_who_wrote_what_and_when():
    rows = list(timelines.rows(LOG))

    assert [f"{row.after_s:g} {row.writer}|{row.what}" for row in rows] == SAID.strip().splitlines()
    assert [row.op for row in rows[2:4]] == ["0.0", "0.0"]


def test_a_timeline_holds_no_payload_unless_asked_and_never_the_seed():
    without, payloads = (msgspec.json.encode(list(timelines.rows(LOG, payloads=asked))) for asked in (False, True))

    assert b"secret" not in without
    assert b"4711" not in without
    assert payloads.count(b"secret") == 4
    assert b"seed4711" not in payloads


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0123, "12.3ms"), (1.5, "1.5s"), (119, "119s"), (150, "2m30s"), (7200, "2h"), (90_000, "1d1h")],
)
def test_a_span_is_said_as_people_say_it(seconds, text):
    assert timelines.span(seconds) == text
