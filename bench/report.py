"""Tables of what was measured: ours beside the floor and the peers, as ratios, slower ones too."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from .peers import LINES, MEASURED, PEERS, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Row = dict[str, Any]
BEGIN: Final = "<!-- results: written by `python bench/run.py --readme` -->"
END: Final = "<!-- end of results -->"
LOAD_PCT_MAX: Final = 40.0
"""Up to here times are worth comparing."""

PAIRS: Final = ("embedded", "dev")


def rendered(rows: Sequence[Row], machine: Mapping[str, str], command: str) -> str:
    """Return all tables that the rows give."""
    parts = [
        _head(machine, command) + _disturbed(rows),
        _timed(rows),
        _slower(rows),
        _undisturbed(rows),
        _floor(rows),
        _constant(rows),
        _counted(rows),
        _asleep(rows),
    ]
    parts += [_starts(rows), _failed(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def written_into(page: Path, tables: str) -> None:
    """Replace what is between the marks of a page.

    Raises:
        ValueError: it has no marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for results: it needs the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}", encoding="utf-8")


def _head(machine: Mapping[str, str], command: str) -> str:
    small = " Small and once: these figures say that it works, not how fast." if "--quick" in command else ""
    return (
        f"Measured on {machine['date']} with `{command}`: {machine['system']}, {machine['cores']} shared cores, "
        f"{machine['memory']}, Python {machine['python']}, SQLite {machine['sqlite']}.{small}"
    )


def _disturbed(rows: Sequence[Row]) -> str:
    load = statistics.median(row.get("foreign_pct", 0.0) for row in rows)
    if load < LOAD_PCT_MAX:
        return ""
    return (
        f"\n\n**The machine was not calm**: other programs used {load:.0f} % of a core all the while, so times "
        "between two lines differ by what they did. Counts, CPU, memory and the fastest of each repetition hold."
    )


# ---- finding


def _figures(rows: Iterable[Row], pair: str, workload: str, figure: str) -> list[float]:
    return [
        row["figures"][figure]
        for row in rows
        if row["pair"] == pair and row["workload"] == workload and figure in row["figures"]
    ]


def _median(rows: Iterable[Row], pair: str, workload: str, figure: str) -> float | None:
    found = _figures(rows, pair, workload, figure)
    return statistics.median(found) if found else None


def _number(value: float | None) -> str:
    """Write a number with three digits that count."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = _number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{_number(min(values))}–{_number(max(values))}]"  # noqa: RUF001


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body]) if body else ""


# ---- tables


def _timed(rows: Sequence[Row]) -> str:
    lines = [
        [f"{line.workload} {line.title}", pair, *_compared(rows, pair, line)]
        for line in LINES
        for pair in PAIRS
        if _figures(rows, pair, line.workload, line.figure)
    ]
    table = _table(["", "pair", "ours, median [min–max]", "× floor", *PEERS, "others' CPU"], lines)  # noqa: RUF001
    if not table:
        return ""
    says = (
        f"### Time\n\nA peer's column says how many times faster we are than it was on {MEASURED}; **bold**: it was "
        "faster than we are. `× floor` is ours over the commits that nothing durable can do without (a run 2, a step "  # noqa: RUF001
        "1), each with its hop to a thread and back, measured right before and after. Others' CPU is what other "
        "programs used of one core meanwhile, at most."
    )
    return f"{says}\n\n{table}"


def _compared(rows: Sequence[Row], pair: str, line: Line) -> list[str]:
    values = _figures(rows, pair, line.workload, line.figure)
    ours = statistics.median(values)
    beside = [row["commit_ms"] for row in rows if (row["pair"], row["workload"]) == (pair, line.workload)]
    least_ms = line.commits * statistics.median(beside)
    over = f"{ours / least_ms:.1f}" if least_ms else "-"
    ratios = [_ratio(ours, peer, more_is_better=line.more_is_better) for peer in line.peers]
    return [f"{_spread(values)} {line.unit}", over, *ratios, _foreign(rows, pair, line.workload)]


def _ratio(ours: float, peer: float | None, *, more_is_better: bool) -> str:
    faster = _faster(ours, peer, more_is_better=more_is_better)
    if faster is None:
        return "-"
    return f"{_number(faster)}×" if faster >= 1 else f"**{_number(faster)}×**"  # noqa: RUF001


def _faster(ours: float, peer: float | None, *, more_is_better: bool) -> float | None:
    if peer is None or not ours:
        return None
    return ours / peer if more_is_better else peer / ours


def _slower(rows: Sequence[Row]) -> str:
    """Say in words where a peer is faster than what `fencepost dev` runs."""
    said: list[str] = []
    for place, peer in enumerate(PEERS):
        behind = [text for line in LINES if (text := _behind(rows, line, place))]
        if behind:
            said.append(f"- {peer}: {'; '.join(behind)}.")
    return "Where `dev` is slower than a peer was:\n\n" + "\n".join(said) if said else ""


def _behind(rows: Sequence[Row], line: Line, place: int) -> str:
    ours = _median(rows, "dev", line.workload, line.figure)
    faster = None if ours is None else _faster(ours, line.peers[place], more_is_better=line.more_is_better)
    return f"{line.title} ({_number(1 / faster)} times)" if faster is not None and faster < 1 else ""


def _foreign(rows: Iterable[Row], pair: str, workload: str) -> str:
    loads = [row["foreign_pct"] for row in rows if row["pair"] == pair and row["workload"] == workload]
    return f"{max(loads):.0f} %" if loads else "-"


def _floor(rows: Sequence[Row]) -> str:
    names: dict[str, tuple[str, str]] = {
        "commit": ("SQLite commit of one row, WAL, synchronous=FULL", "ms"),
        "commit_hop": ("the same over one thread hop", "ms"),
        "fdatasync": ("fdatasync of 4 KB", "ms"),
        "nats_rtt": ("core NATS request and answer", "ms"),
        "switch": ("one pass of the asyncio loop", "us"),
    }
    lines = [
        [title, *(_spread(_figures(rows, "embedded", "FLOOR", f"{name}_{q}_{unit}")) for q in ("p50", "p99")), unit]
        for name, (title, unit) in names.items()
        if _figures(rows, "embedded", "FLOOR", f"{name}_p50_{unit}")
    ]
    table = _table(["floor", "p50", "p99", "unit"], lines)
    load = _foreign(rows, "embedded", "FLOOR")
    return f"### The floor, same run\n\n{table}\n\nOthers' CPU meanwhile: at most {load}." if table else ""


def _undisturbed(rows: Sequence[Row]) -> str:
    kinds = {
        "a run without steps: the fastest of each repetition, ms": ("W0", "best_ms"),
        "one more step in sequence: between the fastest of each repetition, ms": ("W1", "seq_slope_best_ms"),
        "CPU of the process, a run without steps, 50 at once, ms": ("W0", "cpu_ms"),
        "CPU of the process, a step, 200 runs at once (their start and end included), ms": ("W5", "cpu_ms"),
    }
    lines = [
        [title, *(_spread(_figures(rows, pair, *where)) for pair in PAIRS)]
        for title, where in kinds.items()
        if any(_figures(rows, pair, *where) for pair in PAIRS)
    ]
    table = _table(["", *PAIRS], lines)
    return f"### What others on the machine change least\n\n{table}" if table else ""


def _constant(rows: Sequence[Row]) -> str:
    lines = [
        [
            pair,
            _spread(_figures(rows, pair, "W1LONG", "at_10_ms")),
            _spread(_figures(rows, pair, "W1LONG", "at_end_ms")),
            _spread(_figures(rows, pair, "W1LONG", "growth")),
            _foreign(rows, pair, "W1LONG"),
        ]
        for pair in PAIRS
        if _figures(rows, pair, "W1LONG", "growth")
    ]
    table = _table(["pair", "around step 10, ms", "around step 1,000, ms", "ratio", "others' CPU"], lines)
    says = "The fastest tenth of a hundred neighbours, from one body to the next."
    return f"### A long run: a step must not cost more for what was before it\n\n{says}\n\n{table}" if table else ""


def _counted(rows: Sequence[Row]) -> str:
    kinds: dict[str, tuple[str, int]] = {
        "run": ("a run without steps", 0),
        "seq": ("10 steps in sequence", 10),
        "fan": ("50 steps at once", 50),
        "sleep": ("a sleep", 0),
    }
    whats = ("writes", "commits", "reads", "statements", "msgs_in", "msgs_out")
    lines = [
        [title, pair, *(_per_step(rows, pair, name, what, steps) for what in whats)]
        for name, (title, steps) in kinds.items()
        for pair in PAIRS
        if _figures(rows, pair, "COUNT", f"{name}_commits")
    ]
    head = ["", "pair", "world writes", "commits", "world reads", "SQL statements", "NATS in", "NATS out"]
    table = _table(head, lines)
    says = (
        "### Counted, per run (in brackets: per step, without what a run without steps costs)\n\n"
        "From a client's start to its result, all of both included. Statements include BEGIN, COMMIT and savepoints."
    )
    return f"{says}\n\n{table}" if table else ""


def _per_step(rows: Sequence[Row], pair: str, name: str, what: str, steps: int) -> str:
    total, bare = (_median(rows, pair, "COUNT", f"{kind}_{what}") for kind in (name, "run"))
    if total is None:
        return "-"
    return _number(total) if not steps else f"{_number(total)} ({_number((total - (bare or 0)) / steps)})"


def _asleep(rows: Sequence[Row]) -> str:
    titles: dict[str, str] = {
        "runs": "sleeping runs",
        "create_s": "to create them, s",
        "passive_after_s": "until none is in memory, s",
        "memory_mb": "memory above an idle node, MB",
        "memory_idle_node_mb": "an idle node, MB",
        "cpu_pct": "CPU while they sleep, % of a core",
        "cpu_idle_node_pct": "CPU of an idle node, %",
        "server_cpu_pct": "CPU of nats-server, %",
        "file_mb": "the database file, MB",
    }
    return _by_pair(rows, "W9", "### Sleeping runs", titles)


def _by_pair(rows: Sequence[Row], workload: str, heading: str, titles: Mapping[str, str]) -> str:
    lines = [
        [title, *(_spread(_figures(rows, pair, workload, name)) for pair in PAIRS)]
        for name, title in titles.items()
        if any(_figures(rows, pair, workload, name) for pair in PAIRS)
    ]
    if not lines:
        return ""
    lines.append(["others' CPU meanwhile", *(_foreign(rows, pair, workload) for pair in PAIRS)])
    return f"{heading}\n\n{_table(['', *PAIRS], lines)}"


def _starts(rows: Sequence[Row]) -> str:
    again = {
        "runs": "sleeping runs in the file",
        "process_s": "Python and imports, s",
        "open_s": "world, bus and node, s",
        "first_run_s": "a new run of one step, s",
        "total_s": "all, s",
    }
    first = {"cold_s": "`fencepost dev` in a new folder, s", "warm_s": "in the same folder again, s"}
    parts = [
        _by_pair(rows, "RESTART", "### Started again among sleeping runs, until a new run is done", again),
        _by_pair(rows, "START", "### From the command to the first finished run", first),
    ]
    return "\n\n".join(part for part in parts if part)


def _failed(rows: Sequence[Row]) -> str:
    lines = [f"- {row['pair']} {row['workload']}: {row['error']}" for row in rows if "error" in row]
    return "### Could not be measured\n\n" + "\n".join(lines) if lines else ""
