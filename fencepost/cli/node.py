"""`fencepost node`: serve a target in production, under a supervisor."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..logs import configure_logging
from ..pipe import Go
from ..settings import FILE, Settings, redacted
from .exits import CommandError, Exit
from .place import place_of
from .talk import Talk

if TYPE_CHECKING:
    from pathlib import Path

    from ..logs import LogFormat

__all__ = ["Asked", "node"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line. What is None is as the settings say."""

    target: str
    namespace: str | None
    queues: str | None
    steps_only: bool
    wait: bool
    json: bool
    verbose: bool


def node(asked: Asked) -> int:
    """Serve until stopped, and return the exit code."""
    if os.name != "posix":
        raise CommandError("fencepost node needs POSIX signals and processes: embed `Node(app)` instead", Exit.USAGE)
    given = _given(asked, place_of(asked.target, None).folder)
    settings = Settings.load(**given)
    if settings.bus == "inprocess":
        raise CommandError("fencepost node is reached over NATS: leave FENCEPOST_BUS as it is", Exit.USAGE)
    form: LogFormat = "json" if asked.json and settings.log_format == "auto" else settings.log_format
    level = "debug" if asked.verbose else settings.log_level
    configure_logging(form, level)
    go = Go(asked.target, {**given, "bus": "nats"}, form, level, asked.verbose)
    return asyncio.run(_supervised(go, settings, Talk(asked.json)))


def _given(asked: Asked, folder: Path) -> dict[str, str]:
    """Return the settings of the command line, for the node process too; the file beside the target is one of them."""
    file = folder / FILE
    config = {"config": str(file)} if file.is_file() and "FENCEPOST_CONFIG" not in os.environ else {}
    named = {"namespace": asked.namespace, "queues": asked.queues}
    flags = {"steps_only": asked.steps_only, "wait": asked.wait}
    return (
        config
        | {name: value for name, value in named.items() if value}
        | {name: "true" for name, value in flags.items() if value}
    )


async def _supervised(go: Go, settings: Settings, talk: Talk) -> int:
    from ..supervisor import Supervisor  # noqa: PLC0415  (what is wrong before it need not wait for it)
    from ..upkeep import upkeep_of  # noqa: PLC0415

    supervisor = Supervisor(
        go=go,
        upkeep=upkeep_of(settings),
        loop_dead_after_s=settings.loop_dead_after,
        grace_s=settings.grace,
        wait=settings.wait,
        standby=settings.standby,
        on_ready=lambda facts, pid: _greet(talk, settings, facts, pid),
        stdout=sys.stderr if talk.json else None,  # ours is for programs
    )
    return await supervisor.run()


def _greet(talk: Talk, settings: Settings, facts: dict[str, Any], pid: int) -> None:
    known: list[str] = [] if settings.steps_only else facts["workflows"]
    serving = f"workflows {', '.join(known)}; " if known else "steps only; "
    where = f"at {redacted(settings.nats_servers)}, namespace {settings.namespace}"
    store = redacted(settings.postgres_url) if settings.postgres_url else f"the file {settings.world_path}"
    text = (
        f"serving {serving}queues {', '.join(facts['queues'])}; {where}, state in {store}, "
        f"as {facts['incarnation']}, pid {pid}"
    )
    if not talk.json:
        talk.note(text)
        return
    talk.event(
        "ready",
        text,
        incarnation=facts["incarnation"],
        pid=pid,
        app=facts["app"],
        node=facts["node"],
        workflows=known,
        queues=facts["queues"],
        namespace=settings.namespace,
        url=redacted(settings.nats_servers),
        store=store,
    )
