"""What bus tests hand to a bus, and how they see what it was given."""

import asyncio

from fencepost.bus import Bell

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
