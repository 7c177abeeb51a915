"""A `fencepost node` under attack: the supervisor, the process that serves, and what both say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

FENCEPOST = Path(sys.executable).with_name("fencepost")
POLL_S = 0.02
READY_S = 60.0
STOPPED_S = 25.0


class Node:
    """One supervisor at a time under one name; its log goes on over its lives."""

    def __init__(self, name: str, log: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.environment = environment
        self._log = log
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.codes: list[int] = []
        """Exit codes of supervisors that were asked to stop."""
        self.stops_s: list[float] = []
        """How long that took."""

    # ---- life

    def start(self, target: Path) -> None:
        """Start its supervisor. See `until_ready`."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        with self._log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                [str(FENCEPOST), "node", str(target), "--json"],
                cwd=target.parent,
                env={**clean, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def until_ready(self, times: int = 1) -> None:
        """Wait until its processes have said so often that they serve."""
        async with asyncio.timeout(READY_S):
            while self.readies < times:
                if not self.lives:
                    raise RuntimeError(f"node {self.name} ended: {self.tail(10)}")
                await asyncio.sleep(POLL_S)  # real time: the log of another process

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        assert self._supervisor is not None
        began_s = time.monotonic()
        self._supervisor.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(self._supervisor.wait, STOPPED_S)
        except subprocess.TimeoutExpired:
            code = -1
            self.kill("both")
        self.codes.append(code)
        self.stops_s.append(time.monotonic() - began_s)
        return code

    # ---- attacks

    def signal(self, what: signal.Signals, whom: str) -> bool:
        """Signal the `child`, the `supervisor` or `both`. False when it was not there."""
        child, supervisor = self.child, self.supervisor
        victims = {"child": [child], "supervisor": [supervisor], "both": [supervisor, child]}[whom]
        there = [victim for victim in victims if victim is not None]
        for victim in there:
            with contextlib.suppress(psutil.Error):
                victim.send_signal(what)
        return bool(there)

    def kill(self, whom: str) -> bool:
        """Kill -9. A supervisor that is gone is looked after, so that it is no zombie."""
        done = self.signal(signal.SIGKILL, whom)
        if whom != "child" and self._supervisor is not None:
            self._supervisor.wait()
        return done

    # ---- looks

    @property
    def lives(self) -> bool:
        """Whether its supervisor does."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def supervisor(self) -> psutil.Process | None:
        """The supervisor, while it lives."""
        return self._process(self._supervisor.pid) if self._supervisor and self.lives else None

    @property
    def child(self) -> psutil.Process | None:
        """The process that serves (not the one that stands by), when it lives."""
        return next((found for pid in self._ready_pids()[-1:] if (found := self._process(pid))), None)

    @property
    def processes(self) -> list[psutil.Process]:
        """Supervisor, node process and the one that stands by."""
        above = self.supervisor
        with contextlib.suppress(psutil.Error):
            return [above, *above.children(recursive=True)] if above else []
        return []

    def _process(self, pid: int) -> psutil.Process | None:
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(pid)
            if found.status() != psutil.STATUS_ZOMBIE:
                return found
        return None

    def _ready_pids(self) -> list[int]:
        return [line["pid"] for line in self.lines() if line.get("event") == "ready"]

    @property
    def readies(self) -> int:
        """How many of its processes have said that they serve."""
        return len(self._ready_pids())

    # ---- what it says

    def text(self) -> str:
        """Return all its log."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def lines(self) -> list[dict]:
        """Return its log; what is no JSON is an event `raw`."""
        return [as_line(line) for line in self.text().splitlines() if line.strip()]

    def tail(self, count: int, keep: Callable[[dict], bool] = bool) -> str:
        """Return the last lines that matter."""
        return "\n".join(shown(line) for line in list(filter(keep, self.lines()))[-count:])


def as_line(text: str) -> dict:
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    return {"event": "raw", "text": text}


def shown(line: dict) -> str:
    """Return a log line for people."""
    rest = {k: v for k, v in line.items() if k not in {"event", "timestamp", "level", "logger"}}
    when, level = str(line.get("timestamp", ""))[11:23], line.get("level", "")
    return f"  {when:12} {level:7} {line.get('event')} {rest}"[:2000]
