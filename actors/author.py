"""What authors call inside a workflow besides steps and asyncio: time, timers, randomness, ids."""

from __future__ import annotations

import asyncio
import random as _random
import uuid as _uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from . import stand_ins
from .durations import seconds
from .errors import FencepostError

if TYPE_CHECKING:
    from .turn import Turn


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Which run the calling workflow code belongs to."""

    run_id: str
    workflow: str


async def sleep(duration: float | str | timedelta | datetime) -> None:
    """Sleep durably: seconds, `"3d"`, a timedelta, or until an instant (naive ones are UTC).

    Zero is a yield. Outside a workflow it is `asyncio.sleep`.

    Raises:
        ValueError: negative or not a duration.
    """
    if isinstance(duration, datetime):
        await _sleep_until(duration if duration.tzinfo else duration.replace(tzinfo=UTC))
    else:
        await asyncio.sleep(seconds(duration))


async def _sleep_until(instant: datetime) -> None:
    turn = stand_ins.current_turn()
    if turn is None:
        await asyncio.sleep(max(0.0, (instant - datetime.now(UTC)).total_seconds()))
    elif instant > turn.now():
        await turn.timer_until(instant)


def timeout(duration: float | str | timedelta | None) -> asyncio.Timeout:
    """Bound a block durably: it raises TimeoutError when the duration is over. None means no bound.

    Raises:
        ValueError: negative or not a duration.
    """
    return asyncio.timeout(None if duration is None else seconds(duration))


def now() -> datetime:
    """Return the time of what the workflow reacts to, the same in every replay; outside, the clock."""
    turn = stand_ins.current_turn()
    return datetime.now(UTC) if turn is None else turn.now()


def random() -> float:
    """Draw a float from [0, 1), the same in every replay."""
    turn = stand_ins.current_turn()
    return _random.random() if turn is None else turn.entropy.uniform(*turn.draw())  # noqa: S311  (not for secrets)


def uuid4() -> _uuid.UUID:
    """Return a UUID, the same in every replay."""
    turn = stand_ins.current_turn()
    return _uuid.uuid4() if turn is None else turn.entropy.uuid4(*turn.draw())


def run_info() -> RunInfo:
    """Return which run the calling workflow code belongs to.

    Raises:
        FencepostError: called outside workflow code.
    """
    turn: Turn | None = stand_ins.current_turn()
    if turn is None:
        raise FencepostError("run_info() was called outside a workflow; in a step use step_info()")
    return RunInfo(turn.run_id, turn.workflow.name)
