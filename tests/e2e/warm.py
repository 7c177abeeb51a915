"""Commands as processes that have everything imported already: a process that waits forks itself for each.

Importing takes most of the time of a short command, and the tests run hundreds. What a process does before its first
line (`fencepost` on the path, hash seeds, starting nodes) is shown by those that `subprocess` starts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from importlib import import_module
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REQUEST_BYTES_MAX = 2**17
FILES = 4


# ---- in the tests' process


@functools.cache
def waiting() -> socket.socket:
    """Start the process that forks, and return the line to it. It ends when the line does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": sys.pycache_prefix or os.environ.get("PYTHONPYCACHEPREFIX", "")}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def run(
    words: Sequence[str], folder: Path, environment: dict[str, str], given: str | None, patience_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` does."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write((given or "").encode())
        stdin.seek(0)
        request = json.dumps({"words": words, "folder": str(folder), "environment": environment}).encode()
        answer, theirs = os.pipe()
        try:
            socket.send_fds(waiting(), [request], [stdin.fileno(), out.fileno(), err.fileno(), theirs])
        finally:
            os.close(theirs)
        with os.fdopen(answer) as told:
            code = _ended(told, words, patience_s)
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _ended(told: IO[str], words: Sequence[str], patience_s: float) -> int:
    """Return the exit code; a command that does not end is killed."""
    pid = int(told.readline())
    if not select.select([told], [], [], patience_s)[0]:
        os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(words, patience_s)
    return int(told.readline())


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


# ---- in the process that waits


def main(line: socket.socket) -> None:
    """Fork for each request, and again in the fork: the first waits for the second and tells how it ended."""
    for package in ("fencepost.cli", "fencepost.world", "fencepost.world.postgres"):
        for found in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            import_module(found.name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(line, REQUEST_BYTES_MAX, FILES)
        if not request:
            return
        if os.fork() == 0:
            line.close()
            watch(json.loads(request), files)
        for file in files:
            os.close(file)


def watch(request: dict, files: list[int]) -> None:
    """Run a request in a process of its own and tell its id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, answer = files
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        become(request, standard)
    os.write(answer, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # whoever asked has lost patience
        os.write(answer, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(request: dict, standard: list[int]) -> None:
    """Be the command."""
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["fencepost", *request["words"]]
    from fencepost.cli import main as command  # noqa: PLC0415  (imported long ago)

    command()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
