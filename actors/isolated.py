"""The inside of an isolated process: enters the lifespan, then makes one attempt after the other (see `isolate`).

stdin and stdout are the wire; what the step prints goes to stderr, so that no `print` can break a frame. A thread
reads the wire all the time: when the node is gone while a body runs, the process ends at once, for the node's heir
may be starting the same attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from . import wire
from .call import (
    Call,
    Cancelled,
    Done,
    Failed,
    StepInfo,
    Succeeded,
    attempt_async,
    attempt_sync,
    failed,
    is_async,
    tell,
)
from .codec import Parameters, Returns
from .failures import describe
from .retry import is_hopeless
from .steploop import entered, lifespan_failed

if TYPE_CHECKING:
    from collections.abc import Callable

_ORPHANED: Final = 70


def main() -> None:
    """Serve until the node closes the wire."""
    hears, says = _take_stdio()
    hello = wire.to_child(hears)
    if isinstance(hello, wire.Hello):
        asyncio.run(_Child(hears, says).serve(hello.lifespan))
    # Threads of the user's that are no daemons must not keep the process.
    sys.stderr.flush()
    os._exit(0)


def _take_stdio() -> tuple[IO[bytes], IO[bytes]]:
    """Keep stdin and stdout for the wire and point the user's at nothing and at stderr."""
    hears, says = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return hears, says


@dataclass(slots=True)
class _Body:
    """The attempt that is made now."""

    info: StepInfo
    task: asyncio.Future[Done]


class _Child:
    def __init__(self, hears: IO[bytes], says: IO[bytes]) -> None:
        self._hears, self._says = hears, says
        self._saying = threading.Lock()
        self._jobs: asyncio.Queue[wire.Job | None] = asyncio.Queue()
        self._body: _Body | None = None
        self._known: dict[str, tuple[Callable[..., Any], Parameters, Returns]] = {}

    async def serve(self, lifespan: str) -> None:
        """Enter the lifespan, say so, and work until the wire ends."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, name="wire", daemon=True).start()
        try:
            manager = entered(_resolve(lifespan) if lifespan else None)
            app = await manager.__aenter__()
        except BaseException as exc:  # noqa: BLE001  (a lifespan may raise anything)
            self._say(wire.Ready(describe(lifespan_failed(exc))))
            return
        self._say(wire.Ready())
        while (job := await self._jobs.get()) is not None:
            self._say(_answer(job.token, await self._attempt(job, app)))
        await manager.__aexit__(None, None, None)

    def _say(self, message: wire.FromChild) -> None:
        # The node may be gone; the end of the other wire ends this process.
        with contextlib.suppress(OSError), self._saying:
            wire.send(self._says, message)

    def _tell_others(self, topic: str, body: bytes) -> Future[None]:
        """Let the node tell it; in any thread."""
        told: Future[None] = Future()
        self._say(wire.Told(topic, msgspec.Raw(body)))
        told.set_result(None)
        return told

    async def _attempt(self, job: wire.Job, app: Any) -> Done:
        info = StepInfo(
            job.run_id,
            job.op,
            job.step_name,
            job.attempt,
            job.idempotency_key,
            app,
            _tell_others=self._tell_others,
        )
        try:
            call = self._call(job)
        except BaseException as exc:  # noqa: BLE001  (importing runs code of the user's)
            return failed(exc)
        task = self._loop.create_task(attempt_async(call, info)) if is_async(call.fn) else self._threaded(call, info)
        self._body = _Body(info, task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:  # told to stop before its first step
            return Cancelled()
        finally:
            self._body = None

    def _threaded(self, call: Call, info: StepInfo) -> asyncio.Future[Done]:
        """Run a sync body beside the loop, which goes on serving what the lifespan started."""
        future: asyncio.Future[Done] = self._loop.create_future()

        def run() -> None:
            done = attempt_sync(call, info)
            self._loop.call_soon_threadsafe(future.set_result, done)

        threading.Thread(target=run, name=call.step_name, daemon=True).start()
        return future

    def _call(self, job: wire.Job) -> Call:
        if job.step not in self._known:
            found = _resolve(job.step)
            fn = getattr(found, "fn", found)
            self._known[job.step] = fn, Parameters.of(fn), Returns.of(fn)
        fn, params, returns = self._known[job.step]
        return Call(
            run_id=job.run_id,
            op=job.op,
            step_name=job.step_name,
            fn=fn,
            args=bytes(job.args),
            params=params,
            returns=returns,
            attempt=job.attempt,
            token=job.token,
            idempotency_key=job.idempotency_key,
            value_bytes_max=job.value_bytes_max,
        )

    # ---- in the thread that listens

    def _listen(self) -> None:
        while (message := wire.to_child(self._hears)) is not None:
            self._loop.call_soon_threadsafe(self._on, message)
        if self._body is not None:
            os._exit(_ORPHANED)
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)

    def _on(self, message: wire.ToChild) -> None:
        match message:
            case wire.Job():
                self._jobs.put_nowait(message)
            case wire.Stop():
                self._stop_body()
            case wire.Hello():
                pass

    def _stop_body(self) -> None:
        if self._body is not None:
            tell(self._body.info)
            if isinstance(self._body.task, asyncio.Task):
                self._body.task.cancel()


def _answer(token: str, done: Done) -> wire.Answer:
    match done:
        case Succeeded(result=result):
            return wire.Answer(token, result=msgspec.Raw(result))
        case Failed(error=error, exception=exception):
            return wire.Answer(token, error=error, hopeless=is_hopeless(exception))
        case _:
            return wire.Answer(token, cancelled=True)


def _resolve(reference: str) -> Any:
    module, _, qualname = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found
