"""What a run's code has asked for so far, by path: the book the turn keeps.

An operation once issued stays known, also when it is settled or nobody listens any more (a *tombstone*): the log may
still hold events about it, and they must find it. What has to be written is *wanted minus logged*: `unlogged` and
`to_end`, computed at the end of a tick and not while the code runs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from fencepost.world import events as ev

from .paths import comes_after

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine, Iterator
    from types import CodeType, FrameType

    from .define import Step
    from .inbox import Inbox

log = structlog.get_logger(__name__)

Order = ev.StepCreated | ev.WaitCreated | ev.HookCreated
Ending = ev.StepCancelled | ev.HookDisposed


class Diverged(Exception):
    """The code and the log tell different stories. Both sides are in the message."""


@dataclass(slots=True, eq=False)
class Operation:
    """One operation. `logged` is the event that created it, None until it is durable."""

    path: str
    order: Order
    issued_at: int
    """The position that was being fed when the code asked for it."""
    site: str
    step: Step[Any, Any] | None = None
    future: asyncio.Future[Any] | None = None
    handle: asyncio.TimerHandle | None = None
    inbox: Inbox | None = None
    logged: ev.Event | None = None
    settled: bool = False
    abandoned: bool = False

    @property
    def place(self) -> str:
        """Where in the user's code it was asked for, to be put behind a sentence."""
        return f" ({self.site})" if self.site else ""

    @property
    def listening(self) -> bool:
        """Whether the code still waits for its result."""
        return not (self.settled or self.abandoned)

    @property
    def ending(self) -> Ending | None:
        """What the log is told when nobody waits any more: a step's body is to stop, a hook's token is free."""
        if isinstance(self.order, ev.HookCreated):
            return ev.HookDisposed(op=self.path, token=self.order.token)
        told = self.step is not None and self.step.on_cancel != "abandon"
        return ev.StepCancelled(op=self.path) if told else None

    def is_due(self, now: datetime) -> bool:
        """Tell whether a logged timer has run out."""
        at = self.due_at
        return at is not None and at <= now

    @property
    def due_at(self) -> datetime | None:
        """When a logged timer runs out: fixed once, counted from the event that created it."""
        if self.logged is None or not isinstance(self.logged.body, ev.WaitCreated):
            return None
        body = self.logged.body
        return body.until or self.logged.at + timedelta(seconds=body.delay_s)


class Operations:
    """All operations of one run."""

    def __init__(self) -> None:
        self.by_path: dict[str, Operation] = {}
        self.unlogged: dict[str, Operation] = {}
        self.to_end: dict[str, Operation] = {}
        self.open: dict[str, Operation] = {}
        """What can make the code go on: a hook only while somebody waits for it."""
        self.hooks: dict[str, Operation] = {}
        self._timers: dict[int, Operation] = {}

    def issue(self, operation: Operation) -> Operation:
        """Take a new operation in."""
        path = operation.path
        self.by_path[path] = self.unlogged[path] = operation
        (self.open if operation.inbox is None else self.hooks)[path] = operation
        if operation.handle is not None:
            self._timers[id(operation.handle)] = operation
        return operation

    def listen(self, path: str, *, waits: bool) -> None:
        """Note whether somebody waits for a hook."""
        if waits:
            self.open[path] = self.by_path[path]
        else:
            self.open.pop(path, None)

    def by_timer(self, handle: asyncio.TimerHandle) -> Operation | None:
        """Return the operation behind a timer that somebody still listens to."""
        return self._timers.get(id(handle))

    def abandon(self, operation: Operation) -> None:
        """Note that nobody waits for an operation any more: see `Operation.ending`; a timer just falls silent."""
        if not operation.listening:
            return
        operation.abandoned = True
        self._close(operation)
        if operation.logged is None:
            self.unlogged.pop(operation.path, None)
        elif operation.ending is not None:
            self.to_end[operation.path] = operation

    def settle(self, path: str, what: str) -> Operation | None:
        """Note the result of an operation. None when nobody listens or it had one: the event is inert.

        Raises:
            Diverged: the code never issued it.
        """
        operation = self._known(path, what)
        if not operation.listening:
            operation.settled = True
            self.to_end.pop(path, None)
            return None
        operation.settled = True
        self._close(operation)
        return operation

    def conflict(self, body: ev.HookConflict) -> Operation | None:
        """Note that a hook was never made, its token being another's. None when nobody listens.

        Raises:
            Diverged: the code never asked for it.
        """
        self._match(body.op, f"hook {body.token!r}")
        self.unlogged.pop(body.op, None)
        return self.settle(body.op, f"hook {body.token!r}")

    def retract(self, path: str) -> list[Operation]:
        """Take back the steps that the task of an operation, and tasks it began later, asked for after it.

        Only what is not logged: what the log holds at a position is the same live and in every replay.
        """
        later = [o for o in self.unlogged.values() if o.step is not None and comes_after(o.path, path)]
        for operation in later:
            self.abandon(operation)
        return later

    def received(self, path: str) -> Operation | None:
        """Return the hook a payload is for. None when the code has disposed it: the payload came too late.

        Raises:
            Diverged: the code never asked for it.
        """
        operation = self._known(path, "a payload")
        return operation if operation.listening else None

    def log(self, event: ev.Event) -> None:
        """Match an order in the log with the operation the code issued.

        Raises:
            Diverged: the code issued another one there, or none.
        """
        order = event.body
        assert isinstance(order, Order)
        operation = self._match(order.op, describe(order))
        self._compare_arguments(operation, order)
        operation.logged = operation.logged or _without_values(event)
        operation.order = _without_arguments(operation.order)
        self.unlogged.pop(order.op, None)
        if operation.abandoned and not operation.settled and operation.ending is not None:
            self.to_end[order.op] = operation

    def _match(self, path: str, what: str) -> Operation:
        operation = self._known(path, what)
        if describe(operation.order) != what:
            raise Diverged(
                f"at {path} the log has {what}, the code now asks for {describe(operation.order)}{operation.place}"
            )
        return operation

    @staticmethod
    def _compare_arguments(operation: Operation, order: Order) -> None:
        """Other arguments are no divergence, since a model may gain a field in a deploy, but worth a word."""
        mine = operation.order
        if isinstance(mine, ev.StepCreated) and isinstance(order, ev.StepCreated) and mine.digest != order.digest:
            log.warning("a step is asked for with other arguments than before", step=order.name, op=order.op)

    def log_end(self, body: Ending) -> None:
        """Match a cancelled step or a disposed hook in the log with the code, which must have given it up.

        Raises:
            Diverged: the code still has it, or never issued it.
        """
        path = body.op
        operation = self._known(path, "a cancelled step" if isinstance(body, ev.StepCancelled) else "a disposed hook")
        if operation.listening:
            raise Diverged(f"the log says that the code gave up {path}, but it waits for it{operation.place}")
        self.to_end.pop(path, None)

    def check_decided(self, decided_seq: int) -> None:
        """See to it that nothing asked for before the last decision is missing in the log.

        Raises:
            Diverged: the code asks for something its former version did not.
        """
        for operation in self.unlogged.values():
            if operation.issued_at <= decided_seq:
                raise Diverged(
                    f"at {operation.path} the code now asks for {describe(operation.order)}"
                    f"{operation.place}, where the log has nothing"
                )

    def waits(self) -> Iterator[Operation]:
        """Return the timers somebody listens to and that are durable."""
        return (o for o in self.open.values() if o.handle is not None and o.logged is not None)

    def _known(self, path: str, what: str) -> Operation:
        operation = self.by_path.get(path)
        if operation is None:
            raise Diverged(f"the log has {what} at {path}, where the code now asks for nothing")
        return operation

    def _close(self, operation: Operation) -> None:
        self.open.pop(operation.path, None)
        self.hooks.pop(operation.path, None)
        if operation.handle is not None:
            self._timers.pop(id(operation.handle), None)


def _without_values(event: ev.Event) -> ev.Event:
    """Return the event of an order without its arguments: a run with many steps keeps none of them in memory."""
    if isinstance(event.body, ev.StepCreated | ev.HookCreated):
        return msgspec.structs.replace(event, body=_without_arguments(event.body))
    return event


def _without_arguments(order: Order) -> Order:
    match order:
        case ev.StepCreated():
            return msgspec.structs.replace(order, args=ev.Value())
        case ev.HookCreated():
            return msgspec.structs.replace(order, schema=ev.NO_JSON)
        case _:
            return order


def describe(order: Order) -> str:
    """Return what identifies an operation: its kind and name, nothing else (arguments and models may change)."""
    match order:
        case ev.StepCreated(name=name):
            return f"step {name!r}"
        case ev.HookCreated(token=token):
            return f"hook {token!r}"
        case ev.WaitCreated():
            return "a timer"


# ---- where in the user's code

_STDLIB = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  (compared with co_filename, which is text)
_OURS = ("fencepost.", "asyncio.", "contextlib", "structlog", "concurrent.")


def call_site() -> str:
    """Return `file:line` of the nearest frame of the user's code, empty when there is none."""
    return line_of(sys._getframe(1))


def line_of(frame: FrameType | None) -> str:
    """Return `file:line` of the nearest frame of the user's code at or below one, empty when there is none.

    What is below the run's loop is who runs it, not the workflow: a task without a frame of its own has no line.
    """
    while frame is not None and not _is_loop(frame):
        if _is_users(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def awaiting_line(coro: Coroutine[Any, Any, Any] | None) -> str:
    """Return `file:line` of the deepest await in the user's code, as `code (await)`."""
    line = ""
    awaited: Any = coro
    while awaited is not None:
        awaited = getattr(awaited, "inner", awaited)
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None and _is_users(frame):
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return line


def _is_loop(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "fencepost.actors.loop" and frame.f_code.co_name == "run_until_quiet"


def _is_users(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return not name.startswith(_OURS) and name not in {"asyncio", "fencepost"} and _is_code(frame.f_code)


def _is_code(code: CodeType) -> bool:
    """Tell whether code is neither frozen nor of the standard library."""
    name = code.co_filename
    return not name.startswith("<frozen") and not (name.startswith(_STDLIB) and "site-packages" not in name)
