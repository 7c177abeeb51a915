"""The turn runs ahead: what it is shown before it is durable, what it says meanwhile, and what is asserted about it."""

# workflow time: no real time passes in this file

import logging

import pytest

from fencepost.actors.author import now, sleep
from fencepost.actors.define import step, workflow
from fencepost.world import events as ev
from tests.actors.tape import Tape


@step
async def a(x: int = 0) -> int:
    return x + 1


@workflow
async def chatty() -> str:
    first = await a(1)
    words = ["got", first]
    print(*words, sep="-")  # noqa: T201  (what is held back)
    logging.getLogger("chatty").warning("got %s", words)
    words.append("changed afterwards")
    await sleep(10)
    return now().isoformat()


def run_ahead(tape, *bodies):
    tape.tick += 1
    events = [ev.Event(seq, tape.tick, tape.at, body) for seq, body in enumerate(bodies, tape.turn.seq + 1)]
    for event in events:
        tape.turn.feed_ahead(event)
    return events


def moved(events, by):
    return [ev.Event(event.seq + by, event.tick, event.at, event.body) for event in events]


def test_the_code_goes_on_although_nothing_is_durable_yet():
    tape = Tape(chatty)

    run_ahead(tape, tape.completed("a", 2))

    assert [ev.kind_of(order) for order in tape.turn.orders()] == ["wait_created"]
    assert (tape.turn.seq, tape.turn.durable_seq) == (4, 3)


def test_nothing_else_is_fed_before_what_was_fed_ahead_is_durable():
    tape = Tape(chatty)
    run_ahead(tape, tape.completed("a", 2))

    with pytest.raises(AssertionError, match="not durable"):
        tape.turn.feed(ev.Event(5, tape.tick, tape.at, ev.WaitCreated(op="0.1", delay_s=10)))


@pytest.mark.parametrize("change", [{"tick": 7}, {"at": None}, {"body": None}])
def test_what_became_durable_must_be_what_was_fed(change):
    tape = Tape(chatty)
    (event,) = run_ahead(tape, tape.completed("a", 2))
    usual = {"seq": event.seq, "tick": event.tick, "at": event.at, "body": event.body}

    with pytest.raises(AssertionError):
        tape.turn.confirm([ev.Event(**(usual | change))])


def test_quiet_events_that_landed_first_move_what_was_fed():
    tape = Tape(chatty)
    fed = run_ahead(tape, tape.completed("a", 2))

    tape.turn.confirm(moved(fed, 2))

    assert tape.turn.seq == tape.turn.durable_seq == 6
    (operation,) = tape.turn.ops.unlogged.values()
    assert operation.issued_at == 6
    (order,) = tape.turn.orders()
    tape.turn.feed(ev.Event(7, tape.tick, tape.at, order))
    assert tape.turn.ops.by_path["0.1"].logged.seq == 7


def test_what_is_said_ahead_waits_and_is_said_once_as_it_was(capsys, caplog):
    tape = Tape(chatty)
    fed = run_ahead(tape, tape.completed("a", 2))
    assert capsys.readouterr().out == ""
    assert caplog.messages == []

    tape.turn.confirm(fed)

    assert capsys.readouterr().out == "got-2\n"
    assert caplog.messages == ["got ['got', 2]"]


def test_what_is_said_ahead_is_forgotten_with_the_coroutine(capsys, caplog):
    tape = Tape(chatty)
    run_ahead(tape, tape.completed("a", 2))

    tape.turn.evict()

    assert capsys.readouterr().out == ""
    assert caplog.messages == []


def test_what_was_decided_ahead_replays_to_the_same(capsys):
    tape = Tape(chatty)
    (event,) = fed = run_ahead(tape, tape.completed("a", 2))
    tape.turn.confirm(fed)
    tape.log.append(event)
    tape.tick -= 1
    tape.settle()
    tape.fire()

    capsys.readouterr()
    tape.assert_replays()
    assert capsys.readouterr().out == ""
