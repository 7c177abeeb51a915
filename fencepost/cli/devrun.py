"""One run of `fencepost dev`: a store, a nats-server, the node and the programs beside it, until stopped.

    leftovers of a kill -9 ─ Postgres? ─ nats-server ─ programs ─ world, bus, node ─ work ─ all stopped, last first

Everything that is started is noted in dev.json before it does anything, so that the next start finds what a kill -9
left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fencepost.bus import JetStreamBus, Unreachable
from fencepost.world import Unavailable

from ..joined import Joined
from . import devfile, processes
from .connecting import found_as
from .devfile import DevFile
from .exits import Exit
from .feedwork import FeedWork
from .output import complain
from .place import environment
from .programs import Programs
from .server import Server
from .stores import DatabaseStore, FileStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fencepost.actors import App, NodeSettings

    from .place import Place
    from .programs import Program
    from .project import Project
    from .stores import Store
    from .talk import Talk

__all__ = ["Dev", "Plan"]


STOP_S: Final = 6.0
STORE_S: Final = 15.0
"""A database writes down what it has in memory."""
WATCH_S: Final = 0.5
PATIENCE_S: Final = 30.0
"""How long any one part may take to stop."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for, checked."""

    place: Place
    project: Project
    app: App
    programs: tuple[Program, ...]
    summary: tuple[str, ...]
    namespace: str
    seed: int
    port: int | None
    once: bool
    stack: bool
    node: NodeSettings


@dataclass(slots=True)
class Dev:
    """See the module."""

    plan: Plan
    talk: Talk
    _file: DevFile = field(init=False)
    _store: Store = field(init=False)
    _server: Server = field(init=False)
    _joined: Joined | None = None
    _programs: Programs | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _signal: int = 0

    def __post_init__(self) -> None:
        plan = self.plan
        node = processes.started("fencepost dev", os.getpid())
        last = self._cleaned()
        self._file = DevFile("", plan.namespace, str(plan.place.folder), str(plan.place.state), node=node)
        self._store = self._made_store(last)
        self._server = Server(
            plan.place.state / "nats",
            asked=plan.port,
            last=last.port if last else None,
            noted=self._note,
            say=self.talk.note,
        )

    def _made_store(self, last: DevFile | None) -> Store:
        plan = self.plan
        if not plan.stack:
            return FileStore(plan.place, plan.namespace, plan.seed)
        return DatabaseStore(plan.place, plan.namespace, plan.seed, last=last, noted=self._note, say=self.talk.note)

    def _cleaned(self) -> DevFile | None:
        """Stop what an earlier one left behind, and return what it had noted."""
        state = self.plan.place.state
        last = devfile.read(state)
        if left := processes.end(processes.leftovers(state, last)):
            shown = ", ".join(f"{one.name} (pid {one.pid})" for one in left)
            self.talk.note(f"stopped what an earlier run had left behind: {shown}")
        return last

    async def run(self) -> int:
        """Serve until stopped or, with `once`, until every line is through. Return the exit code."""
        self._listen_to_signals()
        serving = asyncio.create_task(self._serve())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        serving.cancel()  # does nothing when it has ended
        try:
            return await serving
        except asyncio.CancelledError:
            return self._code_of_signal()

    async def _serve(self) -> int:
        async with AsyncExitStack() as stack:
            stack.callback(self._forget)
            _closed_by(stack, self._server.stop, "nats-server")
            await self._server.start()
            _closed_by(stack, self._store.stop, "the store", STORE_S)
            await self._store.start()
            programs = self._made_programs()
            _closed_by(stack, programs.stop, "the programs")
            keepers = [asyncio.create_task(part.keep()) for part in (programs, self._server, self._store)]
            _closed_by(stack, lambda: _cancelled(*keepers), "the watch over them")
            node = await self._node(stack)
            return await self._until_done(node, keepers)

    async def _node(self, stack: AsyncExitStack) -> Joined:
        """Join, with patience: what dies meanwhile is being started again."""
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            async with AsyncExitStack() as parts:
                try:
                    node = await self._joined_with(parts)
                except (Unreachable, Unavailable):
                    if not self.plan.stack or asyncio.get_running_loop().time() > until_s:
                        raise
                else:
                    stack.push_async_exit(parts.pop_all())
                    return node
            await asyncio.sleep(WATCH_S)

    async def _joined_with(self, parts: AsyncExitStack) -> Joined:
        plan = self.plan
        world = await self._store.connect()
        _closed_by(parts, world.close, "the world")
        bus = JetStreamBus(self._server.url, plan.namespace, name="fencepost-dev")
        _closed_by(parts, bus.close, "the bus")
        await bus.open()
        settings = replace(plan.node, lease_s=self._store.lease_s)
        node = self._joined = Joined(plan.app, world, bus, settings, self._store.again, self._note)
        _closed_by(parts, node.stop, "the node")
        await node.start()
        return node

    def _made_programs(self) -> Programs:
        plan = self.plan
        self._programs = Programs(
            plan.programs,
            plan.place.folder,
            plan.place.state,
            environment(self._server.url, plan.namespace),
            self._note,
            self.talk.note,
        )
        return self._programs

    # ---- until when

    async def _until_done(self, node: Joined, keepers: list[asyncio.Task[None]]) -> int:
        work = asyncio.create_task(self._work(node))
        broken = asyncio.create_task(_never_unless_broken(keepers))
        try:
            done, _ = await asyncio.wait({work, broken}, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            await _cancelled(work, broken)

    async def _work(self, node: Joined) -> int:
        self._greet(node)
        code = await FeedWork(self.plan, self.talk, node.world, node.bus).run()
        if not self.plan.once:
            self._say_how_to_start(node)
            await asyncio.Event().wait()
        return code

    def _listen_to_signals(self) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # where loops know no signals, Ctrl-C is KeyboardInterrupt
                asyncio.get_running_loop().add_signal_handler(one, self._on_signal, one)

    def _on_signal(self, received: signal.Signals) -> None:
        if self._stopping.is_set():
            processes.kill(self._file.processes)
            os._exit(Exit.INTERRUPTED)  # asked twice: now
        self._signal = received
        self._stopping.set()

    def _code_of_signal(self) -> int:
        if self._signal == signal.SIGINT:
            return Exit.INTERRUPTED
        return Exit.TERMINATED if self.plan.once else Exit.OK

    # ---- dev.json

    def _note(self) -> None:
        if self._server.process is None:
            return
        running = self._programs.running.values() if self._programs else ()
        self._file.url, self._file.monitoring = self._server.url, self._server.monitoring
        store = [self._store.process] if self._store.process else []
        self._file.processes = [self._server.process, *store, *running]
        self._file.database_port = self._store.port
        if self._store.lease_s is not None and self._joined is not None:
            self._file.incarnation = self._joined.incarnation
        devfile.write(self.plan.place.state, self._file)

    def _forget(self) -> None:
        (self.plan.place.state / devfile.DEV_FILE).unlink(missing_ok=True)

    # ---- words

    def _greet(self, node: Joined) -> None:
        known = sorted(self.plan.app.workflows)
        text = f"serving {', '.join(known)} at {self._server.url}, namespace {self.plan.namespace}"
        if self.talk.json:
            self.talk.event(
                "ready",
                text,
                url=self._server.url,
                namespace=self.plan.namespace,
                workflows=known,
                state=str(self.plan.place.state),
                pid=os.getpid(),
                node=node.incarnation,
            )
            return
        self.talk.note(f"{text}; state and logs in {self.plan.place.state}")

    def _say_how_to_start(self, node: Joined) -> None:
        feed = self.plan.project.feed
        workflow = feed.workflow if feed else min(node.app.workflows)
        names = list(node.app.workflows[workflow].params.signature.parameters)
        subject = f"fp.{self.plan.namespace}.api.start.{workflow}"
        found = found_as(self._server.url, self.plan.namespace)
        self.talk.event(
            "serving",
            f"\nserving on; Ctrl-C stops it. One more, from another terminal{'' if found else ' in this folder'}:\n"
            f"  fencepost start {workflow}{found} --id ID{_given(names)}\n"
            f"  nats -s {self._server.url} req {subject} '{_message(names)}'",
            url=self._server.url,
            subject=subject,
        )


def _given(names: list[str]) -> str:
    """Return the options that give a workflow its parameters."""
    return " --input JSON" if len(names) == 1 else "".join(f" --arg {name}=JSON" for name in names)


def _message(names: list[str]) -> str:
    by_name = ", ".join(f'"{name}": JSON' for name in names)
    given = ', "input": JSON' if len(names) == 1 else f', "kwargs": {{{by_name}}}' if names else ""
    return f'{{"id": "ID"{given}}}'


def _closed_by(stack: AsyncExitStack, stop: Callable[[], Awaitable[None]], what: str, within_s: float = STOP_S) -> None:
    """Stop a part when the stack unwinds; a part that hangs or fails must not keep the others from stopping."""

    async def bounded() -> None:
        try:
            async with asyncio.timeout(within_s):
                await stop()
        except TimeoutError:
            complain(f"{what} did not stop within {within_s:g} s")
        except Exception as error:  # noqa: BLE001  (the rest has to stop all the same)
            complain(f"{what} did not stop as it should: {error}")

    stack.push_async_callback(bounded)


async def _cancelled(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _never_unless_broken(keepers: list[asyncio.Task[None]]) -> int:
    """Raise what a keeper raises. Keepers that end well (no programs, or all have finished) end nothing."""
    await asyncio.gather(*keepers)
    await asyncio.Event().wait()
    raise AssertionError("unreachable")
