"""A seed's history for people: one line for what happened, a lane for each who did it.

    ·  the simulator, and the world itself        c  clients
    1  machine 1 …: ○ starts, ● its node writes, s its supervisor does, ‖ hangs, ✗ dies, │ lives

Runs are r1, r2 … in the order of their creation, incarnations have the names of their processes. Renewals, and shares
that change nothing, are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.world import Batch, Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.world import Commit

GAP_S = 1.0
MARKS = (("starts", "○"), ("is killed", "✗"), ("hangs", "‖"), ("goes on", "○"))
MACHINE = re.compile(r"^[ns](\d+)\.\d+")


@dataclass(slots=True)
class Telling:
    """What has to be remembered from line to line."""

    machines: int
    names: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    alive: dict[int, str] = field(default_factory=dict)
    owned: dict[str, frozenset[int]] = field(default_factory=dict)
    at_s: float = 0.0

    def line(self, at_s: float, who: str, what: str | Commit) -> Iterator[str]:
        """Yield what is to be printed about something that happened; nothing when it is of no interest."""
        words = self._words(who, what)
        if words is None:
            return
        if at_s - self.at_s > GAP_S:
            yield f"{'':10}  {self._lanes('', '')}"
        self.at_s = at_s
        yield f"{at_s:10.4f}  {self._lanes(who, words)}  {words}"

    def _words(self, who: str, what: str | Commit) -> str | None:
        if isinstance(what, str):
            return self._named(f"{who} {what}" if MACHINE.match(who) else what)
        if what.method == "create":
            self.runs += 1
            self.names[what.answer.run_id] = self.names[what.answer.run_id[-6:]] = f"r{self.runs}"
        if what.method == "join":
            self.names[what.answer] = what.writer
        if what.method == "renew" or self._is_old(what):
            return None
        return self._named(f"{what.writer or 'world'} {what.method} {shown(what.what, what.answer)}")

    def _is_old(self, commit: Commit) -> bool:
        if not isinstance(commit.answer, Share):
            return False
        before, self.owned[commit.writer] = self.owned.get(commit.writer), commit.answer.owned
        return before == commit.answer.owned

    def _named(self, text: str) -> str:
        for long, short in self.names.items():
            text = text.replace(long, short)
        return text

    def _lanes(self, who: str, words: str) -> str:
        machine = MACHINE.match(who) or MACHINE.match(words)
        number = int(machine[1]) if machine else 0
        is_client = who == "client" or words.startswith("client")
        lanes = [("●" if is_client else " ") if number or is_client or not words else "·", *self._living()]
        lanes[0] = "c" if is_client else lanes[0]
        if number:
            lanes[number] = self._mark(number, who or words, words)
        return " ".join(lanes)

    def _living(self) -> list[str]:
        return [self.alive.get(number, " ") for number in range(1, self.machines + 1)]

    def _mark(self, number: int, who: str, words: str) -> str:
        mark = next((mark for end, mark in MARKS if words.endswith(end)), "s" if who.startswith("s") else "●")
        if who.startswith("n"):
            self.alive[number] = {"✗": " ", "‖": "‖", "○": "│"}.get(mark, self.alive.get(number, "│"))
        return mark


def timeline(lines: Iterable[tuple[float, str, str | Commit]]) -> str:
    """Return a history, line by line."""
    lines = list(lines)
    numbers = [int(found[1]) for _, _, what in lines if isinstance(what, str) and (found := MACHINE.match(what))]
    telling = Telling(max(numbers, default=1))
    head = f"{'seconds':>10}  · {' '.join(str(n)[-1] for n in range(1, telling.machines + 1))}"
    return "\n".join([head, *(line for one in lines for line in telling.line(*one))])


# ---- commits


def shown(what: Any, answer: Any) -> str:
    """Return a commit as one readable line."""
    if isinstance(answer, Share):  # its sets are in another order under another hash seed
        stopping = f", stopping {sorted(answer.stopping)}" if answer.stopping else ""
        return f"owns {sorted(answer.owned)} of {len(answer.alive)} alive{stopping}"
    if not isinstance(what, Batch):
        return f"{what or ''} {answer if answer is not None else ''}".strip()
    side = f"tick {answer.fence.tick}" if what.fence is not None else "outside"
    side += " ahead" if what.at is not None else ""
    side += " REPEATED" if answer.repeated else ""
    events = ", ".join(described(body) for body in what.events) or "(empty)"
    due = f" due {what.due:%M:%S.%f}"[:-3] if what.due else ""
    offers = f" offers {sorted(offer.op for offer in what.offers)}" if what.offers else ""
    return f"{what.run_id[-6:]} {side} known {what.known} → {answer.first_seq}: {events}{due}{offers}"


SHOWN = ("name", "attempt", "dispatch", "token", "delivery", "owner", "lost", "delay_s", "code", "reason", "drains")


def described(body: Any) -> str:
    """Return an event as a few words."""
    details = [body.op] if body.op else []
    details += [f"{name}={str(value)[:10]}" for name in SHOWN if (value := getattr(body, name, None))]
    return f"{body.__struct_config__.tag}({' '.join(details)})"
