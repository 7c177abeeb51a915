"""One session: a process of its own that opens a pair, measures what it is told to, and writes a line for each.

A process each, so that nothing of one measurement (memory, warm caches, a full heap) is in the next.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from .counting import count
from .floor import commit_now_ms, floor
from .noise import Watch, calm
from .sleeping import fall_asleep, wake_among
from .stack import opened
from .startup import start_up
from .workloads import QUICK, WORKLOADS, Size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

ALONE: Final = ("FLOOR", "COUNT", "W9", "RESTART", "START")
"""What opens its own stack, or none."""


async def session(pair: str, labels: Sequence[str], folder: Path, *, quick: bool, began_at: float) -> None:
    """Measure and print a line of JSON each."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # what is printed is read by who started us
    )
    size = QUICK if quick else Size()
    for label in [label for label in labels if label in ALONE]:
        await _measured(label, size, None, partial(_alone, label, pair, folder, size, began_at))
    inside = [label for label in labels if label in WORKLOADS]
    if inside:
        async with opened(pair, folder) as stack:
            for label in inside:
                await _measured(label, size, folder / "floor.db", partial(WORKLOADS[label], stack, size))


async def _alone(label: str, pair: str, folder: Path, size: Size, began_at: float) -> dict[str, float]:
    match label:
        case "FLOOR":
            return await floor(folder / "floor", times=size.floor)
        case "COUNT":
            return await count(pair, folder, size)
        case "W9":
            return await fall_asleep(pair, folder, size)
        case "RESTART":
            return await wake_among(pair, folder, began_at)
        case _:
            return await start_up(folder / "project")


async def _measured(
    label: str, size: Size, beside: Path | None, measure: Callable[[], Awaitable[dict[str, float]]]
) -> None:
    """Measure when the machine is calm, or say what went wrong: a failed measurement is a result too."""
    if label != "RESTART":  # its clock runs already
        await calm(size.calm_s)
    watch, row = Watch(), dict[str, object](workload=label)
    try:
        before_ms = await _commit_ms(beside, size)
        row["figures"] = {name: round(value, 4) for name, value in (await measure()).items()}
        row["commit_ms"] = (before_ms + await _commit_ms(beside, size)) / 2
    except Exception as error:  # noqa: BLE001  (see above)
        row |= {"figures": {}, "error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(row | watch.stop()), flush=True)


async def _commit_ms(beside: Path | None, size: Size) -> float:
    return await commit_now_ms(beside, size.floor // 10) if beside is not None else 0.0
