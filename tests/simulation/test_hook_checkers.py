"""Each checker of hooks fires on a log, or a book, that breaks its law, and is silent on a good one."""

import json

import msgspec
import pytest

from fencepost.world import Accepted, Batch, Created, Fence
from fencepost.world import events as ev
from tests.simulation.book import BEGIN, Book
from tests.simulation.checkers import broken
from tests.simulation.hook_checkers import (
    HOOK_CHECKERS,
    a_token_has_one_owner,
    nothing_comes_from_nowhere,
    what_was_accepted_is_there,
)
from tests.simulation.mail import Letter, Told
from tests.simulation.world import Commit


def value(plain):
    return ev.Value(json=msgspec.Raw(json.dumps(plain).encode()))


def made(op="0.0", token="t"):
    return ev.HookCreated(op=op, token=token)


def received(word="w1", op="0.0", token="t", delivery=None):
    return ev.HookReceived(op=op, token=token, delivery=delivery or f"id {word}", payload=value(word))


def conflict(op="0.0", token="t", owner="run_2"):
    return ev.HookConflict(op=op, token=token, owner=owner)


DISPOSED = ev.HookDisposed(op="0.0", token="t")


def opened(*more):
    return Book().batch(ev.RunStarted(), made(), *more)


def ended(book, *took):
    return book.batch(ev.RunCompleted(result=value({"took": took, "history": []})))


def good():
    return ended(opened().outside(received()).outside(received("w2")), ["0.0", "w1"])


DOCTORED = {
    "hooks_are_made_once": [lambda: opened(made()), lambda: opened(conflict()), lambda: Book().batch(DISPOSED)],
    "payloads_come_while_open": [
        lambda: opened(DISPOSED).outside(received()),
        lambda: Book().outside(received()).batch(ev.RunStarted(), made()),
        lambda: opened().outside(received(token="another")),
    ],
    "a_delivery_is_recorded_once": [
        lambda: opened().outside(received()).outside(received()),
        lambda: opened().outside(received()).batch(DISPOSED, made("0.1")).outside(received(op="0.1")),
    ],
    "payloads_are_read_in_order": [
        lambda: ended(opened().outside(received()).outside(received("w2")), ["0.0", "w2"]),
        lambda: ended(opened().outside(received()), ["0.0", "w1"], ["0.0", "w1"]),
        lambda: ended(opened(), ["0.0", "w1"]),
    ],
    "nothing_goes_beside_a_conflict": [lambda: Book().batch(ev.RunStarted(), conflict(), made("0.1", "u"))],
}


def test_a_good_log_with_hooks_breaks_nothing():
    assert broken(good().seen) == []


def test_every_checker_of_hooks_has_a_log_that_breaks_its_law():
    assert {check.__name__ for check in HOOK_CHECKERS} == set(DOCTORED)


@pytest.mark.parametrize("check", HOOK_CHECKERS, ids=lambda check: check.__name__)
def test_a_checker_fires_on_each_doctored_log(check):
    quiet = [number for number, make in enumerate(DOCTORED[check.__name__]) if not list(check(make().seen))]

    assert quiet == []


# ---- the namespace


class Shared:
    """The book of commits of several runs."""

    def __init__(self):
        self.commits = []

    def create(self, run_id):
        self.commits.append(Commit(0.0, "", "create", None, Created(run_id, existing=False), frozenset()))
        return self

    def batch(self, run_id, *bodies):
        batch = Batch(run_id, bodies, 1, Fence(0, ""), "b")
        self.commits.append(Commit(0.0, "n1", "append", batch, Accepted(2, BEGIN, Fence(1, "b"), ()), frozenset()))
        return self


def shared():
    return Shared().create("run_1").create("run_2")


def test_a_token_that_goes_from_one_to_the_next_is_fine():
    book = shared().batch("run_1", made()).batch("run_1", DISPOSED).batch("run_2", made())
    book = book.batch("run_2", ev.RunCompleted(result=value(None))).batch("run_1", made("0.1"))

    assert list(a_token_has_one_owner(book.commits)) == []


def test_a_refusal_is_fine_when_another_had_the_token_since_the_last_decision():
    book = shared().batch("run_2", made()).batch("run_2", DISPOSED).batch("run_1", conflict())

    assert list(a_token_has_one_owner(book.commits)) == []


def test_a_token_with_two_owners_is_seen():
    assert list(a_token_has_one_owner(shared().batch("run_1", made()).batch("run_2", made()).commits)) != []


def test_two_hooks_of_one_run_with_one_token_are_seen():
    assert list(a_token_has_one_owner(shared().batch("run_1", made(), made("0.1")).commits)) != []


def test_a_refusal_by_who_had_lost_the_token_before_the_last_decision_is_seen():
    book = shared().batch("run_2", made()).batch("run_2", DISPOSED).batch("run_1").batch("run_1", conflict())

    assert list(a_token_has_one_owner(book.commits)) != []


LETTER = Letter(0.0, "t", "w1")


@pytest.mark.parametrize(
    ("told", "fires"),
    [
        (Told(0.0, LETTER, "accepted", "run_1", 4), False),
        (Told(0.0, LETTER, "repeated", "run_1", 4), False),
        (Told(0.0, LETTER, "HookNotFound"), False),
        (Told(0.0, LETTER, "accepted", "run_1", 3), True),
        (Told(0.0, LETTER, "accepted", "run_1", 40), True),
        (Told(0.0, LETTER, "accepted", "run_9", 4), True),
    ],
)
def test_what_a_client_was_told_is_looked_up(told, fires):
    logs = {"run_1": opened().outside(received()).seen.log}

    assert bool(list(what_was_accepted_is_there([told], logs, set()))) == fires


def test_what_a_failover_lost_is_forgiven():
    told = Told(0.0, LETTER, "accepted", "run_1", 40)

    assert list(what_was_accepted_is_there([told], {}, {("run_1", "id w1")})) == []


@pytest.mark.parametrize("put", [[], [Letter(0.0, "u", "w1")], [Letter(0.0, "t", "w2")]])
def test_a_payload_that_nobody_put_is_seen(put):
    logs = {"run_1": opened().outside(received()).seen.log}

    assert list(nothing_comes_from_nowhere(put, logs)) != []
    assert list(nothing_comes_from_nowhere([LETTER], logs)) == []
