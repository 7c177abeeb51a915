"""A TCP link that can be broken: between one node and one server, in the ways in which networks break.

    flow        bytes go through, each piece `delay_s` late
    cut         all connections are reset, new ones too: the other machine says no
    hold        connections stay and nothing passes; what was sent arrives when the link is healed (TCP repeats it)
    swallow     connections stay and nothing passes, ever: what lost bytes is reset when the link is healed (a NAT
                that forgot, a machine that came back without its memory)

The first two are told to whoever is connected; the others it has to find out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal

How = Literal["flow", "cut", "hold", "swallow"]
READ_BYTES = 65536
RESET = struct.pack("ii", 1, 0)


class Link:
    """One connection through the proxy, and whether it has lost bytes."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = writers
        self.lost_bytes = False

    def reset(self) -> None:
        """End both sides with RST, as no program would."""
        for writer in self.writers:
            end = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


class Proxy:
    """See the module. `to` is the port on this machine behind it."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.delay_s = 0.0
        self.how: How = "flow"
        self.port = 0
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._on_met, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.turn("cut")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def turn(self, how: How) -> None:
        """Let it be so from now on. From `swallow`, connections that lost bytes are reset."""
        self.how = how
        for link in list(self._links):
            if how == "cut" or (how == "flow" and link.lost_bytes):
                link.reset()
        if how == "hold":
            self._passing.clear()
        else:
            self._passing.set()

    def _on_met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._met(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.how == "cut":
            Link(writer).reset()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            Link(writer).reset()
            return
        link = Link(writer, far_writer)
        self._links.add(link)
        try:
            await self._carry(link, reader, far_reader)
        finally:
            self._links.discard(link)

    async def _carry(self, link: Link, near: asyncio.StreamReader, far: asyncio.StreamReader) -> None:
        """Carry bytes both ways until one side ends."""
        near_writer, far_writer = link.writers
        ways = [self._pump(link, near, far_writer), self._pump(link, far, near_writer)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in link.writers:
            writer.close()

    async def _pump(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(READ_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)  # real time: the link is slow
                await self._passing.wait()
                if self.how == "swallow":
                    link.lost_bytes = True
                else:
                    writer.write(piece)
                    await writer.drain()
