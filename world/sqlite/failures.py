"""SQLite's errors as ours, in one sentence: what is wrong, what to do."""

from __future__ import annotations

import sqlite3
from typing import Final

from ..errors import Unavailable, Unusable

PRIMARY: Final = 0xFF
"""Extended result codes carry the primary one in their lowest byte."""

UNUSABLE: Final = {
    sqlite3.SQLITE_NOTADB: "{where} is no SQLite database: give fencepost a file of its own",
    sqlite3.SQLITE_CORRUPT: "{where} is damaged: put a backup in its place, or try `sqlite3 {where} .recover`",
    sqlite3.SQLITE_READONLY: "{where} cannot be written: make the file and its folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "{where} cannot be opened: check that its folder exists and this user may use it",
    sqlite3.SQLITE_PERM: "{where} cannot be opened: check that this user may read and write it",
}
UNAVAILABLE: Final = {
    sqlite3.SQLITE_FULL: "the disk under {where} is full and nothing was written: make room, work then goes on",
    sqlite3.SQLITE_IOERR: "{where} could not be read or written ({error}): look at the disk",
    sqlite3.SQLITE_BUSY: "{where} is locked by another program: close what has it open",
    sqlite3.SQLITE_LOCKED: "{where} is locked by another program: close what has it open",
    sqlite3.SQLITE_NOMEM: "there is no memory left to use {where}",
}


def translated(error: sqlite3.Error, where: str) -> Exception:
    """Return what to raise instead of a driver's error: the error itself when it is a bug of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY
    if code in UNUSABLE:
        return Unusable(UNUSABLE[code].format(where=where))
    if code in UNAVAILABLE:
        return Unavailable(UNAVAILABLE[code].format(where=where, error=error))
    return error
