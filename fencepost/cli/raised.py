"""Errors as they were recorded: one line, or with the frames, the causes, and the failed steps behind a run's end."""

from __future__ import annotations

import textwrap
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from ..answers import EventPage, RunEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fencepost.world import events as ev

    from ..asking import Asking

__all__ = ["error_text", "recorded"]

PAGE: Final = 200
STEPS_SHOWN: Final = 3
"""The last failed steps: those before were handled, or there are many of a kind."""


class Raised(msgspec.Struct, frozen=True):
    """The part of a recorded error that people read."""

    type: str
    message: str
    traceback: str = ""
    cause: Raised | None = None
    group: list[Raised] = []


def error_text(error: ev.ErrorData | Raised | None) -> str:
    """Return an error as people read it: its type's name and its message."""
    if error is None:
        return ""
    name = error.type.rpartition(":")[2].rpartition(".")[2]
    return ": ".join(part for part in (name, error.message) if part)


async def recorded(asking: Asking, run_id: str, error: ev.ErrorData) -> str:
    """Return a run's error with its frames and causes, and those of the last failed steps."""
    parts = [_traced(error)]
    async for step, attempts, raised in _failed_steps(asking, run_id):
        parts.append(f"in step {step}, attempt {attempts}: {_traced(raised)}")
    return "\n".join(parts)


async def _failed_steps(asking: Asking, run_id: str) -> AsyncIterator[tuple[str, int, Raised]]:
    names: dict[str, str] = {}
    failed: deque[RunEvent] = deque(maxlen=STEPS_SHOWN)
    page, after = EventPage(run_id, []), 0
    while not page.over:
        page = await asking.ask("events", EventPage, id=run_id, after=after, limit=PAGE)
        if not page.events:
            break
        after = page.events[-1].seq
        names |= {event.op: str(event.data.get("name")) for event in page.events if event.type == "step_created"}
        failed.extend(event for event in page.events if event.type == "step_failed" and event.data.get("error"))
    for event in failed:
        raised = msgspec.convert(event.data["error"], Raised)
        yield names.get(event.op, event.op), int(event.data.get("attempt", 1)), raised


def _traced(error: ev.ErrorData | Raised) -> str:
    """Return an error with its frames, and each cause below what it led to."""
    parts = [f"{error_text(error)}\n{error.traceback}".rstrip()]
    parts += [textwrap.indent(_traced(member), "  ") for member in error.group]
    if error.cause is not None:
        parts.append(f"caused by {_traced(error.cause)}")
    return "\n".join(parts)
