"""Postgres's errors, and those of the way to it, as ours: one sentence each, what is wrong and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..errors import Unavailable, Unusable
from .driver import pg
from .journal import Lost

if TYPE_CHECKING:
    from collections.abc import Mapping

GONE: Final = (
    OSError,
    EOFError,
    TimeoutError,
    pg.InterfaceError,
    pg.InternalClientError,  # what asyncpg says to whoever asks over a connection the server has just cut
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
)
"""What a connection ends with. A statement that was under way may have committed."""

_BUSY = "Postgres at {where} has no connection left: raise its max_connections, or run fewer nodes"
_READ_ONLY = (
    "{where} is read-only and nothing was written: connect to the primary, or end its default_transaction_read_only"
)
_REFUSED = "{where} refuses this user ({error}): set the right user and password in the URL, and check pg_hba.conf"
_SCHEMA = "{where} is not as it was migrated ({error}): run `fencepost migrate`"
_WAITED = "{where} has a lock held by another session and nothing was written: end the session that holds it"

UNUSABLE: Final[Mapping[type[Exception], str]] = {
    pg.InvalidPasswordError: _REFUSED,
    pg.InvalidAuthorizationSpecificationError: _REFUSED,
    pg.InvalidCatalogNameError: "{where} does not exist: create the database, or name another one in the URL",
    pg.InsufficientPrivilegeError: "{where} forbids this user what is to be done ({error}): grant it, or use the owner",
    pg.InvalidSchemaNameError: _SCHEMA,
    pg.UndefinedTableError: _SCHEMA,
    pg.UndefinedFunctionError: _SCHEMA,
    pg.UndefinedColumnError: _SCHEMA,
}
UNAVAILABLE: Final[Mapping[type[Exception], str]] = {
    pg.TooManyConnectionsError: _BUSY,
    pg.CannotConnectNowError: "Postgres at {where} is starting or stopping: it is tried again",
    pg.AdminShutdownError: "Postgres at {where} was told to end this connection: it is tried again",
    pg.CrashShutdownError: "Postgres at {where} ended this connection after a crash: it is tried again",
    pg.ReadOnlySQLTransactionError: _READ_ONLY,
    pg.QueryCanceledError: (
        "{where} ended a statement and nothing was written ({error}): raise statement_timeout for this user, "
        "or look at what makes the server slow"
    ),
    pg.LockNotAvailableError: _WAITED,
    pg.DiskFullError: "the disk under {where} is full and nothing was written: make room, work then goes on",
    pg.OutOfMemoryError: "there is no memory left at {where} and nothing was written: give the server more",
    pg.InsufficientResourcesError: "{where} lacks resources and nothing was written: {error}",
    pg.DeadlockDetectedError: "{where} ended a deadlock and nothing was written: try again",
    pg.SerializationError: (
        "{where} runs with another isolation than read committed and nothing was written: "
        "reset default_transaction_isolation for this user"
    ),
    pg.PostgresIOError: "{where} could not be read or written ({error}): look at its disk",
}
POOLER_FULL: Final = re.compile(r"no more connections allowed|query_wait_timeout|too many clients", re.IGNORECASE)
"""What PgBouncer says with codes of its own."""


def translated(error: Exception, where: str) -> Exception:
    """Return what to raise instead of a driver's error: the error itself when it is a bug of ours."""
    if isinstance(error, (Unavailable, ValueError)):  # the driver's errors about arguments are both its own and this
        return error
    for kinds, made in ((UNUSABLE, Unusable), (UNAVAILABLE, Unavailable)):
        for kind, sentence in kinds.items():
            if isinstance(error, kind):
                return made(sentence.format(where=where, error=_words(error)))
    if POOLER_FULL.search(str(error)):
        return Unavailable(_BUSY.format(where=where))
    return Unavailable(_away(error, where)) if isinstance(error, GONE) else error


def lost(error: Exception, where: str) -> Exception:
    """As `translated`, for a statement that was on its way when the connection ended.

    Only the server's own word that nothing was written is believed; a shutdown may come after the commit.
    """
    is_gone = isinstance(error, GONE) and not isinstance(error, (pg.QueryCanceledError, ValueError))
    return Lost(str(translated(error, where))) if is_gone else translated(error, where)


def ends_connection(error: Exception) -> bool:
    """Tell whether the connection is of no more use: it is gone, or it leads to a server that cannot be written."""
    is_ours = isinstance(error, (pg.QueryCanceledError, ValueError))
    return isinstance(error, (*GONE, pg.ReadOnlySQLTransactionError, pg.InternalServerError)) and not is_ours


def read_only(where: str) -> Unusable:
    """Return what a node says that would begin on a server it cannot write to."""
    return Unusable(_READ_ONLY.format(where=where))


def _away(error: Exception, where: str) -> str:
    return f"Postgres at {where} does not answer ({_words(error)}): start it, or check the URL and the network"


def _words(error: Exception) -> str:
    """Return an error in one line, without a full stop."""
    text = str(error).strip().splitlines()
    return (text[0].rstrip(".") if text else "") or type(error).__name__
