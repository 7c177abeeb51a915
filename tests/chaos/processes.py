"""Whatever a round starts is ended: every process carries the round's mark in its environment.

A process that was stopped, or whose parent was killed, is nobody's child any more and found by nobody's list. And a
round that is killed itself cannot clean up: then the reaper does, a process that waits for the end of our pipe.

    python tests/chaos/processes.py MARK      reads standard input to its end, then ends all that carry the mark
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "CHAOS_MARK"
ENDED_S = 5.0


def marked(mark: str) -> list[psutil.Process]:
    """Return all living processes that carry a mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_marked(mark: str) -> int:
    """Kill them, by their ids, until there are none. Return how many there were."""
    count = 0
    while left := marked(mark):
        count += len(left)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=ENDED_S)
    return count


@contextlib.contextmanager
def marking(mark: str) -> Iterator[None]:
    """Let all processes that are started meanwhile carry the mark, and end them afterwards, whatever happens."""
    unmarked = dict(os.environ)
    reaper = subprocess.Popen([sys.executable, str(Path(__file__)), mark], stdin=subprocess.PIPE, env=unmarked)
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]
        end_marked(mark)
        assert reaper.stdin is not None
        reaper.stdin.close()
        reaper.wait()


if __name__ == "__main__":
    sys.stdin.read()
    end_marked(sys.argv[1])
