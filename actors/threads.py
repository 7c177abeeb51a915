"""Daemon threads for work that blocks. A thread that never comes back is written off and replaced.

Not `ThreadPoolExecutor`: it joins its threads when the interpreter ends, so one step that hangs would keep the
process from ending; and a hung thread would take one place for ever.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

Job = Callable[[], None]

_IDLE_S: Final = 30.0
"""After this long without work a thread ends."""


class Threads:
    """Up to `size` threads, started when needed. Jobs go by token, first come, first served; they must not raise."""

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: set[str] = set()
        self._written_off: set[str] = set()
        self._count = 0
        self._idle = 0
        self._closed = False

    def submit(self, token: str, job: Job) -> None:
        """Run a job in a thread, as soon as one is free."""
        with self._changed:
            self._waiting[token] = job
            self._staff()

    def withdraw(self, token: str) -> bool:
        """Take back a job that has not begun. False when it has, or is over."""
        with self._changed:
            return self._waiting.pop(token, None) is not None

    def write_off(self, token: str) -> None:
        """Stop counting on the thread of a job: another may take its place. It ends when the job does."""
        with self._changed:
            if token in self._running and token not in self._written_off:
                self._written_off.add(token)
                self._count -= 1
                self._staff()

    def close(self) -> None:
        """Let idle threads end. Jobs that run are left alone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _staff(self) -> None:
        """See to it that somebody takes what waits. Under the lock."""
        if self._idle >= len(self._waiting):
            self._changed.notify()
        elif self._count < self.size:
            self._count += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        else:
            self._changed.notify()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            token, job = taken
            job()
            if not self._stays(token):
                return

    def _take(self) -> tuple[str, Job] | None:
        """Return the next job, or None when this thread should end (it is not counted any more)."""
        with self._changed:
            while not self._waiting:
                if self._closed or not self._wait():
                    self._count -= 1
                    return None
            token, job = self._waiting.popitem(last=False)
            self._running.add(token)
            return token, job

    def _wait(self) -> bool:
        self._idle += 1
        try:
            return self._changed.wait(_IDLE_S) or bool(self._waiting)
        finally:
            self._idle -= 1

    def _stays(self, token: str) -> bool:
        with self._changed:
            self._running.discard(token)
            if token in self._written_off:
                self._written_off.discard(token)
                return False
            return True
