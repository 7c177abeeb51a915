"""One attempt of a step: what is called, what can come of it, and the calling itself.

Doing and deciding apart: everything here says what happened. Whether it is tried again is `retry`'s business, and
what is written down the decider's.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fencepost.world import ValueTooLarge, events

from .errors import SerializationError
from .failures import bearable, describe

if TYPE_CHECKING:
    from .codec import Parameters, Returns


@dataclass(frozen=True, slots=True)
class Call:
    """An attempt to be made. `fn` is the undecorated function, `args` what `params` wrote."""

    run_id: str
    op: str
    step_name: str
    fn: Callable[..., Any]
    args: bytes
    params: Parameters
    returns: Returns
    attempt: int
    token: str
    idempotency_key: str
    timeout_s: float | None = None
    isolate: bool = False
    value_bytes_max: int = 16 * 1024 * 1024


# ---- what can come of it


@dataclass(frozen=True, slots=True)
class Succeeded:
    """It returned; `result` is its JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """It raised, or its result cannot cross. `exception` is live, for the retry decision only."""

    error: events.ErrorData
    exception: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """It took longer than it may. With `still_running` its body has not ended: see `Executor.ended`."""

    still_running: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """The process it ran in died. No failure of the step (L14)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It was told to stop and did, without a result."""


Done = Succeeded | Failed | TimedOut | Lost | Cancelled


def failed(exc: BaseException) -> Failed:
    """Return the outcome of an attempt that raised."""
    looked_at = bearable(exc)
    return Failed(describe(looked_at), looked_at)


# ---- what the body sees

Tell = Callable[[str, bytes], Future[None]]
"""Tells who follows a topic of the live feed; may be called in any thread, and never raises."""


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What a step body can ask about itself. `idempotency_key` is the same for all attempts of one step call."""

    run_id: str
    op: str
    step: str
    attempt: int
    idempotency_key: str
    app: Any = None
    _told: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _tell_others: Tell | None = field(default=None, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether the step was told to stop. A sync step should look at it now and then."""
        return self._told.is_set()


def tell(info: StepInfo) -> None:
    """Let a body see that it was told to stop. For who runs it; not part of what users see."""
    info._told.set()  # noqa: SLF001  (hidden from users, not from this file)


_current: Final[ContextVar[StepInfo]] = ContextVar("fencepost_step")


def step_info() -> StepInfo:
    """Return what is known about the step this code runs in.

    In a step that is called outside of a run (a unit test) it is a stand-in with a key of its own.
    """
    info = _current.get(None)
    return info or StepInfo(run_id="", op="", step="", attempt=1, idempotency_key=f"outside-{uuid.uuid4().hex}")


def current_step() -> StepInfo | None:
    """Return the step this code runs in, or None outside of one."""
    return _current.get(None)


# ---- calling


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell whether a step's body runs on the step loop (else in a thread)."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  (callable objects)


async def attempt_async(call: Call, info: StepInfo) -> Done:
    """Run an async body to its end, whatever that is. Never raises.

    Everything is caught here, inside the body's own task: a `SystemExit` that reaches the task ends the loop.
    """
    _current.set(info)
    try:
        args, kwargs = call.params.decode(call.args)
        return _succeeded(call, await call.fn(*args, **kwargs))
    except BaseException as exc:  # noqa: BLE001  (see above)
        return _ended(exc, info)


def attempt_sync(call: Call, info: StepInfo) -> Done:
    """Run a sync body to its end, whatever that is. Never raises."""
    _current.set(info)
    try:
        args, kwargs = call.params.decode(call.args)
        return _succeeded(call, call.fn(*args, **kwargs))
    except BaseException as exc:  # noqa: BLE001  (sys.exit() in a step is a failure of the step)
        return _ended(exc, info)


def _succeeded(call: Call, value: Any) -> Done:
    if inspect.iscoroutine(value):
        value.close()
        raise SerializationError(f"step {call.step_name!r} returned a coroutine: make it `async def`, or await it")
    result = call.returns.encode(value)
    if len(result) > call.value_bytes_max:
        raise ValueTooLarge(f"the result of step {call.step_name!r}", len(result), call.value_bytes_max)
    return Succeeded(result)


def _ended(exc: BaseException, info: StepInfo) -> Done:
    """Tell a body that stopped because it was told to from one that raised."""
    return Cancelled() if info.cancelled and isinstance(exc, asyncio.CancelledError) else failed(exc)
