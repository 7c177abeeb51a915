"""Cold replay of a finished log, as the product does it: the same end must come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.actors.replaying import replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.world import events as ev


def replays_to_the_same_end(workflow: Any, run_id: str, log: list[ev.Event], decided: int) -> Iterator[str]:
    """Yield what differs between a finished log and its replay.

    `decided` is the position the last batch before the end was decided from: all that was asked for up to there must
    be in the log.
    """
    found = replayed(workflow, run_id, log, decided=decided)
    if found.state != "same" and found.event == log[-1].seq:
        yield f"cold replay ends as the run did not: {found.why}"
    elif found.state != "same":
        yield f"cold replay: {found.state.capitalize()} at {found.event}: {found.why}"
