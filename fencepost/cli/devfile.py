"""`.fencepost/dev.json`: what `fencepost dev` started and where it can be reached.

Clients find it from where they stand, upward, and one folder deep. The next `dev` finds in it what a `kill -9` left
behind. It is replaced whole, so that others may read it at any moment.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEV_FILE", "STATE", "DevFile", "Started", "found_from", "read", "write"]

STATE: Final = ".fencepost"
DEV_FILE: Final = "dev.json"


@dataclass(frozen=True, slots=True)
class Started:
    """A process: its id is only good together with the time it was created."""

    name: str
    pid: int
    created: float


@dataclass(slots=True)
class DevFile:
    """What the file says. Not written before the server has a port."""

    url: str
    namespace: str
    target: str
    state: str
    monitoring: str = ""
    node: Started | None = None
    processes: list[Started] = field(default_factory=list[Started])
    database_port: int = 0
    """Where the Postgres of `--stack` listens; 0 when there is none. Its password is in the state folder."""
    incarnation: str = ""
    """What the node joined that Postgres as: the next `dev` ends it, should this one be killed."""

    @property
    def port(self) -> int:
        """The port of the nats-server."""
        return int(self.url.rpartition(":")[2])


def read(state: Path) -> DevFile | None:
    """Return what a state folder says, or None when it says nothing that can be used."""
    try:
        said: object = json.loads((state / DEV_FILE).read_text(encoding="utf-8"))
        return _usable(_parsed(cast("dict[str, Any]", said)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(said: dict[str, Any]) -> DevFile:
    node = said["node"]
    return DevFile(
        url=str(said["url"]),
        namespace=str(said["namespace"]),
        target=str(said["target"]),
        state=str(said["state"]),
        monitoring=str(said["monitoring"]),
        node=_started(node) if node else None,
        processes=[_started(process) for process in said["processes"]],
        database_port=int(said.get("database_port", 0)),
        incarnation=str(said.get("incarnation", "")),
    )


def _usable(file: DevFile) -> DevFile:
    """Return the file, or raise ValueError when a number in it can be none of ours."""
    pids = [process.pid for process in [file.node, *file.processes] if process is not None]
    if not 0 < file.port < 65536 or not 0 <= file.database_port < 65536 or not all(0 < pid < 2**31 for pid in pids):  # noqa: PLR2004
        raise ValueError("no port or process has such a number")
    return file


def _started(said: dict[str, Any]) -> Started:
    return Started(str(said["name"]), int(said["pid"]), float(said["created"]))


def write(state: Path, file: DevFile) -> None:
    """Replace the file, whole or not at all."""
    fresh = state / f"{DEV_FILE}.{os.getpid()}"
    fresh.write_text(json.dumps(asdict(file), indent=2) + "\n", encoding="utf-8")
    fresh.replace(state / DEV_FILE)


def found_from(folder: Path) -> DevFile | None:
    """Return the nearest one: in the folder, above it, or in a folder directly below it."""
    for place in (folder, *folder.parents):
        if found := read(place / STATE):
            return found
    return _only_below(folder)


def _only_below(folder: Path) -> DevFile | None:
    """Return the one below, if there is exactly one: between two nobody but the user can choose."""
    try:
        below = sorted(folder.glob(f"*/{STATE}/{DEV_FILE}")) + sorted(folder.glob(f"*/*/{STATE}/{DEV_FILE}"))
    except OSError:
        return None
    found = [file for path in below if (file := read(path.parent))]
    return found[0] if len(found) == 1 else None
