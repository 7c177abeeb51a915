"""Kill -9 the orders example at random moments; the provider's ledger decides: `python tests/chaos/storm.py [rounds]`.

A round is a fresh copy of the example, `fencepost dev --once`, and a few kills drawn from its seed: Fencepost
itself, the nats-server, the nats-server with its store deleted, the provider. Then it is left alone and has to finish
with exit 0, which its summary gives only when every good order was charged, shipped and notified exactly once and
every bad one has its reason. `--seed 17` repeats the draws of one round (the moments are the machine's).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "orders"
COMMAND = Path(sys.executable).with_name("fencepost")
VICTIMS = ("fencepost", "fencepost", "fencepost", "nats-server", "nats-server and its store", "provider")
FINISH_S = 180.0


@dataclass
class Round:
    """One copy of the example and the process that runs it."""

    folder: Path
    rng: random.Random
    said: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0

    def start(self) -> None:
        with self.said.open("ab") as out:
            self.process = subprocess.Popen(
                [str(COMMAND), "dev", str(self.folder), "--once"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={k: v for k, v in os.environ.items() if not k.startswith("FENCEPOST_")},
                start_new_session=True,
            )

    def pid_of(self, victim: str) -> int | None:
        """Return the process behind a name, None when it is not up (yet)."""
        assert self.process is not None
        if victim == "fencepost":
            return self.process.pid
        try:
            notes = json.loads((self.folder / ".fencepost" / "dev.json").read_text())
        except (OSError, ValueError):
            return None
        return pid_in(notes, victim.partition(" ")[0])

    def kill(self, victim: str) -> bool:
        """Kill -9 a victim. False when it was not there."""
        pid = self.pid_of(victim)
        if pid is None or self.over:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if victim.endswith("store"):
            shutil.rmtree(self.folder / ".fencepost" / "nats", ignore_errors=True)
        if victim == "fencepost":
            self.again()
        return True

    def again(self) -> None:
        assert self.process is not None
        self.process.wait(10)
        self.restarts += 1
        self.start()

    @property
    def over(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def stop(self) -> None:
        if self.process is not None and not self.over:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


def pid_in(notes: dict, name: str) -> int | None:
    """Find the pid of the first process in dev.json whose name begins so."""
    for process in notes.get("processes", []):
        if name in str(process.get("name", "")):
            return int(process["pid"])
    return None


def copied(to: Path, lines: int | None) -> Path:
    """Copy the example, with its first lines only if asked."""
    folder = to / "orders"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".fencepost", "__pycache__"))
    if lines is not None:
        orders = (folder / "orders.jsonl").read_bytes().split(b"\n")
        (folder / "orders.jsonl").write_bytes(b"\n".join(orders[:lines]) + b"\n")
    return folder


def storm(seed: int, where: Path, *, kills: int = 4, lines: int | None = None) -> str:
    """Run one round. Return what went wrong, nothing when all is well."""
    rng = random.Random(seed)
    one = Round(copied(where, lines), rng, where / "said.txt")
    one.start()
    done: list[str] = []
    try:
        for _ in range(kills):
            time.sleep(rng.uniform(0.3, 4.0))  # real time: the moment of the kill is what is drawn
            victim = rng.choice(VICTIMS)
            done += [victim] if one.kill(victim) else []
        assert one.process is not None
        code = one.process.wait(FINISH_S)
    except subprocess.TimeoutExpired:
        return f"seed {seed}: not finished {FINISH_S:.0f} s after {done}\n{tail(one.said)}"
    finally:
        one.stop()
    return "" if code == 0 else f"seed {seed}: exit {code} after {done}\n{tail(one.said)}"


def tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-40:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--lines", type=int, default=None)
    asked = parser.parse_args()
    seeds = range(asked.rounds) if asked.seed is None else [asked.seed]
    for number, seed in enumerate(seeds, 1):
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as where:
            wrong = storm(seed, Path(where), lines=asked.lines)
        took_s = time.monotonic() - began_s
        said = f"round {number} of {len(seeds)}, seed {seed}: {wrong or 'every order exactly once'} ({took_s:.0f} s)"
        print(said, flush=True)  # noqa: T201  (a command)
        if wrong:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
