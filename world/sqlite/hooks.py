"""Hooks: whose a token is, who may put something there, and how much of it is unread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import rows
from ..errors import HookFull, HookNotFound, Taken
from ..events import TERMINAL, HookCreated, HookDisposed, HookReceived
from ..folding import HOOK_UNREAD_MAX, OWNS_HOOKS, delivery_key, weight_of
from .pages import Pages

if TYPE_CHECKING:
    from ..events import Event, EventBody
    from ..records import Batch, Hook
    from ..rows import Held


@dataclass(frozen=True, slots=True)
class Holder:
    """The operation that has a token, or had it last."""

    run_id: str
    op: str
    is_open: bool


class Hooks(Pages):
    """Hooks, looked at and written in the transaction of their events. A run without hooks touches none (`owns`).

    What the simulator can switch off (`simulated.Checks`) is a method of its own, however short.
    """

    def hook(self, token: str) -> Hook:
        """See World."""
        row = self.one("read_hook", token=token)
        if row is None:
            raise HookNotFound(token)
        return rows.hook(row)

    def received(self, run_id: str, token: str, delivery: str) -> Event | None:
        """See World."""
        key = delivery_key(token, delivery)
        found = self.one("event_by_key", run_id=run_id, type="hook_received", key=key)
        return None if found is None else self.events_after(run_id, found["seq"] - 1, 1)[0]

    # ---- look

    def _check_received(self, run: Held, batch: Batch) -> None:
        """Refuse what is put to no open hook, or to a full one. What comes with it in one batch counts."""
        before = Counter[str]()
        for body in batch.events:
            if isinstance(body, HookReceived):
                unread = self._unread(run, body)
                self._check_open(body, unread)
                self._check_room(body, (unread or 0) + before[body.token])
                before[body.token] += weight_of(body)

    def _unread(self, run: Held, body: HookReceived) -> int | None:
        """Return how much of an open hook is unread, None when there is no such hook."""
        if not run.owns & OWNS_HOOKS:
            return None
        row = self.one("unread_of_hook", token=body.token, run_id=run.run_id, op=body.op)
        return None if row is None else int(row["unread"])

    def _check_open(self, body: HookReceived, unread: int | None) -> None:
        if unread is None:
            raise HookNotFound(body.token)

    def _check_room(self, body: HookReceived, unread: int) -> None:
        if unread >= HOOK_UNREAD_MAX:
            raise HookFull(body.token, HOOK_UNREAD_MAX)

    def _check_taken(self, run: Held, batch: Batch) -> None:
        """Refuse a hook whose token is another open one's, once the batch has done what stands before it."""
        if not any(isinstance(body, HookCreated) for body in batch.events):
            return
        holders = dict[str, Holder | None]()
        for body in batch.events:
            if isinstance(body, HookCreated | HookDisposed):
                if body.token not in holders:
                    holders[body.token] = self._holder(body.token)
                holders[body.token] = _followed(run.run_id, holders[body.token], body)

    def _holder(self, token: str) -> Holder | None:
        row = self.one("holder_of_token", token=token)
        return None if row is None else Holder(row["run_id"], row["op"], bool(row["is_open"]))

    # ---- write

    def apply_hooks(self, run: Held, batch: Batch, first: int) -> int:
        """Do what the events of a batch mean for hooks, in their order, and return what the run may own of them."""
        owns = run.owns & OWNS_HOOKS
        for seq, body in enumerate(batch.events, first):
            if isinstance(body, HookCreated):
                self.do("open_hook", token=body.token, run_id=run.run_id, op=body.op, seq=seq)
                owns = OWNS_HOOKS
            elif owns:
                self._apply_to_hook(run.run_id, body)
        if owns:
            counts = [{"run_id": run.run_id, "op": read.op, "count": read.count} for read in batch.reads]
            self.do_each("count_read", counts)
        return owns

    def _apply_to_hook(self, run_id: str, body: EventBody) -> None:
        match body:
            case HookDisposed():
                self.do("close_hook", token=body.token, run_id=run_id, op=body.op)
            case HookReceived():
                self.do("count_received", token=body.token, run_id=run_id, op=body.op, weight=weight_of(body))
            case _ if isinstance(body, TERMINAL):
                self._close_hooks(run_id)
            case _:
                pass

    def _close_hooks(self, run_id: str) -> None:
        self.do("close_hooks", run_id=run_id)


def _followed(run_id: str, holder: Holder | None, body: HookCreated | HookDisposed) -> Holder | None:
    """Return who has the token after an order about it, as the tables will have it.

    Raises:
        Taken: it is another's.
    """
    is_own = holder is not None and (holder.run_id, holder.op) == (run_id, body.op)
    if isinstance(body, HookDisposed):
        return replace(holder, is_open=False) if holder is not None and is_own else holder
    if holder is not None and holder.is_open and not is_own:
        raise Taken(run_id, body.op, holder.run_id)
    return holder if is_own else Holder(run_id, body.op, is_open=True)
