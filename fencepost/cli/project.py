"""The `[dev]` table of a `fencepost.toml`: what else to run, what to feed, what to show at the end."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from .exits import CommandError, Exit
from .lines import IdTemplate, template_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["FILE", "Feed", "Project", "project_in"]

FILE: Final = "fencepost.toml"


@dataclass(frozen=True, slots=True)
class Feed:
    """`[dev.start]`: the lines of a file, one run each."""

    workflow: str
    input: Path
    id: IdTemplate


@dataclass(frozen=True, slots=True)
class Project:
    """What a folder says."""

    folder: Path
    app: str = ""
    run: tuple[str, ...] = ()
    summary: str = ""
    feed: Feed | None = None


def project_in(folder: Path) -> Project:
    """Return what the folder's file says; without a file, or without the table, nothing.

    Raises:
        CommandError: it is no TOML, or something in the table is unknown, missing or of another type.
    """
    file = folder / FILE
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("dev", {})
    except FileNotFoundError:
        return Project(folder)
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read: {error}", Exit.USAGE) from None
    dev = _checked(file, "dev", table, {"app": str, "run": list, "summary": str, "start": dict})
    run = cast("list[object]", dev.get("run", []))
    if not all(isinstance(command, str) for command in run):
        raise CommandError(f"{file}: [dev] run must be a list of commands, each a text", Exit.USAGE)
    start = dev.get("start")
    return Project(
        folder=folder,
        app=dev.get("app", ""),
        run=tuple(str(command) for command in run),
        summary=dev.get("summary", ""),
        feed=_feed(file, start) if start is not None else None,
    )


def _feed(file: Path, table: object) -> Feed:
    start = _checked(file, "dev.start", table, {"workflow": str, "input": str, "id": str})
    for name in ("workflow", "input"):
        if not start.get(name):
            raise CommandError(f"{file}: [dev.start] needs {name!r}", Exit.USAGE)
    if not start.get("id"):
        raise CommandError(
            f"{file}: [dev.start] needs 'id', such as \"{{id}}\": without it a restart would start every line again",
            Exit.USAGE,
        )
    path = file.parent / start["input"]
    if not path.is_file():
        raise CommandError(f"{file}: [dev.start] input: there is no file {path}", Exit.USAGE)
    template = template_of(start["id"])
    if template.is_fixed:
        raise CommandError(f"{file}: [dev.start] id gives every line the same id: use '{{field}}'", Exit.USAGE)
    return Feed(start["workflow"], path, template)


def _checked(file: Path, where: str, table: object, known: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise CommandError(f"{file}: [{where}] must be a table", Exit.USAGE)
    found = cast("dict[str, Any]", table)
    for name, value in found.items():
        if name not in known:
            raise CommandError(f"{file}: [{where}] has an unknown setting {name!r}{_nearest(name, known)}", Exit.USAGE)
        if not isinstance(value, known[name]):
            raise CommandError(f"{file}: [{where}] {name} must be a {_SPOKEN[known[name]]}", Exit.USAGE)
    return found


_SPOKEN: Final[dict[type, str]] = {str: "text", list: "list", dict: "table"}


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f": did you mean {close[0]!r}?" if close else f", known are {', '.join(known)}"
