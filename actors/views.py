"""What a client is shown: runs, events, ends and dead letters as plain JSON. No view holds the secret seed."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.world import events as ev

if TYPE_CHECKING:
    from fencepost.world import Letter, Run

_LEFT_OUT = {"type", "op", "seed"}


def news(seq: int, *, over: bool) -> bytes:
    """Return what the live feed says of a run: how far its log goes, and whether it ended."""
    return msgspec.json.encode({"seq": seq, "over": over})


def run_view(run: Run) -> dict[str, Any]:
    """Return a run as a list shows it."""
    return {
        "run_id": run.run_id,
        "id": run.chain_id or run.run_id,
        "workflow": run.workflow,
        "app": run.app,
        "status": "stalled" if run.stalled else run.status,
        "stalled": run.stalled,
        "events": run.seq,
        "created_at": run.created_at,
        "last_at": run.last_at,
        "ended_at": run.ended_at,
        "due": run.due,
        "attributes": run.attributes,
    }


def history_view(run: Run) -> dict[str, Any]:
    """Return what a history says of its run: as in a list, and up to where its code has surely asked for all."""
    return {**run_view(run), "decided_seq": run.code_decided_seq}


def event_view(run_id: str, event: ev.Event) -> dict[str, Any]:
    """Return an event as JSON: its id, position, tick, instant, type, operation and the rest as `data`."""
    # Values stay text: an int of a user's may be larger than what can be written again.
    fields = msgspec.json.decode(ev.encode_body(event.body), type=dict[str, msgspec.Raw])
    return {
        "id": f"{run_id}:{event.seq}",
        "seq": event.seq,
        "tick": event.tick,
        "at": event.at,
        "type": ev.kind_of(event.body),
        "op": event.body.op,
        "data": {name: value for name, value in fields.items() if name not in _LEFT_OUT},
    }


def end_view(end: ev.EventBody) -> dict[str, Any]:
    """Return how a run ended, with its result in place, by reference, or its error."""
    match end:
        case ev.RunCompleted(result=result) if result.ref:
            return {"status": "completed", "ref": result.ref, "size_bytes": result.size_bytes}
        case ev.RunCompleted(result=result):
            return {"status": "completed", "result": result.json}
        case ev.RunFailed(code=code, error=error):
            return {"status": "failed", "code": code, "error": error}
        case ev.RunCancelled(reason=reason):
            return {"status": "cancelled", "reason": reason}
        case ev.RunTerminated(reason=reason):
            return {"status": "terminated", "reason": reason}
        case _:
            raise TypeError(f"{ev.kind_of(end)} does not end a run")


def letter_view(letter: Letter, *, whole: bool = False) -> dict[str, Any]:
    """Return a dead letter; with `whole` its headers and original bytes (base64, and as text when it is some)."""
    inner = letter.letter
    view: dict[str, Any] = {
        "id": letter.id,
        "at": letter.at,
        "kind": inner.kind,
        "subject": inner.subject,
        "code": inner.code,
        "reason": inner.reason,
        "body_bytes": len(inner.body),
        "replayed_as": letter.replayed_as,
    }
    if whole:
        view["headers"] = inner.headers
        view["body"] = base64.b64encode(inner.body).decode()
        view["text"] = inner.body.decode(errors="replace")
    return view
