"""Tables of what has no peer: counts, long runs, sleeping runs, nodes that are killed, a loop beside a busy step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .cells import PAIRS, Row, by_pair, figures, foreign, median, number, spread, table

if TYPE_CHECKING:
    from collections.abc import Sequence

PATHS: Final = {"": "inline", "strict_": "inline, not ahead", "bus_": "dispatched"}


def tables(rows: Sequence[Row]) -> list[str]:
    """Return them, empty where nothing was measured."""
    return [_constant(rows), _counted(rows), _asleep(rows), _nodes(rows), _killed(rows), _late(rows), _starts(rows)]


def _constant(rows: Sequence[Row]) -> str:
    names = ("at_10_ms", "at_end_ms", "growth", "median_10_ms", "median_end_ms")
    lines = [
        [
            title,
            pair,
            *(spread(figures(rows, pair, workload, name)) for name in names),
            spread(figures(rows, pair, workload, "landed_s")),
            foreign(rows, pair, workload),
        ]
        for workload, title in {"W1LONG": "alone", "W1OUT": "beside outside events"}.items()
        for pair in PAIRS
        if figures(rows, pair, workload, "growth")
    ]
    head = ["", "pair", "around step 10, ms", "around the last, ms", "ratio", "median, 10", "median, last"]
    body = table([*head, "outside events/s", "others' CPU"], lines)
    says = (
        "One run of 1,000 steps; of a hundred neighbours the fastest tenth, from one body to the next. Outside events "
        "are cancels with keys of their own, appended and rung for as a node does."
    )
    return f"### A long run: a step must not cost more for what was before it\n\n{says}\n\n{body}" if body else ""


def _counted(rows: Sequence[Row]) -> str:
    kinds: dict[str, tuple[str, int]] = {
        "run": ("a run without steps", 0),
        "seq": ("10 steps in sequence", 10),
        "fan": ("50 steps at once", 50),
        "sleep": ("a sleep", 0),
    }
    whats = ("writes", "commits", "syncs", "reads", "statements", "msgs_in", "msgs_out")

    def found(pair: str, name: str, steps: int) -> list[str]:
        prefix = name[: name.rfind("_") + 1]
        totals = [median(rows, pair, "COUNT", f"{name}_{what}") for what in whats]
        bare = [median(rows, pair, "COUNT", f"{prefix}run_{what}") for what in whats]
        return [_per_step(total, least, steps) for total, least in zip(totals, bare, strict=True)]

    lines = [
        [title, path, pair, *found(pair, f"{prefix}{name}", steps)]
        for name, (title, steps) in kinds.items()
        for prefix, path in PATHS.items()
        for pair in PAIRS
        if figures(rows, pair, "COUNT", f"{prefix}{name}_commits")
    ]
    head = ["", "steps", "pair", "world writes", "commits", "WAL syncs", "world reads", "statements", "NATS in"]
    body = table([*head, "NATS out"], lines)
    says = (
        "### Counted, per run (in brackets: per step, without what a run without steps costs)\n\n"
        "From a client's start to its result, all of both included, what an idle pair does taken off. Statements of "
        "SQLite include BEGIN, COMMIT and savepoints; a statement of Postgres is a transaction and a round trip. NATS "
        "sends what goes to several listeners several times."
    )
    return f"{says}\n\n{body}" if body else ""


def _per_step(total: float | None, least: float | None, steps: int) -> str:
    """Write a count of a run; in brackets what each of its steps adds to a run without any."""
    if total is None:
        return "-"
    return number(total) if not steps else f"{number(total)} ({number((total - (least or 0)) / steps)})"


WEIGHT: Final = {
    "runs": "sleeping runs",
    "create_s": "to create them, s",
    "passive_after_s": "until none is in memory, s",
    "memory_mb": "memory above an idle node, MB",
    "memory_idle_node_mb": "an idle node, MB",
    "memory_supervisor_mb": "its supervisor, MB",
    "memory_spare_mb": "its second process that waits, MB",
    "cpu_pct": "CPU while they sleep, % of a core",
    "cpu_idle_node_pct": "CPU of an idle node, %",
    "nats_cpu_pct": "CPU of nats-server, %",
    "postgres_cpu_pct": "CPU of Postgres, %",
    "postgres_cpu_idle_node_pct": "CPU of Postgres beside an idle node, %",
    "file_mb": "the database file, MB",
}


def _asleep(rows: Sequence[Row]) -> str:
    return by_pair(rows, "W9", "### Sleeping runs (node and client in one process)", WEIGHT)


def _nodes(rows: Sequence[Row]) -> str:
    return by_pair(rows, "NODE", "### Sleeping runs (`fencepost node`: a process of its own)", WEIGHT)


def _killed(rows: Sequence[Row]) -> str:
    titles = {
        "runs": "runs that do a step each moment",
        "child_hit": "of them on the node whose process is killed",
        "child_median_s": "node process killed: until the next step's body, median of the runs, s",
        "child_worst_s": "the same, the last of the runs, s",
        "lease_s": "lease, s",
        "machine_hit": "of two nodes one is killed with its supervisor: runs it had",
        "machine_median_s": "until the next step's body, median of these runs, s",
        "machine_worst_s": "the same, the last of the runs, s",
    }
    says = (
        "### Killed with `kill -9`, until runs go on\n\nAn attempt that was lost is begun again after half a second, "
        "so that what kills nodes does not do it at full speed: that is in these times."
    )
    return by_pair(rows, "KILL", says, titles)


def _late(rows: Sequence[Row]) -> str:
    titles = {
        "idle_p50_ms": "idle, p50, ms",
        "idle_p99_ms": "idle, p99, ms",
        "beside_p50_ms": "beside a step that computes in a thread, p50, ms",
        "beside_p99_ms": "the same, p99, ms",
    }
    return by_pair(rows, "LAG", "### How late the actors' loop is", titles)


def _starts(rows: Sequence[Row]) -> str:
    again = {
        "runs": "sleeping runs in the store",
        "process_s": "Python and imports, s",
        "open_s": "servers, world, bus and node, s",
        "first_run_s": "a new run of one step, s",
        "total_s": "all, s",
    }
    first = {"cold_s": "`fencepost dev` in a new folder, s", "warm_s": "in the same folder again, s"}
    parts = [
        by_pair(rows, "RESTART", "### Started again among sleeping runs, until a new run is done", again),
        by_pair(rows, "START", "### From the command to the first finished run", first),
    ]
    return "\n\n".join(part for part in parts if part)
