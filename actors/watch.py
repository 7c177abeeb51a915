"""Guards around a turn: what touches the outside is refused, what takes too long is reported and then stopped.

An audit hook (PEP 578) sees real I/O better than looking at source does. It is installed once, costs one set look-up
an event, and acts only in a thread that runs a workflow loop. A watchdog thread reports the stack of a turn that takes
longer than `TURN_REPORT_S` and throws `TurnTooLong` into one longer than `TURN_MAX_S`: `while True: pass` in one
workflow must not take the node's other runs with it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
import zoneinfo
from asyncio import events
from typing import TYPE_CHECKING, Any, Self

import structlog

from .errors import NondeterminismError
from .loop import WorkflowLoop
from .operations import line_of

if TYPE_CHECKING:
    from types import FrameType

log = structlog.get_logger(__name__)

TURN_REPORT_S = 1.0
TURN_MAX_S = 10.0
WATCH_EVERY_S = 0.5
SHOWN_BYTES = 64

_OUTSIDE = {
    "open": "opened a file",
    "os.exec": "started a program",
    "os.fork": "forked the process",
    "os.mkdir": "made a folder",
    "os.posix_spawn": "started a program",
    "os.remove": "removed a file",
    "os.rename": "renamed a file",
    "os.system": "started a program",
    "socket.bind": "used a socket",
    "socket.connect": "used a socket",
    "socket.getaddrinfo": "looked up a host",
    "socket.sendto": "used a socket",
    "sqlite3.connect": "opened a database",
    "subprocess.Popen": "started a program",
}
_READING_CODE = {"importlib", "linecache", "tokenize", "zipimport", "logging", "structlog", "traceback", "zoneinfo"}
"""Packages that read files which do not change: code, and the time zones."""


class TurnTooLong(BaseException):
    """Thrown into workflow code that blocks its node: let it pass."""


def _refuse_outside(event: str, args: tuple[Any, ...]) -> None:
    if event not in _OUTSIDE:
        return
    loop = events._get_running_loop()
    if not isinstance(loop, WorkflowLoop) or _reads_code(sys._getframe(1)) or _reads_zones(event, args):
        return
    raise loop.scribe.offence(NondeterminismError(f"workflow code {_OUTSIDE[event]}: put it into a @step"))


def _reads_code(frame: FrameType | None) -> bool:
    """Tell whether Python itself reads source or bytecode: an import or a traceback in workflow code is fine."""
    for _ in range(30):
        if frame is None:
            return False
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _READING_CODE:
            return True
        frame = frame.f_back
    return False


def _reads_zones(event: str, args: tuple[Any, ...]) -> bool:
    """Tell whether a time zone is loaded: `zoneinfo` opens its files from C, without a frame of its own."""
    return event == "open" and str(args[0]).startswith(zoneinfo.TZPATH)


class in_turn:  # noqa: N801  (reads as a phrase: `with in_turn(run_id)`)
    """Tell the watchdog that this thread runs a turn. `too_long` is where it was stopped, if it was."""

    __slots__ = ("began_s", "cpu_s", "reported", "run_id", "shown", "thread", "too_long")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.shown = run_id.encode()[:SHOWN_BYTES].ljust(SHOWN_BYTES, b"\0")
        self.too_long = ""
        self.reported = False
        _watchdog.start()  # here and not when entered: inside a turn no thread may be started

    def __enter__(self) -> Self:
        self.thread = threading.get_ident()
        self.began_s = _monotonic()
        self.cpu_s = _own_cpu_s() if _HAS_CPU_CLOCKS else None
        _watchdog.watch(self)
        _watchdog.page[:SHOWN_BYTES] = self.shown
        return self

    def __exit__(self, *_: object) -> None:
        _watchdog.page[0] = 0
        _watchdog.release(self)


def show_turns(page: memoryview) -> None:
    """Write the run of every turn to the beginning of a page that another process can read when this one cannot speak.

    A turn that blocks in C with the GIL held keeps every thread of its process from saying so.
    """
    _watchdog.page = page


def limit_turns(took_s: float) -> None:
    """Stop a turn that has taken so long and has worked, on a machine however busy: soon after, its node is killed."""
    _watchdog.took_s_max = took_s


_HAS_CPU_CLOCKS = hasattr(time, "pthread_getcpuclockid")
_own_cpu_s = time.thread_time


def _cpu_s(thread: int, otherwise_s: float) -> float:
    """Return the processor time a thread has used."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:  # it is gone
        return otherwise_s


_monotonic = time.monotonic  # the original: inside a turn the module's name stands for the run's clock


class _Watchdog:
    """One thread for all turns of the process, started with the first one."""

    def __init__(self) -> None:
        self._turns: dict[int, in_turn] = {}
        self._lock = threading.Lock()
        self._started = False
        self.page: memoryview | bytearray = bytearray(SHOWN_BYTES)
        self.took_s_max = float("inf")

    def watch(self, turn: in_turn) -> None:
        self._turns[turn.thread] = turn

    def release(self, turn: in_turn) -> None:
        with self._lock:
            self._turns.pop(turn.thread, None)
            if turn.too_long:  # what was thrown and has not arrived yet must not hit whoever runs next
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(turn.thread), None)

    def start(self) -> None:
        if self._started:
            return
        with self._lock:
            if not self._started:
                threading.Thread(target=self._run, name="fencepost-watchdog", daemon=True).start()
                sys.addaudithook(_refuse_outside)
                self._started = True

    def _run(self) -> None:
        while True:
            time.sleep(WATCH_EVERY_S)
            for turn in list(self._turns.values()):
                self._look(turn)

    def _look(self, turn: in_turn) -> None:
        took_s = _monotonic() - turn.began_s
        if took_s < TURN_REPORT_S:
            return
        # What stops a turn is its own work: a process that was stopped for a while, or sits in a debugger, did none.
        worked_s = took_s if turn.cpu_s is None else _cpu_s(turn.thread, took_s) - turn.cpu_s
        frame = sys._current_frames().get(turn.thread)
        if not turn.reported:
            turn.reported = True
            stack = "".join(traceback.format_stack(frame)[-6:])
            log.warning("a turn blocks its node", run=turn.run_id, took_s=round(took_s, 1), stack=stack)
        if worked_s >= TURN_MAX_S or (worked_s >= TURN_REPORT_S and took_s >= self.took_s_max):
            self._stop(turn, frame)

    def _stop(self, turn: in_turn, frame: FrameType | None) -> None:
        with self._lock:
            if self._turns.get(turn.thread) is turn:
                turn.too_long = line_of(frame) or "?"
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(turn.thread), ctypes.py_object(TurnTooLong))


_watchdog = _Watchdog()
