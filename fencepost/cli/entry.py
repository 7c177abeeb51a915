"""The command's entry: what typer cannot parse and what goes wrong ends as one sentence and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from .exits import Exit, judged
from .output import complain, quiet_pipe, say
from .place import seed_early

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        if arguments[:1] == ["dev"]:
            seed_early(arguments[1:])
        from .commands import app  # noqa: PLC0415  (typer comes with it, which an early error need not wait for)

        code = app(args=list(arguments), prog_name="fencepost", standalone_mode=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.FAILED
    except BrokenPipeError:
        quiet_pipe()
        return Exit.OK
    except BaseException as error:  # noqa: BLE001  (whatever it is: one sentence)
        if "-v" in arguments or "--verbose" in arguments:
            traceback.print_exc()
        sentence, code = judged(error)
        if sentence.startswith("Usage: "):  # typer's help for a command without its subcommand
            say(sentence)
        else:
            complain(sentence)
        return code
    return code if isinstance(code, int) else Exit.OK


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
