"""The workflow's event loop: a deque of ready handles, one loop per run, no I/O.

What it does that asyncio's loop does not: it stops when nothing is ready (quiet) instead of waiting; its clock is
the `at` of the event being fed; its timers are operations of the run; it names tasks by path; it keeps every async
generator until the run ends, so that none is closed by the garbage collector at a moment no replay repeats.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import structlog

from .durations import MAX_S
from .errors import NondeterminismError
from .operations import awaiting_line
from .paths import Guarded, PathFuture, PathTask, owner_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

log = structlog.get_logger(__name__)

LOOK_EVERY = 64
"""Generators begun between two looks for finished ones."""

HANDLES_MAX = 100_000
"""Handles one event may lead to; `while True: await asyncio.sleep(0)` is found by it."""


class NeverQuiet(Exception):
    """One event led to more handles than `HANDLES_MAX`."""


class Scribe(Protocol):
    """Who records what the code asks for; see `turn`."""

    def timer(self, handle: asyncio.TimerHandle, delay_s: float) -> None:
        """Record a new timer."""

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Record that nobody listens to a timer any more."""

    def offence(self, error: NondeterminismError, site: str = "") -> NondeterminismError:
        """Remember that the code did what a replay cannot repeat, and where, even if it swallows the error."""
        ...


class Evicted(BaseException):
    """The run is being put to sleep and will be replayed: let this exception pass, do not handle it."""

    def __init__(self) -> None:
        super().__init__("the run is put to sleep and will go on elsewhere; do not catch BaseException around awaits")


class WorkflowLoop(asyncio.AbstractEventLoop):
    """See the module."""

    def __init__(self, scribe: Scribe) -> None:
        self.scribe = scribe
        self.now_s = 0.0
        self.evicting = False
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[str, PathTask] = {}
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._futures = 0

    # ---- asyncio's protocol

    def time(self) -> float:
        """Return the clock of the event being fed, in seconds since 1970."""
        return self.now_s

    def get_debug(self) -> bool:
        """Debug mode is off: it would cost and tell nothing here."""
        return False

    def is_running(self) -> bool:
        """A loop that code can see is running."""
        return True

    def is_closed(self) -> bool:
        """The loop lives as long as its run is awake."""
        return False

    def call_soon(  # type: ignore[override]  # typeshed ties the arguments to the callback; nothing here needs it
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in this quiet period."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as call_soon
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a durable timer; see `call_at`."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as call_soon
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a durable timer. One that is due already runs in this quiet period and leaves no event."""
        if not when - self.now_s <= MAX_S:  # also what is not a number
            raise ValueError(
                f"a timer of {when - self.now_s:g} s is not one: at most {MAX_S:g} s, about a thousand years"
            )
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if when <= self.now_s:
            self._ready.append(handle)
        else:
            self.scribe.timer(handle, round(when - self.now_s, 6))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.scribe.timer_cancelled(handle)

    def create_future(self) -> PathFuture:
        """Return a future with a repeatable hash."""
        return PathFuture(loop=self, number=self.next_number())

    def next_number(self) -> int:
        """Number the next future, for its place in sets."""
        self._futures += 1
        return self._futures

    def create_task(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # as call_soon
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_unused: Any,
    ) -> PathTask:
        """Start a task named by its path; a `name` given is kept for `get_name()`."""
        if self.evicting:
            coro.close()  # else Python complains that nobody awaited it
            raise Evicted
        task = self._start(coro, owner_of(self).next_path(), context)
        if name is not None:
            task.set_name(name)
        return task

    def start_root(self, coro: Coroutine[Any, Any, Any]) -> PathTask:
        """Start the body's own task, path `0`."""
        # A context of its own: whoever woke the run would else lend it theirs, and another one at the next replay.
        return self._start(coro, "0", Context())

    def _start(self, coro: Coroutine[Any, Any, Any], path: str, context: Context | None) -> PathTask:
        guarded = Guarded(coro, self, self._foreign)
        task = PathTask(guarded, loop=self, path=path, context=context)
        self._tasks[path] = task
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if isinstance(task, PathTask):
            self._tasks.pop(task.path, None)

    def _foreign(self, awaited: Any) -> NondeterminismError:
        what, task = type(awaited).__name__, asyncio.current_task(self)
        return self.scribe.offence(
            NondeterminismError(
                f"workflow code awaited a {what} that belongs to another event loop: "
                "move what creates it into a @step and await the step"
            ),
            awaiting_line(task.get_coro() if task is not None else None),  # type: ignore[arg-type]
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what a callback or a forgotten task raised; nobody else will."""
        if not self.evicting and context.get("exception") is not None:
            log.warning("workflow callback failed", error=repr(context["exception"]), what=context.get("message"))

    # ---- async generators

    def keep_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold a generator from its first iteration on; finished ones are let go now and then."""
        if len(self._generators) % LOOK_EVERY == 0:
            self._generators = [g for g in self._generators if g.ag_frame is not None]  # type: ignore[attr-defined]
        self._generators.append(generator)

    async def shutdown_asyncgens(self) -> None:
        """Close abandoned generators in the order they began, within the run.

        One that a task left over is in the middle of is dropped with the task. What a cleanup raises is reported, and
        takes the place of no outcome.
        """
        while self._generators:
            generator = self._generators.pop(0)
            if not generator.ag_running:  # type: ignore[attr-defined]
                await self._close(generator)

    async def _close(self, generator: AsyncGenerator[Any, Any]) -> None:
        try:
            await generator.aclose()
        except Exception as error:  # noqa: BLE001  (what asyncio does: reported)
            self.call_exception_handler({"message": "an async generator failed to close", "exception": error})

    # ---- running

    def make_ready(self, handle: asyncio.Handle) -> None:
        """Let a handle run in the coming quiet period: its timer has fired."""
        self._ready.append(handle)

    def live_tasks(self) -> list[PathTask]:
        """Return the unfinished tasks, oldest first."""
        return list(self._tasks.values())

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is ready to run."""
        return not self._ready

    def run_until_quiet(self) -> None:
        """Run handles until none is ready.

        Raises:
            NeverQuiet: more than `HANDLES_MAX` handles ran.
        """
        for _ in range(HANDLES_MAX):
            if not self._ready:
                return
            handle = self._ready.popleft()
            if not handle.cancelled():
                self._run(handle)
        raise NeverQuiet

    @staticmethod
    def _run(handle: asyncio.Handle) -> None:
        try:
            handle._run()
        except (SystemExit, KeyboardInterrupt):
            # The task that raised it holds it as its outcome; the node goes on.
            return


class entered:  # noqa: N801  (reads as a verb: `with entered(loop)`)
    """Make a workflow loop the running one, with its generator hooks, and the host's task no longer current.

    Python 3.14 keeps one current task per thread: without swapping the host's out, no task of ours could be entered.
    """

    __slots__ = ("_hooks", "_host", "_host_task", "_loop")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._host = events._get_running_loop()
        self._host_task = _swap_current_task(self._host, None)
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._loop.keep_generator, finalizer=_leave_alone)
        events._set_running_loop(self._loop)

    def __exit__(self, *_: object) -> None:
        events._set_running_loop(self._host)
        sys.set_asyncgen_hooks(*self._hooks)
        _swap_current_task(self._host, self._host_task)


def _leave_alone(_generator: object) -> None:
    """Do nothing: the loop closes generators in order at the end of the run."""


def _swap_current_task(
    loop: asyncio.AbstractEventLoop | None, task: asyncio.Task[Any] | None
) -> asyncio.Task[Any] | None:
    swap = getattr(asyncio.tasks, "_swap_current_task", None)
    if loop is None or swap is None:
        return None
    swapped: asyncio.Task[Any] | None = swap(loop, task)
    return swapped


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refused(self: WorkflowLoop, *_: Any, **__: Any) -> NoReturn:
        raise self.scribe.offence(
            NondeterminismError(f"workflow code called loop.{name}: put what touches the outside into a @step")
        )

    return refused


_ALLOWED = {"get_exception_handler", "set_exception_handler", "default_exception_handler", "set_debug"}
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in vars(WorkflowLoop) and _name not in _ALLOWED:
        setattr(WorkflowLoop, _name, _refuse(_name))
