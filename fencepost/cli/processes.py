"""Processes by id *and* time of creation: a number alone may belong to a stranger by now."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import psutil

from .devfile import DevFile, Started

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["end", "is_running", "kill", "leftovers", "started"]

GENTLY_S: Final = 3.0
SAME_S: Final = 1.5
"""Creation times of one process, read twice, differ by less: systems count from a boot time that clocks may move."""


def started(name: str, pid: int) -> Started | None:
    """Return a process as it is remembered, or None when it is gone already."""
    try:
        return Started(name, pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_running(known: Started | None) -> bool:
    """Tell whether exactly this process still runs."""
    return known is not None and _same(known) is not None


def leftovers(state: Path, file: DevFile | None) -> list[Started]:
    """Return what an earlier `dev` of this state folder started and could not stop."""
    known = [*(file.processes if file else []), *_servers_of(state)]
    return list({one.pid: one for one in known if is_running(one)}.values())


def end(processes: Iterable[Started]) -> list[Started]:
    """Stop processes with all their children, gently, then by force. Returns those that were there."""
    known = list(processes)
    trees = {process.pid: process for one in known for process in _tree(one)}
    for process in trees.values():
        _send(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(list(trees.values()), timeout=GENTLY_S)
    for process in alive:
        _send(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    psutil.wait_procs(alive, timeout=GENTLY_S)
    return known


def kill(known: Iterable[Started]) -> None:
    """End processes at once, without waiting."""
    for one in known:
        for process in _tree(one):
            _send(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)


def _same(known: Started) -> psutil.Process | None:
    try:
        process = psutil.Process(known.pid)
        close = abs(process.create_time() - known.created) < SAME_S
        return process if close and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def _tree(known: Started) -> list[psutil.Process]:
    process = _same(known)
    if process is None or process.pid == os.getpid():
        return []
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return [process]


def _send(process: psutil.Process, how: signal.Signals) -> None:
    try:
        process.send_signal(how)
    except (psutil.Error, OSError):
        return


def _servers_of(state: Path) -> list[Started]:
    """Return the nats-server whose ports file lies in our folder and which was started with our configuration.

    It covers the moment between its start and the note in dev.json: two servers on one store would spoil it.
    """
    found: list[Started] = []
    for file in (state / "nats").glob("*.ports"):
        pid = file.stem.rpartition("_")[2]
        one = started("nats-server", int(pid)) if pid.isdecimal() else None
        if one and str(state / "nats" / "nats-server.conf") in _arguments(one.pid):
            found.append(one)
    return found


def _arguments(pid: int) -> list[str]:
    try:
        return list[str](psutil.Process(pid).cmdline())
    except psutil.Error:
        return []
