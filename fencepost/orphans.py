"""Processes that outlive the node process that started them: isolated steps in a session of their own.

A step that goes on beside its successor would be two bodies of one attempt. On Linux the supervisor takes orphans in
(`PR_SET_CHILD_SUBREAPER`), so that it finds them; elsewhere they end by themselves when their pipe does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Final

import psutil

__all__ = ["MARK", "adopt", "kill"]

PR_SET_CHILD_SUBREAPER: Final = 36
MARK: Final = "_FENCEPOST_SUPERVISOR"
"""The variable that says under whose supervision a process was started; whatever it starts inherits it."""


def adopt() -> None:
    """Become the parent of every process below this one whose own parent dies."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill(*, but: int | None) -> int:
    """End every process that was started under our supervision but one (and what is below); return how many."""
    found = 0
    for child in psutil.Process().children():
        if child.pid != but and _is_ours(child):
            for process in (child, *_below(child)):
                found += 1
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            _reaped(child.pid)
    return found


def _is_ours(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return process.environ().get(MARK) == str(os.getpid())
    return False


def _below(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _reaped(pid: int) -> None:
    """Take its exit code, without which it would stay a zombie for as long as we live."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
