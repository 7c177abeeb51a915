"""Running a server that refuses to be root, when we are: as another system user, who owns its files.

The wheel's own user is taken, and made if there is none. It is led to its files by descriptors of ours that it
inherits, so the folders above them may be closed to it, and stay so. By name fails for root's private folders, and
opening those to all does not last: others close them again while the server runs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = "embedded_postgres"
DESCRIPTORS: Final = Path("/proc/self/fd")
PASS: Final = 0o001
"""The right of all to pass through a folder, without looking into it."""


@dataclass(frozen=True, slots=True)
class RunAs:
    """Who a server runs as: we ourselves, unless `user` says another (uid, gid)."""

    user: tuple[int, int] | None = None

    @property
    def is_another(self) -> bool:
        """Whether it is not us."""
        return self.user is not None

    def own(self, path: Path) -> None:
        """Give a folder or file to the user."""
        if self.user is not None:
            os.chown(path, *self.user)

    def reach(self, path: Path) -> None:
        """Let the user pass through every folder above a program, which has to find its own parts by name."""
        for above in path.absolute().parents if self.is_another else ():
            mode = above.stat().st_mode
            if not mode & PASS:
                above.chmod(mode | PASS)

    @contextlib.contextmanager
    def led_to(self, *paths: Path) -> Iterator[tuple[Path, ...]]:
        """Give names under which the user finds paths. Hand them to `options` as well."""
        if not self.is_another or not DESCRIPTORS.is_dir():
            yield tuple(path.resolve() for path in paths)
            return
        with contextlib.ExitStack() as opened:
            numbers = [os.open(path, os.O_RDONLY) for path in paths]
            for number in numbers:
                opened.callback(os.close, number)
            yield tuple(DESCRIPTORS / str(number) for number in numbers)

    def options(self, *led_to: Path) -> dict[str, Any]:
        """Return what a subprocess of the user is started with."""
        if self.user is None:
            return {}
        uid, gid = self.user
        inherited = [int(path.name) for path in led_to if path.parent == DESCRIPTORS]
        return {"user": uid, "group": gid, "extra_groups": [], "pass_fds": inherited}


def needed() -> RunAs:
    """Return who a server that refuses root runs as. A user is made if there is none.

    Raises:
        Unusable: it cannot be made.
    """
    if os.name != "posix" or os.geteuid() != 0:
        return RunAs()
    import pwd  # noqa: PLC0415  (there is none on Windows)

    try:
        entry = pwd.getpwnam(NAME)
    except KeyError:
        _make()
        entry = pwd.getpwnam(NAME)
    return RunAs((entry.pw_uid, entry.pw_gid))


def _make() -> None:
    command = ["useradd", "--system", "--shell", "/bin/false", NAME]
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603  (words of our own)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unusable(
            f"Postgres does not run as root, and the system user {NAME} could not be made ({error}): "
            "make it, or start fencepost as another user"
        ) from error
