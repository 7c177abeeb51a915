"""Who decides whether a run went well, whichever storm it was in: its end, its log, a cold replay, what was sent."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fencepost.world import events as ev
from tests.chaos.judges import FROM_THE_LOG
from tests.simulation.checkers import Seen
from tests.simulation.replay import replays_to_the_same_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.storms.read import Reading
    from tests.storms.storms import Storm


def end_is_good(run: Reading) -> Iterator[str]:
    """Completed, and its caller heard it."""
    if run.row.stalled:
        yield f"it is stalled: {run.row.stalled}"
    elif run.row.status != "completed":
        yield f"it is {run.row.status}: {ev.encode_body(run.log[-1].body).decode()[:500]}"
    elif run.told.trouble:
        yield f"its caller heard: {run.told.trouble}"


def log_keeps_the_laws(run: Reading) -> Iterator[str]:
    seen = Seen(run.row.run_id, run.log)
    for check in FROM_THE_LOG:
        yield from (f"{check.__name__}: {what}" for what in check(seen))


def log_replays(run: Reading, storm: Storm) -> Iterator[str]:
    """The pure turn, without worlds and nodes, comes to the same end."""
    if run.row.ended_at is not None:
        yield from replays_to_the_same_end(storm.flow, run.row.run_id, run.log, run.row.decided_seq - 1)


def deliveries_are_as_answered(run: Reading) -> Iterator[str]:
    """What was accepted is in the log, once; what was refused is not."""
    found = Counter(run.deliveries())
    for delivery in filter(lambda one: one.answered, run.told.deliveries):
        accepted = bool(delivery.run_id)
        if found[delivery.id] != accepted:
            answer = "accepted" if accepted else "refused"
            yield f"payload {delivery.payload} of {delivery.token} was {answer} and is {found[delivery.id]} times there"
        if delivery.run_id not in {"", run.row.run_id}:
            yield f"payload {delivery.payload} of {delivery.token} went to {delivery.run_id}"
