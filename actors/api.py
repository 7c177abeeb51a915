"""What can be asked of a node: the endpoints of the micro service `fencepost`.

A request is one JSON object, an answer another. What changes something is answered after the commit. An error is an
answer with the error's type and one sentence; a traceback never leaves the node.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import structlog

from fencepost.bus import Bus, Reply, Request, Unreachable
from fencepost.world import (
    Batch,
    HookNotFound,
    Refused,
    RunEnded,
    RunExists,
    RunNotFound,
    RunQuery,
    UnknownEvent,
    World,
    WorldError,
)
from fencepost.world import events as ev

from . import bugs, exporting, views
from .activity import Activity
from .delivering import Deliverer
from .errors import InvalidInput
from .starting import Starter, read_envelope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from datetime import datetime

    from .host import Host

log = structlog.get_logger(__name__)
WAIT_S_MAX = 25.0
OWN_ID = "run_"
"""What ids of runs begin with, and none of a user's (`starting.checked_id`)."""
PIECE_BYTES = 256 * 1024
HOOKS_SHOWN = 100


Position = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What most questions need: which run, and some details."""

    id: str = ""
    reason: str = ""
    key: str = ""
    after: Position = 0
    limit: Position = 100
    wait_s: float = 0.0
    ref: str = ""
    offset: Position = 0
    seed: bool = False


class AskRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs to list."""

    workflow: str = ""
    status: str = ""
    attribute: tuple[str, str] | None = None
    before: str = ""
    limit: Position = 50


STATUSES = {
    *("", "live", "stalled", "pending", "running", "completed", "failed", "cancelled", "terminated", "continued")
}


@dataclass(slots=True)
class Api:
    """See the module. `ring` wakes a run of an app, `wake` at an instant; `facts` tells what a node knows of itself."""

    world: World
    bus: Bus
    host: Host
    starter: Starter
    ring: Callable[[str, str], None]
    wake: Callable[[str, str, datetime | None], None]
    serves: Callable[[str], bool]
    facts: Callable[[], dict[str, Any]]
    _waiting: set[asyncio.Timeout] = field(default_factory=set["asyncio.Timeout"])
    _stopping: bool = False
    _deliverer: Deliverer | None = None

    def endpoints(self) -> dict[str, Callable[[Request], Awaitable[Reply]]]:
        """Return the handlers by endpoint."""
        asks: dict[str, Callable[[Ask], Awaitable[Any]]] = {
            "result": self.result,
            "status": self.status,
            "show": self.show,
            "cancel": self.cancel,
            "terminate": self.terminate,
            "resume": self.resume,
            "events": self.events,
            "history": self.history,
            "value": self.value,
            "dead": self.dead,
            "letter": self.letter,
            "replay": self.replay,
            "info": self.info,
        }
        return {
            "start": lambda request: _answered(self.start(request)),
            "hook": lambda request: _answered(self.hook(request)),
            "runs": lambda request: _answered(self.runs(request)),
            **{name: _asked(handler) for name, handler in asks.items()},
        }

    # ---- starting and stopping

    async def start(self, request: Request) -> dict[str, Any]:
        """Start a run; the answer is the durable promise."""
        if not request.rest:
            raise InvalidInput("the subject names no workflow: use …api.start.<workflow>")
        envelope = read_envelope(request.body, request.headers)
        created = await self.starter.start(request.rest, envelope)
        if created.existing and envelope.on_duplicate == "raise":
            raise RunExists(envelope.id, created.run_id, same_input=True)
        # An existing one too: it may never have been rung.
        self.wake(created.run_id, created.app, None if created.existing else envelope.at)
        return {"run_id": created.run_id, "id": envelope.id or created.run_id, "existing": created.existing}

    async def cancel(self, ask: Ask) -> dict[str, Any]:
        """Ask a run to stop; its code may clean up. Inert for a run that ended."""
        # One key for all: only the first cancel of a run counts, so only the first is written.
        body = ev.CancelRequested(reason=ask.reason, key="cancel")
        return await self._tell(ask, body)

    async def terminate(self, ask: Ask) -> dict[str, Any]:
        """End a run now, without running its code again."""
        body = ev.RunTerminated(reason=ask.reason, key=ask.key or self.host.token())
        return await self._tell(ask, body)

    async def _tell(self, ask: Ask, body: ev.EventBody) -> dict[str, Any]:
        run = await self.world.find(ask.id)
        try:
            accepted = await self.world.append(Batch(run.run_id, (body,), run.seq))
        except RunEnded as ended:
            return {"run_id": run.run_id, "status": ended.status, "changed": False}
        self.ring(run.run_id, run.app)
        over = isinstance(body, ev.RunTerminated)
        await self.bus.announce(f"event.{run.run_id}", views.news(accepted.first_seq, over=over))
        return {"run_id": run.run_id, "changed": not accepted.repeated}

    async def resume(self, ask: Ask) -> dict[str, Any]:
        """Let a stalled run go on: its code was put right, or the person accepts how it is."""
        run = await self.world.find(ask.id)
        try:
            changed = await self.world.unstall(run.run_id)
        except RunEnded as ended:
            return {"run_id": run.run_id, "status": ended.status, "changed": False}
        self.ring(run.run_id, run.app)
        return {"run_id": run.run_id, "changed": changed}

    async def hook(self, request: Request) -> dict[str, Any]:
        """Put a payload into a run's hook, once for a delivery; the answer is the durable promise."""
        if self._deliverer is None:
            self._deliverer = Deliverer(self.world, self.bus, self.host, self.starter.app.name, self.ring)
        return await self._deliverer.deliver(request)

    # ---- waiting

    async def _heard(self, news: AsyncIterator[bytes], deadline_s: float, part: bytes = b"") -> bool:
        """Wait for news that hold a part. False when there are none in time, or the node stops.

        Who waits for the end passes over a step's news: reading the run each time would cost more.
        """
        if self._stopping:
            return False
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self.host.monotonic_s())) as patience:
                self._waiting.add(patience)
                try:
                    async for told in news:
                        if part in told:
                            return True
                finally:
                    self._waiting.discard(patience)
        except TimeoutError:
            pass
        return False

    def stop_waiting(self) -> None:
        """Answer everybody who waits with what is known now: the node stops."""
        self._stopping = True  # who asks again at once must not wait here either
        for patience in self._waiting:
            with contextlib.suppress(RuntimeError):  # it runs out this very moment
                patience.reschedule(0.0)

    # ---- looking

    async def status(self, ask: Ask) -> dict[str, Any]:
        """Tell how far a run is."""
        return views.run_view(await self.world.find(ask.id))

    async def show(self, ask: Ask) -> dict[str, Any]:
        """Tell how far a run is and what it waits for now. Reads its whole log."""
        run, seq, now = await self.world.find(ask.id), 0, Activity()
        while page := await self.world.more(run.run_id, seq):
            for event in page:
                now.take(event)
            seq = page[-1].seq
        hooks = [await self._hook(hook) for hook in now.hooks()[:HOOKS_SHOWN]]
        return {**views.run_view(run), "steps": now.steps(self.serves), "timers": now.timers(), "hooks": hooks}

    async def _hook(self, hook: dict[str, Any]) -> dict[str, Any]:
        """Add how many payloads the run has not read, which no event tells."""
        with contextlib.suppress(HookNotFound):  # it was disposed this moment, and another took the token
            hook["unread"] = (await self.world.hook(hook["token"])).unread
        return hook

    async def result(self, ask: Ask) -> dict[str, Any]:
        """Tell how a run ended; wait for it up to `wait_s`, else answer with its status."""
        run_id = ask.id if ask.id.startswith(OWN_ID) else (await self.world.find(ask.id)).run_id
        async with self.bus.follow(f"event.{run_id}") as news:
            deadline_s = self.host.monotonic_s() + min(ask.wait_s, WAIT_S_MAX)
            while (run := await self.world.find(run_id)).ended_at is None:
                if not await self._heard(news, deadline_s, b'"over":true'):
                    return {**views.run_view(await self.world.find(run_id)), "waiting": True}
        last = await self.world.more(run.run_id, run.seq - 1)
        return {"run_id": run.run_id, **views.end_view(last[-1].body)}

    async def events(self, ask: Ask) -> dict[str, Any]:
        """Return events after a position; wait for one up to `wait_s` if there is none yet."""
        run = await self.world.find(ask.id)
        async with self.bus.follow(f"event.{run.run_id}") as news:
            deadline_s = self.host.monotonic_s() + min(ask.wait_s, WAIT_S_MAX)
            while not (found := await self.world.more(run.run_id, ask.after, max(1, min(ask.limit, 200)))):
                if run.ended_at is not None or not await self._heard(news, deadline_s):
                    break
                run = await self.world.find(ask.id)
        ended = bool(found) and isinstance(found[-1].body, ev.TERMINAL)
        over = ended or (not found and run.ended_at is not None)
        page = _bounded([views.event_view(run.run_id, e) for e in found], self.bus.body_bytes_max // 2)
        return {"run_id": run.run_id, "events": page, "over": over and len(page) == len(found)}

    async def history(self, ask: Ask) -> dict[str, Any]:
        """Return a run and its log as it was written, after a position; with `seed` also that, for a replay."""
        run = await self.world.find(ask.id)
        room = self.bus.body_bytes_max // 2
        return await exporting.page_of(
            self.world, run, ask.after, ask.limit, offset=ask.offset, seed=ask.seed, room=room
        )

    async def runs(self, request: Request) -> dict[str, Any]:
        """List runs, newest first."""
        ask: AskRuns = _read(AskRuns, request.body)
        if ask.status not in STATUSES:
            raise InvalidInput(f"there is no status {ask.status!r}: use one of {', '.join(sorted(STATUSES - {''}))}")
        limit = max(1, min(ask.limit, 500))
        query = RunQuery(ask.workflow, ask.status, ask.attribute, ask.before, limit)
        found = await self.world.runs(query)
        rows = [views.run_view(run) for run in found]
        return {"runs": rows, "before": found[-1].run_id if len(found) == limit else ""}

    async def value(self, ask: Ask) -> dict[str, Any]:
        """Return a piece of a large value."""
        run = await self.world.find(ask.id)
        try:
            piece = await self.world.get_value(run.run_id, ask.ref, ask.offset, PIECE_BYTES)
        except RunNotFound:
            raise InvalidInput(f"run {ask.id!r} keeps no value {ask.ref!r}") from None
        return {"piece": base64.b64encode(piece).decode(), "last": len(piece) < PIECE_BYTES}

    async def info(self, _ask: Ask) -> dict[str, Any]:
        """Tell what this node is, and how many runs there are by status."""
        return {**self.facts(), "runs": await self.world.count()}

    # ---- dead letters

    async def dead(self, ask: Ask) -> dict[str, Any]:
        """List dead letters, newest first; `id` is the one to continue after."""
        limit = max(1, min(ask.limit, 500))
        found = await self.world.letters(ask.id, limit)
        return {
            "dead": [views.letter_view(one) for one in found],
            "before": found[-1].id if len(found) == limit else "",
        }

    async def letter(self, ask: Ask) -> dict[str, Any]:
        """Show one dead letter with its bytes."""
        found = await self.world.letter(ask.id)
        if found is None:
            raise InvalidInput(f"there is no dead letter {ask.id!r}: `fencepost dead ls` lists them")
        return views.letter_view(found, whole=True)

    async def replay(self, ask: Ask) -> dict[str, Any]:
        """Take a dead letter in once more: after a fix it becomes a run, else it is refused with the reason."""
        found = await self.world.letter(ask.id)
        if found is None:
            raise InvalidInput(f"there is no dead letter {ask.id!r}: `fencepost dead ls` lists them")
        workflow = found.letter.subject.partition(".start.")[2]
        envelope = read_envelope(found.letter.body, found.letter.headers)
        created = await self.starter.start(workflow, envelope, source=f"letter {found.id}")
        await self.world.mark_replayed(found.id, created.run_id)
        self.ring(created.run_id, created.app)
        return {"run_id": created.run_id, "existing": created.existing}


def _read(kind: type[Any], body: bytes) -> Any:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the question does not fit: {error}") from None


def _asked(handler: Callable[[Ask], Awaitable[Any]]) -> Callable[[Request], Awaitable[Reply]]:
    async def answer(request: Request) -> Reply:
        async def ask() -> Any:
            return await handler(_read(Ask, request.body))

        return await _answered(ask())

    return answer


async def _answered(work: Awaitable[Any]) -> Reply:
    try:
        return Reply(msgspec.json.encode(await work))
    except (InvalidInput, Refused) as refusal:
        return _refused(type(refusal).__name__, str(refusal))
    except UnknownEvent as error:
        return _refused(type(error).__name__, str(error))
    except (WorldError, Unreachable) as error:  # the one name clients ask again for, whichever kind of it this is
        return _refused("Unavailable", str(error))
    except Exception:  # noqa: BLE001  (reported, and answered)
        bugs.report("a request failed")
        return _refused("internal", "the node could not answer; its log says why")


def _refused(code: str, message: str) -> Reply:
    return Reply(msgspec.json.encode({"error": code, "message": message}), error=code, description=message)


def _bounded(rows: list[dict[str, Any]], bytes_max: int) -> list[dict[str, Any]]:
    """Return the first rows that fit an answer, at least one; one that is too large alone comes without its data."""
    size = 0
    for number, row in enumerate(rows):
        row_bytes = len(msgspec.json.encode(row))
        if row_bytes > bytes_max:
            row["data"] = {"left_out_bytes": row_bytes}
            row_bytes = 0
        size += row_bytes
        if size > bytes_max:
            return rows[:number]
    return rows
