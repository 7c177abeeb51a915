"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Dir", "Json", "Namespace", "Url", "Verbose"]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        help="Where NATS is. Else FENCEPOST_NATS_URL, else the fencepost dev of this folder, else nats://127.0.0.1:4222.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="The namespace. Else FENCEPOST_NAMESPACE, else default.", show_default=False
    ),
]
Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Look for the fencepost dev of this folder, or of this --state, not of the current one.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs: one document a line.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show tracebacks, also of failed runs; of dev also debug logs.")
]
