"""Where a world is: the words for a URL without its password, and the schema of a namespace."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import Unusable

NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def where_of(url: str) -> str:
    """Return host and database of a URL, for people.

    Raises:
        Unusable: it is no Postgres URL.
    """
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
    except ValueError as error:
        raise bad_url(str(error)) from None
    if parts.scheme not in ("postgres", "postgresql"):
        raise bad_url(f"it begins with {parts.scheme or 'nothing'!r}")
    return f"{unquote(hosts)}/{unquote(parts.path.lstrip('/'))}"


def schema_of(namespace: str) -> str:
    """Return the schema of a namespace.

    Raises:
        Unusable: it cannot be the name of one.
    """
    if not NAMESPACE.fullmatch(namespace):
        raise Unusable(f"the namespace {namespace!r} does not fit: up to 32 letters, digits, - and _, not first")
    return f"fencepost_{namespace}"


def bad_url(why: str) -> Unusable:
    """Return what to say of a URL nobody can connect to."""
    return Unusable(f"the Postgres URL does not fit ({why}): write postgresql://user:password@host:5432/database")
