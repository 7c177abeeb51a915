"""One session: a process of its own that opens a pair, measures what it is told to, and writes a line for each.

A process each, so that nothing of one measurement (memory, warm caches, a full heap) is in the next.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from . import floor, floor_stack
from .counting import count
from .lag import lag
from .noise import Watch, calm
from .processes import kill, rest
from .signals import bursts, w8
from .sleeping import fall_asleep, wake_among
from .stack import opened, serving
from .startup import start_up
from .workloads import QUICK, WORKLOADS, Size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from .stack import Stack

ALONE: Final = ("FLOOR", "COUNT", "W9", "RESTART", "START", "NODE", "KILL")
"""What opens its own stack, or none."""

INSIDE: Final = WORKLOADS | {"W8": w8, "BURST": bursts, "LAG": lag}


async def session(pair: str, labels: Sequence[str], folder: Path, *, quick: bool, began_at: float) -> None:
    """Measure and print a line of JSON each. Told to end, it ends the servers it started."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # what is printed is read by who started us
    )
    size = QUICK if quick else Size()
    for label in [label for label in labels if label in ALONE]:
        await _measured(label, size, None, partial(_alone, label, pair, folder, size, began_at))
    inside = [label for label in labels if label in INSIDE]
    if inside:
        async with opened(pair, folder) as stack:
            for label in inside:
                await _measured(
                    label, size, partial(_commit_ms, stack, folder, size), partial(INSIDE[label], stack, size)
                )


async def _alone(label: str, pair: str, folder: Path, size: Size, began_at: float) -> dict[str, float]:
    measures: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
        "FLOOR": lambda: _floor(pair, folder, size),
        "COUNT": lambda: count(pair, folder, size),
        "W9": lambda: fall_asleep(pair, folder, size),
        "RESTART": lambda: wake_among(pair, folder, began_at),
        "NODE": lambda: rest(folder, size),
        "KILL": lambda: kill(folder, size),
        "START": lambda: start_up(folder / "project"),
    }
    return await measures[label]()


async def _floor(pair: str, folder: Path, size: Size) -> dict[str, float]:
    if pair != "stack":
        return await floor.floor(folder / "floor", times=size.floor)
    async with serving(pair, folder) as servers:
        return await floor_stack.floor_stack(servers, times=size.floor)


async def _measured(
    label: str,
    size: Size,
    commit_ms: Callable[[], Awaitable[float]] | None,
    measure: Callable[[], Awaitable[dict[str, float]]],
) -> None:
    """Measure when the machine is calm, or say what went wrong: a failed measurement is a result too."""
    if label != "RESTART":  # its clock runs already
        await calm(size.calm_s)
    watch, row = Watch(), dict[str, object](workload=label)
    try:
        before_ms = await commit_ms() if commit_ms else 0.0
        row["figures"] = {name: round(value, 4) for name, value in (await measure()).items()}
        row["commit_ms"] = (before_ms + (await commit_ms() if commit_ms else 0.0)) / 2
    except Exception as error:  # noqa: BLE001  (see above)
        row |= {"figures": {}, "error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(row | watch.stop()), flush=True)


async def _commit_ms(stack: Stack, folder: Path, size: Size) -> float:
    """Return what a commit takes now, where the pair commits."""
    times, postgres = size.floor // 10, stack.servers.postgres
    if postgres is None:
        return await floor.commit_now_ms(folder / "floor.db", times)
    return await floor_stack.commit_now_ms(postgres.url, times)
