"""Waits until the runs that were fed have ended, or cannot go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from ..answers import RunPage, RunStatus
from ..errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from ..asking import Asking
    from .progress import Progress

__all__ = ["Info", "Outcome", "listed", "until_ended"]

POLL_S: Final = 0.2
LOOK_S: Final = 2.0
"""How often the runs that live are listed by name, while there are too many to do it at each look."""

FEW: Final = 200
LIVE: Final = ("pending", "running", "stalled")


class Info(msgspec.Struct, frozen=True):
    """What a node says of itself, as far as a command needs it."""

    runs: dict[str, int] = {}
    """How many there are by status, and `dead` letters."""
    workflows: list[str] = []
    node: str = ""
    app: str = ""


@dataclass(slots=True)
class Outcome:
    """How the waiting ended: with nothing left, or with runs that cannot go on."""

    stalled: list[RunStatus] = field(default_factory=list[RunStatus])


async def until_ended(asking: Asking, fed: Collection[str] | None, progress: Progress) -> Outcome:
    """Return when no run of these goes on (None: of all). Servers may go and come back meanwhile."""
    looked_s = 0.0
    while True:
        try:
            counts = (await asking.ask("info", Info)).runs
            _show(counts, progress)
            live, now_s = sum(counts.get(status, 0) for status in LIVE), asyncio.get_running_loop().time()
            if live <= FEW or now_s - looked_s > LOOK_S:
                looked_s = now_s
                mine = [run async for run in listed(asking, status="live") if fed is None or run.run_id in fed]
                if all(run.stalled for run in mine):
                    return Outcome(mine)
        except Unavailable as error:
            progress.show(f"waiting: {error}", 0, None)
        await asyncio.sleep(POLL_S)


def _show(counts: Mapping[str, int], progress: Progress) -> None:
    runs = {status: count for status, count in counts.items() if status != "dead" and count}
    total = sum(runs.values())
    told = ", ".join(f"{count} {status}" for status, count in sorted(runs.items()))
    dead = f", {counts['dead']} dead letters" if counts.get("dead") else ""
    live = sum(runs.get(status, 0) for status in LIVE)
    progress.show(f"{total - live} of {total} runs ended: {told}{dead}", total - live, total)


async def listed(asking: Asking, *, status: str = "", workflow: str = "") -> AsyncIterator[RunStatus]:
    """Yield all runs of a status, newest first."""
    before = ""
    while True:
        page = await asking.ask("runs", RunPage, status=status, workflow=workflow, before=before, limit=500)
        for run in page.runs:
            yield run
        before = page.before
        if not before:
            return
