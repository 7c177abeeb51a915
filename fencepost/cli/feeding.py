"""Feeds lines: one run each, many at once, lines with the same id in their order.

A line whose id was used before by the same input finds its run again, so feeding a file twice starts nothing twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ..answers import Started
from ..answers import read as read_answer
from ..envelopes import Start, checked_id, new_id, takes_no_single
from ..errors import FencepostError, InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..asking import Asking
    from .lines import Line

__all__ = ["Fed", "Feeder", "Refused", "Sender", "kwargs_in"]

AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that started nothing, and why."""

    line: int
    code: str
    reason: str


@dataclass(slots=True)
class Fed:
    """What became of the lines so far."""

    lines: int = 0
    started: int = 0
    repeated: int = 0
    run_ids: set[str] = field(default_factory=set[str])
    refused: list[Refused] = field(default_factory=list[Refused])


class OnStarted(Protocol):
    """Told about every run, in the order of the answers."""

    def __call__(self, line: Line, started: Started) -> None:
        """Take note."""
        ...


class OnRefused(Protocol):
    """Told about every line that started nothing, before it counts as settled."""

    async def __call__(self, line: Line, code: str, reason: str) -> None:
        """Take note."""
        ...


@dataclass(slots=True)
class Sender:
    """Starts runs of one workflow from JSON texts."""

    asking: Asking
    workflow: str
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    by_name: bool = False
    """Whether it takes values by parameter name. A node tells it, by its refusal of a single one."""

    async def send(self, raw: bytes, *, id: str = "") -> Started:  # noqa: A002  (its name in the envelope)
        """Start one run (empty text: without input). For a workflow of several parameters it is an object of theirs.

        Without an id it gets one, so that a lost answer can be asked for again.

        Raises:
            FencepostError: refused, or nobody answers.
        """
        named = checked_id(id) or new_id()
        if not (self.by_name and raw):
            try:
                return await self._sent(Start(id=named, input=msgspec.Raw(raw) if raw else msgspec.UNSET))
            except InvalidInput as refusal:
                if not takes_no_single(refusal) or kwargs_in(raw) is None:
                    raise
        started = await self._sent(Start(id=named, kwargs=msgspec.Raw(kwargs_in(raw) or raw)))
        self.by_name = True
        return started

    async def _sent(self, start: Start) -> Started:
        body = msgspec.json.encode(msgspec.structs.replace(start, attributes=dict(self.attributes)))
        return read_answer(await self.asking.send("start", body, rest=self.workflow, about=start.id), Started)


def kwargs_in(raw: bytes) -> bytes | None:
    """Return the values by parameter name: those under `kwargs` when an object has that key alone, else all of it."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if fields.keys() != {"kwargs"}:
            return raw
        msgspec.json.decode(fields["kwargs"], type=dict[str, msgspec.Raw])
        return bytes(fields["kwargs"])
    except msgspec.MsgspecError:
        return None


@dataclass(slots=True)
class Feeder:
    """Feeds one workflow."""

    sender: Sender
    on_started: OnStarted | None = None
    on_refused: OnRefused | None = None
    fed: Fed = field(default_factory=Fed)
    _last: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])

    async def feed(self, lines: Iterable[Line]) -> Fed:
        """Feed all lines and return what became of them.

        Raises:
            FencepostError: nobody answers; what was fed until then stays.
        """
        places = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                for line in lines:
                    await places.acquire()
                    self._begin(group, line).add_done_callback(lambda _: places.release())
        except* FencepostError as several:
            raise several.exceptions[0] from None
        return self.fed

    def _begin(self, group: asyncio.TaskGroup, line: Line) -> asyncio.Task[None]:
        self.fed.lines += 1
        if not line.id:
            return group.create_task(self._take(line))
        task = group.create_task(self._after(self._last.get(line.id), line))
        self._last[line.id] = task
        task.add_done_callback(lambda done: self._forget(line.id, done))
        return task

    def _forget(self, id: str, task: asyncio.Task[None]) -> None:  # noqa: A002
        if self._last.get(id) is task:
            del self._last[id]

    async def _after(self, earlier: asyncio.Task[None] | None, line: Line) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        await self._take(line)

    async def _take(self, line: Line) -> None:
        if line.flaw:
            await self._refuse(line, InvalidInput(line.flaw))
            return
        try:
            started = await self.sender.send(line.raw, id=line.id)
        except Unavailable:
            raise
        except FencepostError as refusal:
            await self._refuse(line, refusal)
            return
        self._count(line, started)

    def _count(self, line: Line, started: Started) -> None:
        self.fed.run_ids.add(started.run_id)
        self.fed.repeated += started.existing
        self.fed.started += not started.existing
        if self.on_started:
            self.on_started(line, started)

    async def _refuse(self, line: Line, refusal: FencepostError) -> None:
        code, reason = type(refusal).__name__, str(refusal)
        if self.on_refused:
            await self.on_refused(line, code, reason)
        self.fed.refused.append(Refused(line.number, code, reason))
