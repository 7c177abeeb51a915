"""What the outlets of all journals share: calling a function with many asks, and reading what it says of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from .. import rows
from ..errors import RunEnded, RunNotFound, Superseded, Unavailable
from .driver import pg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..events import Event
    from .connecting import Connections
    from .statements import Statement

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")

ALL_BUSY: Final = (pg.LockNotAvailableError, pg.DeadlockDetectedError)
"""A lock that could not be passed over was not to be had. Alone, each ask waits for its own."""

_landed = msgspec.json.Decoder(list[tuple[int, int | None, int, str, str]])


async def flushed(
    connections: Connections,
    statement: Statement,
    parameters: Mapping[str, Any],
    asks: Sequence[Ask],
    read: Callable[[Ask, Any], Answer | Exception | None],
) -> list[Answer | Exception | None]:
    """Call a function for many asks and return what is read of its rows, one each; None for busy.

    Raises:
        Exception: as `Outlet.flush`.
    """
    try:
        found = await connections.all(statement, **parameters)
    except Unavailable as error:
        if isinstance(error.__cause__, ALL_BUSY):
            return [None for _ in asks]
        raise _blamed(error, len(asks)) from error.__cause__
    except pg.DataError as error:
        raise ValueError(f"Postgres cannot keep what was asked for ({error}): leave out what it names") from error
    return [_read(read, ask, row) for ask, row in zip(asks, found, strict=True)]


def _blamed(error: Unavailable, count: int) -> Exception:
    """Return the error, or its cause where the connection is not to blame but one of the asks, or their number."""
    cause = error.__cause__
    is_theirs = isinstance(cause, ValueError) or (isinstance(cause, pg.QueryCanceledError) and count > 1)
    return cause if is_theirs and isinstance(cause, Exception) else error


def _read(read: Callable[[Ask, Any], Answer | Exception | None], ask: Ask, row: Any) -> Answer | Exception | None:
    """Read one row. It was committed with the others: an error here is its caller's only, and nothing is repeated."""
    try:
        return read(ask, row)
    except Exception as error:  # noqa: BLE001  (the verdict of this ask)
        return error


def columns(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Turn lines into named columns."""
    if not lines:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*lines, strict=True)), strict=True))


def landed(run_id: str, text: str | None) -> tuple[Event, ...]:
    """Read events that came as JSON."""
    return () if text is None else rows.events(run_id, _landed.decode(text))  # type: ignore[arg-type]


def refusal_of(row: Any, run_id: str) -> Exception | None:
    """Return what verdicts say that several functions give, None for a busy run."""
    match row["verdict"]:
        case "busy":
            return None
        case "not_found":
            return RunNotFound(run_id)
        case "ended":
            return RunEnded(run_id, row["said"])
        case "superseded":
            return Superseded(run_id)
        case verdict:
            raise AssertionError(f"a verdict nobody knows: {verdict}")
