"""The laws of hooks, read off logs, the book of commits and what clients were told. One sentence for each broken one.

What belongs to one run is a checker like those of `checkers`; what belongs to the namespace looks at all runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fencepost.world import Batch
from fencepost.world import events as ev

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tests.simulation.checkers import Seen
    from tests.simulation.mail import Letter, Told
    from tests.simulation.world import Commit


# ---- one run


def hooks_are_made_once(seen: Seen) -> Iterator[str]:
    """A hook is made or refused, once; it is disposed at most once, and only when it was made."""
    made: dict[str, type] = {}
    disposed: set[str] = set()
    for event in seen.log:
        match event.body:
            case ev.HookCreated(op=op) | ev.HookConflict(op=op):
                if op in made:
                    yield f"{ev.kind_of(event.body)} {op} at {event.seq}, after {made[op].__name__}"
                made[op] = type(event.body)
            case ev.HookDisposed(op=op):
                if made.get(op) is not ev.HookCreated or op in disposed:
                    yield f"hook_disposed {op} at {event.seq}, but it is not open"
                disposed.add(op)
            case _:
                pass


def payloads_come_while_open(seen: Seen) -> Iterator[str]:
    """A payload is recorded between the making of its hook and its disposal, under the token it was made with."""
    token: dict[str, str] = {}
    for event in seen.log:
        match event.body:
            case ev.HookCreated(op=op):
                token[op] = event.body.token
            case ev.HookDisposed(op=op):
                token.pop(op, None)
            case ev.HookReceived(op=op) if token.get(op) != event.body.token:
                yield f"a payload for {op} at {event.seq}, which is not open under {event.body.token!r}"
            case _:
                pass


def a_delivery_is_recorded_once(seen: Seen) -> Iterator[str]:
    """A delivery, sent as often as it may be, stands in a run's log once under its token (L5)."""
    recorded: dict[tuple[str, str], int] = {}
    for event in seen.log:
        if isinstance(event.body, ev.HookReceived):
            key = (event.body.token, event.body.delivery)
            if key in recorded:
                yield f"delivery {key[1]!r} at {event.seq} stands at {recorded[key]} already"
            recorded[key] = event.seq


def payloads_are_read_in_order(seen: Seen) -> Iterator[str]:
    """What the code took of a hook is what came for it, from the first on, in the order of the log, each once."""
    came: dict[str, list[Any]] = {}
    for event in seen.log:
        if isinstance(event.body, ev.HookReceived):
            came.setdefault(event.body.op, []).append(json.loads(bytes(event.body.payload.json)))
    for op, took in _taken(seen).items():
        if came.get(op, [])[: len(took)] != took:
            yield f"the code took {took} of {op}, where {came.get(op)} came"


def _taken(seen: Seen) -> dict[str, list[Any]]:
    """Return what the code says that it took, by hook."""
    end = seen.log[-1].body
    result = json.loads(bytes(end.result.json) or b"null") if isinstance(end, ev.RunCompleted) else None
    taken: dict[str, list[Any]] = {}
    for op, payload in result.get("took", ()) if isinstance(result, dict) else ():
        taken.setdefault(op, []).append(payload)
    return taken


def nothing_goes_beside_a_conflict(seen: Seen) -> Iterator[str]:
    """What was asked for after a hook that is another's is not in the batch that says so (decision 20)."""
    for batch, answer, _ in seen.batches:
        kinds = [type(body) for body in batch.events]
        if ev.HookConflict not in kinds:
            continue
        at = kinds.index(ev.HookConflict)
        beside = [body for body in batch.events[at + 1 :] if isinstance(body, ev.ORDERS)]
        if beside:
            yield f"{ev.kind_of(beside[0])} {beside[0].op} stands beside the conflict at {answer.first_seq + at}"


HOOK_CHECKERS = (
    hooks_are_made_once,
    payloads_come_while_open,
    a_delivery_is_recorded_once,
    payloads_are_read_in_order,
    nothing_goes_beside_a_conflict,
)


# ---- the namespace


def a_token_has_one_owner(commits: Iterable[Commit], lost: Collection[tuple[str, str]] = ()) -> Iterator[str]:
    """A token belongs to one open hook at a time, and who was told that it is another's was told the truth.

    `lost` are hooks, by run and token, that went with a failover: who was told of them is forgiven.
    """
    tokens = Tokens(lost)
    for commit in commits:
        batch = commit.what
        if commit.method == "create":
            tokens.remember(commit.answer.run_id)
        if isinstance(batch, Batch) and not commit.answer.repeated:
            for body in batch.events:
                yield from tokens.take(batch.run_id, body)
            if batch.fence is not None:
                tokens.remember(batch.run_id)


class Tokens:
    """Who owns which token, (run, op), and for each run, which runs owned it since that run last decided."""

    def __init__(self, lost: Collection[tuple[str, str]]) -> None:
        self._lost = lost
        self._owner: dict[str, tuple[str, str]] = {}
        self._since: dict[str, dict[str, set[str]]] = {}

    def remember(self, run_id: str) -> None:
        """Note that a run has decided: from here on counts who owns what."""
        self._since[run_id] = {token: {owner} for token, (owner, _) in self._owner.items()}

    def take(self, run_id: str, body: ev.EventBody) -> Iterator[str]:
        """Take in an event, and yield what is wrong with it."""
        match body:
            case ev.HookCreated(op=op, token=token):
                if self._owner.get(token, (run_id, op)) != (run_id, op):
                    yield f"{op} of {run_id} has {token!r}, which {self._owner[token]} has"
                self._owner[token] = (run_id, op)
                for seen in self._since.values():
                    seen.setdefault(token, set()).add(run_id)
            case ev.HookConflict(op=op, token=token, owner=owner):
                had_it = owner in self._since.get(run_id, {}).get(token, set()) or (owner, token) in self._lost
                if not had_it:
                    yield f"{op} of {run_id} was refused {token!r} as one of {owner}, which did not have it"
            case ev.HookDisposed(op=op, token=token) if self._owner.get(token) == (run_id, op):
                del self._owner[token]
            case _ if isinstance(body, ev.TERMINAL):
                self._owner = {token: of for token, of in self._owner.items() if of[0] != run_id}
            case _:
                pass


def what_was_accepted_is_there(
    book: Iterable[Told], logs: Mapping[str, list[ev.Event]], lost: set[tuple[str, str]]
) -> Iterator[str]:
    """A delivery that a client was told is in, is in: in that run, at that position. `lost` went with a failover."""
    for told in book:
        if told.answer not in {"accepted", "repeated"} or (told.run_id, f"id {told.letter.word}") in lost:
            continue
        log = logs.get(told.run_id, [])
        event = log[told.seq - 1] if 0 < told.seq <= len(log) else None
        body = event.body if event is not None else None
        if not isinstance(body, ev.HookReceived) or body.delivery != f"id {told.letter.word}":
            yield f"{told.letter.word} was {told.answer} as {told.run_id}:{told.seq}, where {body} stands"


def nothing_comes_from_nowhere(letters: Iterable[Letter], logs: Mapping[str, list[ev.Event]]) -> Iterator[str]:
    """Each payload of a log is one that a client put, to that token."""
    put = {(letter.token, f"id {letter.word}"): letter.word for letter in letters}
    for run_id, log in logs.items():
        for event in log:
            body = event.body
            if isinstance(body, ev.HookReceived):
                word = put.get((body.token, body.delivery))
                if word is None or json.loads(bytes(body.payload.json)) != word:
                    yield f"{run_id}:{event.seq} holds {body.payload}, and {word!r} was put"
