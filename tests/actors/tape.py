"""A log in memory with the simplest decider there is, to run workflow code through the pure turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fencepost.actors.turn import Turn
from fencepost.world import events as ev

AWAKE: list[Turn] = []
"""Turns of the running test, put to sleep after it: the collector must not close their coroutines."""

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def value(plain: Any) -> ev.Value:
    return ev.Value(json=ev.as_json(plain))


class Tape:
    """Feeds a workflow by hand: `step(name_or_path, result)`, `fire(path)`, `outside(body)`; orders follow at once."""

    def __init__(self, workflow, *args, seed="seed", turn=Turn):
        self.workflow = workflow
        self.log: list[ev.Event] = []
        self.turn = turn(workflow, "run_test")
        AWAKE.append(self.turn)
        self.at = BEGINNING
        self.tick = 0
        given = ev.Value(msgspec.Raw(workflow.params.encode(args, {})))
        created = ev.RunCreated(app="t", workflow=workflow.name, input=given, seed=seed)
        self._append(created, tick=None)
        self.settle()

    def _append(self, body, *, tick):
        event = ev.Event(len(self.log) + 1, tick, self.at, body)
        self.log.append(event)
        self.turn.feed(event)

    def settle(self):
        while self.turn.ended is None and (orders := self.turn.orders()):
            self.tick += 1
            for body in orders:
                self._append(body, tick=self.tick)

    def outside(self, body, after_s=1.0):
        self.at += timedelta(seconds=after_s)
        self._append(body, tick=None)
        self.settle()

    def together(self, *bodies):
        """Append several results of one batch: each is fed alone, orders come after all of them."""
        self.at += timedelta(seconds=1)
        self.tick += 1
        for body in bodies:
            self._append(body, tick=self.tick)
        self.settle()

    def completed(self, step, result=0):
        return ev.StepCompleted(op=self.path(step), attempt=1, token="t", result=value(result))

    def step(self, step, result=0):
        self.together(self.completed(step, result))

    def fail(self, step, error):
        from fencepost.actors.failures import describe  # noqa: PLC0415

        self.together(ev.StepFailed(op=self.path(step), attempt=1, code="user_error", error=describe(error)))

    def fire(self, path=None):
        """Let the earliest timer (or the one at `path`) run out."""
        waits = sorted(self.turn.ops.waits(), key=lambda o: o.due_at)
        operation = self.turn.ops.by_path[path] if path else waits[0]
        self.at = max(self.at, operation.due_at)
        self.tick += 1
        self._append(ev.WaitCompleted(op=operation.path), tick=self.tick)
        self.settle()

    def payload(self, token, plain=None, *, after_s=0.001):
        """Put a payload to the hook that has the token now, as the world would take it."""
        opened = [e.body for e in self.log if isinstance(e.body, ev.HookCreated) and e.body.token == token]
        delivery = f"d{len(self.log)}"
        self.outside(
            ev.HookReceived(op=opened[-1].op, token=token, delivery=delivery, payload=value(plain)), after_s=after_s
        )

    def cancel(self, reason=""):
        self.outside(ev.CancelRequested(reason=reason))

    def path(self, step):
        """Return the path of the open step with this name, or the path itself."""
        if step in self.turn.ops.by_path:
            return step
        return next(o.path for o in self.turn.ops.open.values() if o.step and o.step.name == step)

    @property
    def open_steps(self):
        return sorted(o.step.name for o in self.turn.ops.open.values() if o.step)

    @property
    def asked(self):
        """What the log says was asked for: (path, name) of each order."""
        return [
            (e.body.op, getattr(e.body, "name", "wait"))
            for e in self.log
            if isinstance(e.body, ev.StepCreated | ev.WaitCreated)
        ]

    @property
    def result(self):
        end = self.turn.ended
        assert isinstance(end, ev.RunCompleted), end
        return self.workflow.returns.decode(bytes(end.result.json))

    def replay(self, workflow=None, *, upto=None, turn=Turn):
        """Feed the log to a new turn, the body's own end left out, and return it."""
        log = self.log[:upto]
        decided = max((e.seq - 1 for e in log if e.tick is not None), default=0)
        again = turn(workflow or self.workflow, "run_test", decided_seq=0 if upto else decided)
        AWAKE.append(again)
        ends = ev.RunCompleted | ev.RunFailed | ev.RunCancelled
        for event in log:
            if not isinstance(event.body, ends):
                again.feed(event)
        return again

    def assert_replays(self):
        """Replay the whole log cold: the same end must come out."""
        again = self.replay()
        assert again.orders() == ([self.turn.ended] if self.turn.ended else []) or same_end(again, self.turn.ended)


def same_end(turn, ended):
    return turn.terminal is not None and ev.encode_body(turn.terminal) == ev.encode_body(ended)
