"""How a run ended, as a command shows it; waits for the end, but not for one that needs a person first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..answers import Ending
from ..errors import Unavailable
from ..handle import RunHandle
from .output import plain, plain_lines
from .raised import error_text, recorded

if TYPE_CHECKING:
    from ..asking import Asking

__all__ = ["Ended", "ended", "shown"]

WAIT_S: Final = 2.0
"""How long one question waits: a run that stalls meanwhile is told by the next one only."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run, or where it is stuck."""

    status: str
    result: bytes = b"null"
    """JSON."""
    error: str = ""
    code: str = ""
    traceback: str = ""
    """What was recorded where it was raised, with its causes, if that was asked for."""

    def view(self) -> dict[str, Any]:
        """Return it for machines."""
        if self.status == "completed":
            return {"status": self.status, "result": msgspec.Raw(self.result)}
        more = {"traceback": self.traceback} if self.traceback else {}
        return {"status": self.status, "code": self.code, "error": self.error, **more}

    def result_text(self) -> str:
        """Return the result for people: JSON with room in it."""
        return msgspec.json.format(self.result, indent=2).decode(errors="replace")


async def ended(asking: Asking, run_id: str, *, limit_s: float | None = None, verbose: bool = False) -> Ended:
    """Return how a run ended, once it did or is stalled. Servers may go and come back meanwhile.

    After `limit_s` it is how far the run is, with its own status; with 0 it is looked at once. When `verbose` a
    failure has its traceback.
    """
    now_s = asyncio.get_running_loop().time
    until_s = None if limit_s is None else now_s() + limit_s
    while True:
        left_s = WAIT_S if until_s is None else max(0.0, min(WAIT_S, until_s - now_s()))
        try:
            ending = await asking.ask("result", Ending, id=run_id, wait_s=left_s)
        except Unavailable:
            if not asking.answered or not left_s:
                raise
            continue
        if not ending.waiting or ending.stalled:
            return await _told(asking, ending, verbose=verbose)
        if not left_s:
            return Ended(ending.status, error="the time to wait is over, the run goes on")


async def _told(asking: Asking, ending: Ending, *, verbose: bool) -> Ended:
    if ending.stalled:
        return Ended("stalled", error=ending.stalled)
    if ending.status != "completed":
        said = error_text(ending.error) or ending.reason
        raised = await recorded(asking, ending.run_id, ending.error) if verbose and ending.error else ""
        return Ended(ending.status, error=said, code=ending.code, traceback=raised)
    if ending.ref:
        large = RunHandle(asking, ending.run_id, ending.run_id, bytes)
        return Ended("completed", await large.result())
    return Ended("completed", bytes(ending.result))


def shown(id: str, end: Ended) -> str:  # noqa: A002  (as users call it)
    """Return one sentence about a run that did not complete; below it where it was raised, if that is known."""
    verb = {"failed": "has", "cancelled": "was", "terminated": "was"}.get(end.status, "is")
    sentence = f"run {plain(id)} {verb} {end.status}" + (f": {plain(end.error)}" if end.error else "")
    return f"{sentence}\n{plain_lines(end.traceback)}" if end.traceback else sentence
