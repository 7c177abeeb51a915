"""What people and programs read: data on stdout, everything about the work on stderr.

A table for people is drawn on a terminal; a pipe gets plain columns, `--json` whole data. Texts of users are shown
without control characters: an id must not move the cursor.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ago", "complain", "emit", "is_terminal", "plain", "plain_lines", "quiet_pipe", "say", "show_table", "tell"]


_NONE: Final = frozenset[str]()
ID_SHOWN: Final = 30


def tell(text: str) -> None:
    """Print a result for people."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print what happens meanwhile."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Print what is wrong."""
    say(f"fencepost: {text}")


def emit(data: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")
    sys.stdout.flush()


def is_terminal() -> bool:
    """Tell whether a person watches the results."""
    return sys.stdout.isatty()


def plain(text: object) -> str:
    """Return a text on one line, without anything that moves a cursor."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(text))


def plain_lines(text: str) -> str:
    """Return a text of several lines, each without anything that moves a cursor."""
    return "\n".join(plain(line) for line in text.split("\n"))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, whole: frozenset[str] = _NONE) -> None:
    """Print rows under their titles; on a pipe without lines and in full, so that other programs can cut them.

    On a terminal empty columns are left out, long ids lose their middle, and the columns named `whole` nothing.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    if is_terminal():
        used = [number for number in range(len(columns)) if any(row[number] for row in cells)]
        _draw([columns[number] for number in used], [[row[number] for number in used] for row in cells], whole)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in ([title.upper() for title in columns], *cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        tell("  ".join(padded).rstrip())


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], whole: frozenset[str]) -> None:
    from rich import box  # noqa: PLC0415  (a tenth of a second that pipes need not wait)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, title in enumerate(columns):
        kept = number == 0 or title in whole
        table.add_column(title, overflow="fold", no_wrap=kept)
    for first, *others in cells:
        row = [_middle_cut(first), *others]
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    Console().print(table)


def _middle_cut(text: str) -> str:
    """Shorten what is longer than our own ids, which stay whole: people copy them."""
    return text if len(text) <= ID_SHOWN else f"{text[: ID_SHOWN - 13]}…{text[-12:]}"


_COLOURS = {
    **dict.fromkeys(("completed", "ok"), "green"),
    **dict.fromkeys(("failed", "terminated", "bad"), "red"),
    **dict.fromkeys(("stalled", "cancelled", "warn"), "yellow"),
    **dict.fromkeys(("running", "pending"), "cyan"),
}


def ago(then: datetime | None) -> str:
    """Return an instant as people say it: how long ago, or in how long."""
    if then is None:
        return ""
    seconds = (datetime.now(UTC) - then).total_seconds()
    span = _span(abs(seconds))
    return f"{span} ago" if seconds >= 0 else f"in {span}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def quiet_pipe() -> None:
    """Give up stdout after its reader left, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
