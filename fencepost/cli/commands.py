"""All commands, with their arguments and help texts. What they do is imported when one is called."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated

import typer

from .gateway_commands import gateway_command
from .history_commands import export_command, replay_command
from .hook_commands import resume_command
from .options import (  # noqa: TC001  (typer reads the annotations)
    Arguments,
    Attributes,
    Dir,
    History,
    Input,
    Json,
    Limit,
    Namespace,
    NewId,
    Payloads,
    Timeline,
    Url,
    Verbose,
    Wait,
)

__all__ = ["app"]

app = typer.Typer(
    name="fencepost",
    help="Durable workflows for Python. Exit codes: 0 ok, 1 a run failed or was refused, 2 usage, 3 not reachable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
runs = typer.Typer(help="Look at runs and act on them.", no_args_is_help=True, rich_markup_mode=None)
dead = typer.Typer(help="Messages nobody could take, with their reasons.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(runs, name="runs")
app.add_typer(dead, name="dead")


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Durable workflows for Python. Exit codes: 0 ok, 1 a run failed or was refused, 2 usage, 3 not reachable."""
    if version:
        from importlib.metadata import version as installed  # noqa: PLC0415  (seldom asked)

        typer.echo(f"fencepost {installed('fencepost')}")
        raise typer.Exit


@app.command("dev")
def dev_command(
    *,
    target: Annotated[
        str, typer.Argument(metavar="[TARGET]", help="A folder, a file, a module, or one of these with :App.")
    ] = ".",
    once: Annotated[
        bool, typer.Option("--once", help="Feed [dev.start], wait for every run, show the summary, end.")
    ] = False,
    stack: Annotated[
        bool,
        typer.Option("--stack", help='A Postgres of its own instead of SQLite: pip install "fencepost[stack]".'),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="The port of nats-server, and no other.", show_default="4222 or a free one"
        ),
    ] = None,
    namespace: Namespace = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Where to keep the state.", show_default=".fencepost in the target's folder"),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Run workflows on this machine: SQLite, a nats-server of its own, and what fencepost.toml says to run and to feed.

    With --stack Postgres instead of SQLite, from its wheel. Killed at any moment and started again it goes on where it
    was. `[dev]` in fencepost.toml may have app, run, summary, and [dev.start] with workflow, input and id.
    """
    from .dev import Asked, dev  # noqa: PLC0415  (heavy)

    return dev(Asked(target, once, stack, port, namespace, state, json, verbose))


@app.command("node")
def node_command(
    *,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder, a file, a module, or one of these with :App.")
    ],
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues",
            help="The queues whose steps it runs, separated by commas. Else FENCEPOST_QUEUES, else default.",
            show_default=False,
        ),
    ] = None,
    steps_only: Annotated[
        bool,
        typer.Option("--steps-only", help="Run steps of its queues for other nodes, and no workflows; answer nobody."),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for a store or a NATS that cannot be reached yet, instead of exit code 3."),
    ] = False,
    namespace: Namespace = None,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Serve workflows and steps, as one of many nodes: FENCEPOST_DATABASE_URL and FENCEPOST_NATS_URL say of what.

    Without FENCEPOST_DATABASE_URL it is a node by itself, on a file (.fencepost/world.db). A supervisor keeps one node
    process serving and its claims alive, and starts another when it dies or hangs. SIGTERM lets steps end for
    FENCEPOST_GRACE; a second one ends it now.
    """
    from .node import Asked, node  # noqa: PLC0415  (heavy)

    return node(Asked(target, namespace, queues, steps_only, wait, json, verbose))


app.command("gateway")(gateway_command)


@app.command("migrate")
def migrate_command(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    namespace: Namespace = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Make a namespace in Postgres, or bring its schema to this version: before the nodes are exchanged.

    FENCEPOST_DATABASE_URL says where, as a user who may create schemas there. Nothing to do is fine; two at once take
    turns; it is never half done.
    """
    from .migrate import migrate  # noqa: PLC0415  (heavy)

    return migrate(namespace, dry_run=dry_run, json=json)


@app.command("start")
def start_command(
    *,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The workflow's name.")],
    given: Input = None,
    arguments: Arguments = None,
    named: NewId = "",
    wait: Wait = False,
    limit: Limit = None,
    attribute: Attributes = None,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Start one run, or one per line. Answered when it is durable.

    A line that is refused is reported with its number; the others go on. Exit 1 if any was refused. With --wait a
    workflow that no node knows is waited for only as long as --timeout says.
    """
    from .connecting import where  # noqa: PLC0415  (heavy)
    from .starting import Wanted, seconds_of, start  # noqa: PLC0415

    waits, limit_s = wait or limit is not None, None if limit is None else seconds_of(limit)
    attributes, by_name = tuple(attribute or ()), tuple(arguments or ())
    wanted = Wanted(workflow, given, named, waits, attributes, json, by_name, limit_s, verbose)
    return start(wanted, lambda: where(url, namespace, folder))


@runs.command("ls")
def runs_ls(
    *,
    workflow: Annotated[str, typer.Option("--workflow", "-w", help="Only of this workflow.", show_default=False)] = "",
    status: Annotated[
        str,
        typer.Option(
            "--status",
            "-s",
            help="Only with this status: pending, running, stalled (waits for a person), completed, failed, cancelled,"
            " terminated; or live: all that have not ended.",
            show_default=False,
        ),
    ] = "",
    attribute: Annotated[str, typer.Option("--attribute", "-a", help="Only with key=value.", show_default=False)] = "",
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="How many at most.")] = 50,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """List runs, newest first."""
    from . import runs as work  # noqa: PLC0415  (heavy)
    from .connecting import where  # noqa: PLC0415

    query = work.Query(workflow, status, attribute, limit)
    return work.ls(query, lambda: where(url, namespace, folder), json=json)


@runs.command("show")
def runs_show(
    *,
    named: Annotated[str, typer.Argument(metavar="[ID]", help="The run's id, yours or its own.")] = "",
    file: History = None,
    timeline: Timeline = False,
    payloads: Payloads = False,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Show one run: how far it is, what it waits for, and how it ended; with -v where its error was raised.

    With --timeline its history, one event a line: who wrote it, when, and what. With --file all of this from a history
    that `runs export` wrote, without a server.
    """
    from . import runs as work  # noqa: PLC0415  (heavy)
    from .connecting import where  # noqa: PLC0415

    if named and not (file or timeline or payloads):
        return work.show(named, lambda: where(url, namespace, folder), json=json, verbose=verbose)
    wanted = work.Wanted(named, file, timeline, payloads)
    return work.show_history(wanted, lambda: where(url, namespace, folder), json=json, verbose=verbose)


runs.command("export")(export_command)


@runs.command("events")
def runs_events(
    *,
    named: Annotated[str, typer.Argument(metavar="ID", help="The run's id, yours or its own.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Only after this position.")] = 0,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Print the log of a run, one event a line."""
    from . import runs as work  # noqa: PLC0415  (heavy)
    from .connecting import where  # noqa: PLC0415

    return work.events(named, lambda: where(url, namespace, folder), follow=follow, after=after, json=json)


def _acting(verb: str, text: str) -> None:
    """Add a command that acts on runs: all three take the same."""

    @runs.command(verb, help=text)
    def act(
        *,
        ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The runs' ids, yours or their own.")],
        reason: Annotated[str, typer.Option("--reason", "-r", help="Why; kept with the run.", show_default=False)] = "",
        url: Url = None,
        namespace: Namespace = None,
        folder: Dir = None,
        json: Json = False,
        verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
    ) -> int:
        from . import runs as work  # noqa: PLC0415  (heavy)
        from .connecting import where  # noqa: PLC0415

        return work.act(verb, ids, reason, lambda: where(url, namespace, folder), json=json)


_acting("cancel", "Ask runs to stop; their code may clean up.")
_acting("terminate", "End runs now, without running their code again.")
_acting("resume", "Let stalled runs go on, after what held them up was put right.")


@dead.command("ls")
def dead_ls(
    *,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="How many at most.")] = 50,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """List dead letters, newest first."""
    from . import letters  # noqa: PLC0415  (heavy)
    from .connecting import where  # noqa: PLC0415

    return letters.ls(limit, lambda: where(url, namespace, folder), json=json)


@dead.command("show")
def dead_show(
    *,
    named: Annotated[str, typer.Argument(metavar="ID", help="The letter's id.")],
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Show one dead letter with its original text."""
    from . import letters  # noqa: PLC0415  (heavy)
    from .connecting import where  # noqa: PLC0415

    return letters.show(named, lambda: where(url, namespace, folder), json=json)


@dead.command("replay")
def dead_replay(
    *,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The letters' ids.")],
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Take dead letters in once more, after what was wrong was put right. Twice is the same run."""
    from . import letters  # noqa: PLC0415  (heavy)
    from .connecting import where  # noqa: PLC0415

    return letters.replay(ids, lambda: where(url, namespace, folder), json=json)


app.command("replay")(replay_command)
app.command("resume")(resume_command)


@app.command("doctor")
def doctor_command(
    *,
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001  (read before typer does)
) -> int:
    """Check server, streams, node, clock and leftovers, and say what to do.

    Exit 3 if no server or no node can be reached, 1 if anything else is bad.
    """
    from .connecting import where  # noqa: PLC0415  (heavy)
    from .doctor import doctor  # noqa: PLC0415

    return doctor(lambda: where(url, namespace, folder), json=json)
