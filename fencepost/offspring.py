"""A node process as its supervisor sees it: started, spoken to, listened to, ended.

What it does when it can no longer speak is seen from outside: a page of memory that both share names the run whose
turn is under way, and a file takes the stacks that `faulthandler` writes, from C, whoever holds the GIL.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final

from .pipe import PAGE_BYTES, Beat, FromChild, Go, Inbox, Over, Ready, Stop, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

    from .pipe import FromParent

__all__ = ["DUMP", "Offspring"]

DUMP: Final = signal.SIGUSR2
"""Makes a node process write the stacks of its threads, also while its GIL is held."""
DUMP_S: Final = 1.0
LOOK_S: Final = 0.02
STACK_LINES: Final = 12
READ_BYTES: Final = 65536


class Offspring:
    """See the module. `on_ready` is called when it serves; what it prints goes to `stdout`, None for our own."""

    def __init__(
        self, environment: Mapping[str, str], on_ready: Callable[[Offspring], None], stdout: IO[str] | None = None
    ) -> None:
        self.incarnation = ""
        self.ready: Ready | None = None
        self.over: Over | None = None
        self.beats = 0
        self.world_away_s = 0.0
        self.born_s = time.monotonic()
        self._on_ready = on_ready
        self._inbox = Inbox[FromChild](FromChild)  # type: ignore[arg-type]  # a union is no type, to mypy
        # Files and not pipes: they take what is written when nobody reads, and can be read when the writer is dead.
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        with tempfile.TemporaryFile() as shared:
            shared.truncate(PAGE_BYTES)
            self._page = mmap.mmap(shared.fileno(), PAGE_BYTES)
            self._line, theirs = socket.socketpair()
            with theirs:
                self._process = _spawned(environment, stdout, theirs.fileno(), shared.fileno(), self._stacks.fileno())
        self._line.settimeout(0)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def age_s(self) -> float:
        """How long ago it was told to go."""
        return time.monotonic() - self.born_s

    # ---- speaking

    def go(self, go: Go) -> None:
        """Let it serve."""
        self.born_s = time.monotonic()
        asyncio.get_running_loop().add_reader(self._line, self._listen)
        self._say(go)

    def stop(self) -> None:
        """Ask it to drain and to leave."""
        self._say(Stop())

    def _say(self, message: FromParent) -> None:
        with contextlib.suppress(OSError):  # it is dead, which `ended` tells
            self._line.send(sent(message))

    # ---- listening

    def _listen(self) -> None:
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._line)
        for message in self._inbox.take(data):
            self._hear(message)

    def _hear(self, message: FromChild) -> None:
        match message:
            case Beat(incarnation=incarnation, world_away_s=away_s):
                self.beats += 1
                self.incarnation = incarnation or self.incarnation
                self.world_away_s = away_s
            case Ready():
                self.ready = message
                self._on_ready(self)
            case Over():
                self.over = message

    # ---- its end

    async def ended(self) -> int:
        """Return its exit code when it has ended and all it said is heard; negative is the signal that ended it."""
        code = await asyncio.to_thread(self._process.wait)
        self.kill()  # what it had started, in the same session
        while self._has_more():
            self._listen()
        return code

    def _has_more(self) -> bool:
        try:
            return bool(self._line.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once, with what it started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of what belongs to a process that has ended."""
        with contextlib.suppress(RuntimeError):  # no loop runs any more
            asyncio.get_running_loop().remove_reader(self._line)
        self._line.close()
        self._page.close()
        self._stacks.close()

    # ---- what it does

    @property
    def in_turn(self) -> str:
        """The run whose turn is under way; empty between turns."""
        return bytes(self._page[:64]).rstrip(b"\0").decode("ascii", "replace")

    async def stack(self) -> str:
        """Ask for the stacks and return the one that matters; empty when it cannot even write them (SIGSTOP)."""
        before = self._told_stacks()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, DUMP)
        told, until_s = before, time.monotonic() + DUMP_S
        while time.monotonic() < until_s:
            await asyncio.sleep(LOOK_S)
            last, told = told, self._told_stacks()
            if told == last != before:  # it has begun, and has ended
                break
        return _main_stack(told[len(before) :])

    def crashed(self) -> str:
        """Return the stack that a crash in C left behind."""
        return _main_stack(self._told_stacks())

    def _told_stacks(self) -> str:
        size = os.fstat(self._stacks.fileno()).st_size
        return os.pread(self._stacks.fileno(), size, 0).decode(errors="replace")


def _spawned(environment: Mapping[str, str], stdout: IO[str] | None, *handed_on: int) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches the supervisor alone. -P: the current folder shadows no module.
    return subprocess.Popen(  # noqa: S603  (our own module)
        [sys.executable, "-P", "-m", "fencepost.child", *map(str, handed_on)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        pass_fds=handed_on,
        start_new_session=True,
    )


def _main_stack(told: str) -> str:
    """Return the stack of the thread that runs the actors: the only one with the child's `main` in it."""
    threads = told.split("\n\n")
    mains = [thread for thread in threads if "fencepost/child.py" in thread]
    lines = (mains or threads)[-1].strip().splitlines()
    return "\n".join(lines[:STACK_LINES])
