"""What people and programs read: data on stdout, everything about the work on stderr.

A table for people is drawn on a terminal; a pipe gets plain columns, `--json` whole data. Texts of users are shown
without control characters: an id must not move the cursor.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ago", "complain", "emit", "is_terminal", "plain", "quiet_pipe", "say", "show_table", "tell"]


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


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their titles; on a pipe without lines, so that other programs can cut them."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if is_terminal():
        _draw(columns, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in ([title.upper() for title in columns], *cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        tell("  ".join(padded).rstrip())


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415  (a tenth of a second that pipes need not wait)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(columns):
        table.add_column(title, overflow="fold" if number == 0 else "ellipsis", no_wrap=number == 0)
    for row in cells:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    Console().print(table)


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
