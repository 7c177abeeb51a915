"""`fencepost dead …`: look at dead letters, and take them in once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ..answers import DeadLetter, DeadPage, Started
from ..errors import FencepostError, Unavailable
from .connecting import asked
from .exits import Exit
from .output import ago, complain, emit, plain, show_table, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..asking import Asking
    from .connecting import Where

__all__ = ["ls", "replay", "show"]

PAGE: Final = 200


def ls(limit: int, where: Callable[[], Where], *, json: bool) -> int:
    """List dead letters."""
    found = asked(where(), lambda asking: _listed(asking, limit))
    if json:
        for one in found:
            emit({name: value for name, value in msgspec.structs.asdict(one).items() if name in _LISTED})
        return Exit.OK
    rows = [(one.id, ago(one.at), _short(one.subject), one.code, one.reason, one.replayed_as) for one in found]
    if rows:
        show_table(("id", "when", "subject", "code", "reason", "replayed as"), rows, whole=frozenset({"when"}))
    else:
        complain("no dead letters")
    return Exit.OK


def _short(subject: str) -> str:
    """Leave out what all subjects of a namespace begin with."""
    return subject.split(".", 2)[-1]


_LISTED: Final = frozenset({"id", "at", "kind", "subject", "code", "reason", "body_bytes", "replayed_as"})


async def _listed(asking: Asking, limit: int) -> list[DeadLetter]:
    found, before = list[DeadLetter](), ""
    while len(found) < limit:
        page = await asking.ask("dead", DeadPage, id=before, limit=min(PAGE, limit - len(found)))
        found += page.dead
        before = page.before
        if not before:
            break
    return found


def show(id: str, where: Callable[[], Where], *, json: bool) -> int:  # noqa: A002
    """Show one with its bytes."""
    letter = asked(where(), lambda asking: asking.ask("letter", DeadLetter, id=id))
    if json:
        emit(letter)
        return Exit.OK
    for name in ("id", "at", "subject", "code", "reason", "replayed_as"):
        if value := getattr(letter, name):
            tell(f"{name + ':':<12} {plain(value)}")
    for header, text in letter.headers.items():
        tell(f"{'header:':<12} {plain(header)}: {plain(text)}")
    tell(f"{'body:':<12} {letter.body_bytes} bytes")
    tell("".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in letter.text))
    return Exit.OK


def replay(ids: Sequence[str], where: Callable[[], Where], *, json: bool) -> int:
    """Take letters in once more; one that still does not fit does not keep the others."""
    return asked(where(), lambda asking: _replay_all(asking, ids, json=json))


async def _replay_all(asking: Asking, ids: Sequence[str], *, json: bool) -> int:
    code = Exit.OK
    for id in ids:  # noqa: A001
        try:
            started = await asking.ask("replay", Started, id=id)
        except Unavailable:
            raise
        except FencepostError as error:
            code = Exit.FAILED
            emit({"id": id, "error": type(error).__name__, "message": str(error)}) if json else complain(
                f"{plain(id)}: {error}"
            )
            continue
        if json:
            emit({"id": id, "run_id": started.run_id, "existing": started.existing})
        else:
            tell(f"{plain(id)}: {'is run' if started.existing else 'started'} {started.run_id}")
    return code
