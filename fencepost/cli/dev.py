"""`fencepost dev`: from what was asked for to a plan that can be carried out, or to one sentence why not."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from .exits import CommandError, Exit
from .place import begin_anew, place_of, with_hash_seed
from .programs import program_of
from .project import FILE, Project, project_in
from .stores import OtherSeed
from .talk import Talk

if TYPE_CHECKING:
    from pathlib import Path

    from fencepost.actors import App, NodeSettings

    from ..settings import Settings
    from .devrun import Plan
    from .place import Place
    from .troubles import Troubles

__all__ = ["Asked", "dev"]

GRACE_S: Final = 2.0
"""How long running steps may go on when it stops; what has not ended by then is done again at the next start."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line."""

    target: str
    once: bool
    stack: bool
    port: int | None
    namespace: str | None
    state: Path | None
    json: bool
    verbose: bool


def dev(asked: Asked) -> int:
    """Run it. Ends the process itself: a step's thread that hangs must not keep it."""
    place = place_of(asked.target, asked.state)
    project = project_in(place.folder)
    seed = with_hash_seed(place.seed(stack=asked.stack))
    if asked.stack:
        _check_stack()
    settings, troubles = _settings(asked, place)
    # Code that does not load must leave no folder behind, and a second `dev` not load it once more: it may take a port.
    lock = place.locked() if place.state.is_dir() else None
    talk = Talk(asked.json, troubles)
    plan = _plan(asked, place, project, settings, seed)
    _tell_hints(plan.app, talk)
    place.prepare()
    lock = lock or place.locked()  # held by this name until the process ends
    try:
        code = asyncio.run(_served(plan, talk))
    except OtherSeed as other:
        begin_anew(other.seed)
    lock.release()
    return code


def _check_stack() -> None:
    """Refuse before anything is started: Postgres comes with an extra.

    Raises:
        CommandError: it is not here.
    """
    from fencepost.world import WorldError, postgres_binaries  # noqa: PLC0415  (not needed otherwise)

    try:
        postgres_binaries()
    except WorldError as error:
        raise CommandError(str(error)) from error


async def _served(plan: Plan, talk: Talk) -> int:
    from .devrun import Dev  # noqa: PLC0415  (after the code was loaded: what fails there need not wait for it)

    code = await Dev(plan, talk).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _settings(asked: Asked, place: Place) -> tuple[Settings, Troubles | None]:
    from ..logs import configure_logging  # noqa: PLC0415  (heavy)
    from ..settings import Settings  # noqa: PLC0415

    file = place.folder / FILE
    given: dict[str, Any] = {"config": file} if file.is_file() else {}
    if asked.namespace:
        given["namespace"] = asked.namespace
    settings = Settings.load(**given)
    level = "debug" if asked.verbose else "warning" if settings.log_level == "info" else settings.log_level
    form = settings.log_format if settings.log_format != "auto" else "json" if asked.json else "console"
    configure_logging(form, level)
    return settings, _bounded() if level == "warning" else None


def _bounded() -> Troubles:
    """Show what goes wrong in runs too, bounded."""
    from .troubles import SOURCE, Troubles  # noqa: PLC0415  (heavy)

    troubles = Troubles()
    logging.getLogger(SOURCE).setLevel("INFO")
    for handler in logging.getLogger().handlers:
        handler.addFilter(troubles)
    return troubles


def _plan(asked: Asked, place: Place, project: Project, settings: Settings, seed: int) -> Plan:
    from ..loader import load  # noqa: PLC0415  (heavy)
    from .devrun import Plan  # noqa: PLC0415

    app = load(asked.target)
    _check_workflow(project, app)
    taken: set[str] = {"nats-server"}
    return Plan(
        place=place,
        project=project,
        app=app,
        programs=tuple(program_of(text, place.folder, taken) for text in project.run),
        summary=_summary(project, place, taken),
        namespace=settings.namespace,
        seed=seed,
        port=asked.port,
        once=asked.once,
        stack=asked.stack,
        node=_node_settings(settings),
    )


def _tell_hints(app: App, talk: Talk) -> None:
    """Say at once which type hints cannot be used: else the first value that crosses would."""
    from ..loader import hint_problems  # noqa: PLC0415  (heavy)

    for problem in hint_problems(app):
        talk.note(problem)


def _node_settings(settings: Settings) -> NodeSettings:
    from ..system import node_settings  # noqa: PLC0415  (heavy)

    found = node_settings(settings)
    chosen = settings.model_fields_set
    return replace(
        found,
        grace_s=found.grace_s if "grace" in chosen else GRACE_S,
        shadow=found.shadow if "shadow" in chosen else True,
        lease_s=None,  # as the store of this dev says, whatever the settings have
    )


def _check_workflow(project: Project, app: App) -> None:
    if project.feed and project.feed.workflow not in app.workflows:
        known = ", ".join(sorted(app.workflows))
        raise CommandError(
            f"{project.folder / FILE}: [dev.start] names the workflow {project.feed.workflow!r}; there is {known}",
            Exit.USAGE,
        )


def _summary(project: Project, place: Place, taken: set[str]) -> tuple[str, ...]:
    """Return the command of the summary: a Python file, or a command."""
    if not project.summary:
        return ()
    script = place.folder / project.summary
    text = f"python {shlex.quote(project.summary)}" if script.suffix == ".py" and script.is_file() else project.summary
    return program_of(text, place.folder, taken).command
