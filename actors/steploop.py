"""The loop of the users' async steps, in a thread of its own: what blocks it blocks no actor.

The app's lifespan is entered on it before any step is served and left after the last one: clients that steps share
(a pool, a session) belong to the loop they were made on.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, cast

import structlog

from .call import Call, Cancelled, Done, StepInfo, attempt_async
from .errors import LifespanError

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

_EXIT_MAX_S: Final = 10.0
"""How long a lifespan may take to end before its thread is left behind."""

_log = structlog.get_logger("fencepost.steps")


def entered(lifespan: Lifespan | None) -> AbstractAsyncContextManager[Any]:
    """Return the context manager of a lifespan; one that yields None when there is none.

    Raises:
        LifespanError: it is no function that returns an async context manager.
    """
    if lifespan is None:
        return nullcontext()
    manager: Any = lifespan()
    if not hasattr(manager, "__aenter__"):
        raise LifespanError(
            f"lifespan must return an async context manager (is @asynccontextmanager missing?), "
            f"got {type(manager).__name__}"
        )
    return cast("AbstractAsyncContextManager[Any]", manager)


class StepLoop:
    """See the module. All methods but `_…` are called from the actors' loop."""

    def __init__(self, lifespan: Lifespan | None) -> None:
        self.app: Any = None
        self.context = contextvars.copy_context()
        """Every step runs in a copy of it; what the lifespan sets is seen by all steps."""
        self._lifespan = lifespan
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[str, asyncio.Task[Done]] = {}
        self._ready: Future[None] = Future()
        self._gone: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="fencepost-steps", daemon=True)

    async def start(self) -> None:
        """Start the thread and enter the lifespan.

        Raises:
            LifespanError: it raised; the thread is gone again.
        """
        self._thread.start()
        await asyncio.wrap_future(self._ready)

    def begin(self, call: Call, info: StepInfo, ended: Callable[[Done], None]) -> None:
        """Start a body. `ended` is called on the step loop."""
        self._loop.call_soon_threadsafe(self._create, call, info, ended)

    def tell(self, token: str) -> None:
        """Cancel a body."""
        self._loop.call_soon_threadsafe(self._cancel, token)

    @property
    def count(self) -> int:
        """How many bodies run."""
        return len(self._tasks)

    def sign(self) -> Future[None]:
        """Return a future that is done when the loop next gets to it."""
        future: Future[None] = Future()
        self._loop.call_soon_threadsafe(_give, future)
        return future

    def doing(self) -> tuple[str, str]:
        """Return the name of the step that has the loop now, and where it is, as far as can be seen from outside."""
        task = asyncio.current_task(self._loop)
        return (task.get_name() if task else ""), _place_of(self._thread)

    async def stop(self) -> None:
        """Leave the lifespan and end the thread. Never raises; a thread that does not end is left behind."""
        if self._thread.ident is None:  # never started: nobody says that it is gone
            self._loop.close()
            return
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just closed its loop itself
                self._loop.call_soon_threadsafe(self._stop.set)
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._gone)), _EXIT_MAX_S)
        except TimeoutError:
            _log.warning("step_loop_left_behind", waited_s=_EXIT_MAX_S, at=_place_of(self._thread))

    # ---- on the step loop

    def _create(self, call: Call, info: StepInfo, ended: Callable[[Done], None]) -> None:
        task = self._loop.create_task(attempt_async(call, info), name=call.step_name, context=self.context.copy())
        self._tasks[call.token] = task
        task.add_done_callback(lambda task: self._over(call.token, task, ended))

    def _over(self, token: str, task: asyncio.Task[Done], ended: Callable[[Done], None]) -> None:
        del self._tasks[token]
        ended(Cancelled() if task.cancelled() else task.result())  # cancelled before its first step

    def _cancel(self, token: str) -> None:
        if task := self._tasks.get(token):
            task.cancel()

    # ---- the thread

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._stop = asyncio.Event()
        host = self._loop.create_task(self._serve(), name="lifespan", context=self.context)
        host.add_done_callback(lambda _: self._loop.stop())
        while not host.done():
            self._run()
        self._tidy()
        self._gone.set_result(None)

    def _run(self) -> None:
        """Run until stopped. A task of the user's that raises SystemExit ends `run_forever`, not us."""
        try:
            self._loop.run_forever()
        except BaseException as exc:  # noqa: BLE001  (see above)
            _log.warning("step_task_tried_to_exit", error=repr(exc)[:200])

    async def _serve(self) -> None:
        try:
            async with entered(self._lifespan) as self.app:
                self._ready.set_result(None)
                await self._stop.wait()
        except BaseException as exc:  # noqa: BLE001  (a lifespan may raise anything, SystemExit too)
            if not self._ready.done():
                self._ready.set_exception(lifespan_failed(exc))
            else:
                _log.error("lifespan_exit_failed", error=repr(exc)[:500], exc_info=exc)

    def _tidy(self) -> None:
        """Cancel what is left, give it one chance, close."""
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=0.2))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def lifespan_failed(exc: BaseException) -> LifespanError:
    """Return the error of a lifespan that could not be entered, in one sentence."""
    if isinstance(exc, LifespanError):
        return exc
    error = LifespanError(f"the app's lifespan failed before it yielded: {type(exc).__name__}: {str(exc)[:300]}")
    error.__cause__ = exc
    return error


def _give(sign: Future[None]) -> None:
    if sign.set_running_or_notify_cancel():
        sign.set_result(None)


def _place_of(thread: threading.Thread) -> str:
    """Return the line a thread is at."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (documented, for this use)
    frame = frames.get(thread.ident or 0)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
