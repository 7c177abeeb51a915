"""What bus tests hand to a bus, and how they see what it was given."""

import asyncio
import contextlib
import socket

from fencepost.bus import Bell, InProcessBus, JetStreamBus, NatsServer, Offering

PATIENCE_S = 10


class Handler:
    """Records what it is given; waits at a gate; fails as often as told."""

    def __init__(self, *, failures=(), closed=False):
        self.seen = []
        self.now = self.most = 0
        self.begun = asyncio.Semaphore(0)
        self.gate = asyncio.Event()
        self.failures = list(failures)
        if not closed:
            self.gate.set()

    async def __call__(self, what):
        self.seen.append(what)
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.release()
        try:
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.now -= 1

    async def called(self, times=1):
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(times):
                await self.begun.acquire()


def bell(key, partition=0, app="default"):
    return Bell("run", key, partition, app)


def offering(run_id, op="0.1", queue="default", app="default"):
    return Offering(queue, run_id, op, app)


class Room:
    """How many steps a taker has room for."""

    def __init__(self, places):
        self.places = places

    def __call__(self):
        return self.places


class Buses:
    """Opens one more bus of the same namespace; in one process they are one."""

    def __init__(self, kind, url, namespace):
        self._kind, self._url, self._namespace = kind, url, namespace
        self._opened = []

    async def __call__(self):
        if self._kind == "jetstream":
            self._opened.append(JetStreamBus(self._url, self._namespace))
        elif not self._opened:
            self._opened.append(InProcessBus(self._namespace))
        await self._opened[-1].open()
        return self._opened[-1]

    async def close(self):
        for bus in self._opened:
            await bus.close()


class Wire:
    """A port that leads to a server: may be led to another one, cut, or go silent without a sign."""

    def __init__(self, port):
        self.to = port
        self.silent = asyncio.Event()
        self._listener = None
        self._writers = []

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        self.cut()

    @property
    def url(self):
        return f"nats://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def cut(self):
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def _connected(self, reader, writer):
        self._writers.append(writer)
        if self.silent.is_set():
            return  # as a machine that is off the net while its connections are still there
        with contextlib.suppress(OSError):
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.to)
            self._writers.append(there)
            await asyncio.gather(self._carry(reader, there), self._carry(there_reader, writer))
        writer.transport.abort()

    async def _carry(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self.silent.is_set():
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def cluster_of_two(folder):
    """Two servers that are one to their clients; the streams live on one of them."""
    ports = [free_port(), free_port()]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    servers = [
        NatsServer(
            folder / name,
            config=f"server_name: {name}\ncluster {{ name: pair, listen: 127.0.0.1:{port}, routes: [{routes}] }}",
        )
        for name, port in zip("ab", ports, strict=True)
    ]
    await asyncio.gather(*(server.start() for server in servers))
    try:
        yield servers
    finally:
        await asyncio.gather(*(server.kill() for server in servers))


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]
