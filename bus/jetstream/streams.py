"""The streams of a namespace: what they must be, and making them so.

A stream that is missing is made, also under a running node (its store may be deleted at any time, L1). What came
back is compared with what was asked, because older servers ignore what they do not know.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from ..errors import BusUnusable
from .api import ApiError, JetStreamApi, JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..subjects import Subjects

__all__ = ["Streams", "consumer_wanted", "difference", "wanted_streams"]

log = logging.getLogger("fencepost.bus")

NS: Final = 10**9
ACK_WAIT_S: Final = 30.0

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


def difference(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs as `field: (wanted, got)`; what was not asked for is the operator's."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, value in wanted.items():
        there = got.get(name)
        enough = name in _AT_LEAST and isinstance(there, int) and there >= value
        if not enough and value != there:
            found[name] = (value, there)
    return found


def consumer_wanted(name: str, subject: str, *, ack_wait_s: float = ACK_WAIT_S) -> JsonObject:
    """Return the configuration of a durable pull consumer that never gives up on a message."""
    return {
        "durable_name": name,
        "name": name,
        "filter_subject": subject,
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * NS),
        "deliver_policy": "all",
        "replay_policy": "instant",
        "max_deliver": -1,
        "max_ack_pending": 256,
        "max_waiting": 512,
    }


class Streams:
    """Makes and repairs; knows when each stream was born."""

    def __init__(
        self, api: JetStreamApi, subjects: Subjects, *, replicas: int = 1, ack_wait_s: float = ACK_WAIT_S
    ) -> None:
        self._api = api
        self.ack_wait_s = ack_wait_s
        self._wanted = wanted_streams(subjects, replicas=replicas)
        self._births: dict[str, str] = {}
        self._repair: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Make what is missing, change what may be changed; callers at the same time share one effort.

        Raises:
            BusUnusable: a stream of this name or its subjects belongs to something else.
            Unreachable: no answer.
        """
        if self._repair is None or self._repair.done():
            self._repair = asyncio.ensure_future(self._ensure_all())
            self._repair.add_done_callback(_looked_at)
        await asyncio.shield(self._repair)

    def forget_births(self) -> None:
        """Streams may have been made anew: look again before the next source is named."""
        self._births.clear()

    def birth_known(self, stream: str) -> str | None:
        """Return when the stream was made, if that is known without asking."""
        return self._births.get(stream)

    async def birth(self, stream: str) -> str:
        """Return when the stream was made."""
        while (known := self._births.get(stream)) is None:
            await self.ensure()
        return known

    async def ensure_consumer(self, stream: str, name: str, subject: str) -> None:
        """Make the consumer, or leave it as it is; where its stream is missing, make that first."""
        wanted = consumer_wanted(name, subject, ack_wait_s=self.ack_wait_s)
        try:
            info = await self._consumer(stream, wanted)
        except ApiError as error:
            raise _refused(f"consumer {name} of stream {stream}", error) from error
        if differs := difference(wanted, info.get("config", {})):
            raise BusUnusable(f"consumer {name} of stream {stream} came back other than asked: {_told(differs)}")

    async def _consumer(self, stream: str, wanted: JsonObject) -> JsonObject:
        verb = f"CONSUMER.CREATE.{stream}.{wanted['name']}.{wanted['filter_subject']}"
        request = {"stream_name": stream, "config": wanted, "action": ""}
        try:
            return await self._api.call(verb, request)
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
        await self.ensure()
        return await self._api.call(verb, request)

    async def _ensure_all(self) -> None:
        self._births.clear()
        await asyncio.gather(*(self._ensure(name, wanted) for name, wanted in self._wanted.items()))

    async def _ensure(self, name: str, wanted: JsonObject) -> None:
        try:
            info = await self._info_or_made(name, wanted)
        except ApiError as error:
            raise _refused(f"stream {name}", error) from error
        differs = difference(wanted, info["config"])
        if fixed := {field: pair for field, pair in differs.items() if field in _FIXED}:
            raise BusUnusable(
                f"stream {name} was made by something else ({_told(fixed)}): "
                f"remove it (`nats stream rm {name}`) or use another namespace"
            )
        if differs:
            info = await self._changed(name, {**info["config"], **wanted}, differs)
        self._births[name] = str(info["created"])

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
