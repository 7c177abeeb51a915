"""`fencepost doctor`: looks at everything a namespace stands on, and says what to do about what is wrong.

It only looks: it speaks to the server by itself, because a node's bus would repair the streams it finds.
"""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError

from ..settings import redacted
from . import processes
from .check import Check, clock_check
from .exits import Exit
from .output import emit, show_table
from .waiting import Info

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .connecting import Where

__all__ = ["doctor"]

VERSION_MIN: Final = (2, 14)
LEVEL_MIN: Final = 4
CONNECT_S: Final = 5.0
ASK_S: Final = 3.0
SLOW_MS: Final = 250.0
STEP: Final[dict[str, object]] = {"retention": "workqueue", "max_msgs_per_subject": 1, "discard": "old"}

ESSENTIAL: Final[dict[str, dict[str, object]]] = {
    "START": {"retention": "workqueue", "storage": "file", "discard": "new"},
    "WAKE": {"retention": "workqueue", "max_msgs_per_subject": 1, "discard": "old"},
    "LIVE": {"retention": "limits", "discard": "old"},
}
"""What no stream may differ in. Nodes compare all of it, and set it right."""


class Names(msgspec.Struct):
    """The streams of a subject."""

    streams: list[str] | None = None


class Consumer(msgspec.Struct):
    """Who takes from a stream: how many ask for more, and how much is under way."""

    num_ack_pending: int = 0
    num_waiting: int = 0


class Consumers(msgspec.Struct):
    """The consumers of a stream."""

    consumers: list[Consumer] | None = None


def doctor(where: Callable[[], Where], *, json: bool) -> int:
    """Look, print, and return the exit code: 3 when no server or no node answers, 1 when something else is bad."""
    place = where()
    checks = asyncio.run(_all(place))
    if json:
        for check in checks:
            emit(check.told())
    else:
        show_table(("state", "what", "found", "what to do"), [tuple(check.told().values()) for check in checks])
    if any(check.unreachable for check in checks):
        return Exit.UNREACHABLE
    return Exit.FAILED if any(check.state == "bad" for check in checks) else Exit.OK


async def _all(place: Where) -> list[Check]:
    checks = [_dev(place), *_left(place), *[check async for check in _store(place)]]
    nats = Nats()
    try:
        async with asyncio.timeout(CONNECT_S):
            await nats.connect(
                [part.strip() for part in place.url.split(",")],
                allow_reconnect=False,
                max_reconnect_attempts=1,
                connect_timeout=2,
                error_cb=_silent,
                user_credentials=str(place.credentials) if place.credentials else None,
            )
    except (NatsError, OSError, ValueError) as error:
        todo = "start `fencepost dev`, or say with --url or FENCEPOST_NATS_URL where it is"
        return [
            *checks,
            Check("bad", "server", f"{redacted(place.url)} cannot be reached: {_said(error)}", todo, unreachable=True),
        ]
    try:
        checks += [check async for check in _server(nats, place)]
        checks += [check async for check in _node(nats, place)]
    finally:
        await nats.close()
    return checks


async def _store(place: Where) -> AsyncIterator[Check]:
    """Look at Postgres where that is the store; a file is looked at by the node that has it."""
    if not place.database:
        return
    from .database import database_checks  # noqa: PLC0415  (its driver is loaded where it is used)

    async for check in database_checks(place.database, place.namespace):
        yield check


async def _silent(_error: Exception) -> None:
    """Say nothing: what matters is raised as well."""


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


# ---- this machine


def _dev(place: Where) -> Check:
    if place.dev is None:
        return Check("ok", "dev", "no `fencepost dev` is used from this folder")
    if processes.is_running(place.dev.node):
        return Check("ok", "dev", f"runs as pid {place.dev.node.pid if place.dev.node else 0}, of {place.dev.target}")
    todo = "start it again: it goes on where it was"
    return Check("warn", "dev", f"the fencepost dev of {place.dev.target} does not run any more", todo)


def _left(place: Where) -> list[Check]:
    """Report what runs without the `dev` that started it."""
    if place.dev is None or processes.is_running(place.dev.node):
        return []
    left = processes.leftovers(Path(place.dev.state), place.dev)
    shown = ", ".join(f"{one.name} (pid {one.pid})" for one in left)
    return [Check("warn", "leftovers", shown, "the next `fencepost dev` there stops them")] if left else []


# ---- the server


async def _server(nats: Nats, place: Where) -> AsyncIterator[Check]:
    version = str(nats.connected_server_version).removeprefix("<nats server v").removesuffix(">")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    old = numbers < VERSION_MIN
    yield Check(
        "bad" if old else "ok",
        "server",
        f"{redacted(place.url)}, version {version}",
        "use 2.14 or newer" if old else "",
    )
    info = await _asked(nats, "$JS.API.INFO")
    if info is None or "error" in info:
        why = info["error"].get("description", "") if info else "it is off"
        yield Check("bad", "jetstream", why, "start nats-server with JetStream (-js), and let this user use it")
        return
    level = int(info.get("api", {}).get("level", 0))
    todo = "" if level >= LEVEL_MIN else "is every server of the cluster 2.14 or newer?"
    yield Check("bad" if todo else "ok", "jetstream", f"on, API level {level}, {info.get('streams', 0)} streams", todo)
    for name, wanted in ESSENTIAL.items():
        yield _stream(
            f"FP_{place.namespace}_{name}",
            wanted,
            await _asked(nats, f"$JS.API.STREAM.INFO.FP_{place.namespace}_{name}"),
        )
    async for check in _queues(nats, place):
        yield check


async def _queues(nats: Nats, place: Where) -> AsyncIterator[Check]:
    """Look at the stream of every queue, and for one that nobody takes from."""
    filtered = msgspec.json.encode({"subject": f"fp.{place.namespace}.step.>"})
    names = msgspec.convert(await _asked(nats, "$JS.API.STREAM.NAMES", filtered) or {}, Names).streams
    for name in sorted(names or ()):
        info = await _asked(nats, f"$JS.API.STREAM.INFO.{name}")
        yield _stream(name, STEP, info)
        answer = await _asked(nats, f"$JS.API.CONSUMER.LIST.{name}") or {}
        consumers = msgspec.convert(answer, Consumers).consumers or []
        waiting = int(info["state"]["messages"]) if info and "state" in info else 0
        if waiting and not any(one.num_waiting or one.num_ack_pending for one in consumers):
            queue = name.removeprefix(f"FP_{place.namespace}_STEP_")
            todo = f"start a node with FENCEPOST_QUEUES={queue}, or more of them"
            yield Check("warn", f"queue {queue}", f"{waiting} steps wait and no node asks for them", todo)


def _stream(name: str, wanted: dict[str, object], answer: dict[str, Any] | None) -> Check:
    if answer is None or "error" in answer:
        why = answer["error"].get("description", "") if answer else "no answer"
        return Check("warn", f"stream {name}", why, "a node makes it when it starts")
    config, state = answer["config"], answer["state"]
    differs = [
        f"{field} is {config.get(field)!r}, not {value!r}"
        for field, value in wanted.items()
        if config.get(field) != value
    ]
    if differs:
        return Check(
            "bad", f"stream {name}", "; ".join(differs), "restart a node, which sets it right, or remove the stream"
        )
    return Check("ok", f"stream {name}", f"{state['messages']} messages, {state['consumer_count']} consumers")


# ---- the node


async def _node(nats: Nats, place: Where) -> AsyncIterator[Check]:
    began = time.perf_counter()
    answer = await _asked(nats, f"fp.{place.namespace}.api.info")
    took_ms = (time.perf_counter() - began) * 1000
    if answer is None:
        todo = "start a node of this namespace, or give another --namespace"
        yield Check("bad", "node", f"none answers in namespace {place.namespace}", todo, unreachable=True)
        return
    info = msgspec.convert(answer, Info)
    slow = took_ms > SLOW_MS
    known = ", ".join(info.workflows) or "no workflow"
    found = f"{info.node} of app {info.app} answered in {took_ms:.0f} ms; it knows {known}"
    yield Check("warn" if slow else "ok", "node", found, "is it busy, or does a workflow block it?" if slow else "")
    for check in _runs(info.runs):
        yield check
    yield await _clock(nats, place)


def _runs(counts: dict[str, int]) -> list[Check]:
    runs = {status: count for status, count in counts.items() if status != "dead" and count}
    told = ", ".join(f"{count} {status}" for status, count in sorted(runs.items())) or "none yet"
    stalled, dead = counts.get("stalled", 0), counts.get("dead", 0)
    checks = [
        Check("warn" if stalled else "ok", "runs", told, "`fencepost runs ls -s stalled` says why" if stalled else "")
    ]
    if dead:
        checks.append(
            Check("warn", "dead letters", f"{dead}", "`fencepost dead ls` says why; `dead replay` after a fix")
        )
    return checks


async def _clock(nats: Nats, place: Where) -> Check:
    """Compare with the clock of the server, which stamps what it stores; nodes here use the machine's own."""
    before = datetime.now(UTC)
    info = await _asked(nats, f"$JS.API.STREAM.INFO.FP_{place.namespace}_START")
    after = datetime.now(UTC)
    if not info or "ts" not in info:
        return Check("warn", "clock", "the server does not tell its time", "")
    theirs = msgspec.convert(info["ts"], datetime)
    return clock_check("clock", "the server's", (theirs - (before + (after - before) / 2)).total_seconds())


async def _asked(nats: Nats, subject: str, body: bytes = b"") -> dict[str, Any] | None:
    """Return the answer, or None when nobody gives one."""
    try:
        message = await nats.request(subject, body, timeout=ASK_S)
        return msgspec.json.decode(message.data, type=dict[str, Any])
    except (NatsError, TimeoutError, msgspec.MsgspecError):
        return None
