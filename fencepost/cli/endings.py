"""How a run ended, as a command shows it; waits for the end, but not for one that needs a person first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..answers import Ending
from ..errors import Unavailable
from ..handle import RunHandle
from .output import plain

if TYPE_CHECKING:
    from fencepost.world import events as ev

    from ..asking import Asking

__all__ = ["Ended", "ended", "error_text", "shown"]

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

    def view(self) -> dict[str, Any]:
        """Return it for machines."""
        if self.status == "completed":
            return {"status": self.status, "result": msgspec.Raw(self.result)}
        return {"status": self.status, "code": self.code, "error": self.error}

    def result_text(self) -> str:
        """Return the result for people: JSON with room in it."""
        return msgspec.json.format(self.result, indent=2).decode(errors="replace")


async def ended(asking: Asking, run_id: str, *, wait_s: float = WAIT_S) -> Ended:
    """Return how a run ended, once it did or is stalled. Servers may go and come back meanwhile.

    With `wait_s=0` it is looked at once; the status of one that goes on is its own.
    """
    while True:
        try:
            ending = await asking.ask("result", Ending, id=run_id, wait_s=wait_s)
        except Unavailable:
            if not asking.answered:
                raise
            continue
        if not ending.waiting or ending.stalled or not wait_s:
            return await _told(asking, ending)


async def _told(asking: Asking, ending: Ending) -> Ended:
    if ending.stalled:
        return Ended("stalled", error=ending.stalled)
    if ending.status != "completed":
        return Ended(ending.status, error=error_text(ending.error) or ending.reason, code=ending.code)
    if ending.ref:
        large = RunHandle(asking, ending.run_id, ending.run_id, bytes)
        return Ended("completed", await large.result())
    return Ended("completed", bytes(ending.result))


def error_text(error: ev.ErrorData | None) -> str:
    """Return an error as people read it: its type's name and its message."""
    if error is None:
        return ""
    name = error.type.rpartition(":")[2].rpartition(".")[2]
    return ": ".join(part for part in (name, error.message) if part)


def shown(id: str, end: Ended) -> str:  # noqa: A002  (as users call it)
    """Return one sentence about a run that did not complete."""
    verb = {"stalled": "is", "failed": "has"}.get(end.status, "was")
    return f"run {plain(id)} {verb} {end.status}" + (f": {plain(end.error)}" if end.error else "")
