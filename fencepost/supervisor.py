"""The supervisor of a node: it keeps one node process serving, and its incarnation alive, whatever that process does.

    hash seed from the world ─ node process ─ renews its incarnation ─ it dies: leave at once, another one
                                            ├ no beat for `loop_dead_after`: stack, SIGKILL, another one
                                            └ SIGTERM: it drains and leaves; a second one: SIGKILL

Nothing of the user's runs in this process, so neither a blocked loop nor a C call that keeps the GIL can cost the node
its claims. The run that blocked two processes in a row is stalled before the next one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from fencepost.world import Refused, Unusable, WorldError

from . import orphans
from .cli.exits import CommandError, Exit
from .errors import Unavailable
from .offspring import Offspring
from .renewal import RENEWALS, renewed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import IO

    from .pipe import Go
    from .upkeep import Upkeep

__all__ = ["Supervisor"]

TICK_S: Final = 0.25
STEADY_S: Final = 3.0
"""A process that lived this long is followed by the next one at once."""
PAUSE_S_MIN: Final = 0.25
PAUSE_S_MAX: Final = 5.0
NEVER_READY_MAX: Final = 3
"""So many processes in a row may die before the first one served; then it is no accident."""
AGAIN_S: Final = 0.5
SPARE_AFTER_S: Final = 2.0
STOP_S: Final = 10.0
"""What a process that was told to stop has beyond its grace."""
LEAVE_S: Final = 2.0
BEATS_AWAY: Final = 3
"""So many beats in a row must miss a store that answers us: after an outage, or when it stood still, a process needs a
moment to hear from it again."""
STALL_S: Final = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a process did when its loop gave no sign any more, as far as that could be seen from outside."""

    run_id: str
    stack: str

    @property
    def place(self) -> str:
        """The innermost line of Python, as ` at file:line`; empty when there is no stack."""
        first = next((line.strip() for line in self.stack.splitlines() if line.strip().startswith("File ")), "")
        name, _, line = first.removeprefix("File ").partition(", line ")
        return f" at {name.strip(chr(34))}:{line.partition(' ')[0]}" if line else ""


@dataclass(slots=True)
class Supervisor:
    """See the module. `on_ready` is told the facts of each node process that serves, and its pid.

    What user code prints goes to `stdout`, None for our own.
    """

    go: Go
    upkeep: Upkeep
    loop_dead_after_s: float
    grace_s: float
    wait: bool
    standby: bool
    on_ready: Callable[[dict[str, Any], int], None]
    stdout: IO[str] | None = None
    _seed: int = 0
    _child: Offspring | None = None
    _spare: Offspring | None = None
    _served: bool = False
    _blocked: Blocked | None = None
    _blocked_run: str = ""
    _last: str = ""
    _deaths: int = 0
    _signal: int = 0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])

    async def run(self) -> int:
        """Serve until stopped. Return the exit code.

        Raises:
            CommandError: it cannot serve, and going on trying would not help or was not asked for.
        """
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, self._on_signal, one)
        try:
            orphans.adopt()
            if await self._reached():
                while await self._lived():
                    pass
            return Exit.INTERRUPTED if self._signal == signal.SIGINT else Exit.OK
        finally:
            await self._let_go()

    def _on_signal(self, received: signal.Signals) -> None:
        if self._stopping.is_set() and self._child:
            self._child.kill()  # asked twice: now
        if not self._stopping.is_set():
            log.info("stopping; once more ends it now", grace_s=self.grace_s)
        self._signal = self._signal or received
        self._stopping.set()
        if self._child:
            self._child.stop()

    async def _let_go(self) -> None:
        for process in (self._child, self._spare):
            if process:
                process.kill()
                await process.ended()
                process.close()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVE_S)
        await self.upkeep.close()

    async def _reached(self) -> bool:
        """Reach the world, with patience if that was asked for. False when stopped meanwhile."""
        while not self._stopping.is_set():
            try:
                self._seed = await self.upkeep.open()
            except Unavailable as error:
                unusable = isinstance(error.__cause__, Unusable)
                if unusable or not self.wait:
                    raise CommandError(str(error), Exit.FAILED if unusable else Exit.UNREACHABLE) from error
                log.warning("the store cannot be reached yet", why=str(error))
                await self._pause(AGAIN_S * 4)
                continue
            return True
        return False

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    # ---- one process after the other

    async def _lived(self) -> bool:
        """Start a node process and tend it until it is dead. Whether there is to be another one."""
        if self._stopping.is_set():
            return False
        child = self._child = self._spare if self._spare and self._spare.lives else self._spawned()
        self._spare = None
        child.go(msgspec.structs.replace(self.go, follows=self._last))
        code = await self._tended(child)
        self._child = None
        try:
            return await self._after(child, code)
        finally:
            child.close()

    def _spawned(self) -> Offspring:
        around = {**os.environ, "PYTHONHASHSEED": str(self._seed), orphans.MARK: str(os.getpid())}
        return Offspring(around, self._on_ready, self.stdout)

    def _on_ready(self, child: Offspring) -> None:
        self._served = True
        assert child.ready
        self.on_ready(child.ready.facts, child.pid)
        if self.standby:
            asyncio.get_running_loop().call_later(SPARE_AFTER_S, self._stand_by)

    def _stand_by(self) -> None:
        """Have the next process import what it will need: a restart then takes a fraction of a second."""
        if not (self._spare or self._stopping.is_set()):
            self._spare = self._spawned()

    async def _tended(self, child: Offspring) -> int:
        """Renew and watch a process until it has ended; return its exit code."""
        minders = [asyncio.create_task(minder(child)) for minder in (self._renew, self._watch, self._end_in_time)]
        try:
            return await child.ended()
        finally:
            for minder in minders:
                minder.cancel()
            await asyncio.gather(*minders, return_exceptions=True)

    # ---- what happened to it

    async def _after(self, child: Offspring, code: int) -> bool:
        self._deaths = self._deaths + 1 if child.age_s < STEADY_S else 0
        blocked, self._blocked = self._blocked, None
        if blocked:
            await self._note_blocked(blocked)
        if child.incarnation:
            self._last = child.incarnation
            orphans.kill(but=self._spare.pid if self._spare else None)  # before others take over what they still do
            self._leave(child.incarnation)
        if self._stopping.is_set():
            return False
        why = child.over.why if child.over else "crashed"
        match why:
            case "stopped" | "dead":
                log.warning("the node process has ended, another one starts", pid=child.pid, why=_said(child) or why)
                self._deaths = 0
            case "refused" | "broken" if child.over and (why == "refused" or not self._served):
                raise CommandError(child.over.sentence, Exit(child.over.code))
            case "unreachable" if child.over and not (self._served or self.wait):
                raise CommandError(child.over.sentence, Exit.UNREACHABLE)
            case _:
                self._report(child, code)
        await self._pause(self._pause_s())
        return not self._stopping.is_set()

    def _report(self, child: Offspring, code: int) -> None:
        if not self._served and not child.over and self._deaths >= NEVER_READY_MAX:
            raise CommandError(
                f"the node process {_how(code)} {self._deaths} times in a row before it served: run it with -v, or"
                " look at what its code does when it is imported",
            )
        pause_s = self._pause_s()
        more = {"why": _said(child)} if child.over else {"stack": child.crashed()} if child.crashed() else {}
        log.warning("the node process died, another one starts", pid=child.pid, how=_how(code), pause_s=pause_s, **more)

    def _pause_s(self) -> float:
        """Return how long to wait: nothing the first time, longer and longer when it dies again and again."""
        return 0.0 if self._deaths <= 1 else min(PAUSE_S_MIN * 2.0 ** (self._deaths - 2), PAUSE_S_MAX)

    # ---- its incarnation

    async def _renew(self, child: Offspring) -> None:
        """Renew the incarnation while the process lives; end a process whose incarnation is dead."""
        every_s, good = self.upkeep.renew_every_s, child.beats
        while every_s is not None:
            began_s = time.monotonic()
            await asyncio.sleep(every_s)
            if child.incarnation and not await renewed(self.upkeep.renew, child.incarnation, every_s):
                self._give_up(child, "the incarnation was declared dead, its process is ended")
                return
            was_late = time.monotonic() - began_s > every_s + AGAIN_S  # it was away for us too, or we stood still
            if was_late or child.world_away_s <= RENEWALS * every_s:
                good = child.beats
            elif child.beats - good >= BEATS_AWAY:
                self._give_up(child, "the store answers us, and not the node process: it is ended")
                return

    def _give_up(self, child: Offspring, why: str) -> None:
        """End a process of no more use. One that was told to stop leaves by itself, and closes: see `_end_in_time`."""
        if not self._stopping.is_set():
            log.warning(why, incarnation=child.incarnation, pid=child.pid)
            child.kill()

    def _leave(self, incarnation: str) -> None:
        """End an incarnation whose process is dead, beside all else: the next process need not wait for that."""
        task = asyncio.create_task(self._left(incarnation))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _left(self, incarnation: str) -> None:
        every_s = self.upkeep.renew_every_s or 0.0
        until_s = time.monotonic() + every_s * 8  # by then its lease has run out
        await self._tried(lambda: self.upkeep.leave(incarnation), until_s)

    async def _tried(self, act: Callable[[], Awaitable[None]], until_s: float) -> bool:
        while True:
            try:
                await act()
            except Refused:
                return False
            except (WorldError, Unavailable, OSError) as error:
                if time.monotonic() > until_s:
                    log.warning("the world could not be told", why=str(error))
                    return False
                await asyncio.sleep(AGAIN_S)
                continue
            return True

    # ---- its loop

    async def _watch(self, child: Offspring) -> None:
        """Kill a process whose loop gives no sign. Time in which we ourselves were stopped does not count."""
        silent_s, beats, last_s = 0.0, 0, time.monotonic()
        while silent_s < self.loop_dead_after_s:
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            silent_s += min(now_s - last_s, 2 * TICK_S)
            last_s = now_s
            if child.beats != beats or not child.beats:  # before the first beat it imports, which may take long
                beats, silent_s = child.beats, 0.0
        await self._end_blocked(child)

    async def _end_blocked(self, child: Offspring) -> None:
        self._blocked = Blocked(child.in_turn, await child.stack())
        log.error(
            "the loop of the node gave no sign for too long, its process is killed",
            pid=child.pid,
            silent_s=self.loop_dead_after_s,
            run=self._blocked.run_id or None,
            stack=self._blocked.stack or "none: it was stopped from outside, or the machine is out of breath",
        )
        child.kill()

    async def _note_blocked(self, blocked: Blocked) -> None:
        """Stall a run that blocked two processes in a row, before anybody can take it up again."""
        if not blocked.run_id or blocked.run_id != self._blocked_run:
            self._blocked_run = blocked.run_id
            return
        why = (
            f"its code blocked a node for {self.loop_dead_after_s:g} s twice in a row{blocked.place}: move what blocks"
            " into a @step, then `fencepost runs resume` it"
        )
        patience_s = 0.0 if self._stopping.is_set() else STALL_S
        if await self._tried(lambda: self.upkeep.stall(blocked.run_id, why), time.monotonic() + patience_s):
            log.error("run stalled", run=blocked.run_id, why=why)
        self._blocked_run = ""

    async def _end_in_time(self, child: Offspring) -> None:
        """Kill a process that was told to stop and does not."""
        await self._stopping.wait()
        await asyncio.sleep(self.grace_s + STOP_S)
        log.error("the node process did not stop in time and is killed", pid=child.pid)
        child.kill()


def _said(child: Offspring) -> str:
    return child.over.sentence if child.over else ""


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
