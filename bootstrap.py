"""Make `.venv` beside this file from `requirements.lock`, then run the rest of the arguments inside it.

    python3 bootstrap.py pytest                   # make or repair .venv if need be, then run its pytest
    python3 bootstrap.py                          # only make or repair it

Needs Python 3.11 or newer and PyPI (or the index that pip is set up for), nothing else. Repeatable: a stamp,
written last, names the lock, the project's table, the Python and the place it was made from; when any of them
changed, or the stamp is missing because the last attempt was interrupted, the folder is made anew. Two at once
wait for each other.
"""

# This file must parse on an old Python 3, so that it can say what is wrong instead of a SyntaxError.
import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - old ones are who this speaks to
    sys.exit(
        f"Fencepost needs Python 3.11 or newer; this is Python {sys.version_info[0]}.{sys.version_info[1]} "
        f"({sys.executable}). Run bootstrap.py with a newer one, such as python3.12."
    )

import hashlib
import json
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is not imported: a second start should cost nothing
    from collections.abc import Generator, Iterable, Iterator
    from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "made-by-bootstrap"
SCRIPTS = VENV / ("Scripts" if sys.platform == "win32" else "bin")
PYTHON = SCRIPTS / ("python.exe" if sys.platform == "win32" else "python")

NETWORK = (
    *("INDEX", "EXTRA_INDEX", "FIND_LINKS", "NO_INDEX", "CERT", "CLIENT_CERT", "PROXY", "TRUSTED", "KEYRING"),
    *("CACHE", "NO_CACHE", "RETRIES", "TIMEOUT", "DEFAULT_TIMEOUT", "RESUME", "CONFIG_FILE", "USE_FEATURE"),
)
"""Settings of pip (`PIP_…`) that say how to reach an index. The others (user, target, constraints …) are meant for
other environments and would make a different `.venv` from the same lock."""


def main(command: list[str]) -> int:
    """Return the command's exit code; on POSIX the command takes this process's place instead."""
    with one_at_a_time() as lock:
        want = fingerprint()
        if not (PYTHON.exists() and read(STAMP) == want):
            make(lock)
            STAMP.write_text(want, encoding="utf-8")
    if command:
        return run(command)
    say("ready. Try: python3 bootstrap.py pytest")
    return 0


def fingerprint() -> str:
    """Return a text that changes with everything `.venv` is made from."""
    import tomllib  # noqa: PLC0415 - does not exist where the version check above has to speak

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    made_from = {
        "lock": LOCK.read_text(encoding="utf-8"),
        "project": [project["project"], project["build-system"], project["tool"]["setuptools"]],
        "python": [sys.version, sys.base_prefix],
        "place": str(ROOT),  # scripts in a venv name their interpreter by its full path
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


# ---- making it


def make(lock: "IO[bytes]") -> None:
    """Replace `.venv` by one with exactly what the lock names, and the project itself, editable."""
    refuse_without_venv()
    remove_old()
    say(f"making .venv with Python {'.'.join(map(str, sys.version_info[:3]))} (once; again when the lock changes)")
    base = getattr(sys, "_base_executable", "") or sys.executable  # not the python inside the folder just removed
    call("make .venv", [base, "-I", "-m", "venv", str(VENV)], lock)
    say(f"installing {pinned()} packages from {LOCK.name}")
    call("install the packages", [*pip(), "--only-binary=:all:", "--require-hashes", "-r", str(LOCK)], lock)
    say("installing fencepost itself")
    call("install fencepost", [*pip(), "--no-index", "--no-deps", "--no-build-isolation", "-e", str(ROOT)], lock)


def refuse_without_venv() -> None:
    """Stop with one sentence on a Python that came without the modules that make environments."""
    import importlib.util  # noqa: PLC0415 - only needed when something is to be made

    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        stop(
            f"this Python ({sys.executable}) came without {' and '.join(missing)}: install it "
            f"(on Debian and Ubuntu: apt install python3-venv) or use another Python"
        )


def remove_old() -> None:
    """Remove an older or half-made `.venv`, and nothing that is not one."""
    if VENV.is_symlink() or VENV.is_file():
        stop(f"{VENV} is a file or a link, not a folder that was made here: move it away")
    if not VENV.exists():
        return
    if any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists() and not SCRIPTS.exists():
        stop(f"{VENV} is no virtual environment: move it away")
    say("removing the .venv that is out of date or half made")
    shutil.rmtree(VENV)


def pip() -> list[str]:
    """Return the start of a pip command that depends on this checkout and on how to reach an index, only."""
    return [
        str(PYTHON),
        "-I",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
    ]


def pip_environment() -> dict[str, str]:
    """Return the environment for pip: its network settings stay, settings meant for other places go."""
    kept = {name: value for name, value in os.environ.items() if is_wanted(name.upper())}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}  # said in a file they would still count


def is_wanted(name: str) -> bool:
    """Tell whether an environment variable may reach venv and pip."""
    if name.startswith("PIP_"):
        return name.removeprefix("PIP_").startswith(NETWORK)
    return name not in {"PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__"}


def pinned() -> int:
    """Return how many packages the lock names."""
    return sum("==" in line for line in LOCK.read_text(encoding="utf-8").splitlines())


def call(what: str, command: list[str], lock: "IO[bytes]") -> None:
    """Run one step of the making and show how far it is; stop with all it said when it fails.

    The step inherits the lock: should this process be killed, the next one waits until the orphan has ended too.
    """
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=pip_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=() if sys.platform == "win32" else (lock.fileno(),),
    )
    lines = list(show(child.stdout or []))
    if child.wait() != 0:
        stop(f"could not {what}:\n" + "".join(lines[-15:]).rstrip())


def show(lines: "Iterable[str]") -> "Iterator[str]":
    """Pass lines on and show the packages among them: in place on a terminal, every tenth in a log."""
    terminal, seen = sys.stderr.isatty(), 0
    for line in lines:
        yield line
        if line.startswith("Collecting "):
            seen += 1
            if terminal:
                print(f"\r\033[K  {seen}: {line.split()[1]}", end="", file=sys.stderr, flush=True)
            elif seen % 10 == 0:
                say(f"  {seen} packages …")
    if terminal and seen:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


# ---- the lock, the command, the words


@contextmanager
def one_at_a_time() -> "Generator[IO[bytes]]":
    """Hold a file lock while `.venv` is looked at or made. The operating system frees it when its holders die."""
    with (ROOT / ".venv.lock").open("ab") as file:
        if not lock_file(file, wait=False):
            say("another bootstrap is at work here; waiting for it")
            lock_file(file, wait=True)
        yield file


def lock_file(file: "IO[bytes]", *, wait: bool) -> bool:
    """Lock a file for this process, and tell whether that worked."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - exists on Windows only

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - exists on POSIX only

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if wait:
            raise
        return False
    return True


def run(command: list[str]) -> int:
    """Run a command of `.venv` (or of the rest of the PATH) with the environment active, as `activate` would."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    environment["VIRTUAL_ENV"] = str(VENV)
    environment["PATH"] = str(SCRIPTS) + os.pathsep + environment.get("PATH", os.defpath)
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        say(f"there is no command {command[0]!r}, neither in .venv nor elsewhere")
        return 127
    if sys.platform == "win32":
        return subprocess.run([program, *command[1:]], env=environment, check=False).returncode
    sys.stdout.flush()
    sys.stderr.flush()
    # A child process would do, but then a signal meets us and not the command, and has to be passed on.
    return os.execve(program, command, environment)


def read(path: Path) -> str:
    """Return a file's text, or nothing when there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def say(text: str) -> None:
    """Tell a person; on stderr, so that the command's own output stays clean."""
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> "NoReturn":
    """Say what is wrong and end."""
    sys.exit(f"bootstrap: {text}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        stop(f"{error}")
