"""A run as its caller holds it. A caller that goes away never affects the run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from fencepost.actors import StepFailed, durations, failures

from .answers import Changed, Ending, EventPage, Piece, RunEvent, RunStatus
from .errors import RequestRefused, RunCancelled, RunFailed, RunTerminated, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import timedelta

    from fencepost.world import events as ev

    from .asking import Asking

T = TypeVar("T")

WAIT_S: Final = 8.0
"""How long one question waits at a node. One that is killed meanwhile answers nothing: it is asked again after that."""
EVENTS: Final = 200
LATE_S: Final = 1.0
"""How much later than asked a wait may end: the node's own answer comes at the end of it."""


class RunHandle(Generic[T]):
    """One run, or what it continues as. Made by `Client.start` and `Client.run`."""

    def __init__(self, asking: Asking, id: str, run_id: str, decode: Callable[[bytes], T] | None = None) -> None:  # noqa: A002  (as `handle.id`)
        self.id = id
        """The id it was started with."""
        self.run_id = run_id
        """The id Fencepost gave it; empty until a node said it, when the run was named by its own id."""
        self.existing = False
        """Whether the start found the run there already."""
        self._asking = asking
        self._decode = decode or cast("Callable[[bytes], T]", json.loads)

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    # ---- looking

    async def status(self) -> RunStatus:
        """Return how far the run is.

        Raises:
            RunNotFound: no run has this id.
            Unavailable: nobody answers.
        """
        status = await self._asking.ask("status", RunStatus, id=self.id)
        self.run_id = status.run_id
        return status

    async def result(self, timeout: float | str | timedelta | None = None) -> T:  # noqa: ASYNC109  (its text says why)
        """Wait for the end and return what the workflow returned. The run is not affected by the timeout.

        Nodes and servers may go and come back meanwhile.

        Raises:
            TimeoutError: it has not ended yet; the text says when it is stalled, and why.
            RunFailed: `code` says how, `cause` is the original exception when it could be rebuilt.
            RunCancelled, RunTerminated: it was stopped.
            RunNotFound: no run has this id.
            Unavailable: nobody answers, and nobody ever did.
        """
        limit_s = None if timeout is None else durations.seconds(timeout)
        waiting = _Waiting(self.id, limit_s)
        try:
            async with asyncio.timeout(None if limit_s is None else limit_s + LATE_S):
                ending = await self._ending(waiting)
        except TimeoutError:
            raise TimeoutError(waiting.text()) from None
        return await self._returned(ending)

    async def _ending(self, waiting: _Waiting) -> Ending:
        while True:
            wait_s = waiting.next_wait_s()
            try:
                waiting.last = await self._asking.ask("result", Ending, id=self.id, wait_s=wait_s)
            except Unavailable as error:
                if not self._asking.answered:
                    raise
                waiting.away = str(error)
                continue
            waiting.away, self.run_id = "", waiting.last.run_id
            if not waiting.last.waiting:
                return waiting.last
            if waiting.is_over:
                raise TimeoutError

    async def _returned(self, ending: Ending) -> T:
        match ending.status:
            case "completed":
                return self._decode(await self._value(ending) if ending.ref else bytes(ending.result))
            case "cancelled":
                raise RunCancelled(ending.run_id, ending.reason)
            case "terminated":
                raise RunTerminated(ending.run_id, ending.reason)
            case "failed":
                raise _failed(ending)
            case other:
                raise RequestRefused(f"run {ending.run_id} ended as {other!r}: upgrade this client", "answer")

    async def _value(self, ending: Ending) -> bytes:
        """Fetch a result that is kept apart, in pieces."""
        whole = bytearray()
        while True:
            piece = await self._asking.ask("value", Piece, id=ending.run_id, ref=ending.ref, offset=len(whole))
            whole += piece.piece
            if piece.last or not piece.piece:
                break
        if hashlib.sha256(whole).hexdigest() != ending.ref:
            raise RequestRefused(f"the result of {ending.run_id} came with {len(whole):,} bytes, not whole", "value")
        return bytes(whole)

    async def events(self, *, follow: bool = False, after: int = 0) -> AsyncIterator[RunEvent]:
        """Yield the events after a position; with `follow` also those to come, until the run ends.

        Raises:
            RunNotFound: no run has this id.
            Unavailable: nobody answers.
        """
        while True:
            try:
                page = await self._asking.ask(
                    "events", EventPage, id=self.id, after=after, limit=EVENTS, wait_s=WAIT_S if follow else 0.0
                )
            except Unavailable:
                if not (follow and self._asking.answered):
                    raise
                continue
            self.run_id = page.run_id
            for event in page.events:
                after = event.seq
                yield event
            if page.over or not (page.events or follow):
                return

    # ---- acting

    async def cancel(self, reason: str = "") -> bool:
        """Ask the run to stop; its code may clean up. False when it had ended; the first reason counts.

        Raises:
            RunNotFound: no run has this id.
            Unavailable: nobody answers.
        """
        return await self._change("cancel", reason)

    async def terminate(self, reason: str = "") -> bool:
        """End the run now, without running its code again. False when it had ended.

        Raises:
            RunNotFound: no run has this id.
            Unavailable: nobody answers.
        """
        return await self._change("terminate", reason)

    async def resume(self) -> bool:
        """Let a stalled run go on. False when it was not stalled.

        Raises:
            RunNotFound: no run has this id.
            Unavailable: nobody answers.
        """
        return await self._change("resume")

    async def _change(self, endpoint: str, reason: str = "") -> bool:
        """Ask with a key, so that the same request twice is one."""
        answer = await self._asking.ask(endpoint, Changed, id=self.id, reason=reason, key=uuid.uuid4().hex)
        self.run_id = answer.run_id
        return answer.changed


class _Waiting:
    """A wait for a result: how long it may last, and what was heard last."""

    def __init__(self, run: str, limit_s: float | None) -> None:
        self.run = run
        self.limit_s = limit_s
        self.until_s = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
        self.last: Ending | None = None
        self.away = ""

    def next_wait_s(self) -> float:
        """Return how long the next question may wait."""
        if self.until_s is None:
            return WAIT_S
        return max(0.0, min(WAIT_S, self.until_s - asyncio.get_running_loop().time()))

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.until_s is not None and asyncio.get_running_loop().time() >= self.until_s

    def text(self) -> str:
        """Say what was waited for, and what holds it up as far as that is known."""
        begin = f"run {self.run} had not ended after {self.limit_s:g} s"
        if self.away:
            return f"{begin}, and nobody answers now: {self.away}"
        if self.last is not None and self.last.stalled:
            return f"{begin}: it is stalled ({self.last.stalled}); put that right, then resume it"
        if self.last is not None and self.last.status == "pending":
            return f"{begin}: it is pending, has a node with workflow {self.last.workflow!r} joined?"
        return f"{begin}; it goes on"


def _failed(ending: Ending) -> RunFailed:
    data = ending.error
    kind = data.type if data is not None else ""
    cause = None if data is None else _original(data)
    name = kind.rpartition(":")[2].rpartition(".")[2]
    said = ": ".join(part for part in (name, data.message if data is not None else "") if part)
    text = f"run {ending.run_id} failed ({ending.code})" + (f": {said}" if said else "")
    failed = RunFailed(text, run_id=ending.run_id, code=ending.code, kind=kind, cause=cause)
    if data is not None and data.traceback:
        failed.add_note(f"Where it was raised in the run:\n{data.traceback.rstrip()}")
    failed.__cause__ = cause
    return failed


def _original(data: ev.ErrorData) -> Exception | None:
    """Return the exception as its own type, or None. `rebuild` puts a `StepFailed` behind it, which no step raised."""
    found = failures.rebuild(data)
    if f"{type(found).__module__}:{type(found).__qualname__}" != data.type:
        return None
    behind = found.__cause__
    if isinstance(behind, StepFailed) and behind.kind == data.type:
        object.__setattr__(found, "__cause__", behind.__cause__)  # a frozen exception refuses the plain way
    return found
