"""`wait`, `as_completed` and `wait_for` for workflow code: what asyncio documents, in an order that a replay repeats.

The standard ones iterate sets of awaitables by memory address, and `wait_for` names the inner operation differently
on Python 3.11 and 3.12. These start their tasks in the order the awaitables were given, on every version.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator

FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED = (
    asyncio.FIRST_COMPLETED,
    asyncio.FIRST_EXCEPTION,
    asyncio.ALL_COMPLETED,
)


async def wait(
    fs: Iterable[asyncio.Future[Any]],
    *,
    timeout: float | None = None,  # noqa: ASYNC109  (asyncio's signature)
    return_when: str = ALL_COMPLETED,
) -> tuple[set[asyncio.Future[Any]], set[asyncio.Future[Any]]]:
    """Wait until one, one failed, or all of the futures are done; see `asyncio.wait`."""
    futures = list(dict.fromkeys(fs))
    if not futures:
        raise ValueError("Set of Tasks/Futures is empty.")
    if return_when not in {FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED}:
        raise ValueError(f"Invalid return_when value: {return_when}")
    if any(asyncio.iscoroutine(f) for f in futures):
        raise TypeError("Passing coroutines is forbidden, use tasks explicitly.")
    if any(f.done() for f in futures) and _enough(futures, return_when):
        return _split(futures)
    await _until(futures, timeout, return_when)
    return _split(futures)


def _ring(bell: asyncio.Future[None]) -> None:
    if not bell.done():
        bell.set_result(None)


async def _until(futures: list[asyncio.Future[Any]], patience_s: float | None, return_when: str) -> None:
    loop = asyncio.get_running_loop()
    bell = loop.create_future()
    left = sum(not future.done() for future in futures)

    def look(future: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        if not left or return_when == FIRST_COMPLETED or (return_when == FIRST_EXCEPTION and _failed(future)):
            _ring(bell)

    timer = loop.call_later(patience_s, _ring, bell) if patience_s is not None else None
    waited_for = [future for future in futures if not future.done()]
    for future in waited_for:
        future.add_done_callback(look)
    try:
        await bell
    finally:
        for future in waited_for:
            future.remove_done_callback(look)
        if timer is not None:
            timer.cancel()


def _enough(futures: list[asyncio.Future[Any]], return_when: str) -> bool:
    done = [f for f in futures if f.done()]
    if return_when == FIRST_COMPLETED:
        return bool(done)
    return len(done) == len(futures) or (return_when == FIRST_EXCEPTION and any(_failed(f) for f in done))


def _failed(future: asyncio.Future[Any]) -> bool:
    return not future.cancelled() and future.exception() is not None


def _split(futures: list[asyncio.Future[Any]]) -> tuple[set[asyncio.Future[Any]], set[asyncio.Future[Any]]]:
    return {f for f in futures if f.done()}, {f for f in futures if not f.done()}


class as_completed:  # noqa: N801  (asyncio's name)
    """Yield results as they come; see `asyncio.as_completed`. Plain and async iteration, on every version."""

    def __init__(self, fs: Iterable[Awaitable[Any]], *, timeout: float | None = None) -> None:
        if asyncio.isfuture(fs) or asyncio.iscoroutine(fs):
            raise TypeError(f"expect an iterable of futures, not {type(fs).__name__}")
        self._loop = asyncio.get_running_loop()
        self._left: dict[asyncio.Future[Any], None] = {asyncio.ensure_future(f): None for f in dict.fromkeys(fs)}
        self._count = len(self._left)
        self._done: deque[asyncio.Future[Any] | None] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer = self._loop.call_later(timeout, self._time_out) if timeout is not None and self._left else None
        for future in list(self._left):
            future.add_done_callback(self._one_done)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._count):
            yield self._next_result()

    def __aiter__(self) -> AsyncIterator[asyncio.Future[Any]]:
        return self._futures()

    async def _futures(self) -> AsyncIterator[asyncio.Future[Any]]:
        for _ in range(self._count):
            yield await self._next()

    async def _next_result(self) -> Any:
        return (await self._next()).result()

    async def _next(self) -> asyncio.Future[Any]:
        while not self._done:
            bell = self._loop.create_future()
            self._waiting.append(bell)
            await bell
        future = self._done.popleft()
        if future is None:
            raise TimeoutError
        return future

    def _one_done(self, future: asyncio.Future[Any]) -> None:
        if future not in self._left:
            return
        del self._left[future]
        self._put(future)
        if not self._left and self._timer is not None:
            self._timer.cancel()

    def _time_out(self) -> None:
        for future in self._left:
            future.remove_done_callback(self._one_done)
            self._put(None)
        self._left.clear()

    def _put(self, future: asyncio.Future[Any] | None) -> None:
        self._done.append(future)
        while self._waiting:
            bell = self._waiting.popleft()
            if not bell.done():
                bell.set_result(None)
                return


async def wait_for(fut: Awaitable[Any], timeout: float | None) -> Any:  # noqa: ASYNC109  (asyncio's signature)
    """Wait for one awaitable with a timeout, in the calling task; see `asyncio.wait_for` of Python 3.12."""
    if timeout is not None and timeout <= 0:
        future = asyncio.ensure_future(fut)
        if future.done():
            return future.result()
        future.cancel()
        try:
            await future
        except asyncio.CancelledError as error:
            raise TimeoutError from error
        return future.result()
    async with asyncio.timeout(timeout):
        return await fut
