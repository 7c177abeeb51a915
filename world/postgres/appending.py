"""Batches as `append_v2` takes them, and its verdicts as what `World.append` answers or raises.

All that a batch tells by itself (what its events are, what they do to claims) is worked out here, so that the
function under the locks only looks at rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from ..errors import ClaimLost, HookFull, HookNotFound, StaleLog, Taken, UnknownEvent, ValueTooLarge
from ..events import TERMINAL, EventBody, encode_body, kind_of
from ..folding import HOOK_UNREAD_MAX, check_form, key_of, last_revoking, last_waking, status_after
from ..instants import from_us, maybe_to_us
from ..records import Accepted, Batch, Fence
from .effects import OFFER as OFFERS
from .effects import effects_of, hook_sorts_of, hooks_of, sorts_of
from .flushing import columns, flushed, landed, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .connecting import Connections
    from .statements import Statement

KNOWN_TYPES: Final = tuple(str(kind.__struct_config__.tag) for kind in get_args(EventBody))
BEGINNING: Final = "pending"

FENCE: Final = ("run_ids", "ticks", "last_batches", "batch_ids", "knowns", "whole_logs", "ats", "dues")
EVENT: Final = ("event_batches", "event_places", "types", "ops", "keys", "datas")
EFFECT: Final = (
    "effect_batches",
    "effects",
    "effect_ops",
    "effect_attempts",
    "effect_dispatches",
    "effect_tokens",
    "effect_incarnations",
    "effect_frees",
    "effect_drains",
    "effect_withdraws",
)
OFFER: Final = ("offer_batches", "offer_ops", "offer_queues", "offer_attempts", "offer_dispatches")
HOOK: Final = ("hook_batches", "hook_effects", "hook_ops", "hook_tokens", "hook_numbers")
BATCH: Final = (
    *FENCE,
    "statuses",
    "wakings",
    "revokings",
    "sorts",
    "event_counts",
    "effect_counts",
    "offer_counts",
)


@dataclass(frozen=True, slots=True)
class Append:
    """A batch and its lines: what the columns of `BATCH`, `EVENT`, `EFFECT`, `OFFER` and `HOOK` hold of it.

    The lines of events, effects, offers and hooks lack their first column, the number of the batch in the call.
    """

    batch: Batch
    line: tuple[Any, ...]
    events: list[tuple[Any, ...]]
    effects: list[tuple[Any, ...]]
    offers: list[tuple[Any, ...]]
    hooks: list[tuple[Any, ...]]
    has_key: bool
    size_bytes: int


def prepare(batch: Batch, max_value_bytes: int) -> Append:
    """Return a batch ready to be sent.

    Raises:
        ValueError: no caller may ever send such a batch.
        ValueTooLarge: an event is over the bound.
    """
    check_form(batch)
    events = [
        (place, kind_of(body), body.op, key_of(body), _json(body, max_value_bytes))
        for place, body in enumerate(batch.events, 1)
    ]
    effects = effects_of(batch.events)
    is_end = bool(batch.events) and isinstance(batch.events[-1], TERMINAL)
    offers = [] if is_end else [(offer.op, offer.queue, offer.attempt, offer.dispatch) for offer in batch.offers]
    hooks = hooks_of(batch)
    sort = sorts_of(effects) | (OFFERS if offers else 0) | hook_sorts_of(batch, hooks)
    line = (*_fence(batch), *_outline(batch), sort, len(events), len(effects), len(offers))
    has_key = any(key for _, _, _, key, _ in events)
    size_bytes = sum(len(json) for *_, json in events)
    return Append(batch, line, events, list(effects), offers, list(hooks), has_key, size_bytes)


def _json(body: EventBody, max_value_bytes: int) -> str:
    line = encode_body(body)
    if len(line) > max_value_bytes:
        raise ValueTooLarge(f"{kind_of(body)} {body.op}".strip(), len(line), max_value_bytes)
    return line.decode()


def _fence(batch: Batch) -> tuple[Any, ...]:
    tick, last_batch = (None, None) if batch.fence is None else (batch.fence.tick, batch.fence.last_batch)
    instants = (maybe_to_us(batch.at), maybe_to_us(batch.due))
    return (batch.run_id, tick, last_batch, batch.batch_id, batch.known, batch.whole_log, *instants)


def _outline(batch: Batch) -> tuple[Any, ...]:
    return (
        status_after(BEGINNING, batch.events),
        last_waking(batch.events, 1, 0),
        last_revoking(batch.events, 1, 0),
    )


def in_rounds(asks: Sequence[Append]) -> list[list[int]]:
    """Return the places of asks by round: in each a run has one, and its asks keep their order."""
    rounds, seen = list[list[int]](), dict[str, int]()
    for place, ask in enumerate(asks):
        number = seen.get(ask.batch.run_id, 0)
        seen[ask.batch.run_id] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(place)
    return rounds


def arrays(asks: Sequence[Append]) -> Mapping[str, Sequence[Any]]:
    """Return the parameters of `append_v2` for asks in the order of their rounds."""
    found = columns(BATCH, [ask.line for ask in asks])
    found |= columns(EVENT, [(b, *event) for b, ask in enumerate(asks, 1) for event in ask.events])
    found |= columns(EFFECT, [(b, *effect) for b, ask in enumerate(asks, 1) for effect in ask.effects])
    found |= columns(OFFER, [(b, *offer) for b, ask in enumerate(asks, 1) for offer in ask.offers])
    found |= columns(HOOK, [(b, *hook) for b, ask in enumerate(asks, 1) for hook in ask.hooks])
    return found | {"keyed": _keyed(asks), "known_types": KNOWN_TYPES}


def _keyed(asks: Iterable[Append]) -> list[int]:
    """Return where the events of asks with keys begin."""
    keyed, first = list[int](), 1
    for ask in asks:
        keyed.append(first if ask.has_key else 0)
        first += len(ask.events)
    return keyed


def verdict_of(ask: Append, row: Any) -> Accepted | Exception | None:
    """Return what a row of `append_v2` says, None for a busy run."""
    run_id = ask.batch.run_id
    match row["verdict"]:
        case "accepted" | "repeated" as verdict:
            fence = Fence(row["now_tick"], row["now_batch"])
            between = landed(run_id, row["landed"])
            return Accepted(row["first_seq"], from_us(row["at_us"]), fence, between, repeated=verdict == "repeated")
        case "stale":
            return StaleLog(run_id, landed(run_id, row["landed"]))
        case "claim_lost":
            return ClaimLost(run_id, tuple(dict.fromkeys(msgspec.json.decode(row["said"], type=list[str]))))
        case "taken" | "no_hook" | "hook_full":
            return _refusal_by_hook(row, run_id)
        case "unknown":
            return UnknownEvent(run_id, *msgspec.json.decode(row["said"], type=tuple[int, str]))
        case _:
            return refusal_of(row, run_id)


def _refusal_by_hook(row: Any, run_id: str) -> Exception:
    """Return what the verdicts of `write_hooks_v1` say."""
    match row["verdict"]:
        case "taken":
            return Taken(run_id, *msgspec.json.decode(row["said"], type=tuple[str, str]))
        case "no_hook":
            return HookNotFound(row["said"])
        case _:
            return HookFull(row["said"], HOOK_UNREAD_MAX)


class Appends:
    """The outlet of the journal of batches."""

    def __init__(self, connections: Connections, statements: Mapping[str, Statement]) -> None:
        self._connections = connections
        self._statements = statements

    async def flush(self, asks: Sequence[Append], *, patient: bool) -> Sequence[Accepted | Exception | None]:
        """See Outlet."""
        rounds = in_rounds(asks)
        places = [place for round_ in rounds for place in round_]
        ordered = [asks[place] for place in places]
        parameters = {"patient": patient, "rounds": [len(round_) for round_ in rounds], **arrays(ordered)}
        verdicts = await flushed(self._connections, self._statements["append"], parameters, ordered, verdict_of)
        by_place = dict(zip(places, verdicts, strict=True))
        return [by_place[place] for place in range(len(asks))]

    async def find(self, asks: Sequence[Append]) -> Sequence[Accepted | None]:
        """See Outlet."""
        lines = columns(BATCH, [ask.line for ask in asks])
        parameters = {name: lines[name] for name in ("run_ids", "ticks", "batch_ids", "knowns")}
        found = await self._connections.all(self._statements["find_appended"], **parameters)
        return [_found(ask, row) for ask, row in zip(asks, found, strict=True)]


def _found(ask: Append, row: Any) -> Accepted | None:
    verdict = verdict_of(ask, row)
    return verdict if isinstance(verdict, Accepted) else None
