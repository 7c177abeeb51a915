"""The command as people run it: processes, in temporary folders, on free ports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e import warm

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
PATIENCE_S = 30
QUICK = {"dead", "doctor", "migrate", "runs", "start"}
"""Commands that only talk to a node or a server, see `warm.py`."""

APP = """
import asyncio
from fencepost import FatalError, sleep, step, workflow

@step
async def double(n: int) -> int:
    return 2 * n

@workflow
async def twice(order: dict) -> int:
    if order["n"] < 0:
        raise FatalError("below zero")
    return await double(order["n"])

@workflow
async def slow(order: dict) -> int:
    await sleep(order["s"])
    return await double(order["n"])

@workflow
async def stuck(order: dict) -> int:
    await asyncio.Event().wait()
"""

KEEPS_FACTS = "import pathlib, sys; pathlib.Path('facts.json').write_bytes(sys.stdin.buffer.read())"


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings of whoever runs the tests, and with compiled modules kept between the processes."""
    clean = {name: value for name, value in os.environ.items() if "FENCEPOST" not in name and "PROVIDER" not in name}
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    compiled = str(Path(tempfile.gettempdir()) / f"fencepost-tests-{os.getuid()}")
    return {**clean, "PYTHONPYCACHEPREFIX": compiled, **more}


def fencepost(*words: object, folder: Path, given: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    if words and words[0] in QUICK:
        return warm.run([*map(str, words)], folder, environment(**more), given, PATIENCE_S)
    return subprocess.run(
        [FENCEPOST, *map(str, words)],
        cwd=folder,
        env=environment(**more),
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def target(folder: Path, *, lines: list[str] = (), workflow: str = "twice", dev: str = "", app: str = APP) -> Path:
    """Make a folder that `dev` can run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "app.py").write_text(app)
    text = f'[dev]\napp = "app.py"\n{dev}\n'
    if lines:
        (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
        text += f'[dev.start]\nworkflow = "{workflow}"\ninput = "in.jsonl"\nid = "{{id}}"\n'
    (folder / "fencepost.toml").write_text(text)
    return folder


def ten_lines(**more: object) -> list[str]:
    return [json.dumps({"id": f"order-{n}", "n": n, **more}) for n in range(10)]


class Dev:
    """`fencepost dev --json` as a process: its events are the signals to wait for."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        with (folder / "dev.err").open("wb") as errors:
            self.process = subprocess.Popen(
                [FENCEPOST, "dev", str(folder), "--json", *words],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.events: list[dict] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)
        self.process.stdout.close()

    def wait_for(self, kind: str, text: str = "") -> dict:
        """Return the next event of a kind whose text holds this."""
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if event["event"] == kind and text in event.get("text", ""):
                return event
        raise AssertionError(f"ended without {kind} {text!r}: {self.events} {(self.folder / 'dev.err').read_text()}")

    def end(self) -> int:
        """Read to the end and return the exit code."""
        self.events += [json.loads(line) for line in self.process.stdout]
        return self.process.wait(PATIENCE_S)

    def stop(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.stdout.read()
        return self.process.wait(PATIENCE_S)

    @property
    def file(self) -> dict:
        return json.loads((self.folder / ".fencepost" / "dev.json").read_text())
