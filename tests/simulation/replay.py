"""Cold replay: a finished log, its body's own end left out, through a fresh turn, must give the same end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.actors.operations import Diverged
from fencepost.actors.turn import Stuck, Turn
from fencepost.world import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator

VERDICTS = {"timeout", "max_events", "node_lost"}


def is_verdict(log: list[ev.Event]) -> bool:
    """Tell whether a run was ended by a judgement and not by its code."""
    end = log[-1].body
    began = any(isinstance(event.body, ev.RunStarted) for event in log)
    return not began or isinstance(end, ev.RunTerminated) or (isinstance(end, ev.RunFailed) and end.code in VERDICTS)


def replays_to_the_same_end(workflow: Any, run_id: str, log: list[ev.Event], decided: int) -> Iterator[str]:
    """Yield what differs between a finished log and its replay.

    `decided` is the position the last batch before the end was decided from: all that was asked for up to there must
    be in the log. What tasks ask for that are left over when the body returns is dropped with them.
    """
    end = log[-1].body
    turn = Turn(workflow, run_id, decided_seq=decided)
    try:
        for event in log[:-1]:
            turn.feed(event)
        orders = [] if is_verdict(log) else turn.orders()
    except (Diverged, Stuck) as why:
        yield f"cold replay: {type(why).__name__}: {why}"
        return
    finally:
        turn.evict()
    if is_verdict(log):
        return
    wanted = [order for order in orders if order is not turn.terminal]
    if wanted:
        yield f"cold replay asks for {[ev.kind_of(order) for order in wanted]} at {[o.op for o in wanted]}"
    if turn.terminal is None or ev.encode_body(turn.terminal) != ev.encode_body(end):
        yield f"cold replay ends as {turn.terminal}, the run did as {end}"
