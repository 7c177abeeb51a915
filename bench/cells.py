"""Finding figures among what was measured, and writing them into tables."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]
PAIRS: Final = ("embedded", "dev", "stack")


def figures(rows: Iterable[Row], pair: str, workload: str, figure: str) -> list[float]:
    """Return a figure of each repetition."""
    return [
        row["figures"][figure]
        for row in rows
        if row["pair"] == pair and row["workload"] == workload and figure in row["figures"]
    ]


def median(rows: Iterable[Row], pair: str, workload: str, figure: str) -> float | None:
    """Return a figure, None when it was not measured."""
    found = figures(rows, pair, workload, figure)
    return statistics.median(found) if found else None


def number(value: float | None) -> str:
    """Write a number with three digits that count."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """Write the median and what it lies between."""
    if not values:
        return "-"
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{number(min(values))}–{number(max(values))}]"  # noqa: RUF001


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a table, nothing when it has no lines."""
    body = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body]) if body else ""


def foreign(rows: Iterable[Row], pair: str, workload: str) -> str:
    """Write what other programs used of a core meanwhile, at most."""
    loads = [row["foreign_pct"] for row in rows if row["pair"] == pair and row["workload"] == workload]
    return f"{max(loads):.0f} %" if loads else "-"


def by_pair(rows: Sequence[Row], workload: str, heading: str, titles: Mapping[str, str]) -> str:
    """Write a table with a column for each pair."""
    lines = [
        [title, *(spread(figures(rows, pair, workload, name)) for pair in PAIRS)]
        for name, title in titles.items()
        if any(figures(rows, pair, workload, name) for pair in PAIRS)
    ]
    if not lines:
        return ""
    lines.append(["others' CPU meanwhile", *(foreign(rows, pair, workload) for pair in PAIRS)])
    return f"{heading}\n\n{table(['', *PAIRS], lines)}"
