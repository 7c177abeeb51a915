"""The streams of a namespace: what they must be, and making them so.

A stream that is missing is made, also under a running node (its store may be deleted at any time, L1). What came
back is compared with what was asked, because older servers ignore what they do not know; and looked at again and again,
because anyone with a `nats` command may change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import BusError, BusUnusable
from .api import ApiError, JetStreamApi, JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..subjects import Subjects

__all__ = ["Source", "Streams", "consumer_wanted", "difference", "wanted_step_stream", "wanted_streams"]

log = logging.getLogger("fencepost.bus")

NS: Final = 10**9
LET_GO_S: Final = 1.0
ACK_WAIT_S: Final = 30.0

CONSUMERS_A_LOOK: Final = 8
"""A node has 32 and more: looking at all of them every time would be most of what an idle one does."""

STEPS_MAX: Final = 100_000
STEPS_BYTES_MAX: Final = 64 * 1024 * 1024
STEPS_AGE_S: Final = 15 * 60

_NOT_FOUND: Final = 404
_OVERLAPS: Final = {10065, 10031}
_CONSUMER_TAKEN: Final = {10100, 10013, 10105, 10012, 10148}

_FIXED: Final = ("retention", "storage", "max_consumers")
"""What a stream keeps for life."""

_AT_LEAST: Final = ("num_replicas",)
"""What an operator may raise."""


def wanted_streams(subjects: Subjects, *, replicas: int = 1) -> dict[str, JsonObject]:
    """Return the configurations asked for, by name."""
    common: JsonObject = {"num_replicas": replicas, "max_age": 0, "max_msg_size": -1}
    start: JsonObject = {
        "subjects": [subjects.every_start],
        "retention": "workqueue",
        "storage": "file",
        "discard": "new",  # a full stream refuses; the oldest start is never dropped for the newest
        "max_msgs": 1_000_000,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_consumers": 16,
        "duplicate_window": 120 * NS,
    }
    wake: JsonObject = {
        "subjects": [subjects.every_wake],
        "retention": "workqueue",
        "storage": "file",
        "discard": "old",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": 1,  # a thousand rings of one id are one message
        "max_consumers": 65_536,  # the default limit of newer servers is 1,000: 31 apps
        "duplicate_window": 1 * NS,
    }
    live: JsonObject = {
        "subjects": sorted(subjects.every_live),
        "retention": "limits",
        "storage": "memory",
        "discard": "old",
        "max_msgs": 100_000,
        "max_bytes": 32 * 1024 * 1024,
        "max_msgs_per_subject": 1_000,
        "max_consumers": -1,
        "max_age": 3600 * NS,
        "duplicate_window": 1 * NS,
    }
    named = {subjects.start_stream: start, subjects.wake_stream: wake, subjects.live_stream: live}
    return {name: {"name": name, **common, **config} for name, config in named.items()}


def wanted_step_stream(subjects: Subjects, queue: str, *, replicas: int = 1) -> JsonObject:
    """Return the configuration asked for the offerings of a queue.

    One per queue, and each bounded: a queue nobody serves must fill no other and not the disk. The oldest goes first,
    since an offering is a bell: as long as the step waits its run's due offers it again, every five minutes at the
    latest. So what is three times as old belongs to a run that ended, and is nobody's loss either. No message is held
    back as a duplicate (publishers give no id): the same step is offered again after it was taken, given back or lost.
    """
    return {
        "name": subjects.step_stream(queue),
        "subjects": [subjects.every_offering(queue)],
        "retention": "workqueue",
        "storage": "file",
        "discard": "old",
        "num_replicas": replicas,
        "max_msgs": STEPS_MAX,
        "max_bytes": STEPS_BYTES_MAX,
        "max_msg_size": -1,
        "max_msgs_per_subject": 1,  # offered a thousand times a step is one message
        "max_age": STEPS_AGE_S * NS,
        "max_consumers": 1024,  # one per app
        "duplicate_window": 1 * NS,
    }


def difference(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs as `field: (wanted, got)`; what was not asked for is the operator's."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, value in wanted.items():
        there = got.get(name)
        enough = name in _AT_LEAST and isinstance(there, int) and there >= value
        if not enough and value != there:
            found[name] = (value, there)
    return found


@dataclass(frozen=True, slots=True)
class Source:
    """A durable pull consumer: its stream, its name, what it delivers, and how much at most to all who pull."""

    stream: str
    consumer: str
    subject: str
    max_ack_pending: int = 256


def consumer_wanted(source: Source, *, ack_wait_s: float = ACK_WAIT_S) -> JsonObject:
    """Return the configuration of a durable pull consumer that never gives up on a message."""
    return {
        "durable_name": source.consumer,
        "name": source.consumer,
        "filter_subject": source.subject,
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * NS),
        "deliver_policy": "all",
        "replay_policy": "instant",
        "max_deliver": -1,
        "max_ack_pending": source.max_ack_pending,
        "max_waiting": 512,
    }


class Streams:
    """Makes and repairs; knows when each stream was born."""

    def __init__(
        self, api: JetStreamApi, subjects: Subjects, *, replicas: int = 1, ack_wait_s: float = ACK_WAIT_S
    ) -> None:
        self._api = api
        self._subjects = subjects
        self._replicas = replicas
        self.ack_wait_s = ack_wait_s
        self._wanted = wanted_streams(subjects, replicas=replicas)
        self._basic = tuple(self._wanted)
        self._consumers: dict[tuple[str, str], JsonObject] = {}
        self._turn = itertools.count(0, CONSUMERS_A_LOOK)
        self._births: dict[str, str] = {}
        self._repairs: dict[str, asyncio.Task[None]] = {}

    def want_queue(self, queue: str) -> str:
        """Return the name of a queue's stream, which is from now on looked after."""
        name = self._subjects.step_stream(queue)
        if name not in self._wanted:
            self._wanted[name] = wanted_step_stream(self._subjects, queue, replicas=self._replicas)
        return name

    async def ensure(self, *names: str) -> None:
        """Make what is missing, change what may be changed; callers at the same time share one effort a stream.

        Without names: what every node needs. A queue's stream is apart: its trouble is nobody else's.

        Raises:
            BusUnusable: a stream of this name or its subjects belongs to something else.
            Unreachable: no answer.
        """
        repairs = [self._repairing(name) for name in names or self._basic]
        await asyncio.gather(*map(asyncio.shield, repairs))

    def _repairing(self, name: str) -> asyncio.Task[None]:
        repair = self._repairs.get(name)
        if repair is None or repair.done():
            self.forget_birth(name)
            repair = self._repairs[name] = asyncio.ensure_future(self._ensure(name, self._wanted[name]))
            repair.add_done_callback(_looked_at)
        return repair

    async def look(self) -> bool:
        """Look at every stream and some consumers, set right what was changed; tell whether anything was.

        Raises:
            BusUnusable: the first thing that cannot be set right; all the others were looked at.
            Unreachable: no answer.
        """
        known = list(self._consumers.items())
        first = next(self._turn) % max(1, len(known))
        some = (known + known)[first : first + min(CONSUMERS_A_LOOK, len(known))]
        outcomes = await asyncio.gather(
            *(self._look_at(name, wanted) for name, wanted in list(self._wanted.items())),
            *(self._made_consumer(stream, wanted) for (stream, _), wanted in some),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return any(outcomes)

    async def _look_at(self, name: str, wanted: JsonObject) -> bool:
        try:
            info = await self._api.call(f"STREAM.INFO.{name}")
        except ApiError as error:
            if error.code != _NOT_FOUND:
                return False  # not now: a cluster elects
        else:
            if not difference(wanted, info["config"]):
                return False
        await self.ensure(name)
        return True

    def forget_birth(self, stream: str) -> None:
        """The stream may have been made anew: look again before the next source is named."""
        self._births.pop(stream, None)

    def birth_known(self, stream: str) -> str | None:
        """Return when the stream was made, if that is known without asking."""
        return self._births.get(stream)

    async def birth(self, stream: str) -> str:
        """Return when the stream was made."""
        while (known := self._births.get(stream)) is None:
            await self.ensure(stream)
        return known

    async def ensure_consumer(self, source: Source) -> None:
        """Make the consumer, or set it right; where its stream is missing, make that first."""
        wanted = consumer_wanted(source, ack_wait_s=self.ack_wait_s)
        await self._made_consumer(source.stream, wanted)
        self._consumers[source.stream, source.consumer] = wanted

    async def let_go(self, source: Source) -> None:
        """Look after a consumer no more, and have what was sent to us and never came delivered to others now.

        The server looks whether somebody listens, then sends, and what meets the end of a subscription in between is
        nobody's for the acknowledgement time. Nobody can give it back, so the consumer goes back to what is not
        acknowledged. What another taker has under way may come twice by that, as it may anyway.
        """
        self._consumers.pop((source.stream, source.consumer), None)
        where = f"{source.stream}.{source.consumer}"
        with contextlib.suppress(ApiError, BusError, TimeoutError):
            async with asyncio.timeout(LET_GO_S):
                if (await self._api.call(f"CONSUMER.INFO.{where}"))["num_ack_pending"]:
                    await self._api.call(f"CONSUMER.RESET.{where}")

    async def _made_consumer(self, stream: str, wanted: JsonObject) -> bool:
        name = wanted["name"]
        try:
            info = await self._consumer(stream, wanted)
        except ApiError as error:
            raise _refused(f"consumer {name} of stream {stream}", error) from error
        if differs := difference(wanted, info.get("config", {})):
            raise BusUnusable(f"consumer {name} of stream {stream} came back other than asked: {_told(differs)}")
        return False

    async def _consumer(self, stream: str, wanted: JsonObject) -> JsonObject:
        verb = f"CONSUMER.CREATE.{stream}.{wanted['name']}.{wanted['filter_subject']}"
        request = {"stream_name": stream, "config": wanted, "action": ""}
        if stream not in self._births:
            await self.ensure(stream)  # a consumer is made in any stream of this name, whatever it is
        try:
            return await self._api.call(verb, request)
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
        await self.ensure(stream)
        return await self._api.call(verb, request)

    async def _ensure(self, name: str, wanted: JsonObject) -> None:
        try:
            info = await self._info_or_made(name, wanted)
        except ApiError as error:
            raise _refused(f"stream {name}", error) from error
        differs = difference(wanted, info["config"])
        self._check_namespace(name, info["config"])
        if fixed := {field: pair for field, pair in differs.items() if field in _FIXED}:
            raise BusUnusable(
                f"stream {name} was made by something else ({_told(fixed)}): "
                f"remove it (`nats stream rm {name}`) or use another namespace"
            )
        if differs:
            info = await self._changed(name, {**info["config"], **wanted}, differs)
        self._births[name] = str(info["created"])

    def _check_namespace(self, name: str, config: Mapping[str, Any]) -> None:
        """Two namespaces can give one name: a queue may be called like the end of another's stream."""
        root = f"{self._subjects.root}."
        if any(subject.startswith("fp.") and not subject.startswith(root) for subject in config.get("subjects") or ()):
            raise BusUnusable(f"stream {name} is another namespace's: give this namespace or the queue another name")

    async def _info_or_made(self, name: str, wanted: JsonObject) -> JsonObject:
        try:
            return await self._api.call(f"STREAM.INFO.{name}")
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
        made = await self._api.call(f"STREAM.CREATE.{name}", wanted)
        log.info("made stream %s", name)
        return made

    async def _changed(self, name: str, config: JsonObject, differs: Mapping[str, tuple[Any, Any]]) -> JsonObject:
        log.warning("stream %s was changed by something else, set right: %s", name, _told(differs))
        try:
            info = await self._api.call(f"STREAM.UPDATE.{name}", config)
        except ApiError as error:
            raise _refused(f"stream {name} ({_told(differs)})", error) from error
        if still := difference(self._wanted[name], info["config"]):
            raise BusUnusable(f"stream {name} came back other than asked: {_told(still)}; is the server too old?")
        return info


def _looked_at(task: asyncio.Task[None]) -> None:
    """Count the error as seen, also when everybody who waited for it was cancelled."""
    if not task.cancelled():
        task.exception()


def _told(differs: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{field} is {got!r}, must be {wanted!r}" for field, (wanted, got) in sorted(differs.items()))


def _refused(what: str, error: ApiError) -> BusUnusable:
    if error.err_code in _OVERLAPS:
        return BusUnusable(f"{what}: another stream has these subjects already: remove it or use another namespace")
    if error.err_code in _CONSUMER_TAKEN:
        return BusUnusable(f"{what} was made by something else: remove it or use another namespace ({error})")
    return BusUnusable(f"{what} cannot be had: {error}")
