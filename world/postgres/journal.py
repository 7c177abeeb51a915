"""The journal: what many callers write at once goes to the database as few statements, each with many verdicts.

At once when idle; while as many flushes are under way as there may be, what comes in collects and goes with the
next. A flush holds one group of a run: at most one ask that must be `first` (in-band), then others; what does not fit
waits. A run is in one flush at a time, so that a node never finds its own lock in the way.

  busy run     somebody else holds its row. It goes again alone, waiting a little for the lock, so that it delays
               nobody else; after some tries its callers get `Unavailable`
  real error   one of the asks cannot be written and took the whole statement with it. The flush is halved until the
               culprit is alone, and only that caller gets the error
  lost answer  the connection broke. One question tells which asks are in; of the others nobody knows, and their
               callers get `Unavailable`

A caller waits on a future. One that is cancelled leaves, its ask does not: cancelling a statement that others share
would leave them not knowing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")
Ask_contra = TypeVar("Ask_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)


class Lost(Unavailable):
    """The connection broke while a statement was under way: it may have committed, or not."""


class Outlet(Protocol[Ask_contra, Answer_co]):
    """Where a journal writes to."""

    async def flush(self, asks: Sequence[Ask_contra], *, patient: bool) -> Sequence[Answer_co | Exception | None]:
        """Write asks in one statement and return a verdict for each: its answer, its refusal, or None for busy.

        `patient` waits a little for a run's lock instead of passing over it.

        Raises:
            Lost: nobody knows whether it was written.
            Unavailable: nothing was written, and it is nobody's fault.
            Exception: nothing was written, since one of the asks cannot be.
        """
        ...

    async def find(self, asks: Sequence[Ask_contra]) -> Sequence[Answer_co | None]:
        """Tell for asks of a flush whose answer was lost what they were answered; None when that cannot be told."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a flush may hold, how many there may be at once, and how long a busy run is tried."""

    flushes: int = 2
    asks: int = 256
    size_bytes: int = 4 * 2**20
    of_a_run: int = 65
    """One in-band batch and 64 others."""
    large_bytes: int = 128 * 2**10
    """An ask above this goes by a lane of its own: a small one must not wait until a big one is over the wire."""
    patient: int = 2
    """How many busy runs wait for their lock at once; each holds a connection as long."""
    pauses_s: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
    """Before each further try for a busy run, or each question after a lost answer."""


class Entry(Generic[Ask, Answer]):
    """An ask, its run, and who waits for it."""

    __slots__ = ("ask", "first", "future", "run_id", "size_bytes")

    def __init__(self, run_id: str, ask: Ask, size_bytes: int, *, first: bool) -> None:
        self.run_id = run_id
        self.ask = ask
        self.size_bytes = size_bytes
        self.first = first
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def settle(self, verdict: Answer | Exception) -> None:
        """Tell the caller, if there still is one."""
        if self.future.done():
            return
        if isinstance(verdict, Exception):
            self.future.set_exception(verdict)
        else:
            self.future.set_result(verdict)


class Lane(Generic[Ask, Answer]):
    """What waits to be flushed, by run, and how many flushes of it are under way."""

    def __init__(self, width: int, bounds: Bounds) -> None:
        self.width = width
        self.under_way = 0
        self._bounds = bounds
        self._groups = dict[str, tuple[deque[Entry[Ask, Answer]], deque[Entry[Ask, Answer]]]]()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, entry: Entry[Ask, Answer]) -> None:
        """Let an entry wait behind those of its run and kind."""
        firsts, others = self._groups.setdefault(entry.run_id, (deque(), deque()))
        (firsts if entry.first else others).append(entry)

    def take(self, flying: set[str]) -> list[Entry[Ask, Answer]]:
        """Return the next flush: as much as it may hold, of runs that are in no other."""
        taken, room_bytes = list[Entry[Ask, Answer]](), self._bounds.size_bytes
        for run_id in [run_id for run_id in self._groups if run_id not in flying]:
            room = min(self._bounds.asks - len(taken), self._bounds.of_a_run)
            group = self._group(run_id, room, room_bytes, at_least_one=not taken)
            taken += group
            room_bytes -= sum(entry.size_bytes for entry in group)
            if len(taken) >= self._bounds.asks or room_bytes <= 0:
                break
        return taken

    def _group(self, run_id: str, room: int, room_bytes: int, *, at_least_one: bool) -> list[Entry[Ask, Answer]]:
        firsts, others = self._groups.pop(run_id)
        group = list[Entry[Ask, Answer]]()
        for queue, most in ((firsts, 1), (others, room - bool(firsts))):
            for _ in range(min(most, len(queue))):
                if queue[0].size_bytes > room_bytes and (group or not at_least_one):
                    break
                room_bytes -= queue[0].size_bytes
                group.append(queue.popleft())
        if firsts or others:
            self._groups[run_id] = (firsts, others)  # at the end: the other runs' turn
        return group


class Journal(Generic[Ask, Answer]):
    """Group commit over an outlet. See the module."""

    def __init__(self, outlet: Outlet[Ask, Answer], where: str, bounds: Bounds = Bounds()) -> None:
        self._outlet = outlet
        self._where = where
        self._bounds = bounds
        self._small = Lane[Ask, Answer](bounds.flushes, bounds)
        self._large = Lane[Ask, Answer](1, bounds)
        self._flying = set[str]()
        self._patience = asyncio.Semaphore(bounds.patient)
        self._tasks = set[asyncio.Task[None]]()
        self._launching = False
        self._closed = False

    async def write(self, run_id: str, ask: Ask, size_bytes: int = 0, *, first: bool = False) -> Answer:
        """Write an ask with whatever else is to be written, and return its answer or raise its refusal.

        Raises:
            Unavailable: the journal is closed, the run stays busy, or the answer was lost.
        """
        if self._closed:
            raise Unavailable(f"{self._where} was closed")
        entry = Entry[Ask, Answer](run_id, ask, size_bytes, first=first)
        (self._large if size_bytes > self._bounds.large_bytes else self._small).add(entry)
        self._launch_soon()
        return await entry.future

    async def close(self) -> None:
        """Let what was asked for finish. Idempotent."""
        self._closed = True
        self._launch()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ---- launching

    def _launch_soon(self) -> None:
        """Launch once the tasks that are ready now have asked as well: they can share the flush."""
        if not self._launching:
            self._launching = True
            asyncio.get_running_loop().call_soon(self._launch)

    def _launch(self) -> None:
        self._launching = False
        for lane in (self._small, self._large):
            while lane.under_way < lane.width and (entries := lane.take(self._flying)):
                lane.under_way += 1
                self._flying |= {entry.run_id for entry in entries}
                self._spawn(self._fly(lane, entries), entries)

    def _spawn(self, work: Coroutine[None, None, None], entries: Sequence[Entry[Ask, Answer]]) -> None:
        task = asyncio.create_task(self._guarded(work, entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[None, None, None], entries: Sequence[Entry[Ask, Answer]]) -> None:
        """Let nobody wait for ever, whatever becomes of the work (a bug of ours, the end of the loop)."""
        try:
            await work
        except BaseException:
            _settle_all(entries, _unknown(self._where))
            raise

    async def _fly(self, lane: Lane[Ask, Answer], entries: Sequence[Entry[Ask, Answer]]) -> None:
        """Bring entries to their verdicts. The run of one that has none yet stays in the air."""
        busy = list[Entry[Ask, Answer]]()
        try:
            busy = await self._write(entries, patient=False)
        finally:
            lane.under_way -= 1
            for group in _by_run(busy):
                self._spawn(self._insist(group), group)
            self._land({entry.run_id for entry in entries} - {entry.run_id for entry in busy})

    def _land(self, run_ids: set[str]) -> None:
        self._flying -= run_ids
        self._launch()

    # ---- writing

    async def _write(self, entries: Sequence[Entry[Ask, Answer]], *, patient: bool) -> list[Entry[Ask, Answer]]:
        """Write entries, tell their callers, and return those whose run is busy."""
        try:
            verdicts = await self._outlet.flush([entry.ask for entry in entries], patient=patient)
        except Lost:
            self._spawn(self._look_for(entries), entries)
        except Unavailable as error:
            _settle_all(entries, error)
        except Exception as error:  # noqa: BLE001  (whatever it was: the culprit's caller gets it)
            if len(entries) > 1:
                half = len(entries) // 2
                return [
                    *await self._write(entries[:half], patient=patient),
                    *await self._write(entries[half:], patient=patient),
                ]
            _settle_all(entries, error)
        else:
            return _settle_each(entries, verdicts)
        return []

    async def _insist(self, entries: list[Entry[Ask, Answer]]) -> None:
        """Write the entries of one busy run, waiting for its lock, a number of times."""
        run_id = entries[0].run_id
        try:
            for pause_s in self._bounds.pauses_s:
                await asyncio.sleep(pause_s)
                async with self._patience:
                    entries = await self._write(entries, patient=True)
                if not entries:
                    return
            _settle_all(entries, _locked(run_id, self._where))
        finally:
            self._land({run_id})

    async def _look_for(self, entries: Sequence[Entry[Ask, Answer]]) -> None:
        """Answer what is in after all. Of the rest nobody knows; who can repeat it safely may do so."""
        asked = [entry for entry in entries if entry.first]
        _settle_all((entry for entry in entries if not entry.first), _unknown(self._where))
        for pause_s in self._bounds.pauses_s if asked else ():
            await asyncio.sleep(pause_s)
            try:
                found = await self._outlet.find([entry.ask for entry in asked])
            except Unavailable:
                continue
            for entry, answer in zip(asked, found, strict=True):
                entry.settle(_unknown(self._where) if answer is None else answer)
            return
        _settle_all(asked, _unknown(self._where))


def _locked(run_id: str, where: str) -> Unavailable:
    return Unavailable(f"run {run_id} is locked in {where}: end the session that holds it, or wait until it is gone")


def _unknown(where: str) -> Unavailable:
    return Unavailable(f"the connection to {where} was lost before its answer came: what was asked may be done or not")


def _settle_each(
    entries: Sequence[Entry[Ask, Answer]], verdicts: Sequence[Answer | Exception | None]
) -> list[Entry[Ask, Answer]]:
    busy = list[Entry[Ask, Answer]]()
    for entry, verdict in zip(entries, verdicts, strict=True):
        if verdict is None:
            busy.append(entry)
        else:
            entry.settle(verdict)
    return busy


def _settle_all(entries: Iterable[Entry[Ask, Answer]], error: Exception) -> None:
    for entry in entries:
        entry.settle(error)


def _by_run(entries: Iterable[Entry[Ask, Answer]]) -> list[list[Entry[Ask, Answer]]]:
    groups = dict[str, list[Entry[Ask, Answer]]]()
    for entry in entries:
        groups.setdefault(entry.run_id, []).append(entry)
    return list(groups.values())
