"""Data of a Postgres that were made once: `initdb` takes most of the time a new server needs."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from fencepost.world import PostgresServer

DATA = ("data", "password")
"""What a server finds in its folder when it is started again."""


def made(factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Make the folder of a server that was never started, once for all processes that run tests."""
    base = factory.getbasetemp() if worker_id == "master" else factory.getbasetemp().parent
    folder = base / "postgres-made"
    with FileLock(base / "postgres-made.lock"):
        if not folder.exists():
            asyncio.run(_make(base / "postgres-making"))
            (base / "postgres-making").rename(folder)
    return folder


async def _make(folder: Path) -> None:
    server = PostgresServer(folder)
    await server.start()
    await server.stop()


def copied(made: Path, folder: Path) -> Path:
    """Put the data into the folder of a server to be started."""
    folder.mkdir(parents=True, exist_ok=True)
    # Of another user, when we are root: shutil would make them ours.
    subprocess.run(["cp", "-a", "--reflink=auto", *(made / name for name in DATA), folder], check=True)
    return folder
