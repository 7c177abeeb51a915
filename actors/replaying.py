"""Cold replay: a stored log through the code of now, in this process; nothing is written and no step runs.

A finished log is replayed without its own end, which the code must come to again. Of one that lives the code must ask
for all that is in the log, and for nothing more up to where its last batch had decided: what its decider would find
when it loads the run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from fencepost.world import events as ev

from .operations import Diverged, describe
from .settling import Stuck
from .turn import Turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .define import Workflow
    from .operations import Operation

ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")
"""How an object without a text of its own shows where it lies: another place in each process."""
SAID: Final[dict[type[ev.Body], str]] = {
    ev.StepCompleted: "a step's result",
    ev.StepFailed: "a step's failure",
    ev.StepCancelled: "a step that was given up",
    ev.WaitCompleted: "a timer that ran out",
    ev.HookDisposed: "a hook that was disposed",
    ev.HookConflict: "a hook whose token was taken",
    ev.HookReceived: "a payload",
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to. Of one that is not the same: where, what the log has, what the code does instead."""

    state: Literal["same", "diverged", "stuck"]
    event: int = 0
    """The position it shows at."""
    op: str = ""
    log: str = ""
    code: str = ""
    site: str = ""
    """`file:line` in the workflow's code, as far as there is one."""
    why: str = ""
    """The whole of it in one sentence."""


class Differs(Exception):
    """Carries what was found out of a replay that goes no further."""

    def __init__(self, found: Replayed) -> None:
        super().__init__(found.why)
        self.found = found


def replayed(
    workflow: Workflow[..., Any], run_id: str, log: Sequence[ev.Event], *, decided: int | None = None
) -> Replayed:
    """Return what the code of now makes of a log, which must be whole from its first event on.

    `decided` is the position up to which all that was asked for must be in the log; without it that is read off the
    log itself, on the side of caution (`surely_decided`).
    """
    turn = Turn(workflow, run_id, decided_seq=surely_decided(log) if decided is None else decided, shadow=True)
    end = log[-1].body
    try:
        _feed(turn, log[:-1] if isinstance(end, ev.TERMINAL) else log)
        if not isinstance(end, ev.TERMINAL):
            _asked(turn)
        elif not is_verdict(log):  # else what the code still asked for was not to be written any more
            _compare(turn, _asked(turn), log[-1])
    except Differs as differs:
        return differs.found
    finally:
        turn.evict()
    return Replayed("same")


def is_verdict(log: Sequence[ev.Event]) -> bool:
    """Tell whether a run was ended by a judgement and not by its code: then there is no end to come to again."""
    end = log[-1].body
    began = any(isinstance(event.body, ev.RunStarted) for event in log)
    return (
        not began or isinstance(end, ev.RunTerminated) or (isinstance(end, ev.RunFailed) and end.code != "user_error")
    )


def surely_decided(log: Sequence[ev.Event]) -> int:
    """Return a position that the batches of a log, its end left out, have decided from; the last such may be later.

    A batch knows all that stands before the one it follows, and that one too. What came from outside in between may
    have landed after its decider had read. One with a conflict has decided nothing more (`folding.decided_after`).
    """
    decided = unsure = 0
    for tick, events in groupby(log, key=lambda event: event.tick):
        batch = list(events)
        if tick is None:
            heard = [e.seq for e in batch if ev.resumes_code(e.body) and not isinstance(e.body, ev.RunCreated)]
            unsure = unsure or next(iter(heard), 0)
            continue
        if not any(isinstance(event.body, (ev.HookConflict, *ev.TERMINAL)) for event in batch):
            decided = max(decided, (unsure or batch[0].seq) - 1)
        unsure = 0
    return decided


# ---- feeding


def _feed(turn: Turn, log: Sequence[ev.Event]) -> None:
    for event in log:
        try:
            turn.feed(event)
        except Diverged as error:
            raise Differs(_diverged_at(turn, event, str(error))) from error
        except Stuck as error:
            raise Differs(Replayed("stuck", event.seq, event.body.op, site=turn.line(), why=str(error))) from error


def _diverged_at(turn: Turn, event: ev.Event, why: str) -> Replayed:
    operation = turn.ops.by_path.get(event.body.op)
    code, site = _instead(turn) if operation is None else (_wanted(operation, event), operation.site or turn.line())
    said = f"{why} ({site})" if site and site not in why else why
    return Replayed("diverged", event.seq, event.body.op, named(event.body), code, site, said)


def _instead(turn: Turn) -> tuple[str, str]:
    """Return what code does that does not ask for an operation, and where."""
    if turn.terminal is not None:
        return f"nothing there: it ended as {named(turn.terminal)}", ""
    return "nothing there", turn.line()


def _wanted(operation: Operation, event: ev.Event) -> str:
    still = isinstance(event.body, ev.StepCancelled | ev.HookDisposed)
    return f"still waits for {describe(operation.order)}" if still else describe(operation.order)


def _asked(turn: Turn) -> list[ev.EventBody]:
    """Return what the code asks for after the log."""
    try:
        return turn.orders()
    except Diverged as error:
        operation = next(iter(turn.ops.unlogged.values()))
        found = Replayed(
            "diverged",
            operation.issued_at,
            operation.path,
            "nothing",
            describe(operation.order),
            operation.site,
            str(error),
        )
        raise Differs(found) from error


# ---- the end


def _compare(turn: Turn, asked: list[ev.EventBody], end: ev.Event) -> None:
    """See to it that the code ends as the log does.

    What tasks ask for that are left over when the body returns is dropped with them.
    """
    more = [order for order in asked if order is not turn.terminal]
    if turn.terminal is None or more:
        names = ", ".join(named(order) for order in more) or "what it has asked for"
        code = f"it goes on, with {names}" if turn.terminal is None else f"it asks for {names} before its end"
        raise Differs(_other_end(end, code, turn.line()))
    if comparable(turn.terminal) != comparable(end.body):
        raise Differs(_other_end(end, f"it ends as {named(turn.terminal)}{_apart(end.body, turn.terminal)}", ""))


def _other_end(end: ev.Event, code: str, site: str) -> Replayed:
    log = f"the run {named(end.body)}"
    why = f"where {log}, the code now differs: {code}" + (f" ({site})" if site else "")
    return Replayed("diverged", end.seq, "", log, code, site, why)


def comparable(end: ev.EventBody) -> str:
    """Return an end without what may differ between two processes: tracebacks, and where objects lie."""
    told = json.loads(ev.encode_body(end), object_hook=_without_traceback)
    plain = json.dumps(told, sort_keys=True)
    return plain if isinstance(end, ev.RunCompleted) else ADDRESS.sub("0x", plain)


def _without_traceback(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != "traceback" or "message" not in told}


def _apart(mine: ev.EventBody, theirs: ev.EventBody) -> str:
    """Say where two results differ, without what they are: they are a user's."""
    if not (isinstance(mine, ev.RunCompleted) and isinstance(theirs, ev.RunCompleted)):
        return ""
    first, second = (json.loads(bytes(one.result.json)) for one in (mine, theirs))
    return f" with another result, at {next(_differing(first, second, '$'), '$')}"


def _differing(mine: object, theirs: object, path: str) -> Iterator[str]:
    first, second = _members(mine), _members(theirs)
    if first is None or second is None or type(mine) is not type(theirs):
        if mine != theirs:
            yield path
        return
    for name in {**first, **second}:
        inner = f"{path}[{name}]" if isinstance(mine, list) else f"{path}.{name}"
        if name in first and name in second:
            yield from _differing(first[name], second[name], inner)
        else:
            yield inner


def _members(value: object) -> dict[object, object] | None:
    if isinstance(value, list):
        return dict(enumerate(cast("list[object]", value)))
    return cast("dict[object, object]", value) if isinstance(value, dict) else None


def named(body: ev.EventBody) -> str:
    """Return what an event is about, as a sentence goes on with it; nothing of a user's values."""
    match body:
        case ev.StepCreated() | ev.WaitCreated() | ev.HookCreated():
            return describe(body)
        case ev.RunFailed(code=code, error=error):
            return f"failed ({code}: {error.type.rpartition(':')[2]})"
        case _:
            return ev.STATUS_AFTER.get(type(body)) or SAID.get(type(body)) or ev.kind_of(body).replace("_", " ")
