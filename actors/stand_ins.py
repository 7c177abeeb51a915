"""What stands in for the standard library while workflow code runs, and only then.

`time.time`, `random.*`, `uuid.uuid4`, `os.urandom` reached through their modules give values a replay repeats; `print`
and `logging` fall silent while the past is replayed, and wait while the code runs ahead; `asyncio.wait`,
`as_completed` and `wait_for` are ours, because the standard ones iterate sets by address or name operations
differently between Python versions.

Every stand-in asks whether the *calling thread* runs a workflow loop and hands on to the original otherwise, so that
other threads notice nothing but one more call.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import random
import sys
import threading
import time
import uuid
from asyncio import events
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from . import ahead, gathering
from .errors import NondeterminismError
from .loop import WorkflowLoop
from .paths import PathGathering, owner_of

if TYPE_CHECKING:
    from types import ModuleType

    from .ahead import Saying
    from .turn import Turn

RUNTIME = {"logging", "opentelemetry", "structlog", "fencepost", "asyncio"}
"""Modules that keep the real clock and real randomness also inside a turn: tracing must not change decisions."""

RANDOM_FUNCTIONS = (
    *("betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits", "lognormvariate"),
    *("normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange", "sample", "shuffle"),
    *("triangular", "uniform", "vonmisesvariate", "weibullvariate"),
)


def current_turn() -> Turn | None:
    """Return the turn this thread is in, None outside workflow code."""
    loop = events._get_running_loop()
    return loop.scribe if isinstance(loop, WorkflowLoop) else None  # type: ignore[return-value]


def _users_turn() -> Turn | None:
    turn = current_turn()
    if turn is None or sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] in RUNTIME:
        return None
    return turn


def _clock(original: Callable[[], Any], scale: int | None) -> Callable[[], Any]:
    def clock() -> Any:
        turn = _users_turn()
        if turn is None:
            return original()
        return turn.loop.now_s if scale is None else round(turn.loop.now_s * 1e6) * 1000

    return clock


def _drawn(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        turn = _users_turn()
        if turn is None:
            return original(*args, **kwargs)
        return getattr(turn.entropy.generator(*turn.draw()), name)(*args, **kwargs)

    return drawn


def _uuid4(original: Callable[[], uuid.UUID]) -> Callable[[], uuid.UUID]:
    def uuid4() -> uuid.UUID:
        turn = _users_turn()
        return original() if turn is None else turn.entropy.uuid4(*turn.draw())

    return uuid4


def _urandom(original: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def urandom(size: int, /) -> bytes:
        turn = _users_turn()
        return original(size) if turn is None else turn.entropy.block(*turn.draw(), size=size)

    return urandom


def _said(original: Callable[..., Any], later: Callable[..., Saying]) -> Callable[..., Any]:
    """Say nothing while the past is replayed, and later what is said while running ahead."""

    def said(*args: Any, **kwargs: Any) -> Any:
        turn = current_turn()
        if turn is None:
            return original(*args, **kwargs)
        if turn.muted:
            return None
        if turn.is_ahead:
            return turn.held.take(later(original, *args, **kwargs))
        return original(*args, **kwargs)

    return said


def _refused(message: str) -> Callable[[Any], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            turn = current_turn()
            if turn is None:
                return original(*args, **kwargs)
            raise turn.offence(NondeterminismError(message))

        return refused

    return make


def _ours(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def either(*args: Any, **kwargs: Any) -> Any:
        return (original if current_turn() is None else ours)(*args, **kwargs)

    either.__name__ = either.__qualname__ = original.__name__
    return either


_ASYNCIO = {
    name: _ours(getattr(asyncio, name), getattr(gathering, name)) for name in ("wait", "as_completed", "wait_for")
}


Maker = Callable[[Any], Any]


def _table() -> list[tuple[Any, str, Maker]]:
    """Return what is replaced: an owner, the name in it, and how to make the stand-in from the original."""
    clocks = ("time", "monotonic", "perf_counter")
    return [
        *((time, name, partial(_clock, scale=None)) for name in clocks),
        *((time, f"{name}_ns", partial(_clock, scale=1)) for name in clocks),
        *((random, name, partial(_drawn, name=name)) for name in RANDOM_FUNCTIONS),
        *(
            (module, name, partial(_always, either))
            for module in (asyncio, asyncio.tasks)
            for name, either in _ASYNCIO.items()
        ),
        (asyncio.tasks, "_GatheringFuture", partial(_always, PathGathering)),
        (uuid, "uuid4", _uuid4),
        (os, "urandom", _urandom),
        (random, "_urandom", _urandom),
        (builtins, "print", partial(_said, later=ahead.printing)),
        (logging.Logger, "handle", partial(_said, later=ahead.logging)),
        # Neither raises an audit event on Python 3.11, so `watch` cannot see them there.
        (time, "sleep", _refused("workflow code called time.sleep: use `await sleep(…)`, which blocks nobody")),
        (threading.Thread, "start", _refused("workflow code started a thread: put it into a @step")),
    ]


def _always(either: Any, _original: Any) -> Any:
    return either


class _Switch:
    """Puts the stand-ins in place while at least one turn of the process runs, whatever its thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._rows = [(owner, name, make(getattr(owner, name))) for owner, name, make in _table()]
        self._originals: list[Any] = []

    def on(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._originals = [getattr(owner, name) for owner, name, _ in self._rows]
                for owner, name, ours in self._rows:
                    setattr(owner, name, ours)

    def off(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for (owner, name, _), original in zip(self._rows, self._originals, strict=True):
                    setattr(owner, name, original)


_switch = _Switch()


class standing_in:  # noqa: N801  (reads as a verb)
    """Put the stand-ins in place for a block."""

    __slots__ = ()

    def __enter__(self) -> None:
        _switch.on()

    def __exit__(self, *_: object) -> None:
        _switch.off()


def rebind(module: ModuleType | dict[str, Any]) -> None:
    """Let names that a workflow's module took from asyncio (`from asyncio import wait_for`) reach ours too."""
    names = module if isinstance(module, dict) else vars(module)
    originals = {id(getattr(asyncio, name)): either for name, either in _ASYNCIO.items()}
    for name, value in list(names.items()):
        either = originals.get(id(value))
        if either is not None:
            names[name] = either


def draw_owner(loop: WorkflowLoop) -> tuple[str, int]:
    """Name the next draw of randomness: the task that asks, and how many it took before."""
    task = owner_of(loop)
    return task.path, task.next_draw()
