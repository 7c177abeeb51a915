"""Laws, read off finished logs and the book of commits. Each checker yields one sentence for each broken law."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fencepost.world import Batch
from fencepost.world import events as ev
from tests.simulation.hook_checkers import HOOK_CHECKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.ledger import Begun
    from tests.simulation.world import Commit

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
SETTLING = (ev.StepCompleted, ev.StepFailed, ev.StepCancelled, ev.WaitCompleted)
GOES_WITH = {
    ev.StepStarted: ev.StepCreated,
    ev.StepRetrying: ev.StepCreated,
    ev.StepCompleted: ev.StepCreated,
    ev.StepFailed: ev.StepCreated,
    ev.WaitCompleted: ev.WaitCreated,
}
"""What an event is about, and what must have created it."""


def inert_starts(log: list[ev.Event]) -> set[int]:
    """Return the positions of in-band starts that came too late: a worker was faster, or the operation is over."""
    started: dict[str, tuple[int, int]] = {}
    settled: set[str] = set()
    inert: set[int] = set()
    for event in log:
        body = event.body
        if isinstance(body, ev.StepStarted):
            this = (body.attempt, body.dispatch)
            if event.tick is not None and (body.op in settled or this <= started.get(body.op, (0, 0))):
                inert.add(event.seq)
            else:
                started[body.op] = max(this, started.get(body.op, (0, 0)))
        elif isinstance(body, SETTLING):
            settled.add(body.op)
    return inert


@dataclass(slots=True)
class Seen:
    """What checkers look at: one run's log, the commits of that run, the bodies that began for it."""

    run_id: str
    log: list[ev.Event]
    commits: list[Commit] = field(default_factory=list)
    begun: dict[str, Begun] = field(default_factory=dict)
    skew_s: float = 0.0
    forgiven: set[str] = field(default_factory=set)
    """Claims whose start or end the world has lost in a failover: what their bodies did is not judged."""

    @property
    def valid(self) -> list[ev.Event]:
        """The log without the starts that are inert."""
        inert = inert_starts(self.log)
        return [event for event in self.log if event.seq not in inert]

    @property
    def batches(self) -> Iterator[tuple[Batch, Any, frozenset[str]]]:
        """The accepted appends: batch, answer, and the incarnations that had left by then."""
        for commit in self.commits:
            if isinstance(commit.what, Batch) and not commit.answer.repeated:
                yield commit.what, commit.answer, commit.left


# ---- positions, time, ticks


def positions_are_dense(seen: Seen) -> Iterator[str]:
    """Events are numbered 1, 2, 3 … (L2)."""
    found = [event.seq for event in seen.log]
    if found != list(range(1, len(found) + 1)):
        yield f"positions {found}"


def time_never_goes_back(seen: Seen) -> Iterator[str]:
    """`at` is monotone in position (L2)."""
    for before, after in pairwise(seen.log):
        if after.at < before.at:
            yield f"{after.seq} is before {before.seq}"


def ticks_grow_by_one(seen: Seen) -> Iterator[str]:
    """Each in-band batch raises the tick by one, and its events stand together (L3)."""
    ticks = [answer.fence.tick for batch, answer, _ in seen.batches if batch.fence is not None]
    if ticks != list(range(1, len(ticks) + 1)):
        yield f"in-band batches have the ticks {ticks}"
    in_band = [event for event in seen.log if event.tick is not None]
    for before, after in pairwise(in_band):
        if after.tick < before.tick:
            yield f"tick {after.tick} of {after.seq} follows tick {before.tick}"
        if after.tick == before.tick and after.seq != before.seq + 1:
            yield f"something stands between {before.seq} and {after.seq} of one batch"


def batches_follow_one_another(seen: Seen) -> Iterator[str]:
    """An in-band batch is fenced by the one before it, and by no other (L3)."""
    last = ""
    for batch, _, _ in seen.batches:
        if batch.fence is not None:
            if batch.fence.last_batch != last:
                yield f"a batch at tick {batch.fence.tick + 1} was decided without knowing the one before it"
            last = batch.batch_id


# ---- what may follow what


def a_run_begins_once(seen: Seen) -> Iterator[str]:
    """`run_created` comes first, `run_started` once, and nothing is asked for before it."""
    started = False
    for event in seen.log:
        body = event.body
        if isinstance(body, ev.RunCreated) != (event.seq == 1):
            yield f"{ev.kind_of(body)} at {event.seq}"
        if isinstance(body, ev.StepCreated | ev.WaitCreated) and not started:
            yield f"{body.op} is created at {event.seq}, before run_started"
        if isinstance(body, ev.RunStarted):
            if started:
                yield f"run_started again at {event.seq}"
            started = True


def operations_are_legal(seen: Seen) -> Iterator[str]:
    """An operation is created once, then it goes on, and it ends once. A cancel of what is over is inert."""
    created: dict[str, type] = {}
    settled: set[str] = set()
    for event in seen.valid:
        body = event.body
        kind = GOES_WITH.get(type(body))
        if isinstance(body, ev.StepCreated | ev.WaitCreated):
            if body.op in created:
                yield f"{body.op} is created again at {event.seq}"
            created[body.op] = type(body)
        elif kind is not None and (created.get(body.op) is not kind or body.op in settled):
            yield f"{ev.kind_of(body)} {body.op} at {event.seq}, but it is {_state(body.op, settled)}"
        if isinstance(body, SETTLING):
            settled.add(body.op)


def _state(op: str, settled: set[str]) -> str:
    return "over" if op in settled else "none of that kind"


def nothing_follows_the_end(seen: Seen) -> Iterator[str]:
    """There is at most one terminal event, and it is the last one."""
    for event in seen.log[:-1]:
        if isinstance(event.body, ev.TERMINAL):
            yield f"{ev.kind_of(event.body)} at {event.seq} of {len(seen.log)}"


def cancelled_before_it_began_means_no_code(seen: Seen) -> Iterator[str]:
    """A cancel before the first tick ends the run without running its code."""
    kinds = [type(event.body) for event in seen.log]
    if ev.CancelRequested in kinds and ev.RunStarted in kinds[kinds.index(ev.CancelRequested) :]:
        yield "run_started follows cancel_requested"


def waits_are_not_early(seen: Seen) -> Iterator[str]:
    """A timer completes when it is due by the world's clock, give or take what the nodes' clocks are wrong."""
    due: dict[str, float] = {}
    for event in seen.log:
        match event.body:
            case ev.WaitCreated(op=op, delay_s=delay_s, until=until):
                due[op] = until.timestamp() if until else event.at.timestamp() + delay_s
            case ev.WaitCompleted(op=op) if event.at.timestamp() < due.get(op, 0) - seen.skew_s - 1e-5:
                yield f"{op} completes {due[op] - event.at.timestamp():.3f} s early"
            case _:
                pass


# ---- attempts and claims


def outcomes_hold_the_latest_claim(seen: Seen) -> Iterator[str]:
    """An outcome with a token is the one of the last start of its operation (L10)."""
    token: dict[str, str] = {}
    for event in seen.valid:
        match event.body:
            case ev.StepStarted(op=op, token=started):
                token[op] = started
            case (
                ev.StepCompleted(op=op, token=given)
                | ev.StepRetrying(op=op, token=given)
                | ev.StepFailed(op=op, token=given)
            ) if given:
                if token.get(op) != given:
                    yield f"{ev.kind_of(event.body)} {op} at {event.seq} comes under a claim that is over"
                token[op] = ""
            case _:
                pass


def attempts_are_counted(seen: Seen) -> Iterator[str]:
    """Attempts count failures, never skip, and losses are counted apart (L14)."""
    expected: dict[str, tuple[int, int]] = {}
    running: set[str] = set()
    for event in seen.valid:
        match event.body:
            case ev.StepStarted(op=op, attempt=attempt, dispatch=dispatch):
                if op in running:
                    yield f"{op} is started at {event.seq} while an attempt runs"
                if (attempt, dispatch) != expected.get(op, (1, 1)):
                    yield f"{op} has attempt {attempt}/{dispatch} at {event.seq}, not {expected.get(op, (1, 1))}"
                expected[op] = (attempt + 1, dispatch + 1)
                running.add(op)
            case ev.StepRetrying(op=op, attempt=attempt, lost=lost, deferred=deferred):
                if op not in running:
                    yield f"step_retrying {op} at {event.seq}, but nothing runs"
                running.discard(op)
                if lost or deferred:
                    expected[op] = (attempt, expected.get(op, (1, 1))[1])
            case ev.StepCompleted(op=op) | ev.StepFailed(op=op) | ev.StepCancelled(op=op):
                running.discard(op)
            case _:
                pass


def losses_are_counted_in_a_row(seen: Seen) -> Iterator[str]:
    """Each loss says how many there were since the last attempt that ended by itself (L14)."""
    losses: dict[str, int] = {}
    for event in seen.log:
        match event.body:
            case ev.StepRetrying(op=op, lost=0, deferred=False):
                losses.pop(op, None)
            case ev.StepRetrying(op=op, lost=lost) if lost:
                if lost != losses.get(op, 0) + 1:
                    yield f"{op} is lost for the {lost}. time at {event.seq}, after {losses.get(op, 0)}"
                losses[op] = lost
            case _:
                continue


def the_dead_write_nothing(seen: Seen) -> Iterator[str]:
    """No outcome and no start of an incarnation that had left; no loss of one that had not (L10, L14)."""
    of: dict[str, str] = {}
    running: dict[str, str] = {}
    inert = inert_starts(seen.log)
    for batch, answer, left in seen.batches:
        for seq, body in enumerate(batch.events, answer.first_seq):
            match body:
                case ev.StepStarted(op=op, token=token, incarnation=incarnation):
                    of[token] = incarnation
                    if seq not in inert:
                        running[op] = token
                    if incarnation in left:
                        yield f"{incarnation} had left when it started {op} at {seq}"
                case ev.StepCompleted(token=token) | ev.StepRetrying(token=token) | ev.StepFailed(token=token) if token:
                    if of.get(token) in left:
                        yield f"{of[token]} had left when {ev.kind_of(body)} {body.op} was recorded at {seq}"
                case ev.StepRetrying(op=op, lost=lost) if lost and running.get(op) not in seen.forgiven:
                    incarnation = of.get(running.get(op, ""))
                    if incarnation not in left:
                        yield f"{op} is called lost at {seq}, but {incarnation} had not left"
                case _:
                    pass


def the_dead_do_not_ask(commits: Iterable[Commit]) -> Iterator[str]:
    """Who was declared dead neither renews its lease nor has a share, ever."""
    for commit in commits:
        asks = commit.method == "renew" or (commit.method == "share" and commit.answer is not None)
        if asks and commit.what in commit.left:
            yield f"the_dead_do_not_ask: {commit.what} had left when {commit.method} was answered"


# ---- what batches were decided from


def decisions_saw_the_cancel(seen: Seen) -> Iterator[str]:
    """No in-band batch lands that has not seen a cancel request before it."""
    for batch, answer, _ in seen.batches:
        if batch.fence is None:
            continue
        unseen = [e.seq for e in _between(seen, batch, answer) if isinstance(e.body, ev.CancelRequested)]
        if unseen:
            yield f"the batch at {answer.first_seq} had not seen the cancel at {unseen[0]}"


def whole_log_means_whole(seen: Seen) -> Iterator[str]:
    """A batch with the whole-log fence follows what it was decided from; quiet events aside (L4)."""
    for batch, answer, _ in seen.batches:
        unseen = [e.seq for e in _between(seen, batch, answer) if ev.resumes_code(e.body)]
        if unseen and batch.whole_log:
            yield f"the batch at {answer.first_seq} needs the whole log and had not seen {unseen}"


def _between(seen: Seen, batch: Batch, answer: Any) -> list[ev.Event]:
    return [event for event in seen.log if batch.known < event.seq < answer.first_seq]


def batches_know_the_one_before(seen: Seen) -> Iterator[str]:
    """An in-band batch was decided from a log that holds the one before it (L3)."""
    end = 0
    for batch, answer, _ in seen.batches:
        if batch.fence is not None:
            if batch.known < end:
                yield f"the batch at {answer.first_seq} knew {batch.known}, and its decider had written up to {end}"
            end = answer.first_seq + len(batch.events) - 1 if batch.events else end


def deadlines_begin_with_their_order(seen: Seen) -> Iterator[str]:
    """A timer has its whole delay before it, however long its run lay: no program here names instants."""
    for event in seen.log:
        if isinstance(event.body, ev.WaitCreated) and event.body.until is not None and event.body.until < event.at:
            late_s = (event.at - event.body.until).total_seconds()
            yield f"{event.body.op} at {event.seq} was over {late_s:.3f} s before it was asked for"


# ---- the world outside


def bodies_began_under_a_claim(seen: Seen) -> Iterator[str]:
    """No body begins before its start is in the log, and none under a claim the log does not know."""
    started = {e.body.token: e for e in seen.valid if isinstance(e.body, ev.StepStarted)}
    for token, body in seen.begun.items():
        if token not in started:
            yield f"a body of {body.op} began under {token[:8]}, which is not in the log, or inert"


def an_attempt_has_one_body(seen: Seen) -> Iterator[str]:
    """Of an operation's attempt and dispatch at most one body begins, whoever was offered it."""
    bodies: dict[tuple[str, int, int], str] = {}
    for event in seen.log:
        match event.body:
            case ev.StepStarted(op=op, attempt=attempt, dispatch=dispatch, token=token) if token in seen.begun:
                if (op, attempt, dispatch) in bodies:
                    yield f"attempt {attempt}/{dispatch} of {op} has two bodies"
                bodies[op, attempt, dispatch] = token
            case _:
                pass


def time_is_not_ahead(seen: Seen) -> Iterator[str]:
    """No batch has an `at` that is more than a second ahead of the world's clock, where the log allows."""
    ats = {event.seq: event.at for event in seen.log}
    for commit in seen.commits:
        batch, answer = commit.what, commit.answer
        if isinstance(batch, Batch) and batch.at is not None and not answer.repeated:
            ahead_s = (batch.at - BEGINNING).total_seconds() - commit.at_s
            if ahead_s > 1.0 + 1e-5 and batch.at > ats.get(answer.first_seq - 1, batch.at):
                yield f"the batch at {answer.first_seq} is {ahead_s:.3f} s ahead of the world's clock"


def results_are_what_bodies_returned(seen: Seen) -> Iterator[str]:
    """What the log calls an outcome of a claim is how the body of that claim ended."""
    for event in seen.log:
        match event.body:
            case ev.StepCompleted(op=op, token=token, result=result) if token not in seen.forgiven:
                body = seen.begun.get(token)
                if body is None or body.done != "Succeeded" or body.result != bytes(result.json):
                    yield f"{op} at {event.seq} has a result its body never returned"
            case ev.StepRetrying(op=op, token=token) | ev.StepFailed(op=op, token=token) if (
                token and token not in seen.forgiven and not event.body.drains
            ):
                body = seen.begun.get(token)
                if body is None or body.done in {"", "Succeeded"}:
                    yield f"{op} at {event.seq} failed, but its body did not"
            case _:
                pass


CHECKERS = (
    positions_are_dense,
    time_never_goes_back,
    ticks_grow_by_one,
    batches_follow_one_another,
    a_run_begins_once,
    operations_are_legal,
    nothing_follows_the_end,
    cancelled_before_it_began_means_no_code,
    waits_are_not_early,
    outcomes_hold_the_latest_claim,
    attempts_are_counted,
    losses_are_counted_in_a_row,
    the_dead_write_nothing,
    decisions_saw_the_cancel,
    whole_log_means_whole,
    bodies_began_under_a_claim,
    an_attempt_has_one_body,
    time_is_not_ahead,
    results_are_what_bodies_returned,
    batches_know_the_one_before,
    deadlines_begin_with_their_order,
    *HOOK_CHECKERS,
)


def broken(seen: Seen) -> list[str]:
    """Return what is wrong with a run, one sentence each."""
    return [f"{check.__name__}: {what}" for check in CHECKERS for what in check(seen)]
