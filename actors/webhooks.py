"""Webhooks as authors see them: what a caller over HTTP sent, and what it is answered.

An answer by a step travels on the live feed, under a topic made of token and delivery: nothing about the caller is
stored, and nobody is kept waiting for one who went away. A gateway that listens takes the first answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping  # noqa: TC003  (pydantic reads the annotations of Webhook)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from fencepost.world import ValueTooLarge, events

from . import stand_ins
from .call import current_step
from .errors import FatalError, SerializationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator
    from concurrent.futures import Future

    from .call import Tell

__all__ = ["Reply", "Webhook", "recorded", "reply", "reply_topic"]

T = TypeVar("T")

REPLY_BYTES_MAX: Final = 512 * 1024
"""Of an answer's body: it has to fit into a message of the bus."""
STATUS_MIN: Final = 200
STATUS_MAX: Final = 599

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e\xa1-\xff](?:[\t\x20-\x7e\xa0-\xff]*[\x21-\x7e\xa1-\xff])?)?")
_BODILESS: Final = frozenset({204, 205, 304})
_OF_THE_SERVER: Final = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})


@dataclass(frozen=True, slots=True)
class Webhook(Generic[T]):
    """One delivery to a webhook: the payload, and what `reply` needs to find who sent it."""

    payload: T
    token: str
    delivery: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Reply:
    """What a webhook answers at once. A text is sent as it is, anything else as JSON, None as nothing.

    Raises:
        ValueError: the status or a header cannot be sent.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _check_status(self.status)
        if self.status in _BODILESS and self.body is not None:
            raise ValueError(f"a reply with status {self.status} has no body: leave it out")
        for name, value in self.headers.items():
            _check_header(name, value)


def recorded(answer: Reply | Literal["manual"] | None) -> events.HookReply:
    """Return an answer as the log keeps it; None is the usual one, 202.

    Raises:
        ValueError: it is neither.
        SerializationError, ValueTooLarge: its body cannot be sent.
    """
    if answer is None or answer == "manual":
        return events.HookReply(manual=answer is not None)
    if not isinstance(answer, Reply):  # pyright: ignore[reportUnnecessaryIsInstance]  (authors without a type checker)
        raise ValueError(f'reply must be a Reply or "manual", not {type(answer).__name__}')  # noqa: TRY004  (as its values)
    return events.HookReply(status=answer.status, body=_json(answer.body), headers=dict(answer.headers))


def reply_topic(token: str, delivery: str) -> str:
    """Return the topic of the live feed under which the answer to a delivery is told."""
    return "reply." + hashlib.sha256(f"{token}\0{delivery}".encode()).hexdigest()[:32]


def reply(
    webhook: Webhook[Any], body: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Awaitable[None]:
    """Answer who waits for this delivery, from a step: `await` it, in a plain function calling it is enough.

    At most once, and nobody hears it when the caller went away or had an answer: then nothing happens. A step that is
    tried again answers again, and the first answer counts. A text is sent as it is, anything else as JSON.

    Raises:
        FatalError: called outside of a step, or without the webhook.
        ValueError: the status or a header cannot be sent.
        SerializationError, ValueTooLarge: the body cannot be sent.
    """
    answer = Reply(status, body, headers or {})
    tell, run_id = _way()
    told = {
        "run_id": run_id,
        "status": status,
        "headers": dict(answer.headers),
        "body": _json(body) if body is not None else None,
    }
    if not isinstance(webhook, Webhook):  # pyright: ignore[reportUnnecessaryIsInstance]  (what came without a hint)
        raise FatalError(
            f"reply() needs the Webhook as it came, not {type(webhook).__name__}: "
            "give the step's parameter the type Webhook[…]"
        )
    return _Sent(tell and tell(reply_topic(webhook.token, webhook.delivery), msgspec.json.encode(told)))


class _Sent:
    """Handed to the bus: waiting for it is waiting for that, and finding nobody there is no error."""

    def __init__(self, told: Future[None] | None) -> None:
        self._told = told

    def __await__(self) -> Generator[Any, None, None]:
        if self._told is not None:
            yield from asyncio.wait({asyncio.wrap_future(self._told)}).__await__()


def _way() -> tuple[Tell | None, str]:
    """Return how this step tells others, and its run. None when nobody can hear it (a step that a test calls alone).

    Raises:
        FatalError: this is no step.
    """
    if stand_ins.current_turn() is not None:
        raise FatalError("reply() was called in workflow code: give the webhook to a step and call it there")
    step = current_step()
    if step is None:
        raise FatalError("reply() was called outside of a step: only a step of a run can answer a webhook")
    return step._tell_others, step.run_id  # noqa: SLF001  (hidden from users, not from this folder)


def _json(body: Any) -> msgspec.Raw:
    """Return a body as JSON, nothing for None."""
    if body is None:
        return events.NO_JSON
    try:
        text = to_json(body, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError) as exc:
        raise SerializationError(f"the body of a reply cannot be written as JSON: {str(exc)[:200]}") from exc
    if len(text) > REPLY_BYTES_MAX:
        raise ValueTooLarge("the body of a reply", len(text), REPLY_BYTES_MAX)
    return msgspec.Raw(text)


def _check_status(status: object) -> None:
    if type(status) is not int or not STATUS_MIN <= status <= STATUS_MAX:
        raise ValueError(f"status {status!r} of a reply must be a number from {STATUS_MIN} to {STATUS_MAX}")


def _check_header(name: object, value: object) -> None:
    if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
        raise ValueError(f"header {str(name)[:60]!r} of a reply is no name of a header")
    if name.lower() in _OF_THE_SERVER:
        raise ValueError(f"header {name!r} of a reply is set by the server: leave it out")
    if not (isinstance(value, str) and _HEADER_VALUE.fullmatch(value)):
        raise ValueError(f"the value of header {name!r} of a reply must be one line of text without spaces around it")
