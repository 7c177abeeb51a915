"""Steps in a module of their own: isolated ones are found there by another process, by name."""

import ctypes
import os
import time
from pathlib import Path

from fencepost.actors import step


@step
async def shout(text: str) -> str:
    return text.upper()


def _note(diary):
    with Path(diary).open("a") as file:
        file.write("x")


def visits(diary):
    """Return how many bodies wrote into the diary."""
    return len(Path(diary).read_text())


@step(isolate=True)
def own_process(diary: str) -> int:
    _note(diary)
    return os.getpid()


@step(isolate=True, timeout=0.3, retry=0)
def never_returns(diary: str) -> None:
    _note(diary)
    # real time: killed before it ends
    time.sleep(60)


@step(isolate=True, retry=0)
def exits(diary: str, times: int) -> int:
    _note(diary)
    if visits(diary) <= times:
        os._exit(3)
    return visits(diary)


@step(isolate=True, retry=0)
def segfaults(diary: str, times: int) -> int:
    _note(diary)
    if visits(diary) <= times:
        ctypes.string_at(0)
    return visits(diary)
