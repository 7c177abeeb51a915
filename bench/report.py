"""Tables of what was measured: ours beside the floor and the peers, as ratios, slower ones too."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from . import observed
from .cells import PAIRS, Row, figures, foreign, median, number, spread, table
from .peers import LINES, MEASURED, PEERS, Line
from .targets import targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BEGIN: Final = "<!-- results: written by `python bench/run.py --readme` -->"
END: Final = "<!-- end of results -->"
LOAD_PCT_MAX: Final = 40.0
"""Up to here times are worth comparing."""

WHOLE: Final = "stack"


def rendered(rows: Sequence[Row], machine: Mapping[str, str], command: str) -> str:
    """Return all tables that the rows give."""
    parts = [
        _head(machine, command) + _disturbed(rows),
        targets(rows),
        _timed(rows),
        _slower(rows),
        _undisturbed(rows),
        _floor(rows),
        *observed.tables(rows),
        _failed(rows),
    ]
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


# ---- tables


def _timed(rows: Sequence[Row]) -> str:
    lines = [
        [f"{line.workload} {line.title}", pair, *_compared(rows, pair, line)]
        for line in LINES
        for pair in PAIRS
        if figures(rows, pair, line.workload, line.figure)
    ]
    body = table(["", "pair", "ours, median [min–max]", "× floor", *PEERS, "others' CPU"], lines)  # noqa: RUF001
    if not body:
        return ""
    says = (
        f"### Time\n\nA peer's column says how many times faster we are than it was on {MEASURED}; **bold**: it was "
        "faster than we are. `× floor` is ours over the commits that nothing durable can do without (a run 2, a step "  # noqa: RUF001
        "1), measured right before and after: of SQLite with a hop to a thread and back, of Postgres over loopback. "
        "For 200 runs it is what 200 actors write of bare rows, sharing commits, over ours. Others' CPU is what other "
        "programs used of one core meanwhile, at most."
    )
    return f"{says}\n\n{body}"


def _compared(rows: Sequence[Row], pair: str, line: Line) -> list[str]:
    values = figures(rows, pair, line.workload, line.figure)
    ours = statistics.median(values)
    beside = [row["commit_ms"] for row in rows if (row["pair"], row["workload"]) == (pair, line.workload)]
    least_ms = line.commits * statistics.median(beside)
    shared = median(rows, pair, "FLOOR", line.floor)
    over = f"{ours / least_ms:.1f}" if least_ms else f"{shared / ours:.1f}" if shared else "-"
    ratios = [_ratio(ours, peer, more_is_better=line.more_is_better) for peer in line.peers]
    return [f"{spread(values)} {line.unit}", over, *ratios, foreign(rows, pair, line.workload)]


def _ratio(ours: float, peer: float | None, *, more_is_better: bool) -> str:
    faster = _faster(ours, peer, more_is_better=more_is_better)
    if faster is None:
        return "-"
    return f"{number(faster)}×" if faster >= 1 else f"**{number(faster)}×**"  # noqa: RUF001


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
    return "Where `stack` is slower than a peer was:\n\n" + "\n".join(said) if said else ""


def _behind(rows: Sequence[Row], line: Line, place: int) -> str:
    ours = median(rows, WHOLE, line.workload, line.figure)
    faster = None if ours is None else _faster(ours, line.peers[place], more_is_better=line.more_is_better)
    return f"{line.title} ({number(1 / faster)} times)" if faster is not None and faster < 1 else ""


FLOORS: Final = {
    ("embedded", "commit"): ("SQLite commit of one row, WAL, synchronous=FULL", "ms"),
    ("embedded", "commit_hop"): ("the same over one thread hop", "ms"),
    ("stack", "pg_commit"): ("Postgres commit of one row, asyncpg, TCP over loopback", "ms"),
    ("stack", "pg_commit_socket"): ("the same over a Unix socket", "ms"),
    ("stack", "pg_rtt"): ("Postgres SELECT 1, TCP", "ms"),
    ("stack", "js_publish"): ("JetStream publish and its acknowledgement", "ms"),
    ("embedded", "nats_rtt"): ("core NATS request and answer", "ms"),
    ("embedded", "fdatasync"): ("fdatasync of 4 KB", "ms"),
    ("embedded", "switch"): ("one pass of the asyncio loop", "us"),
}
RATES: Final = {
    "pg_actors1_s": "Postgres rows from one actor, a commit each",
    "pg_actors200_s": "Postgres rows from 200 actors, commits shared",
}


def _floor(rows: Sequence[Row]) -> str:
    lines = [
        [title, *(spread(figures(rows, pair, "FLOOR", f"{name}_{q}_{unit}")) for q in ("p50", "p99")), unit]
        for (pair, name), (title, unit) in FLOORS.items()
        if figures(rows, pair, "FLOOR", f"{name}_p50_{unit}")
    ]
    lines += [
        [title, spread(found), "-", "/s"]
        for name, title in RATES.items()
        if (found := figures(rows, WHOLE, "FLOOR", name))
    ]
    body = table(["floor", "p50", "p99", "unit"], lines)
    load = foreign(rows, "embedded", "FLOOR")
    return f"### The floor, same run\n\n{body}\n\nOthers' CPU meanwhile: at most {load}." if body else ""


def _undisturbed(rows: Sequence[Row]) -> str:
    kinds = {
        "a run without steps: the fastest of each repetition, ms": ("W0", "best_ms"),
        "one more step in sequence: between the fastest of each repetition, ms": ("W1", "seq_slope_best_ms"),
        "CPU of the process, a run without steps, 50 at once, ms": ("W0", "cpu_ms"),
        "CPU of the process, a step, 200 runs at once (their start and end included), ms": ("W5", "cpu_ms"),
    }
    lines = [
        [title, *(spread(figures(rows, pair, *where)) for pair in PAIRS)]
        for title, where in kinds.items()
        if any(figures(rows, pair, *where) for pair in PAIRS)
    ]
    body = table(["", *PAIRS], lines)
    return f"### What others on the machine change least\n\n{body}" if body else ""


def _failed(rows: Sequence[Row]) -> str:
    lines = [f"- {row['pair']} {row['workload']}: {row['error']}" for row in rows if "error" in row]
    return "### Could not be measured\n\n" + "\n".join(lines) if lines else ""
