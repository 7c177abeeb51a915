"""A run's log as it was written, page by page, for who keeps it elsewhere or replays it there.

Unlike the view of events nothing is missing: large values stand by reference (`api.value` has them), an event too large
for one answer comes in pieces. The secret seed, which a replay needs, goes out only to who asks for it by name.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.world import events as ev

from . import views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.world import Run, World

PIECE_BYTES = 256 * 1024
EVENTS_MAX = 500


async def page_of(
    world: World, run: Run, after: int, limit: int, *, offset: int, seed: bool, room: int
) -> dict[str, Any]:
    """Return the run and the events after a position that fit `room` bytes; of one that does not, a piece."""
    found = await world.more(run.run_id, after, max(1, min(limit, EVENTS_MAX)))
    lines = [_line(event, seed=seed) for event in found]
    first = lines[0] if lines else b""
    head = {"run": views.history_view(run)}
    if len(first) > room:
        piece = first[offset : offset + PIECE_BYTES]
        return {**head, "piece": base64.b64encode(piece).decode(), "last": offset + len(piece) >= len(first)}
    return {**head, "events": _fitting(lines, room)}


def _line(event: ev.Event, *, seed: bool) -> bytes:
    body = event.body
    if isinstance(body, ev.RunCreated) and not seed:
        body = msgspec.structs.replace(body, seed="")
    return msgspec.json.encode(
        {"seq": event.seq, "tick": event.tick, "at": event.at, "body": msgspec.Raw(ev.encode_body(body))}
    )


def _fitting(lines: Sequence[bytes], room: int) -> list[msgspec.Raw]:
    fitting: list[msgspec.Raw] = []
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        fitting.append(msgspec.Raw(line))
    return fitting
