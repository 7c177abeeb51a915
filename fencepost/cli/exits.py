"""Exit codes, and how an error becomes one sentence with one of them.

0  ok
1  the run failed, or some lines were refused
2  usage: the command, a setting or a file is not as it must be
3  not reachable: no server, nobody who answers
130  interrupted
"""

from __future__ import annotations

import asyncio
from enum import IntEnum

__all__ = ["CommandError", "Exit", "judged"]


class Exit(IntEnum):
    """What a caller can tell apart."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130
    TERMINATED = 143


class CommandError(Exception):
    """Something a person has to know: one sentence, and the exit code."""

    def __init__(self, sentence: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.code = code


def judged(error: BaseException) -> tuple[str, int]:
    """Return the sentence and the exit code of an error."""
    match error:
        case CommandError():
            return str(error), error.code
        case KeyboardInterrupt() | asyncio.CancelledError():
            return "interrupted", Exit.INTERRUPTED
        case _ if (said := getattr(error, "format_message", None)) is not None:  # typer's own kind
            return str(said()), int(getattr(error, "exit_code", Exit.USAGE))
        case ExceptionGroup(exceptions=(first, *_)):
            return judged(first)
        case _:
            return _known(error)


def _known(error: BaseException) -> tuple[str, int]:
    from fencepost.bus import BusError  # noqa: PLC0415
    from fencepost.world import WorldError  # noqa: PLC0415

    from .. import errors  # noqa: PLC0415  (only when something is wrong)

    text = "; ".join(line for line in map(str.strip, str(error).splitlines()) if line) or type(error).__name__
    match error:
        case BusError() | errors.Unavailable():
            return text, Exit.UNREACHABLE
        case errors.SettingsError() | errors.DefinitionError() | errors.LoadError():
            return text, Exit.USAGE
        case WorldError() | errors.FencepostError() | OSError():
            return text, Exit.FAILED
        case _:
            return f"{type(error).__name__}: {text} (a bug of Fencepost: -v shows where)", Exit.FAILED
