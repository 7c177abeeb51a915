"""Questions to JetStream itself, as it documents them: a subject, JSON, and errors by number."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import BusUnusable, Unreachable
from .connection import Nobody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .connection import Connection

__all__ = ["ApiError", "JetStreamApi", "checked_server", "version_of"]

VERSION_MIN: Final = (2, 14)
LEVEL_MIN: Final = 4
"""JetStream's own count of features: 2.14 says 4. Older servers ignore what they do not know, silently."""

TIMEOUT_S: Final = 5.0

JsonObject = dict[str, Any]


class ApiError(Exception):
    """JetStream's own refusal."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code = int(error.get("code", 500))
        self.err_code = int(error.get("err_code", 0))
        self.description = str(error.get("description", ""))
        super().__init__(f"{self.description} ({self.err_code})")


class JetStreamApi:
    """Calls to `$JS.API`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(self, verb: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """Ask and return the answer.

        Raises:
            ApiError: JetStream refused.
            BusUnusable: no JetStream, or no permission.
            Unreachable: no answer.
        """
        try:
            answer = await self._connection.ask(
                f"$JS.API.{verb}", json.dumps(body).encode() if body else b"", timeout_s=TIMEOUT_S
            )
        except Nobody as error:
            raise BusUnusable(
                "JetStream is off on this server: start it with `-js`, or with a jetstream block in its config"
            ) from error
        return parsed(answer.data)

    async def check(self) -> None:
        """Check version and features of the server.

        Raises:
            BusUnusable: too old, or no JetStream for this account.
        """
        try:
            info = await self.call("INFO")
        except ApiError as error:
            raise BusUnusable(f"JetStream is not usable for this account: {error.description}") from error
        level = info.get("api", {}).get("level", 0)
        checked_server(version_of(self._connection.server_version), int(level))


def parsed(data: bytes) -> JsonObject:
    """Return the answer, or raise what it refuses."""
    try:
        answer: object = json.loads(data)
    except ValueError as error:
        raise Unreachable("JetStream answered something that is no JSON") from error
    if not isinstance(answer, dict):
        raise Unreachable("JetStream answered something that is no object")
    fields = cast("JsonObject", answer)
    if refusal := fields.get("error"):
        raise ApiError(refusal)
    return fields


def version_of(text: str) -> tuple[int, int, int]:
    """Return a server's version as numbers; what comes after the patch (`-RC.1`, `-dev`) does not count."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def checked_server(version: tuple[int, int, int], level: int) -> None:
    """Accept a server that knows what we ask for.

    Raises:
        BusUnusable: with its version and the one that is needed.
    """
    shown = ".".join(map(str, version))
    if version[:2] < VERSION_MIN:
        raise BusUnusable(f"nats-server {shown} is too old: 2.14 or newer is needed")
    if level < LEVEL_MIN:
        raise BusUnusable(
            f"nats-server {shown} has JetStream level {level}, {LEVEL_MIN} is needed: is the cluster of mixed age?"
        )
