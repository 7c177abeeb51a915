"""The commands about histories, with their arguments and help texts. What they do is imported when one is called."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated

import typer

from .options import Dir, Json, Namespace, Url, Verbose  # noqa: TC001  (typer reads the annotations)

__all__ = ["export_command", "replay_command"]

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="HISTORY", help="Files that `runs export` wrote, folders of them, or -."),
]
Named = Annotated[list[str] | None, typer.Option("--run", help="A run's id; may be repeated.", show_default=False)]
Newest = Annotated[
    int, typer.Option("--runs", min=0, help="The newest runs of the namespace, so many.", show_default=False)
]
OfWorkflow = Annotated[
    str, typer.Option("--workflow", "-w", help="Of --runs only those of this workflow.", show_default=False)
]
OfStatus = Annotated[
    str, typer.Option("--status", "-s", help="Of --runs only those with this status, as live.", show_default=False)
]


def export_command(
    *,
    named: Annotated[str, typer.Argument(metavar="ID", help="The run's id, yours or its own.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this file.", show_default="standard output")
    ] = None,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Write a run's history as one JSON document: to keep it, to look at it elsewhere, to replay it.

    It holds all that the run and its steps were given and returned, and the run's secret seed, from which tokens of
    its hooks are drawn: keep it as you keep that data. The file may be read by its owner only. A run that lives is
    written as it stands now.
    """
    from .connecting import where  # noqa: PLC0415  (heavy)
    from .histories import export  # noqa: PLC0415

    return export(named, out, lambda: where(url, namespace, folder), json=json)


def replay_command(
    *,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder, a file, a module, or one of these with :App.")
    ],
    files: Files = None,
    named: Named = None,
    newest: Newest = 0,
    workflow: OfWorkflow = "",
    status: OfStatus = "",
    hash_seed: Annotated[
        int | None,
        typer.Option(
            "--hash-seed",
            min=0,
            max=2**32 - 1,
            help="Replay in a process with this PYTHONHASHSEED.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Replay histories against the code in TARGET, before it is deployed: would each run go on as it went?

    The workflow's code runs in this process; no step runs, nothing is written, and a server is needed only for --run
    and --runs. A finished run must come to the same end. Exit 0 when all are the same, 1 when one is not or its
    workflow is not in TARGET, 2 when TARGET does not load, or files that are no histories are all that is wrong.
    """
    from .connecting import where  # noqa: PLC0415  (heavy)
    from .replay import Wanted, replay  # noqa: PLC0415

    wanted = Wanted(target, tuple(files or ()), tuple(named or ()), newest, workflow, status, hash_seed, json)
    return replay(wanted, lambda: where(url, namespace, folder))
