"""The node process that a supervisor starts: loads the app, serves, and beats while the loop of its actors runs.

    imports ─ go? ─ code of the app ─ world, bus, node ─ ready ─ … ─ stop, or dead, or no supervisor any more ─ over

It waits for `Go` with everything imported, so that the one that stands by serves at once when its turn comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import mmap
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fencepost.actors import Node as Actors
from fencepost.actors import watch
from fencepost.world import IncarnationDead, Unusable

from .cli.exits import Exit, judged
from .errors import SettingsError, Unavailable
from .loader import load
from .logs import configure_logging
from .offspring import DUMP
from .pipe import PAGE_BYTES, Beat, FromParent, Go, Inbox, Over, Ready, Stop, sent
from .settings import Settings
from .system import node_settings, open_bus, open_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from fencepost.actors import App
    from fencepost.bus import Bus
    from fencepost.world import World

    from .pipe import FromChild

__all__ = ["main"]

BEAT_S: Final = 1.0
LEAVE_S: Final = 1.0
"""How long it may take to leave when the supervisor is gone; then its lease has to lapse."""
CLOSE_S: Final = 2.0
TURN_SHARE: Final = 0.5
"""How much of `loop_dead_after` a turn may take: one that blocks in Python is stopped alone, without the process."""
READ_BYTES: Final = 65536


def main() -> None:
    """Serve once the supervisor says so, and end the process: a step's thread that hangs must not keep it."""
    line, page, stacks = map(int, sys.argv[1:4])
    for handed_on in (line, page, stacks):
        os.set_inheritable(handed_on, False)  # noqa: FBT003  (it has no name)
    told = os.fdopen(stacks, "ab", buffering=0)
    _watch_from_outside(page, told)
    supervisor = Supervisor(socket.socket(fileno=line))
    importlib.import_module("fencepost.world.postgres")  # otherwise loaded at its first use: now there is time
    go = supervisor.first()
    over = _served(go, supervisor, told) if go else Over("stopped")
    supervisor.say(over)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(over.code)


def _watch_from_outside(page: int, told: IO[bytes]) -> None:
    watch.show_turns(memoryview(mmap.mmap(page, PAGE_BYTES)))
    faulthandler.enable(told)
    faulthandler.register(DUMP, told)


class Supervisor:
    """The process that started this one, at the other end of the line."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._inbox = Inbox[FromParent](FromParent)  # type: ignore[arg-type]  # a union is no type, to mypy
        self._waiting: list[FromParent] = []

    def first(self) -> Go | None:
        """Return what to serve, or None when there is nothing to do any more."""
        while not self._waiting:
            if not (data := self._line.recv(READ_BYTES)):
                return None
            self._waiting += self._inbox.take(data)
        first = self._waiting.pop(0)
        return first if isinstance(first, Go) else None

    def listen(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], gone: Callable[[], None]) -> None:
        """Call `stop` in the loop when it says so and `gone` when it is dead; a thread sees that the loop may not."""
        listening = (loop, stop, gone)
        threading.Thread(target=self._listen, args=listening, name="fencepost-supervisor", daemon=True).start()

    def _listen(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], gone: Callable[[], None]) -> None:
        while True:
            for message in self._waiting:
                if isinstance(message, Stop):
                    _called_in(loop, stop)
            try:
                data = self._line.recv(READ_BYTES)
            except OSError:
                data = b""
            if not data:
                break
            self._waiting = self._inbox.take(data)
        _called_in(loop, gone)
        time.sleep(LEAVE_S + 0.5)  # real time: a loop that is blocked may not come back
        os._exit(Exit.FAILED)

    def say(self, message: FromChild) -> None:
        """Tell it. A supervisor that does not read (it is stopped) or is dead keeps nobody waiting."""
        with contextlib.suppress(OSError):
            self._line.send(sent(message), socket.MSG_DONTWAIT)


def _called_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # it is closed: the process is about to end
        loop.call_soon_threadsafe(callback)


def _served(go: Go, supervisor: Supervisor, told: IO[bytes]) -> Over:
    """Serve, and return why that has ended."""
    try:
        settings = Settings.load(**go.given)
        configure_logging(go.log_format, go.log_level)
        serving = Serving(settings, load(go.target), supervisor, told, go.follows)
    except Exception as error:  # noqa: BLE001  (whatever the user's code raises: one sentence)
        return _refused(error, verbose=go.verbose)
    try:
        return asyncio.run(serving.run())
    except Exception as error:  # noqa: BLE001  (as above)
        return _judged(error, verbose=go.verbose)


def _refused(error: Exception, *, verbose: bool) -> Over:
    _show(error, verbose=verbose)
    sentence, code = judged(error)
    return Over("refused", code, sentence)


def _judged(error: Exception, *, verbose: bool) -> Over:
    _show(error, verbose=verbose)
    sentence, code = judged(error)
    match error:
        case IncarnationDead():
            return Over("dead", code, sentence)
        case Unavailable(__cause__=Unusable()) | SettingsError():
            return Over("refused", Exit.FAILED, sentence)
        case Unavailable():
            return Over("unreachable", code, sentence)
        case _:
            return Over("broken", code, sentence)


def _show(error: Exception, *, verbose: bool) -> None:
    if verbose:
        import traceback  # noqa: PLC0415  (seldom)

        traceback.print_exception(error)


class Serving:
    """The node in this process, from its start to its end."""

    def __init__(
        self, settings: Settings, app: App, supervisor: Supervisor, told: IO[bytes], follows: str = ""
    ) -> None:
        self._settings, self._app, self._supervisor, self._told = settings, app, supervisor, told
        self._follows = follows
        self._stopping = asyncio.Event()
        self._node: Actors | None = None
        self._world: World | None = None
        self._bus: Bus | None = None
        watch.limit_turns(settings.loop_dead_after * TURN_SHARE)

    async def run(self) -> Over:
        """Serve until told to stop or declared dead."""
        loop = asyncio.get_running_loop()
        self._supervisor.listen(loop, self._stopping.set, self._abandon)
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, self._stopping.set)
        beats = asyncio.create_task(self._beat())
        try:
            return await self._until_over()
        finally:
            beats.cancel()

    async def _until_over(self) -> Over:
        serving = asyncio.create_task(self._serve())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        serving.cancel()  # does nothing when it has ended
        try:
            await serving
        except asyncio.CancelledError:
            return Over("stopped")
        finally:
            await self._end()
        return Over("dead", Exit.FAILED, "its incarnation was declared dead")

    async def _serve(self) -> None:
        """Open what is needed, serve, and return when the incarnation was declared dead."""
        settings = self._settings
        self._world = await open_world(settings)
        self._bus = await open_bus(settings)
        how = replace(node_settings(settings), follows=self._follows)
        node = self._node = Actors(self._app, self._world, self._bus, how)
        await node.start()
        self._beat_once()
        self._supervisor.say(Ready(node.facts()))
        await node.died.wait()

    async def _end(self) -> None:
        """Let steps end for the grace and leave. What fails here the supervisor makes good, for it leaves as well."""
        with contextlib.suppress(Exception):
            if self._node is not None:
                await self._node.stop()
        for part in (self._bus, self._world):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_S):
                    if part is not None:
                        await part.close()

    # ---- signs of life

    async def _beat(self) -> None:
        while True:
            self._beat_once()
            # Without a supervisor nobody would end a process whose GIL is held. This timer runs in C.
            faulthandler.dump_traceback_later(self._settings.loop_dead_after * 3, exit=True, file=self._told)
            await asyncio.sleep(BEAT_S)

    def _beat_once(self) -> None:
        node = self._node
        self._supervisor.say(Beat(node.incarnation, node.ownership.away_s) if node else Beat())

    # ---- without a supervisor

    def _abandon(self) -> None:
        self._last = asyncio.create_task(self._leave_now())

    async def _leave_now(self) -> None:
        """Leave and end at once: nobody renews the lease any more, and who takes over need not wait for its end."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LEAVE_S):
                if self._world is not None and self._node is not None and self._node.incarnation:
                    await self._world.leave(self._node.incarnation)
        os._exit(Exit.FAILED)


if __name__ == "__main__":
    main()
