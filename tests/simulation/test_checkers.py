"""Each checker fires on a log that breaks its law, and is silent on a good one: one that never fires is a defect."""

import msgspec
import pytest

from fencepost.actors import step, workflow
from fencepost.actors.failures import describe
from fencepost.world import events as ev
from tests.simulation.book import BEGIN, RESULT, Book, ahead, begun, completed, created, retrying, started, whole
from tests.simulation.checkers import CHECKERS, broken, the_dead_do_not_ask
from tests.simulation.hook_checkers import HOOK_CHECKERS
from tests.simulation.replay import replays_to_the_same_end
from tests.simulation.world import Commit

ERROR = describe(ValueError("no"))


@step
async def work() -> int:
    return 7


@workflow
async def flow() -> int:
    return await work()


CANCEL = ev.CancelRequested(key="k")
DOCTORED = {
    "positions_are_dense": lambda: whole().moved(2, seq=9),
    "time_never_goes_back": lambda: whole().moved(3, at=BEGIN),
    "ticks_grow_by_one": lambda: whole().moved(4, tick=7),
    "batches_follow_one_another": lambda: begun().batch(last="b0"),
    "a_run_begins_once": lambda: begun().batch(ev.RunStarted()),
    "operations_are_legal": lambda: begun().batch(created()),
    "nothing_follows_the_end": lambda: whole().batch(created("0.1")),
    "cancelled_before_it_began_means_no_code": lambda: Book().outside(CANCEL).batch(ev.RunStarted()),
    "waits_are_not_early": lambda: (
        Book().batch(ev.RunStarted(), ev.WaitCreated(op="0.0", delay_s=60.0)).batch(ev.WaitCompleted(op="0.0"))
    ),
    "outcomes_hold_the_latest_claim": lambda: begun().batch(completed(token="t0")),
    "attempts_are_counted": lambda: begun().batch(retrying()).batch(started(attempt=3, token="t2", dispatch=2)),
    "losses_are_counted_in_a_row": lambda: begun().batch(retrying(token="", lost=2)),
    "the_dead_write_nothing": lambda: begun().leave().batch(completed()),
    "decisions_saw_the_cancel": lambda: begun().outside(CANCEL).batch(created("0.1"), known=4),
    "whole_log_means_whole": lambda: begun().outside(CANCEL).batch(created("0.1"), known=4, whole_log=True),
    "bodies_began_under_a_claim": lambda: begun().body(token="t9"),
    "an_attempt_has_one_body": lambda: begun().body().batch(started(token="t2")).body(token="t2"),
    "time_is_not_ahead": lambda: ahead(8.0),
    "results_are_what_bodies_returned": lambda: begun().body(result=b"8").batch(completed()),
    "batches_know_the_one_before": lambda: begun().batch(created("0.1")).batch(created("0.2"), known=4),
    "deadlines_begin_with_their_order": lambda: Book().batch(ev.RunStarted(), ev.WaitCreated(op="0.0", until=BEGIN)),
}
MINE = [check for check in CHECKERS if check not in HOOK_CHECKERS]


def test_a_good_log_breaks_nothing():
    assert broken(whole().seen) == []


def test_every_checker_has_a_log_that_breaks_its_law():
    assert {check.__name__ for check in MINE} == set(DOCTORED)


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.__name__)
def test_a_checker_fires_on_a_doctored_log(check):
    seen = DOCTORED[check.__name__]().seen

    assert list(check(seen)) != []


MORE = {
    "a body under a start that came too late": (
        "bodies_began_under_a_claim",
        lambda: begun().body().batch(started(token="t2")).body(token="t2"),
    ),
    "a claim from outside of an attempt that runs": (
        "attempts_are_counted",
        lambda: begun().outside(started(token="t2")),
    ),
    "the same attempt again without a loss": (
        "attempts_are_counted",
        lambda: begun().batch(retrying()).batch(started(token="t2", dispatch=2)),
    ),
    "a loss that counts as an attempt": (
        "attempts_are_counted",
        lambda: begun().batch(retrying(token="", lost=1)).batch(started(attempt=2, token="t2", dispatch=2)),
    ),
    "a start beside a running attempt": (
        "attempts_are_counted",
        lambda: begun().batch(started(attempt=2, token="t2", dispatch=2)),
    ),
    "a loss of a living node": ("the_dead_write_nothing", lambda: begun().batch(retrying(token="", lost=1))),
    "a start by a dead node": (
        "the_dead_write_nothing",
        lambda: Book().leave().batch(ev.RunStarted(), created(), started()),
    ),
    "an outcome twice": (
        "outcomes_hold_the_latest_claim",
        lambda: begun().batch(completed()).batch(completed()),
    ),
    "an outcome after the end of its step": (
        "operations_are_legal",
        lambda: begun().batch(completed()).batch(completed()),
    ),
    "a step before the run began": ("a_run_begins_once", lambda: Book().batch(created())),
    "a timer that completes twice": (
        "operations_are_legal",
        lambda: (
            Book()
            .batch(ev.RunStarted(), ev.WaitCreated(op="0.0"))
            .batch(ev.WaitCompleted(op="0.0"))
            .batch(ev.WaitCompleted(op="0.0"))
        ),
    ),
    "something in the middle of a batch": ("ticks_grow_by_one", lambda: whole().moved(2, tick=None)),
    "a failure of a body that succeeded": (
        "results_are_what_bodies_returned",
        lambda: begun().body().batch(ev.StepFailed(op="0.0", attempt=1, code="user_error", error=ERROR, token="t1")),
    ),
}


@pytest.mark.parametrize("case", MORE)
def test_a_checker_sees_each_way_its_law_is_broken(case):
    checker, make = MORE[case]

    assert any(what.startswith(checker) for what in broken(make().seen)), broken(make().seen)


def test_an_in_band_start_that_came_too_late_is_fine():
    late = begun().body().batch(started(token="t2")).batch(completed()).batch(started(token="t3"))

    assert broken(late.seen) == []


def test_a_batch_a_little_ahead_of_the_clock_is_fine():
    assert broken(ahead(0.9).seen) == []


@pytest.mark.parametrize(("method", "answer"), [("renew", None), ("share", "a share")])
def test_an_answer_to_the_dead_is_seen(method, answer):
    commit = Commit(0.0, "n1", method, "inc_1", answer, frozenset({"inc_1"}))

    assert list(the_dead_do_not_ask([commit])) != []


def test_a_refusal_of_the_dead_is_fine():
    refused = Commit(0.0, "n1", "share", "inc_1", None, frozenset({"inc_1"}))
    alive = Commit(0.0, "n1", "renew", "inc_2", None, frozenset({"inc_1"}))

    assert list(the_dead_do_not_ask([refused, alive])) == []


def replayed(log):
    return list(replays_to_the_same_end(flow, "run_1", log, decided=len(log) - 2))


def log_of(*bodies):
    return Book().batch(ev.RunStarted(), created(), started()).batch(completed()).batch(*bodies).seen.log


def test_a_cold_replay_of_a_good_log_ends_the_same():
    assert replayed(log_of(ev.RunCompleted(result=RESULT))) == []


@pytest.mark.parametrize(
    "end",
    [
        ev.RunCompleted(result=ev.Value(json=msgspec.Raw(b"8"))),
        ev.RunFailed(code="user_error", error=ERROR),
        ev.RunCancelled(),
    ],
)
def test_a_cold_replay_sees_another_end(end):
    assert "cold replay ends as" in replayed(log_of(end))[0]


def test_a_cold_replay_sees_an_operation_its_code_never_asked_for():
    assert "Diverged" in replayed(log_of(created("0.1"), ev.RunCompleted(result=RESULT)))[0]


def test_a_cold_replay_sees_what_the_log_does_not_have():
    log = Book().batch(ev.RunStarted()).batch(ev.RunCompleted(result=RESULT)).seen.log

    assert "Diverged" in replayed(log)[0]


def test_a_verdict_is_not_compared_with_what_the_code_would_have_done():
    log = Book().batch(ev.RunStarted(), created()).batch(ev.RunFailed(code="timeout", error=ERROR)).seen.log

    assert replayed(log) == []
