"""`fencepost resume`: a payload from the command line, a file or stdin, into a hook."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fencepost.actors import durations

from ..deliveries import deliver
from .connecting import asked
from .exits import CommandError, Exit
from .output import emit, plain, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connecting import Where

__all__ = ["Wanted", "resume"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line."""

    token: str
    payload: str | None
    delivery: str | None
    wait: str
    json: bool


def resume(wanted: Wanted, where: Callable[[], Where]) -> int:
    """Put the payload there and tell where it went."""
    payload, wait_s = _payload(wanted.payload), _seconds(wanted.wait)
    found = asked(
        where(),
        lambda asking: deliver(asking, wanted.token, payload, delivery=wanted.delivery, wait=wait_s),
    )
    if wanted.json:
        emit(found)
    else:
        what = "had arrived before: nothing was put" if found.repeated else f"put ({found.id})"
        tell(f"{plain(wanted.token)}: {what}, run {found.run_id}")
    return Exit.OK


def _seconds(text: str) -> float:
    try:
        return durations.seconds(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except (ValueError, TypeError) as error:
        raise CommandError(f"--wait {text!r}: {error}", Exit.USAGE) from None


def _payload(given: str | None) -> msgspec.Raw:
    text = _text(given)
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        quoted = "; a text needs quotes of its own, '\"yes\"'" if given and given[0] not in "@-" else ""
        raise CommandError(f"--payload is no JSON: {error}{quoted}", Exit.USAGE) from None
    return msgspec.Raw(text)


def _text(given: str | None) -> bytes:
    if given is None:
        return b"null"
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given.encode("utf-8", "surrogateescape")
    try:
        return Path(given[1:]).read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise CommandError(f"--payload {given[1:]}: {error.strerror}", Exit.USAGE) from None
