"""Names on the wire: pure functions from what we mean to subjects and streams, and back.

    fp.<ns>.start.<workflow>                  start messages, from anyone
    fp.<ns>.wake.<app>.<pp>.<kind>.<id>       bells, without data
    fp.<ns>.step.<queue>.<app>.<run>.<op>     offerings, without data; an op is a path with dots of its own
    fp.<ns>.api.<endpoint>[.<rest>]           questions
    fp.<ns>.event.<run>, fp.<ns>.dead.<kind>  live feed
    fp.<ns>.reply.<...>                       answers to start messages, beside `_INBOX.`, and to webhooks; never stored

What comes from outside is parsed, never trusted: a subject of another shape is `None`, not an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .interface import Bell, Offering

__all__ = ["SUBJECT_BYTES_MAX", "Subjects", "matches", "may_be_answered", "name_checked", "token_ok"]

SUBJECT_BYTES_MAX = 512
"""The server closes a connection whose line is over 4,096 bytes; a subject, a reply address and sizes share it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_TOKEN = re.compile(r"[^\s.*>\x00-\x20\x7f]+")
_INBOX = re.compile(r"_INBOX(_[A-Za-z0-9_-]+)?(\.[A-Za-z0-9_-]+)+")
_REPLY_REST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def name_checked(what: str, name: str) -> str:
    """Return the name of a namespace, app or queue if it can be one token of a subject and part of a stream's name.

    Raises:
        ValueError: with the rule.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} {name!r} must be 1 to 32 letters, digits, '_' or '-', beginning with a letter or digit: "
            "it is one token of every subject"
        )
    return name


def token_ok(token: str) -> bool:
    """Tell whether this can be one token of a subject: not empty, no dot, wildcard, space or control character."""
    return bool(_TOKEN.fullmatch(token)) and _encodable(token)


def _encodable(text: str) -> bool:
    """A lone surrogate has no bytes; sending it would fail halfway."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _rest_checked(what: str, rest: str) -> str:
    if not all(token_ok(token) for token in rest.split(".")):
        raise ValueError(f"{what} {rest!r} cannot be sent: no empty part, wildcard (* >), space or control character")
    return rest


def _sized(subject: str) -> str:
    if len(subject.encode()) > SUBJECT_BYTES_MAX:
        raise ValueError(f"subject {subject[:40]!r}… is longer than {SUBJECT_BYTES_MAX} bytes")
    return subject


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects and stream names of one namespace."""

    namespace: str

    def __post_init__(self) -> None:
        name_checked("namespace", self.namespace)

    @property
    def root(self) -> str:
        """`fp.<ns>`."""
        return f"fp.{self.namespace}"

    # ---- streams

    @property
    def start_stream(self) -> str:
        """Start messages."""
        return f"FP_{self.namespace}_START"

    @property
    def wake_stream(self) -> str:
        """Bells."""
        return f"FP_{self.namespace}_WAKE"

    @property
    def live_stream(self) -> str:
        """The live feed."""
        return f"FP_{self.namespace}_LIVE"

    def step_stream(self, queue: str) -> str:
        """Offerings of one queue."""
        return f"FP_{self.namespace}_STEP_{name_checked('queue', queue)}"

    # ---- start messages

    @property
    def every_start(self) -> str:
        """The filter of all start messages."""
        return f"{self.root}.start.>"

    def start(self, workflow: str) -> str:
        """Where a start message of this workflow goes."""
        return _sized(f"{self.root}.start.{_rest_checked('workflow', workflow)}")

    def workflow_of(self, subject: str) -> str | None:
        """Return what a start subject names, whatever it is."""
        return subject.removeprefix(f"{self.root}.start.") if subject.startswith(f"{self.root}.start.") else None

    # ---- bells

    @property
    def every_wake(self) -> str:
        """The filter of all bells."""
        return f"{self.root}.wake.>"

    def wakes(self, app: str, partition: int) -> str:
        """Build the filter of one partition of an app."""
        return f"{self.root}.wake.{name_checked('app', app)}.{partition:02d}.>"

    def wake_consumer(self, app: str, partition: int) -> str:
        """Name the durable consumer of one partition of an app."""
        return f"{name_checked('app', app)}-{partition:02d}"

    def wake(self, bell: Bell) -> str:
        """Where this bell goes."""
        if not (token_ok(bell.kind) and token_ok(bell.id)):
            raise ValueError(f"bell {bell.kind!r} {bell.id!r} cannot be sent: each must be one token of a subject")
        app = name_checked("app", bell.app)
        return _sized(f"{self.root}.wake.{app}.{bell.partition:02d}.{bell.kind}.{bell.id}")

    def bell_of(self, subject: str) -> Bell | None:
        """Return the bell a subject stands for, or None for a subject nobody of ours published."""
        tokens = subject.removeprefix(f"{self.root}.wake.").split(".")
        if not subject.startswith(f"{self.root}.wake.") or len(tokens) != len(("app", "pp", "kind", "id")):
            return None
        app, partition, kind, key = tokens
        if not (_NAME.fullmatch(app) and re.fullmatch(r"[0-9]{2,5}", partition) and token_ok(kind) and token_ok(key)):
            return None
        if len(subject.encode()) > SUBJECT_BYTES_MAX:
            return None
        bell = Bell(kind=kind, id=key, partition=int(partition), app=app)
        return bell if self.wake(bell) == subject else None

    # ---- offerings

    def every_offering(self, queue: str) -> str:
        """Build the filter of all offerings of a queue."""
        return f"{self.root}.step.{name_checked('queue', queue)}.>"

    def offerings(self, queue: str, app: str) -> str:
        """Build the filter of an app's offerings of a queue."""
        return f"{self.root}.step.{name_checked('queue', queue)}.{name_checked('app', app)}.>"

    def offered(self, offering: Offering) -> str:
        """Where this offering goes."""
        if not (token_ok(offering.run_id) and all(token_ok(part) for part in offering.op.split("."))):
            raise ValueError(
                f"offering {offering.run_id!r} {offering.op!r} cannot be sent: the run must be one token of a subject, "
                "the operation tokens with dots between"
            )
        return _sized(
            f"{self.root}.step.{name_checked('queue', offering.queue)}.{name_checked('app', offering.app)}"
            f".{offering.run_id}.{offering.op}"
        )

    def offering_of(self, subject: str) -> Offering | None:
        """Return the offering a subject stands for, or None for a subject nobody of ours published."""
        tokens = subject.removeprefix(f"{self.root}.step.").split(".", 3)
        if not subject.startswith(f"{self.root}.step.") or len(tokens) != len(("queue", "app", "run", "op")):
            return None
        queue, app, run_id, op = tokens
        named = _NAME.fullmatch(queue) and _NAME.fullmatch(app) and len(subject.encode()) <= SUBJECT_BYTES_MAX
        if not (named and token_ok(run_id) and all(token_ok(part) for part in op.split("."))):
            return None
        return Offering(queue=queue, run_id=run_id, op=op, app=app)

    # ---- questions

    def api(self, endpoint: str, rest: str = "") -> str:
        """Where a question goes."""
        asked = f"{endpoint}.{rest}" if rest else endpoint
        return _sized(f"{self.root}.api.{_rest_checked('endpoint', asked)}")

    def rest_of(self, endpoint: str, subject: str) -> str:
        """Return what follows the endpoint in the subject of a question."""
        return subject.removeprefix(f"{self.root}.api.{endpoint}").removeprefix(".")

    # ---- live feed

    @property
    def every_live(self) -> tuple[str, ...]:
        """The filters of what is kept of the live feed; answers to webhooks are not, nobody asks for them later."""
        return (f"{self.root}.event.>", f"{self.root}.dead.>")

    def news(self, topic: str) -> str:
        """Where news of a topic goes."""
        kind, _, rest = topic.partition(".")
        if kind not in {"event", "dead", "reply"} or not all(token_ok(part) for part in rest.split(".")):
            raise ValueError(f"topic {topic!r} must be event.<run>, dead.<kind> or reply.<id>")
        return _sized(f"{self.root}.{topic}")

    def followed(self, topic: str) -> str:
        """Where to listen for news: a topic, or with `*` and a last `>` several."""
        kind, _, rest = topic.partition(".")
        self.news(".".join([kind, *("any" if part in {"*", ">"} else part for part in rest.split("."))]))
        if ">" in rest.split(".")[:-1]:
            raise ValueError(f"topic {topic!r}: `>` stands at the end")
        return f"{self.root}.{topic}"


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject is meant by a pattern with `*` (one token) and a last `>` (one or more)."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(w in {"*", t} for w, t in zip(wanted, tokens, strict=True))


def may_be_answered(namespace: str, address: str) -> bool:
    """Tell whether a node may publish to this address because a start message asked for it.

    Inboxes (also with a prefix of their own, `_INBOX_client.…`) and `fp.<ns>.reply.…`, in plain characters: the
    address is chosen by whoever may publish a start message, and a node may publish far more than that.
    """
    if len(address) > SUBJECT_BYTES_MAX:
        return False
    if _INBOX.fullmatch(address):
        return True
    prefix = f"fp.{namespace}.reply."
    return address.startswith(prefix) and bool(_REPLY_REST.fullmatch(address.removeprefix(prefix)))
