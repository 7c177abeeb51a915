"""The programs of `[dev] run`: started, written to a log each, started again when they die, stopped with us."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import processes
from .exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO

    from .devfile import Started

__all__ = ["Program", "Programs", "program_of"]

POLL_S: Final = 0.1
PAUSE_S_MIN: Final = 0.2
PAUSE_S_MAX: Final = 10.0
STEADY_S: Final = 10.0
"""A program that lived this long starts with a short pause again."""

LOG_BYTES_MAX: Final = 10 * 1024 * 1024

GATE: Final = ("/bin/sh", "-c", 'read go && exec "$@" </dev/null', "sh")
"""Holds a program back until it is noted in dev.json: killed in between we would leave it behind unknown."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command of `[dev] run`."""

    name: str
    command: tuple[str, ...]


def program_of(text: str, folder: Path, taken: set[str]) -> Program:
    """Return the program of a line, `python` being the Python that runs us.

    Raises:
        CommandError: it cannot be split, or there is no such command.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CommandError(f"[dev] run: {text!r} cannot be read: {error}", Exit.USAGE) from None
    if not words:
        raise CommandError("[dev] run: a command is empty", Exit.USAGE)
    python = words[0] in {"python", "python3"}
    found = sys.executable if python else shutil.which(words[0], path=_path(folder))
    if found is None:
        raise CommandError(f"[dev] run: there is no command {words[0]!r}", Exit.USAGE)
    script = next((word for word in words[1:] if not word.startswith("-")), words[0]) if python else words[0]
    return Program(_free_name(Path(script).stem or "program", taken), (found, *words[1:]))


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free)
    return free


@dataclass(slots=True)
class Programs:
    """Runs all of them. `noted` is called when what runs has changed, `say` with what a person should know."""

    programs: Sequence[Program]
    folder: Path
    state: Path
    environment: Mapping[str, str]
    noted: Callable[[], None]
    say: Callable[[str], None]
    running: dict[str, Started] = field(default_factory=dict[str, "Started"])

    async def keep(self) -> None:
        """Keep all of them running until cancelled."""
        async with asyncio.TaskGroup() as group:
            for program in self.programs:
                group.create_task(self._keep_one(program))

    async def stop(self) -> None:
        """End what runs, all at once."""
        await asyncio.to_thread(processes.end, list(self.running.values()))
        self.running.clear()

    def log_of(self, program: Program) -> Path:
        """Return where a program's output goes."""
        return self.state / f"{program.name}.log"

    async def _keep_one(self, program: Program) -> None:
        pause_s, now_s = PAUSE_S_MIN, asyncio.get_running_loop().time
        while True:
            began_s = now_s()
            code = await self._ended(program, self._started(program))
            self.running.pop(program.name, None)
            self.noted()
            if code == 0:
                self.say(f"{program.name} has finished")
                return
            pause_s = PAUSE_S_MIN if now_s() - began_s > STEADY_S else pause_s
            self.say(f"{program.name} {_how(code)}, again in {pause_s:g} s{self._last_words(program)}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _started(self, program: Program) -> subprocess.Popen[bytes]:
        gated = os.name == "posix"
        with self._opened_log(program) as log:
            process = subprocess.Popen(  # noqa: S603  (the commands of the user's own file)
                [*(GATE if gated else ()), *program.command],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.PIPE if gated else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us alone, and we stop it when the node is done with it
            )
        if known := processes.started(program.name, process.pid):
            self.running[program.name] = known
        self.noted()
        if process.stdin:
            with process.stdin as gate:
                gate.write(b"\n")
        return process

    async def _ended(self, program: Program, process: subprocess.Popen[bytes]) -> int:
        while (code := process.poll()) is None:
            _trim(self.log_of(program))
            await asyncio.sleep(POLL_S)
        return code

    def _opened_log(self, program: Program) -> IO[bytes]:
        return self.log_of(program).open("ab")

    def _last_words(self, program: Program) -> str:
        lines = self.log_of(program).read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.strip() for line in lines[-20:] if line.strip()]
        return f": {said[-1][:200]}" if said else ""


def _trim(log: Path) -> None:
    """Keep the log bounded: what it held moves to `.log.1`. The program appends, so it goes on at the beginning."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        shutil.copyfile(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
