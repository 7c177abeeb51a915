"""Where a command connects: `--url`, else FENCEPOST_NATS_URL, else the `dev` of this folder, else 4222 here."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from fencepost.bus import BusError, JetStreamBus

from ..asking import Asking
from ..errors import SettingsError, Unavailable
from ..settings import Settings
from . import devfile, processes
from .exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from .devfile import DevFile

T = TypeVar("T")

__all__ = ["Where", "asked", "connected", "found_as", "where"]

DATABASE: Final = "postgres"
DEFAULT_URL: Final = "nats://127.0.0.1:4222"


@dataclass(frozen=True, slots=True)
class Where:
    """Where to connect, and who said so."""

    url: str
    namespace: str
    credentials: Path | None = None
    dev: DevFile | None = None
    inbox_prefix: str = "_INBOX"
    database: str = ""
    """Where Postgres is, when that is the store; with its password."""


def where(url: str | None, namespace: str | None, folder: Path | None) -> Where:
    """Return where to connect.

    Raises:
        SettingsError: a setting is unknown or wrong.
        CommandError: `folder` was given and has no dev.json.
    """
    given = {"namespace": namespace} if namespace else {}
    settings = Settings.load(**given)
    dev = None if url or (settings.nats_url and folder is None) else _dev_of((folder or Path.cwd()).resolve())
    if folder is not None and dev is None and not url:
        raise CommandError(
            f"no fencepost dev has run in {folder} or around it: start it, or give --url", Exit.UNREACHABLE
        )
    named = "namespace" in settings.model_fields_set
    return Where(
        url=url or (dev.url if dev else settings.nats_url or DEFAULT_URL),
        namespace=dev.namespace if dev and not named else settings.namespace,
        credentials=settings.nats_creds,
        inbox_prefix=settings.nats_inbox_prefix,
        dev=dev,
        database=_database_of(dev) if dev else settings.postgres_url,
    )


def _database_of(dev: DevFile) -> str:
    """Return where the Postgres of a `dev --stack` is; its password is in the state folder, not in dev.json."""
    if not dev.database_port:
        return ""
    from fencepost.world import PostgresServer  # noqa: PLC0415  (with its driver, which other commands do not need)

    try:
        return PostgresServer(Path(dev.state) / DATABASE, port=dev.database_port).url
    except OSError:
        return ""


def found_as(url: str, namespace: str) -> str:
    """Return the options with which a command in this folder finds a server; none when it does so by itself."""
    try:
        found, named = where(None, None, None), where(url, None, None)
    except SettingsError:
        return f" --url {url} --namespace {namespace}"
    if (found.url, found.namespace) == (url, namespace):
        return ""
    return f" --url {url}" + (f" --namespace {namespace}" if namespace != named.namespace else "")


def _dev_of(folder: Path) -> DevFile | None:
    """Return the `dev` around a folder, or the one whose state folder it is itself."""
    return devfile.read(folder) or devfile.found_from(folder)


@asynccontextmanager
async def connected(place: Where) -> AsyncGenerator[Asking]:
    """Ask while the block runs.

    Raises:
        Unavailable: no server there.
        CommandError: the namespace cannot be one.
    """
    try:
        bus = JetStreamBus(
            place.url,
            place.namespace,
            role="client",
            name="fencepost-command",
            credentials=place.credentials,
            inbox_prefix=place.inbox_prefix,
        )
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from None
    try:
        await bus.open()
    except BusError as error:
        raise _explained(place, error) from error
    try:
        yield Asking(bus)
    finally:
        await bus.close()


def _explained(place: Where, error: BusError) -> Unavailable:
    if place.dev is None or processes.is_running(place.dev.node):
        return Unavailable(str(error))
    return Unavailable(f"the fencepost dev of {place.dev.target} does not run any more: start it again ({error})")


def asked(place: Where, work: Callable[[Asking], Awaitable[T]]) -> T:
    """Run work against the nodes there, from start to end."""

    async def run() -> T:
        async with connected(place) as asking:
            return await work(asking)

    return asyncio.run(run())
