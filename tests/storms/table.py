"""What came of a storm on a pair, as a line of the table."""

from __future__ import annotations

from dataclasses import dataclass, field

HEADER = (
    "storm", "pair", "runs", "completed", "stalled", "failed", "unfinished", "kills", "replays that differ",
    "ticks per input", "conflicts per 1,000 ticks", "worst delay",
)  # fmt: skip
SHOWN = 10


@dataclass
class Row:
    """See the module. `wrong` holds a sentence for all that is."""

    storm: str
    pair: str
    runs: int = 0
    completed: int = 0
    stalled: int = 0
    failed: int = 0
    unfinished: int = 0
    kills: int = 0
    differ: int = 0
    ticks: int = 0
    inputs: int = 0
    bursts: int = 0
    conflicts: int = 0
    worst_s: float = 0.0
    worst: str = ""
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[str]:
        counts = (self.runs, self.completed, self.stalled, self.failed, self.unfinished, self.kills, self.differ)
        return [
            self.storm,
            self.pair,
            *(f"{count:,}" for count in counts),
            f"{self.ticks / max(1, self.inputs):.2f}",
            f"{1000 * self.conflicts / max(1, self.ticks):.1f}",
            f"{self.worst_s:.2f} s",
        ]

    def add(self, other: Row) -> None:
        """Add what came of the same storm on the same pair another time."""
        for name in ("runs", "completed", "stalled", "failed", "unfinished", "kills", "differ", "ticks", "inputs",
                     "bursts", "conflicts", "took_s"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst_s, self.worst = max((self.worst_s, self.worst), (other.worst_s, other.worst))
        self.wrong += other.wrong


def table(rows: list[Row]) -> str:
    """Return the table as text; columns as wide as they need to be."""
    lines = [HEADER, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def notes(rows: list[Row]) -> str:
    """Return what the table has no column for."""
    told = [f"{row.storm} on {row.pair}: {row.runs:,} runs in {row.took_s:.0f} s" for row in rows]
    told += [f"{row.storm} on {row.pair}: {row.ticks / row.bursts:.2f} ticks per burst" for row in rows if row.bursts]
    told += [f"{row.storm} on {row.pair}: worst delay {row.worst}" for row in rows if row.worst]
    return "\n".join(told)


def explained(rows: list[Row]) -> str:
    """Return what is wrong, the first of it, and where the worst delays were."""
    parts = [f"{row.storm} on {row.pair}: {what}" for row in rows for what in row.wrong[:SHOWN]]
    parts += [f"… and {len(row.wrong) - SHOWN} more of {row.storm} on {row.pair}" for row in rows if row.wrong[SHOWN:]]
    return "\n".join(parts)
