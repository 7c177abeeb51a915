"""From a start message to a run: read the envelope, check the input, create.

    {"id": "order-42", "input": …, "attributes": {"tenant": "acme"}, "at": "2027-01-01T00:00:00Z"}

`input` is the value of a workflow's one parameter; several are `{"kwargs": {…}}`. `id` makes the start idempotent; so
does the header `Nats-Msg-Id`. Unknown fields are refused: a misspelt `imput` must not start a run without its input.
"""

from __future__ import annotations

import hashlib
import platform
import unicodedata
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec
from ulid import ULID

from fencepost.world import Created, NewRun, RunExists

from . import codec
from .errors import InvalidInput
from .values import inline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.world import World

    from .app import App
    from .host import Host

ID_CHARACTERS_MAX = 512
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 1, 1, tzinfo=UTC)


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A start as it travels."""

    id: str = ""
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    kwargs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, str] = {}
    at: datetime | None = None
    on_duplicate: Literal["attach", "raise"] = "attach"

    def values(self) -> bytes:
        """Return the part that says what the workflow gets, as JSON."""
        given = {"input": self.input, "kwargs": self.kwargs}
        return msgspec.json.encode({name: raw for name, raw in given.items() if raw is not msgspec.UNSET})


_decoder = msgspec.json.Decoder(Envelope)


def read_envelope(body: bytes, headers: Mapping[str, str] | None = None) -> Envelope:
    """Return the envelope of a start message.

    Raises:
        InvalidInput: it is empty, no JSON, no object, or has a field nobody knows; one sentence says which.
    """
    if not body.strip():
        raise InvalidInput('the message is empty: send a JSON object such as {"id": "…", "input": …}')
    try:
        envelope = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the start message does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f'the start message is not JSON ({error}): send an object such as {{"input": …}}') from None
    if any("\0" in text for pair in envelope.attributes.items() for text in pair):
        raise InvalidInput("an attribute holds the character NUL, which no store can search for")
    named = envelope.id or (headers or {}).get("Nats-Msg-Id", "")
    return msgspec.structs.replace(envelope, id=checked_id(named), at=_checked_instant(envelope.at))


def _checked_instant(at: datetime | None) -> datetime | None:
    if at is None:
        return None
    try:
        instant = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        instant = EARLIEST - timedelta(days=1)
    if not EARLIEST <= instant <= LATEST:
        raise InvalidInput(f"at is {at.isoformat()}, and has to lie between {EARLIEST:%Y} and {LATEST:%Y}")
    return instant


def checked_id(given: str) -> str:
    """Return an id that can name a chain, or raise InvalidInput."""
    if len(given) > ID_CHARACTERS_MAX:
        raise InvalidInput(f"the id has {len(given):,} characters, more than {ID_CHARACTERS_MAX}")
    if given.startswith("run_"):
        raise InvalidInput(f"the id {given!r} begins with run_, which is kept for Fencepost's own ids")
    if any(unicodedata.category(character) == "Cc" for character in given):
        raise InvalidInput(f"the id {given!r} holds a control character, which no list could show")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the id is no valid text: it holds half of a surrogate pair") from None
    return given


@dataclass(slots=True)
class Starter:
    """Creates runs. The only place that does."""

    world: World
    host: Host
    app: App

    async def start(self, workflow: str, envelope: Envelope, *, source: str = "") -> Created:
        """Create the run of a start, or find the one that is there.

        An unknown workflow is taken in as it is: a visible pending run, whose input is checked by the node that knows
        it. `source` names a message without id, so that its redelivery makes no second run.

        Raises:
            InvalidInput: the input does not fit the workflow.
            RunExists: the id belongs to a run with other input.
        """
        known = self.app.workflows.get(workflow)
        values = envelope.values()
        data = known.params.from_input(values) if known is not None else values
        run_id = run_id_of(source) if source and not envelope.id else new_run_id(self.host)
        new = NewRun(
            run_id=run_id,
            workflow=workflow,
            app=self.app.name if known is not None else "",
            input=inline(data),
            input_digest=codec.digest(data),
            seed=self.host.token(),
            chain_id=envelope.id,
            code=known.code if known is not None else "",
            python=platform.python_version(),
            attributes=dict(envelope.attributes),
            due=envelope.at,
        )
        try:
            return await self.world.create(new)
        except RunExists:
            # A node that did not know the workflow took the same input in as it came.
            return await self.world.create(replace(new, input_digest=codec.digest(values)))


def new_run_id(host: Host) -> str:
    """Return a new id: `run_` and a ULID, so that ids sort by time."""
    milliseconds = int(host.now().timestamp() * 1000)
    return f"run_{ULID.from_bytes(milliseconds.to_bytes(6) + bytes.fromhex(host.token())[:10])}"


def run_id_of(source: str) -> str:
    """Return the id of the run that a message without id starts: the same for every delivery of it."""
    return f"run_{ULID.from_bytes(hashlib.blake2b(source.encode(), digest_size=16).digest())}"
