"""From the command `fencepost dev` to the first finished run, asked for by a client that waits at the door."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from fencepost.client import Client

WITHIN_S: Final = 60.0
POLL_S: Final = 0.005
APP: Final = '''"""One workflow."""

from fencepost.actors import App, workflow


@workflow
async def hello() -> str:
    """Answer."""
    return "hello"


app = App(workflows=[hello])
'''


async def start_up(folder: Path) -> dict[str, float]:
    """Measure in a new folder, then once more in the same one."""
    _written(folder)
    cold_s = await _first_run(folder)
    return {"cold_s": cold_s, "warm_s": await _first_run(folder)}


def _written(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP, encoding="utf-8")


def command() -> str | None:
    """Return where the `fencepost` command is: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("fencepost")
    return str(beside) if beside.exists() else shutil.which("fencepost")


async def _first_run(folder: Path) -> float:
    found = command()
    if found is None:
        raise RuntimeError("the fencepost command is not installed")
    mark = folder / ".fencepost" / "dev.json"
    mark.unlink(missing_ok=True)
    began_s = time.perf_counter()
    with (folder / "dev.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220  (starting takes a millisecond)
            [found, "dev", str(folder)], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        async with asyncio.timeout(WITHIN_S):
            url, namespace = await _door(process, mark)
            async with Client.connect(url, namespace) as client:
                await (await client.start("hello")).result(WITHIN_S)
        return time.perf_counter() - began_s
    except TimeoutError:
        raise RuntimeError(f"no run had finished after {WITHIN_S:g} s: {_last_words(folder)}") from None
    finally:
        await _ended(process)


async def _door(process: subprocess.Popen[bytes], mark: Path) -> tuple[str, str]:
    """Wait until the node says where it is."""
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"fencepost dev ended with code {process.returncode}: {_last_words(mark.parent.parent)}")
        if (told := _told(mark)) is not None:
            return told
        await asyncio.sleep(POLL_S)


def _told(mark: Path) -> tuple[str, str] | None:
    try:
        said: dict[str, Any] = json.loads(mark.read_text(encoding="utf-8"))
        return str(said["url"]), str(said["namespace"])
    except (OSError, ValueError, KeyError):
        return None


async def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        await asyncio.to_thread(process.wait, 15)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)


def _last_words(folder: Path) -> str:
    lines = (folder / "dev.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or "it said nothing"
