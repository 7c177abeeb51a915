"""A PgBouncer in transaction mode before the tests' server: installed, or unpacked from Debian, or nowhere."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from filelock import FileLock

from fencepost.world import run_as

KEPT = Path(tempfile.gettempdir()) / f"fencepost-tests-{os.getuid()}"
"""Where it stays when it was fetched, for all processes that run tests."""
PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")
CONFIGURATION = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {sockets}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = {clients}
logfile = {sockets}/log
{more}
"""


class NotToBeHad(Exception):
    """There is no PgBouncer here, and why."""


def binary():
    """Return the program and the folder of its libraries; it is fetched once."""
    if found := shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return Path(found), None
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotToBeHad("pgbouncer is not installed, and this is no Debian to fetch it from")
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / "pgbouncer.lock"):
        if not (KEPT / "pgbouncer").exists():
            _fetch()
    libraries = next((KEPT / "pgbouncer").glob("usr/lib/*/libcares.so.2"), None)
    return KEPT / "pgbouncer/usr/sbin/pgbouncer", libraries and libraries.parent


def _fetch():
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        for package in PACKAGES:
            _run("apt-get", "-o", "APT::Sandbox::User=root", "download", package, folder=folder)
        for archive in Path(folder).glob("*.deb"):
            _run("dpkg-deb", "-x", archive.name, "unpacked", folder=folder)
        (Path(folder) / "unpacked").rename(KEPT / "pgbouncer")


def _run(*command, folder):
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60, text=True)
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise NotToBeHad(f"pgbouncer could not be fetched from Debian: {said[-1] if said else error}") from error


class PgBouncer:
    """One pooler, whose clients get a server connection for a transaction at a time."""

    def __init__(self, server, *, size=20, clients=200, more=""):
        self.server = server
        self.options = {"size": size, "clients": clients, "more": more}
        self.folder = Path(tempfile.mkdtemp(prefix="fp-pool-"))
        self.process = None

    def start(self):
        program, libraries = binary()
        host, port = self.server.socket_url.split("host=")[1].split("&port=")
        text = CONFIGURATION.format(host=host, port=port, sockets=self.folder, **self.options)
        (self.folder / "pgbouncer.ini").write_text(text)
        runs_as = run_as.needed()
        runs_as.own(self.folder)
        self.process = subprocess.Popen(
            [program, "-q", self.folder / "pgbouncer.ini"],
            env=os.environ | ({"LD_LIBRARY_PATH": str(libraries)} if libraries else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **runs_as.options(),
        )
        self._wait()

    def _wait(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(self.folder / ".s.PGSQL.6432")) == 0:
                    return
            time.sleep(0.01)  # real time: another process starts
        raise NotToBeHad("pgbouncer did not start")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def socket_url(self):
        """The server's own door: databases are made there."""
        return self.server.socket_url

    def socket_url_of(self, database):
        return self.server.socket_url_of(database)

    def url_of(self, database):
        return f"postgresql://postgres@/{database}?host={self.folder}&port=6432"
