"""Options that many commands share, and those of `start`, which has the most."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Arguments",
    "Attributes",
    "Dir",
    "History",
    "Input",
    "Json",
    "Limit",
    "Namespace",
    "NewId",
    "Payloads",
    "Timeline",
    "Url",
    "Verbose",
    "Wait",
]

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

# ---- runs show

History = Annotated[
    Path | None,
    typer.Option(
        "--file", help="Show the history in this file, written by `runs export`; - is stdin.", show_default=False
    ),
]
Timeline = Annotated[bool, typer.Option("--timeline", help="Its history: who wrote what, and when.")]
Payloads = Annotated[bool, typer.Option("--payloads", help="With --timeline also what was given and returned.")]

# ---- start

Input = Annotated[
    str | None,
    typer.Option(
        "--input",
        "-i",
        help="JSON, @file.json, @file.jsonl (one run a line), or - for lines on stdin. One parameter: its value."
        ' Several: an object by parameter name, also as {"kwargs": {…}}.',
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        help="name=value instead of --input, once for each parameter; the value is JSON, else a text.",
        show_default=False,
    ),
]
NewId = Annotated[
    str,
    typer.Option(
        "--id",
        help="The run's id; for lines a template such as '{id}'. The same id and input is the same run.",
        show_default=False,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if a run failed.")]
Limit = Annotated[
    str | None,
    typer.Option(
        "--timeout", help="Wait for the end at most so long: 30, 90s, 5m. The run goes on.", show_default=False
    ),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", "-a", help="key=value, to find it by; may be repeated.", show_default=False),
]
