"""A deterministic event loop for a few simulated processes: virtual time, no I/O, death at any await.

Each handle belongs to the process that made it (a context variable), so that a process can be killed (none of its
handles ever runs again, no `finally` block either) or paused (they are held back, as by SIGSTOP). Within a process
handles keep their order, as asyncio promises; between processes a seed decides who is next. Time jumps when nothing
is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from asyncio import events
from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

PROC: ContextVar[Proc | None] = ContextVar("simulated_process", default=None)
HANDLES_MAX = 3_000_000


class NothingToDo(Exception):
    """No handle is ready and no timer is set, and what was waited for has not come."""


class Handle:
    """What asyncio's handles are, and whose it is; theirs cost a seed a tenth of its time."""

    __slots__ = ("_when", "args", "callback", "context", "gone", "proc")

    def __init__(self, proc: Proc, context: Context, callback: Callable[..., Any], args: Any, when: float) -> None:
        self.proc, self.context, self.callback, self.args = proc, context, callback, args
        self._when = when
        self.gone = False

    def cancel(self) -> None:
        self.gone = True
        self.callback = self.args = None

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return self._when


class Proc:
    """A simulated process. `dies_after` is how many more handles it runs before it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Handle] = deque()
        self.dead = False
        self.paused = False
        self.dies_after: int | None = None
        self.is_newer = False
        """Whether it runs a later version of the programs."""
        self.context = Context()
        self.context.run(PROC.set, self)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as this process."""
        return self.context.copy().run(function, *args)


class SimLoop(asyncio.AbstractEventLoop):
    """See the module. `killed(proc)` is told when a process has died of its `dies_after`."""

    running: ClassVar[Proc | None] = None
    """Whose turn it is: workflow code has a context of its own, which does not say."""

    def __init__(self, random: Random, *, shuffle: bool) -> None:
        self.now_s = 0.0
        self.handles = 0
        self.complaints: list[str] = []
        self.killed: Callable[[Proc], None] = lambda _: None
        self.world = Proc("-")
        self._random = random
        self._shuffle = shuffle
        self._procs: list[Proc] = [self.world]
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._closed = False

    # ---- asyncio's protocol

    def time(self) -> float:
        return self.now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(self, callback, *args, context=None):
        handle = self._made(callback, args, context, self.now_s)
        if not handle.proc.dead and not self._closed:
            handle.proc.ready.append(handle)
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = self._made(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _made(self, callback, args, context, when):
        context = copy_context() if context is None else context
        return Handle(context.get(PROC) or self.world, context, callback, args, when)

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None, **_unused):
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context):
        if not self._closed:
            self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    # ---- processes

    def start(self, name: str) -> Proc:
        """Start a process."""
        proc = Proc(name)
        self._procs.append(proc)
        return proc

    def kill(self, proc: Proc) -> None:
        """End a process as `kill -9` does: nothing of it runs again."""
        proc.dead = True
        proc.ready.clear()
        self._procs.remove(proc)

    # ---- running

    def run(self, main) -> Any:
        """Run a coroutine of the simulated world itself to its end, and return its result."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            task = self.create_task(main, name="main")
            while not task.done():
                self._step()
            return task.result()
        finally:
            SimLoop.running = None
            events._set_running_loop(before)

    def _step(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_s:
            handle = heapq.heappop(timers)[2]
            if not handle.gone and not handle.proc.dead:
                handle.proc.ready.append(handle)
        able = [proc for proc in self._procs if proc.ready and not proc.paused]
        if not able:
            self._jump()
            return
        proc = able[0]
        if self._shuffle:
            proc = able[int(self._random.random() * len(able))]
        elif len(able) > 1:  # round robin
            self._procs.remove(proc)
            self._procs.append(proc)
        self._run_one(proc)

    def _run_one(self, proc: Proc) -> None:
        if proc.dies_after is not None:
            proc.dies_after -= 1
            if proc.dies_after < 0:
                self.kill(proc)
                self.killed(proc)
                return
        handle = proc.ready.popleft()
        if handle.gone:
            return
        self.handles += 1
        if self.handles > HANDLES_MAX:
            raise NothingToDo(f"{HANDLES_MAX:,} handles ran and it is not over")
        SimLoop.running = proc
        try:
            handle.context.run(handle.callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  (as asyncio does)
            self.call_exception_handler({"message": f"callback {handle.callback}", "exception": error})

    def _jump(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].gone or timers[0][2].proc.dead):
            heapq.heappop(timers)
        if not timers:
            raise NothingToDo("nothing is ready and no timer is set")
        self.now_s = max(self.now_s, timers[0][0])

    # ---- the graveyard

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Return the tasks of dead and of living processes that have not ended."""
        return [task for task in self._tasks if not task.done()]

    def failures(self) -> list[str]:
        """Return what tasks raised and nobody looked at, and what callbacks raised."""
        raised = [(task, task.exception()) for task in self._tasks if task.done() and not task.cancelled()]
        ours = [(task, error) for task, error in raised if error is not None and task.get_name() != "main"]
        return [*self.complaints, *(f"task {task.get_name()!r} raised {error!r}" for task, error in ours)]

    def close(self) -> None:
        """Close what is left over, quietly: it may run `finally` blocks now, and nothing of them counts."""
        self._closed = True
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for task in self.unfinished():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        finally:
            events._set_running_loop(before)
        self._tasks.clear()
        self._timers.clear()
