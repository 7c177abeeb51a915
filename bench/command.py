"""The command: what to measure, in which order; sessions interleaved so that a slow minute of the machine hits all."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from .report import rendered, written_into
from .session import INSIDE, session
from .stack import PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE: Final = Path(__file__).resolve().parent
ONCE: Final = ("COUNT", "W9", "RESTART", "NODE", "KILL", "START")
"""Counts do not vary; the others take long, and their parts repeat within."""
LABELS: Final = ("FLOOR", *INSIDE, *ONCE)
REPETITIONS: Final = 3
SESSION_S_MAX: Final = 900


def main() -> int:
    """Measure, print the tables, and return 1 when something could not be measured."""
    asked = _asked()
    if asked.session:
        folder, began_at = Path(asked.folder), float(asked.began_at)
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(session(asked.session, asked.only, folder, quick=asked.quick, began_at=began_at))
        return 0
    head, *rows = _read(asked.render) if asked.render else _measured(asked)
    tables = rendered(rows, head["machine"], head["command"])
    print("\n" + tables)
    if asked.readme:
        written_into(HERE / "README.md", tables)
    return int(any("error" in row for row in rows))


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _measured(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what was measured, behind a line that says where and how."""
    times = asked.repetitions or (1 if asked.quick else REPETITIONS)
    measuring = Measuring(
        asked.only, quick=asked.quick, times=times, folder=asked.folder, json=asked.json, pairs=asked.pairs
    )
    measuring.begin({"machine": machine(), "command": _shown(asked)})
    measuring.all()
    return measuring.rows


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Fencepost beside the floor of this machine and its peers.")
    parser.add_argument("--only", type=_labels, default=list(LABELS), metavar="W0,COUNT", help=f"some of {LABELS}")
    parser.add_argument("--pairs", type=_pairs, default=PAIRS, metavar="dev,stack", help=f"some of {PAIRS}")
    parser.add_argument("--quick", action="store_true", help="small and once: to see that it works, not how fast")
    parser.add_argument("--repetitions", type=int, default=0, metavar="N", help=f"instead of {REPETITIONS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there, a line each")
    parser.add_argument("--render", type=Path, metavar="FILE", help="measure nothing: the tables of such a file")
    parser.add_argument("--readme", action="store_true", help="write the tables into bench/README.md")
    parser.add_argument("--folder", default="", help="where files are made (default: the system's temporary folder)")
    parser.add_argument("--session", choices=PAIRS, help=argparse.SUPPRESS)
    parser.add_argument("--began-at", default="0", help=argparse.SUPPRESS)
    return parser.parse_args()


def _labels(text: str) -> list[str]:
    asked = [label.strip().upper() for label in text.split(",") if label.strip()]
    if wrong := [label for label in asked if label not in LABELS]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(wrong)}: use some of {', '.join(LABELS)}")
    return asked


def _pairs(text: str) -> list[str]:
    asked = [pair.strip() for pair in text.split(",") if pair.strip()]
    if wrong := [pair for pair in asked if pair not in PAIRS]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(wrong)}: use some of {', '.join(PAIRS)}")
    return asked


def _shown(asked: argparse.Namespace) -> str:
    only = "" if asked.only == list(LABELS) else f" --only {','.join(asked.only)}"
    pairs = f" --pairs {','.join(asked.pairs)}" if list(asked.pairs) != list(PAIRS) else ""
    times = f" --repetitions {asked.repetitions}" if asked.repetitions else ""
    return f"python bench/run.py{only}{pairs}{' --quick' if asked.quick else ''}{times}"


def machine() -> dict[str, str]:
    """Return what the figures were taken on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }


@dataclass(slots=True)
class Measuring:
    """Runs sessions one after the other and collects their lines."""

    only: Sequence[str]
    quick: bool
    times: int
    folder: str
    json: Path | None
    pairs: Sequence[str] = PAIRS
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def begin(self, head: dict[str, Any]) -> None:
        """Begin a new file."""
        self.rows = [head]
        if self.json is not None:
            self.json.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def all(self) -> None:
        """Measure everything that was asked for."""
        for repetition in range(self.times):
            for pair in ("embedded", "stack"):
                self._in_new_folder(pair, repetition, self._of(["FLOOR"]))
            for pair in PAIRS:
                self._in_new_folder(pair, repetition, self._of(INSIDE))
        for pair in PAIRS:
            self._in_new_folder(pair, 0, self._of(["COUNT"]))
            self._in_new_folder(pair, 0, self._of(["W9"]), self._of(["RESTART"]))
        for label in ("NODE", "KILL"):
            self._in_new_folder("stack", 0, self._of([label]))
        self._in_new_folder("dev", 0, self._of(["START"]))

    def _of(self, labels: Sequence[str] | dict[str, Any]) -> list[str]:
        return [label for label in labels if label in self.only]

    def _in_new_folder(self, pair: str, repetition: int, *sessions: list[str]) -> None:
        """Run sessions one after the other on what the one before left."""
        if pair not in self.pairs:
            return
        folder = Path(tempfile.mkdtemp(prefix="fencepost-bench-", dir=self.folder or None))
        try:
            for labels in sessions:
                if labels:
                    self._session(pair, repetition, labels, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _session(self, pair: str, repetition: int, labels: list[str], folder: Path) -> None:
        done: set[str] = set()
        for line in _lines(pair, labels, folder, quick=self.quick):
            row = json.loads(line)
            done.add(row["workload"])
            self._keep({"pair": pair, "repetition": repetition, **row})
        for label in [label for label in labels if label not in done]:
            self._keep({"pair": pair, "repetition": repetition, "workload": label, "figures": {}, "error": "no answer"})

    def _keep(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.json is not None:
            with self.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        told = row.get("error") or " ".join(f"{name}={value:g}" for name, value in row["figures"].items())
        print(f"{row['pair']:8} {row['workload']:7} foreign={row.get('foreign_pct', 0):.0f}% {told}", flush=True)


def _lines(pair: str, labels: list[str], folder: Path, *, quick: bool) -> Iterator[str]:
    """Yield what a session prints; one that hangs is ended, and what it had is kept."""
    command = [sys.executable, str(HERE / "run.py"), "--session", pair, "--only", ",".join(labels)]
    command += ["--folder", str(folder), "--began-at", repr(time.time()), *(["--quick"] if quick else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        end = threading.Timer(SESSION_S_MAX, process.terminate)
        end.start()
        try:
            yield from process.stdout
        finally:
            end.cancel()
