"""The command that puts payloads into hooks, with its arguments and help text."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Dir, Json, Namespace, Url, Verbose  # noqa: TC001  (typer reads the annotations)

__all__ = ["resume_command"]


def resume_command(
    *,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The hook's token.")],
    payload: Annotated[
        str | None,
        typer.Option("--payload", "-p", help="JSON, @file.json, or - for stdin. Else null.", show_default=False),
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option("--delivery", help="An id of yours: sent again with it, it arrives once.", show_default=False),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", "-w", help="How long to wait for a hook that is not there yet: 10s, 5m.")
    ] = "0s",
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Put a payload into the hook a run waits at. Answered when it is durable.

    Exit 1 if no such hook is open, it is full, or the payload does not fit its model. Stalled runs go on by `runs
    resume`.
    """
    from .connecting import where  # noqa: PLC0415  (heavy)
    from .resuming import Wanted, resume  # noqa: PLC0415

    return resume(Wanted(token, payload, delivery, wait, json), lambda: where(url, namespace, folder))
