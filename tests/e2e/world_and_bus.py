"""What end-to-end tests run on: world, bus, node and client, and how to kill the node between two statements."""

import asyncio
import contextlib
import inspect
import threading
import uuid
from datetime import UTC, datetime, timedelta

import nats

from fencepost.actors import App, Node, NodeSettings
from fencepost.actors import node as node_module
from fencepost.actors.host import AsyncioHost
from fencepost.actors.node import Parts
from fencepost.bus import InProcessBus, JetStreamBus
from fencepost.client import Client
from fencepost.world import PostgresWorld, RunQuery, SQLiteWorld, Unavailable, partition_of

PATIENCE_S = 10
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


async def eventually(is_so):
    """Wait for what has no signal of its own: another thread, or a count of the node's."""
    async with asyncio.timeout(PATIENCE_S):
        while not await _told(is_so):  # noqa: ASYNC110  (see above)
            # real time: polls what nothing rings for
            await asyncio.sleep(0.005)


async def _told(is_so):
    answer = is_so()
    return await answer if inspect.isawaitable(answer) else answer


class Clock:
    """A clock that stands still until it is turned."""

    def __init__(self):
        self.at = BEGIN

    def __call__(self):
        return self.at


class TurnedHost(AsyncioHost):
    """A host whose idea of the world's clock is a clock of the test's."""

    def __init__(self, clock):
        super().__init__()
        self.now = clock


class Cable:
    """What lies between a node and its world: it can be cut, and calls through it can fail."""

    def __init__(self, world):
        self._world = world
        self._cut = self._cut_after = False
        self._faults = []
        self.failed = asyncio.Event()

    def cut(self):
        """Let nothing through any more, answers neither: for the world the node is dead from here on."""
        self._cut = True

    def fail_once(self, method, when=lambda *_: True, *, after=False, cut=False):
        """Let the next call of a method that fits fail, before it arrives or (`after`) with its answer lost.

        With `cut` nothing goes through afterwards either. `failed` is set when it happens.
        """
        self._faults.append((method, when, after, cut))

    def _fault(self, name, args):
        for fault in self._faults:
            method, when, after, cut = fault
            if method == name and when(*args):
                self._faults.remove(fault)
                self._cut_after = after and cut
                self._cut = self._cut or (cut and not after)
                self.failed.set()
                return "after" if after else "before"
        return ""

    def __getattr__(self, name):
        method = getattr(self._world, name)

        async def through(*args, **kwargs):
            fault = self._fault(name, args)
            if self._cut or fault == "before":
                raise Unavailable("the cable to the world is cut")
            answer = await method(*args, **kwargs)
            self._cut = self._cut or (fault == "after" and self._cut_after)
            if self._cut or fault == "after":
                raise Unavailable("the cable to the world was cut")
            return answer

        return through


class Gate:
    """Where a step's body waits, in whatever thread it runs, until the test opens."""

    def __init__(self):
        self._arrived = threading.Semaphore(0)
        self._opened = threading.Event()
        self._lock = threading.Lock()
        self._waiting = []

    async def arrival(self, times=1):
        """Wait until so many (more) bodies have arrived."""
        for _ in range(times):
            assert await asyncio.to_thread(self._arrived.acquire, timeout=PATIENCE_S), "nobody came to the gate"

    def block(self):
        """Wait in a thread."""
        self._arrived.release()
        self._opened.wait(3 * PATIENCE_S)

    async def pause(self):
        """Wait on a loop."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._waiting.append((loop, future))
        self._arrived.release()
        if not self._opened.is_set():
            await future

    def open(self):
        """Let everybody pass, from now on."""
        self._opened.set()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is gone
                loop.call_soon_threadsafe(lambda f=future: f.done() or f.set_result(None))


class Overheard(InProcessBus):
    """A bus that lets a test listen to any subject answers are sent to."""

    def __init__(self, namespace):
        super().__init__(namespace)
        self._listeners = {}

    def tells(self, subject, heard):
        self._listeners[subject] = heard

    async def answer(self, reply_to, reply):
        served = await super().answer(reply_to, reply)
        if served and reply_to in self._listeners:
            await self._listeners[reply_to](reply.body)
        return served


@contextlib.contextmanager
def at_once():
    """Let a node that stops meanwhile wait for nothing: one that is killed writes down no more what its bodies did."""
    patience_s, node_module.RECORD_S = node_module.RECORD_S, 0.0
    try:
        yield
    finally:
        node_module.RECORD_S = patience_s


class Peer:
    """One more node on the world and the bus of a stack, on a line of its own."""

    def __init__(self, stack, app, bus, settings):
        self._bus = bus
        self.cable = Cable(stack.world)
        self.host = AsyncioHost()
        self.node = Node(app, self.cable, bus, NodeSettings(**settings), Parts(host=self.host))
        self._world = stack.world

    @property
    def owned(self):
        return set(self.node.ownership.owned)

    async def look(self):
        """Hear now what the world says about partitions and other nodes, not within half a second."""
        await self.node.ownership.look()

    async def kill(self):
        """End it as a kill would, and say so as its supervisor does."""
        self.cable.cut()
        with contextlib.suppress(Unavailable), at_once():
            await self.node.stop()
        await self.host.cancel_all()
        await self._world.leave(self.node.incarnation)

    async def stop(self):
        with contextlib.suppress(Unavailable):
            await self.node.stop()
        await self.host.cancel_all()


async def in_file(path, **usual):
    return await SQLiteWorld.connect(path, **usual)


async def in_postgres(url, **_):
    return await PostgresWorld.connect(url, mode="direct")


class Stack:
    """One world, one namespace on one bus, and the nodes that come and go on them."""

    def __init__(self, path, server=None, clock=None, *, opened=in_file, **settings):
        self._path, self._server, self._clock, self._opened = path, server, clock, opened
        self._namespace = f"t{uuid.uuid4().hex[:12]}"
        self.settings = {"shadow": True, "grace_s": 0.02} | settings
        self.world = self.cable = self.node = self.bus = self._host = None
        self.app = App()
        self._others = []
        self._peers = []

    # ---- life

    async def open(self):
        self.front = await self._connected("client") if self._server else Overheard(self._namespace)
        await self.begin()
        self.client = Client(self.front)

    async def begin(self, **settings):
        """Start a node, on the world there is or on the reopened file."""
        if self.world is None:
            usual = {} if self._clock is None else {"clock": self._clock}
            self.world = await self._opened(self._path, **usual)
        self.settings |= settings
        self.bus = await self._connected("node") if self._server else self.front
        self.cable = Cable(self.world)
        self._host = AsyncioHost() if self._clock is None else TurnedHost(self._clock)
        parts = Parts(host=self._host)
        self.node = Node(self.app, self.cable, self.bus, NodeSettings(**self.settings), parts)
        await self.node.start()

    async def nodes(self, *queues, **settings):
        """Stop the first node and start others instead, one per given set of queues, all balanced."""
        await self.node.stop()
        peers = [await self.join(queues=frozenset(of), **settings) for of in queues]
        await self.balance(*peers)
        return peers

    async def join(self, app=None, **settings):
        """Start another node, of the same code unless it is given."""
        bus = await self._connected("node") if self._server else self.front
        app = app or App(self.app.name, self.app.workflows.values())
        peer = Peer(self, app, bus, self.settings | settings)
        self._peers.append(peer)
        await peer.node.start()
        return peer

    @staticmethod
    async def balance(*peers):
        """Let each hear until nothing moves any more."""
        for _ in range(2):
            for peer in peers:
                await peer.look()

    def owner(self, run, *peers):
        """Return who decides for a run, and the others."""
        partition = partition_of(run.run_id, 32)
        (owner,) = [peer for peer in peers if partition in peer.owned]
        return owner, *(peer for peer in peers if peer is not owner)

    async def _connected(self, role):
        bus = JetStreamBus(self._server.url, self._namespace, role=role, ack_wait_s=2.0)
        await bus.open()
        return bus

    async def kill(self):
        """End the node as a kill would: from the cut on, nothing of it reaches the world."""
        waiting = await self.world.runs(RunQuery("", "live", None, "", 500))
        self.cable.cut()
        for run in waiting:  # who waits for news asks the world, and hears that it is gone
            await self.bus.announce(f"event.{run.run_id}", b"{}")
        with contextlib.suppress(Unavailable), at_once():
            await self.node.stop()
        await self._host.cancel_all()
        if self._server:
            await self.bus.close()
        if self._server and self._opened is in_file:  # the file's lock is the incarnation
            await self.world.close()
            self.world = None
        else:
            await self.world.leave(self.node.incarnation)  # its supervisor knows

    async def restart(self, *workflows, **settings):
        """Kill the node and start another; with workflows it has these, else those of the one before."""
        await self.kill()
        known = workflows or self.app.workflows.values()
        self.app = App(workflows=known, lifespan=self.app.lifespan)
        await self.begin(**settings)

    async def deploy(self, *workflows, **settings):
        """Stop the node gently, as a rolling update does, and start another with other code."""
        await self.node.stop()
        await self._host.cancel_all()
        if self._server:
            await self.bus.close()
        self.app = App(workflows=workflows, lifespan=self.app.lifespan)
        await self.begin(**settings)

    async def close(self):
        for peer in self._peers:
            await peer.stop()
        if self.node is not None:
            with contextlib.suppress(Unavailable):
                await self.node.stop()
            await self._host.cancel_all()
        for other in self._others:
            await other.close()
        for bus in {self.bus, self.front, *(peer._bus for peer in self._peers)}:
            await bus.close()
        if self.world is not None:
            await self.world.close()

    # ---- runs

    async def start(self, workflow, *args, **more):
        """Start a run, adding its workflow to the node when it is none of its yet."""
        if not isinstance(workflow, str):
            self.app.add(workflow)
        return await self.client.start(workflow, *args, **more)

    async def run(self, workflow, *args, **more):
        """Start a run and return its result."""
        return await (await self.start(workflow, *args, **more)).result(PATIENCE_S)

    async def ended(self, handle):
        """Wait for the end, whatever it is, and return the error or None."""
        try:
            await handle.result(PATIENCE_S)
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is)
            return error
        return None

    async def events(self, handle, kind=None):
        """Return the log of a run, or its events of one type."""
        return [event async for event in handle.events() if kind in {None, event.type}]

    async def kinds(self, handle):
        return [event.type for event in await self.events(handle)]

    async def saw(self, handle, kind, times=1):
        """Wait until the log holds so many events of a type; return the last of them."""
        async with asyncio.timeout(PATIENCE_S):
            async for event in handle.events(follow=True):
                times -= event.type == kind
                if not times:
                    return event
        raise AssertionError(f"the run ended without {kind}: {await self.kinds(handle)}")

    async def stalled(self, handle):
        """Wait until a run is stalled and return why."""
        async with asyncio.timeout(PATIENCE_S), self.bus.follow(f"event.{handle.run_id}") as news:
            while not (status := await handle.status()).stalled:
                assert status.ended_at is None, f"the run is {status.status}, not stalled"
                await anext(news)
        return status.stalled

    async def listens(self, subject):
        """Listen to any subject of the bus, and return a function that waits for the next message there."""
        queue = asyncio.Queue()

        async def heard(message):
            queue.put_nowait(message.data if self._server else message)

        if self._server:
            plain = await nats.connect(self._server.url)
            self._others.append(plain)
            await plain.subscribe(subject, cb=heard)
            await plain.flush()
        else:
            self.front.tells(subject, heard)
        return lambda wait_s=PATIENCE_S: asyncio.wait_for(queue.get(), wait_s)

    async def idle(self):
        """Wait until no actor of the node has anything to do."""
        await eventually(lambda: not self.node._mailboxes.busy)

    def world_now(self):
        return self._clock.at

    def turn(self, **span):
        """Turn the clock; nobody notices."""
        self._clock.at += timedelta(**span)

    async def skip(self, **span):
        """Turn the clock and ring for what is due, as the timer actor does."""
        self.turn(**span)
        for due in await self.world.due(None, None, self._clock.at, 500):
            self.node.tick(due.id)
