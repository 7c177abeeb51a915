"""`fencepost node --json` as a process: its lines are the signals to wait for."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import psutil

from tests.e2e.command import FENCEPOST, PATIENCE_S, environment

if TYPE_CHECKING:
    import signal

APP = """
import asyncio, os, pathlib, re, time
from fencepost import sleep, step, workflow

@step
async def double(n: int) -> int:
    return 2 * n

@step
def mark(name: str, seconds: float) -> str:
    with pathlib.Path(name).open("a") as file:
        file.write("began\\n")
    time.sleep(seconds)  # real time: a body under way is the point
    with pathlib.Path(name).open("a") as file:
        file.write("ended\\n")
    return name

@step(isolate=True)
def chewed(name: str) -> None:
    with pathlib.Path(name).open("a") as file:
        file.write(f"{os.getpid()}\\n")
    re.match("(a+)+$", "a" * 64 + "b")  # keeps the GIL of its process for ever

@workflow
async def chews(name: str) -> None:
    await chewed(name)

@workflow
async def twice(n: int) -> int:
    return await double(n)

@workflow
async def marked(name: str, seconds: float) -> str:
    return await mark(name, seconds)

@workflow
async def keeps_the_gil() -> None:
    re.match("(a+)+$", "a" * 64 + "b")

@workflow
async def spins() -> None:
    while True:
        pass
"""


class NodeProcess:
    """Started in a folder with an `app.py`, on a NATS of the test's; nobody stands by unless asked to."""

    def __init__(self, folder, url, *words, target="app.py", **more: str) -> None:
        self.folder, self.url, self.more = folder, url, more
        self.lines: list[dict] = []
        self.process = subprocess.Popen(
            [FENCEPOST, "node", target, "--json", *words],
            cwd=folder,
            env=environment(**{"FENCEPOST_NATS_URL": url, "FENCEPOST_STANDBY": "false", **more}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                for process in [*psutil.Process(self.process.pid).children(), self.process]:
                    process.kill()
        self.process.stdout.close()

    def wait_for(self, text: str) -> dict:
        """Return the next line whose event holds this."""
        for line in self.process.stdout:
            if not line.startswith("{"):
                self.lines.append({"event": line})
                continue
            self.lines.append(json.loads(line))
            if text in self.lines[-1]["event"]:
                return self.lines[-1]
        raise AssertionError(f"ended without {text!r}: {self.lines}")

    def ready(self) -> psutil.Process:
        """Return the node process that serves next."""
        return psutil.Process(self.wait_for("ready")["pid"])

    def end(self, how: signal.Signals | None = None) -> int:
        """Send a signal, if any, and return the exit code."""
        if how is not None:
            self.process.send_signal(how)
        for line in self.process.stdout:
            self.lines.append(json.loads(line) if line.startswith("{") else {"event": line})
        return self.process.wait(PATIENCE_S)

    def told(self, text: str) -> list[dict]:
        """Return the lines so far whose event holds this."""
        return [line for line in self.lines if text in line["event"]]
