"""What a run does now, folded from its log: its open steps, timers and hooks, and what each of them waits for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fencepost.world import events as ev

from .attempts import Attempts, Progress
from .durations import after

if TYPE_CHECKING:
    from collections.abc import Callable


class Activity:
    """Feed it a log from the beginning, then ask."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._timers: dict[str, ev.Event] = {}
        self._hooks: dict[str, ev.Event] = {}
        self._received: Counter[str] = Counter()
        self._ended = False

    def take(self, event: ev.Event) -> None:
        """Fold one event in."""
        self._progress.take(event)
        match event.body:
            case ev.WaitCreated(op=op):
                self._timers[op] = event
            case ev.WaitCompleted(op=op):
                self._timers.pop(op, None)
            case ev.HookCreated(op=op):
                self._hooks.setdefault(op, event)
            case ev.HookReceived(op=op) if op in self._hooks:
                self._received[op] += 1
            case ev.HookDisposed(op=op):
                self._hooks.pop(op, None)
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled() | ev.RunTerminated():
                self._ended = True
            case _:
                return

    def steps(self, serves: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Return the open steps; `serves` tells whether the node that answers serves a queue."""
        return [] if self._ended else [_step(step, serves) for step in self._progress.open.values()]

    def timers(self) -> list[dict[str, Any]]:
        """Return the timers that have not run out. One that nobody listens to any more is not told apart here."""
        return [] if self._ended else [{"op": op, "due": _due(event)} for op, event in self._timers.items()]

    def hooks(self) -> list[dict[str, Any]]:
        """Return the open hooks, and how many payloads came. How many of them the code has taken is in no log."""
        return [] if self._ended else [self._hook(event) for event in self._hooks.values()]

    def _hook(self, event: ev.Event) -> dict[str, Any]:
        assert isinstance(event.body, ev.HookCreated)  # only those are kept
        op = event.body.op
        return {"op": op, "token": event.body.token, "since": event.at, "received": self._received[op]}


def _step(step: Attempts, serves: Callable[[str], bool]) -> dict[str, Any]:
    queue = step.created.queue
    if step.running:
        state = "running"
    elif step.retry_at is not None:
        state = "waiting to be tried again"
    else:
        state = "waiting for a slot" if serves(queue) else f"waiting for a node that serves queue {queue!r}"
    return {
        "op": step.op,
        "name": step.created.name,
        "queue": queue,
        "state": state,
        "attempt": step.attempt,
        "lost": step.lost,
        "retry_at": step.retry_at,
    }


def _due(event: ev.Event) -> Any:
    assert isinstance(event.body, ev.WaitCreated)  # only those are kept
    return event.body.until or after(event.at, event.body.delay_s)
