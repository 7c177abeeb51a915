"""The client: starts runs, asks about them, acts on them. It needs NATS and a running node, no database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast, overload

from fencepost.bus import BusError, JetStreamBus

from .answers import DeadLetter, DeadPage, Delivered, RunPage, RunStatus, Started, read
from .asking import Asking, patiently
from .deliveries import deliver, payload_of
from .envelopes import OnDuplicate, envelope, name_of, new_id, sendable, takes_no_single
from .errors import InvalidInput, Unavailable
from .handle import RunHandle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path

    from fencepost.actors import Workflow
    from fencepost.bus import Bus

R = TypeVar("R")

PAGE: Final = 200
OWN_ID: Final = "run_"
NOT_ENTERED: Final = "this client is not connected: use `async with Client.connect(…) as client:`, and call it inside"
DEFAULT_URL: Final = "nats://localhost:4222"


class Client:
    """Talks to the nodes of a namespace: `async with Client.connect(url)`, or `Client(bus)` over an open bus."""

    def __init__(self, bus: Bus) -> None:
        self._asking = Asking(bus)
        self._owned: Bus | None = None
        self.runs = Runs(self._asking)
        self.dead = DeadLetters(self._asking)

    @classmethod
    def connect(
        cls,
        url: str | Sequence[str] = DEFAULT_URL,
        namespace: str = "default",
        *,
        credentials: Path | None = None,
        inbox_prefix: str = "_INBOX",
    ) -> Client:
        """Return a client that connects when its `async with` begins, and disconnects when it ends.

        Of several servers (a list, or with commas between) any will do; when the one in use goes, another one is used,
        and what was asked is asked again. `inbox_prefix` is where answers arrive: what this role may subscribe to.

        Raises:
            Unavailable: on entering: no NATS server there, or it refuses us.
            ValueError: the namespace cannot be part of a subject.
        """
        bus = JetStreamBus(
            url,
            namespace,
            role="client",
            name="fencepost-client",
            credentials=credentials,
            inbox_prefix=inbox_prefix,
        )
        client = cls(bus)
        client._owned = bus
        client._asking.closed = NOT_ENTERED
        return client

    async def __aenter__(self) -> Self:
        if self._owned is not None:
            try:
                await self._owned.open()
            except BusError as error:
                raise Unavailable(str(error)) from error
            self._asking.closed = ""
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._owned is not None:
            self._asking.closed = NOT_ENTERED
            await self._owned.close()

    @property
    def namespace(self) -> str:
        """The namespace it talks to."""
        return self._asking.bus.namespace

    # ---- starting

    @overload
    async def start(
        self,
        workflow: Workflow[..., R],
        /,
        *args: Any,
        id: str | None = None,
        on_duplicate: OnDuplicate = "attach",
        at: datetime | None = None,
        attributes: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self,
        workflow: str,
        /,
        *args: Any,
        id: str | None = None,
        on_duplicate: OnDuplicate = "attach",
        at: datetime | None = None,
        attributes: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> RunHandle[Any]: ...
    async def start(
        self,
        workflow: Workflow[..., Any] | str,
        /,
        *args: Any,
        id: str | None = None,  # noqa: A002  (published name)
        on_duplicate: OnDuplicate = "attach",
        at: datetime | None = None,
        attributes: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> RunHandle[Any]:
        """Start a run; when this returns it is durable. The same `id` with the same input is the same run.

        Arguments are the workflow's own and are checked before anything is sent; of a workflow given by name there is
        one, plain JSON, or keywords by parameter name. `at` begins it later (without a zone: UTC). A parameter that
        is called like one of ours (`id`, `at` …) is given by position.

        Raises:
            RunExists: the id belongs to a run with other input; with `on_duplicate="raise"` to any run.
            TypeError, SerializationError: it is no workflow, or the arguments do not fit.
            InvalidInput: a node says they do not fit.
            ValueTooLarge: the input is over the server's limit.
            Unavailable: nobody answers. With an id of yours, starting it again is harmless.
        """
        body = envelope(
            workflow,
            args,
            kwargs,
            id=id or new_id(),
            on_duplicate=on_duplicate if id else "attach",
            at=at,
            attributes=attributes,
        )
        # Told to refuse a duplicate, a node would refuse our own second question.
        once = bool(id) and on_duplicate == "raise"
        try:
            return await self._started(workflow, body, about=id or "", once=once)
        except InvalidInput as refusal:
            raise _for_python(refusal, workflow, args) from refusal

    async def start_raw(self, workflow: str, body: bytes) -> RunHandle[Any]:
        """Start with an envelope as it is, `{"id": …, "input": …}`; a node checks it. See `start`.

        Without an id in it an answer that is lost is not asked for again.
        """
        return await self._started(workflow, body, once=True)

    async def _started(
        self, workflow: Workflow[..., Any] | str, body: bytes, *, about: str = "", once: bool
    ) -> RunHandle[Any]:
        answer = await self._asking.send("start", body, rest=sendable(name_of(workflow)), about=about, once=once)
        started = read(answer, Started)
        handle: RunHandle[Any] = self._handle(started.id or started.run_id, started.run_id, workflow)
        handle.existing = started.existing
        return handle

    async def publish(
        self,
        workflow: Workflow[..., R] | str,
        /,
        *args: Any,
        id: str | None = None,  # noqa: A002  (published name)
        at: datetime | None = None,
        attributes: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> RunHandle[R]:
        """Leave a start message with JetStream: stored when this returns, a run as soon as a node takes it in.

        Needs no node now. Until it is taken in the run is not found; what does not fit becomes a dead letter.

        Raises:
            TypeError, SerializationError: the arguments do not fit.
            ValueTooLarge: the input is over the server's limit.
            Unavailable: it was not stored, as far as we know.
        """
        named = id or new_id()
        body = envelope(workflow, args, kwargs, id=named, at=at, attributes=attributes)
        await self.publish_raw(name_of(workflow), body)
        return self._handle(named, "", workflow)

    async def publish_raw(
        self, workflow: str, body: bytes, headers: Mapping[str, str] | None = None, *, once: bool = False
    ) -> None:
        """Leave any bytes as a start message; with `once` never sent twice (without an id in it they are two runs).

        Raises:
            ValueTooLarge: over the server's limit.
            Unavailable: it was not stored, as far as we know.
        """
        name, bus = sendable(workflow), self._asking.opened()
        await patiently(lambda: bus.publish_start(name, body, headers), once=once)

    # ---- hooks

    async def resume(
        self,
        token: str,
        payload: Any = None,
        *,
        delivery: str | None = None,
        wait: float | str | timedelta = 0,
    ) -> Delivered:
        """Put a payload into a run's hook; when this returns it is durable. The same `delivery` again is put once.

        A model or dataclass goes by its own type, all else as plain JSON. `wait` (seconds, `"10s"`, a timedelta) is how
        long to wait for a hook that is not there yet: a run that was just started has not made it.

        Raises:
            HookNotFound: no hook of this token is open.
            HookFull: its run has too many payloads it has not read.
            InvalidInput: the payload does not fit the hook's model, or token or delivery cannot be one.
            SerializationError: the payload is no data.
            ValueTooLarge: the payload is over the server's limit.
            Unavailable: nobody answers. With a delivery of yours, sending it again is harmless.
        """
        return await deliver(self._asking, token, payload_of(payload), delivery=delivery, wait=wait)

    # ---- what is there

    @overload
    def run(self, id: str, workflow: Workflow[..., R]) -> RunHandle[R]: ...
    @overload
    def run(self, id: str, workflow: None = None) -> RunHandle[Any]: ...
    def run(self, id: str, workflow: Workflow[..., Any] | None = None) -> RunHandle[Any]:  # noqa: A002  (published name)
        """Return a handle of a run by its id or yours, without asking whether it exists.

        With its `workflow` the result comes back as its type, else as plain JSON.
        """
        return self._handle(id, id if id.startswith(OWN_ID) else "", workflow)

    async def info(self) -> dict[str, Any]:
        """Return what the node that answers says of itself, and how many runs there are by status.

        Raises:
            Unavailable: nobody answers.
        """
        return await self._asking.ask("info", dict[str, Any])

    def _handle(self, id: str, run_id: str, workflow: Workflow[..., Any] | str | None) -> RunHandle[Any]:  # noqa: A002  (as above)
        known = None if workflow is None or isinstance(workflow, str) else workflow
        decode = None if known is None else cast("Callable[[bytes], Any]", known.returns.decode)
        return RunHandle(self._asking, id, run_id, decode)


class Runs:
    """All runs: `client.runs`."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def list(
        self,
        *,
        workflow: str = "",
        status: str = "",
        attribute: Mapping[str, str] | None = None,
        limit: int = 50,
        before: str = "",
    ) -> list[RunStatus]:
        """Return up to `limit` runs, newest first. To go on, give the last one's `run_id` as `before`.

        Raises:
            InvalidInput: no such status.
            Unavailable: nobody answers.
        """
        found: list[RunStatus] = []
        if limit < 1:
            return found
        pages = self.all(workflow=workflow, status=status, attribute=attribute, before=before, page=min(limit, PAGE))
        async for run in pages:
            found.append(run)
            if len(found) >= limit:
                break
        return found

    async def all(
        self,
        *,
        workflow: str = "",
        status: str = "",
        attribute: Mapping[str, str] | None = None,
        before: str = "",
        page: int = PAGE,
    ) -> AsyncIterator[RunStatus]:
        """Yield every run that fits, newest first, page by page.

        Raises:
            ValueError: more than one attribute.
        """
        if attribute is not None and len(attribute) != 1:
            raise ValueError("runs are listed by one attribute: give a mapping with one entry")
        wanted: dict[str, Any] = {"workflow": workflow, "status": status, "limit": page}
        if attribute:
            wanted["attribute"] = next(iter(attribute.items()))
        while True:
            answer = await self._asking.ask("runs", RunPage, before=before, **wanted)
            for run in answer.runs:
                yield run
            if not answer.before:
                return
            before = answer.before


class DeadLetters:
    """Messages nobody could take: `client.dead`."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def list(self, *, limit: int = 50, before: str = "") -> list[DeadLetter]:
        """Return up to `limit` dead letters, newest first, without their bytes. `before` is the id to go on after.

        Raises:
            Unavailable: nobody answers.
        """
        found: list[DeadLetter] = []
        while len(found) < limit:
            page = await self._asking.ask("dead", DeadPage, id=before, limit=min(limit - len(found), PAGE))
            found += page.dead
            before = page.before
            if not before:
                break
        return found

    async def show(self, id: str) -> DeadLetter:  # noqa: A002  (published name)
        """Return one with its original bytes.

        Raises:
            InvalidInput: there is no such letter.
            Unavailable: nobody answers.
        """
        return await self._asking.ask("letter", DeadLetter, id=id)

    async def replay(self, id: str) -> RunHandle[Any]:  # noqa: A002  (published name)
        """Take one in once more, after what was wrong was put right. Twice is the same run.

        Raises:
            InvalidInput, RunExists: it still does not fit.
            Unavailable: nobody answers.
        """
        started = await self._asking.ask("replay", Started, id=id)
        handle: RunHandle[Any] = RunHandle(self._asking, started.run_id, started.run_id)
        handle.existing = started.existing
        return handle


def _for_python(refusal: InvalidInput, workflow: Workflow[..., Any] | str, args: tuple[Any, ...]) -> InvalidInput:
    """Return a node's refusal in the words of a caller in Python, who gives keywords and no envelope."""
    if not (args and takes_no_single(refusal)):
        return refusal
    return InvalidInput(f"{name_of(workflow)} takes no single value: give keyword arguments ({refusal})")
