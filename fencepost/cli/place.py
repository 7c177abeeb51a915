"""Where a `dev` lives: the target's folder, its state folder, the one process at a time, the hash seed."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from . import devfile
from .exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from filelock import BaseFileLock

__all__ = ["Place", "begin_anew", "environment", "place_of", "seed_early", "seed_in", "with_hash_seed"]

SEED: Final = "PYTHONHASHSEED"
SEED_FILE: Final = "hash_seed"
MARK: Final = "_FENCEPOST_SEEDED"
"""Set for the process that replaced this one: a Python that ignores its environment must not do it for ever."""


@dataclass(frozen=True, slots=True)
class Place:
    """Folders and files of one `dev`."""

    folder: Path
    state: Path

    @property
    def world(self) -> Path:
        """The SQLite file."""
        return self.state / "world.db"

    @property
    def database(self) -> Path:
        """The folder of the Postgres of `dev --stack`."""
        return self.state / "postgres"

    def seed(self, *, stack: bool) -> int | None:
        """Return the hash seed of the world here, if there is one. That of a database is noted beside it."""
        if not stack:
            return seed_in(self.world)
        with contextlib.suppress(OSError, ValueError):
            return int((self.database / SEED_FILE).read_text(encoding="utf-8"))
        return None

    def keep_seed(self, seed: int) -> None:
        """Note the hash seed of the database's world: it is wanted before the database can be asked."""
        (self.database / SEED_FILE).write_text(f"{seed}\n", encoding="utf-8")

    def prepare(self) -> None:
        """Make the state folder.

        Raises:
            CommandError: it cannot be written to.
        """
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            (self.state / ".gitignore").write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise CommandError(
                f"no state can be kept in {self.state} ({error.strerror}): give another folder with --state",
                Exit.FAILED,
            ) from None

    def locked(self) -> BaseFileLock:
        """Return the lock of this state, held until the process ends, however it does.

        Raises:
            CommandError: another `dev` holds it.
        """
        from filelock import FileLock, Timeout  # noqa: PLC0415  (the seed is set before anything slow is imported)

        from . import processes  # noqa: PLC0415

        lock = FileLock(self.state / "dev.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            file = devfile.read(self.state)
            node = file.node if file else None
            pid = f" as pid {node.pid}" if node and processes.is_running(node) else ""
            raise CommandError(
                f"fencepost dev is already running here{pid} (state {self.state}): stop it, or give --state",
                Exit.FAILED,
            ) from None
        return lock


def place_of(target: str, state: Path | None) -> Place:
    """Return where a target lives. A module, which has no path here, lives in the current folder.

    Raises:
        CommandError: it is a path, and nothing is there.
    """
    path = Path(target.partition(":")[0] if not Path(target).exists() else target)
    if not path.exists() and (path.suffix == ".py" or "/" in target or "\\" in target or not target):
        raise CommandError(f"there is no file or folder {target!r}", Exit.USAGE)
    folder = path if path.is_dir() else path.parent if path.is_file() else Path.cwd()
    folder = folder.resolve()
    return Place(folder, (state or folder / devfile.STATE).resolve())


def seed_early(arguments: Sequence[str]) -> None:
    """Set the hash seed of a `dev` before anything slow is imported, as far as its arguments are plain to see.

    Whatever is unusual is left to the command itself, which parses properly and sets the seed again if need be.
    """
    target, state, stack, rest = ".", None, False, list(arguments)
    while rest:
        word = rest.pop(0)
        if word in {"--port", "--namespace", "-n", "--state"}:
            value = rest.pop(0) if rest else ""
            state = Path(value) if word == "--state" else state
        elif word == "--stack":
            stack = True
        elif word not in {"--once", "--json", "-v", "--verbose"}:
            if word.startswith("-"):
                return
            target = word
    with_hash_seed(place_of(target, state).seed(stack=stack))


def with_hash_seed(known: int | None) -> int:
    """Return the hash seed of a world while Python runs with it; before that, start this process anew with it.

    Sets of texts are ordered by the seed, and a workflow must meet the same order after a restart. Of a world that is
    not there yet it is `None`.
    """
    given = os.environ.get(SEED, "")
    running = int(given) if given.isdecimal() and sys.flags.hash_randomization == (given != "0") else None
    seed = known if known is not None else running if running is not None else secrets.randbelow(2**32)
    if running != seed and MARK not in os.environ:
        begin_anew(seed)
    return seed


def begin_anew(seed: int) -> NoReturn:
    """Replace this process by one that runs the same command with another hash seed."""
    before = os.environ.get(MARK) or os.environ.get(SEED) or "random"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, _command(), {**os.environ, SEED: str(seed), MARK: before})  # noqa: S606


def _command() -> list[str]:
    return [sys.executable, *sys.orig_argv[1:]]


def environment(url: str, namespace: str) -> dict[str, str]:
    """Return the environment of programs beside the node: where it is, and nothing of our own hash seed."""
    own = {name: value for name, value in os.environ.items() if name not in {SEED, MARK}}
    before = os.environ.get(MARK, os.environ.get(SEED, ""))
    seed = {SEED: before} if before and before != "random" else {}
    return {**own, **seed, "FENCEPOST_NATS_URL": url, "FENCEPOST_NAMESPACE": namespace}


def seed_in(world: Path) -> int | None:
    """Look into the file without opening the world: that would take its lock, and most of a second."""
    if not world.is_file():
        return None
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"{world.resolve().as_uri()}?mode=rw", uri=True)) as file,
    ):
        row = file.execute("SELECT hash_seed FROM facts").fetchone()
        return int(row[0]) if row else None
    return None
