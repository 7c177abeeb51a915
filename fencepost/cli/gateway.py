"""`fencepost gateway`: hooks over HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..client import Client
from ..logs import configure_logging
from ..settings import Settings, redacted
from .connecting import Where, connected
from .exits import CommandError, Exit
from .talk import Talk

try:
    from ..gateway import gateway as app_of
    from .httpserver import Server, configured, listening
except ImportError as error:
    if "fencepost[gateway]" in str(error) or error.name in {"uvicorn", "h11"}:
        raise CommandError('fencepost gateway needs more: pip install "fencepost[gateway]"', Exit.USAGE) from error
    raise

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette

__all__ = ["Asked", "app_for", "gateway", "size_of"]

UNITS: Final = {"": 1, "k": 1024, "m": 1024**2}


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line."""

    host: str
    port: int
    rate: str
    max_body: str
    reply_timeout: str
    trusted: str
    json: bool
    verbose: bool


def gateway(asked: Asked, place: Where) -> int:
    """Serve until stopped, and return the exit code."""
    settings = Settings.load()
    form = "json" if asked.json and settings.log_format == "auto" else settings.log_format
    configure_logging(form, "debug" if asked.verbose else settings.log_level)
    return asyncio.run(_served(asked, place))


async def _served(asked: Asked, place: Where) -> int:
    async with connected(place) as asking:
        app = app_for(asked, Client(asking.bus))
        with listening(asked.host, asked.port) as listener:
            server = Server(configured(app, trusted_of(asked.trusted)), app.state.stopping)
            _greet(Talk(asked.json), place, listener)
            await server.serve([listener])
    return Exit.OK


def app_for(asked: Asked, client: Client) -> Starlette:
    """Return the app that was asked for.

    Raises:
        CommandError: a bound is none.
    """
    try:
        return app_of(client, max_body=size_of(asked.max_body), rate=asked.rate, reply_timeout=asked.reply_timeout)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error


def trusted_of(proxies: str) -> str:
    """Return proxies as they were given: addresses or networks with commas between, `*`, or nothing.

    Raises:
        CommandError: one is neither. Passed over, it would put all callers on one rate.
    """
    for proxy in proxies.split(",") if proxies not in {"", "*"} else ():
        try:
            ipaddress.ip_network(proxy.strip(), strict=False)
        except ValueError:
            raise CommandError(f"--trust-forwarded {proxy!r} is no address and no network", Exit.USAGE) from None
    return proxies


def size_of(text: str) -> int:
    """Return a number of bytes: 65536, 512KiB, 1MiB.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,12})\s*([km]?)(i?b)?", text.strip().lower())
    if found is None:
        raise ValueError(f"--max-body {text[:40]!r} must be a number of bytes, such as 65536, 512KiB or 1MiB")
    return int(found[1]) * UNITS[found[2]]


def _greet(talk: Talk, place: Where, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    where = redacted(place.url)
    text = f"hooks at {url}/hooks/<token>; namespace {place.namespace} at {where}"
    talk.event("ready", text, url=url, namespace=place.namespace, nats=where)
