"""Fetches histories from the nodes: a log of any length in pages, large values and large events in pieces."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.world import events as ev

from .answers import Piece, read
from .errors import RequestRefused
from .histories import History, Line, RunOfHistory, UnknownType, as_events, values_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asking import Asking

__all__ = ["fetched"]

PAGE: Final = 500


class _Page(msgspec.Struct, frozen=True):
    """Events in order; or, of one too large for an answer, a piece."""

    run: RunOfHistory
    events: list[Line] = []
    piece: bytes = b""
    last: bool = True


def _unheard(_events: int, _of: int) -> None:
    """Tell nobody how far it is."""


async def fetched(
    asking: Asking,
    id: str,  # noqa: A002  (as callers name it)
    *,
    seed: bool = True,
    whole: bool = True,
    progress: Callable[[int, int], None] = _unheard,
) -> History:
    """Return the history of a run as it stood when asked: one that lives goes on meanwhile.

    With `seed` it can be replayed; `whole` has large values in place. `progress` hears of how many events are there.

    Raises:
        RunNotFound: no run has this id.
        Unavailable: nobody answers.
        RequestRefused: a node of a newer version wrote what this one cannot read.
    """
    page = await _page(asking, id, 0, seed=seed)
    run, lines = page.run, list(page.events)
    while len(lines) < run.events:
        progress(len(lines), run.events)
        lines += await _next(asking, run.run_id, len(lines), seed=seed)
    try:
        events = as_events(lines[: run.events])
    except (UnknownType, msgspec.MsgspecError) as error:
        raise RequestRefused(f"the history of run {id} cannot be read: {error}", "history") from error
    if whole:
        events = [await _filled(asking, run.run_id, event) for event in events]
    return History(run, events)


async def _page(asking: Asking, id: str, after: int, **more: Any) -> _Page:  # noqa: A002  (as callers name it)
    return await asking.ask("history", _Page, id=id, after=after, limit=PAGE, **more)


async def _next(asking: Asking, run_id: str, after: int, *, seed: bool) -> list[Line]:
    page = await _page(asking, run_id, after, seed=seed)
    if page.events:
        return page.events
    large = bytearray(page.piece)
    while page.piece and not page.last:
        page = await _page(asking, run_id, after, seed=seed, offset=len(large))
        large += page.piece
    if not large:
        raise RequestRefused(f"the history of {run_id} ends after {after} of {page.run.events} events", "history")
    return [read(bytes(large), Line)]


async def _filled(asking: Asking, run_id: str, event: ev.Event) -> ev.Event:
    """Return an event with its large values in place."""
    apart = values_apart(event.body)
    if not apart:
        return event
    values = {name: ev.Value(json=msgspec.Raw(await _value(asking, run_id, value))) for name, value in apart.items()}
    return msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, **values))


async def _value(asking: Asking, run_id: str, value: ev.Value) -> bytes:
    found = bytearray()
    while True:
        piece = await asking.ask("value", Piece, id=run_id, ref=value.ref, offset=len(found))
        found += piece.piece
        if piece.last or not piece.piece:
            break
    if hashlib.sha256(found).hexdigest() != value.ref:
        raise RequestRefused(f"a value of {run_id} came with {len(found):,} bytes, not whole", "value")
    return bytes(found)
