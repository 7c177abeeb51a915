"""Proves from outside that every order went right: exits 0 if so, 1 with what went wrong if not.

Knows the orders file, what the client says about runs and dead letters (JSON on stdin), and the provider's ledger.
It uses nothing of `app.py`: what is a good order is decided here a second time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import urllib.request
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

HERE: Final = Path(__file__).parent
CURRENCIES: Final = frozenset({"EUR", "USD", "GBP", "CHF", "SEK", "JPY", "KWD"})
SHOWN_MAX: Final = 20

Verdict = Literal["good", "declined", "rejected", "invalid", "garbage", "conflict", "repeat", "empty"]
MEANING: Final[dict[Verdict, str]] = {
    "good": "completed: charged, shipped and notified once",
    "declined": "run failed, never charged",
    "rejected": "run failed with its reason, never charged",
    "invalid": "dead letter with its reason, or refused",
    "garbage": "dead letter with its reason, or refused",
    "conflict": "refused: the id is taken by another order",
    "repeat": "the same run as the first time",
    "empty": "passed over",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the orders file, and what ought to become of it."""

    number: int
    text: str
    verdict: Verdict
    value: Any = None

    @property
    def id(self) -> str:
        """The order's id, or nothing."""
        found = self.value.get("id") if isinstance(self.value, dict) else None
        return found if isinstance(found, str) else ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence about what went wrong."""

    kind: Literal["lost", "twice", "stray", "wrong"]
    line: int
    text: str


# What ought to happen


def parse(text: str | bytes, constant: Any = str) -> Any:
    """Read JSON with exact numbers."""
    return json.loads(text, parse_float=Decimal, parse_constant=constant)


def not_json(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which are Python's idea of JSON."""
    raise ValueError(constant)


def classify(data: bytes) -> list[Line]:
    """Return every line with its verdict. Lines end at a line feed and nowhere else."""
    lines: list[Line] = []
    taken: dict[str, Any] = {}
    for place, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        line = Line(place, raw.decode("utf-8", "replace").strip(" \r"), *_judged(raw))
        if line.verdict in ("good", "declined", "rejected"):
            first = taken.get(line.id)
            if first is not None:
                line = replace(line, verdict="repeat" if first == line.value else "conflict")
            taken.setdefault(line.id, line.value)
        lines.append(line)
    return lines


def _judged(raw: bytes) -> tuple[Verdict, Any]:
    if not raw.strip():
        return "empty", None
    try:
        value = parse(raw.decode("utf-8"), not_json)
    except ValueError:
        return "garbage", None
    if not isinstance(value, dict):
        return "garbage", value
    return _verdict(value), value


def _verdict(order: dict[str, Any]) -> Verdict:
    lines = order.get("lines")
    if not (_has_texts(order) and isinstance(lines, list) and all(map(_is_line, lines))):
        return "invalid"
    total = number(order.get("total"))
    if total is None or order["currency"] not in CURRENCIES or not _is_instant(order.get("placed_at")):
        return "invalid"
    amounts = [(number(line["quantity"]), number(line["unit_price"])) for line in lines]
    if not lines or any((count or 0) < 1 for count, _ in amounts):
        return "rejected"
    if sum((count or 0) * (price or 0) for count, price in amounts) != total:
        return "rejected"
    return "declined" if order["card"].startswith("tok_declined_") else "good"


def _has_texts(order: dict[str, Any]) -> bool:
    texts = [order.get(name) for name in ("id", "customer", "email", "card", "currency")] + [order.get("note", "")]
    return order.get("id") != "" and all(isinstance(text, str) and _is_unicode(text) for text in texts)


def _is_unicode(text: str) -> bool:
    return re.search("[\ud800-\udfff]", text) is None


def _is_line(line: Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("sku"), str):
        return False
    count, price = number(line.get("quantity")), number(line.get("unit_price"))
    return count is not None and price is not None and count == count.to_integral_value()


def number(value: Any) -> Decimal | None:
    """Return the number that a JSON number or text stands for, if it is one."""
    try:
        found = Decimal(value) if isinstance(value, int | str | Decimal) else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


def _is_instant(value: Any) -> bool:
    try:
        return bool(datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC))
    except (ValueError, TypeError):
        return False


# What did happen


@dataclass(slots=True)
class Facts:
    """What the client, the dead letters and the ledger say."""

    runs: dict[str, dict[str, Any]]
    dead: list[tuple[Any, str, str]]
    """Value (or None), text and reason of each dead letter."""
    refused: dict[int, str]
    fed: int
    repeated: int
    ledger: dict[str, dict[str, list[dict[str, Any]]]]
    """Entries by kind and order."""
    problems: list[Problem] = field(default_factory=list)

    def note(self, kind: Literal["lost", "twice", "stray", "wrong"], line: int, text: str) -> None:
        """Remember what went wrong."""
        self.problems.append(Problem(kind, line, text))

    def reason(self, line: Line) -> str:
        """Return why a line was not taken, or nothing if nobody said so."""
        letters = (why for value, text, why in self.dead if _is_same(line, value, text))
        return self.refused.get(line.number, "") or next(letters, "")


def facts_of(said: dict[str, Any], ledger: dict[str, list[dict[str, Any]]]) -> Facts:
    """Arrange what was said so that it can be asked by order."""
    by_order: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for kind, entries in ledger.items():
        by_order[kind] = defaultdict(list)
        for entry in entries:
            by_order[kind][entry["order"]].append(entry)
    return Facts(
        runs={run["id"]: run for run in said["runs"]},
        dead=[_letter(letter) for letter in said["dead"]],
        refused={refusal["line"]: str(refusal["reason"]) for refusal in said["refused"]},
        fed=said["fed"],
        repeated=said["repeated"],
        ledger=by_order,
    )


def _letter(letter: dict[str, Any]) -> tuple[Any, str, str]:
    body, why = letter["body"], str(letter.get("reason") or letter.get("code") or "")
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    try:
        value = parse(text)
    except ValueError:
        return None, text.strip(), why
    inner = value["input"] if isinstance(value, dict) and "input" in value else value
    return inner, inner.strip() if isinstance(inner, str) else text.strip(), why


def _is_same(line: Line, value: Any, text: str) -> bool:
    if _readable(line.text) == _readable(text):
        return True
    mine = line.value if line.value is not None else _loose(line.text)
    return mine is not None and mine == value


def _loose(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


def _readable(text: str) -> str:
    return re.sub("[\ud800-\udfff\ufffd]+", "?", text)


# Whether both agree


def prove(lines: list[Line], facts: Facts) -> None:
    """Note every line, run and ledger entry that is not as it ought to be."""
    for line in lines:
        match line.verdict:
            case "good":
                _check_good(line, facts)
            case "declined" | "rejected":
                _check_failed(line, facts)
            case "invalid" | "garbage" | "conflict":
                _check_refused(line, facts)
            case "repeat" | "empty":
                pass
    good = {line.id for line in lines if line.verdict == "good"}
    _check_strays(good, {line.id for line in lines}, facts)
    repeats = sum(line.verdict == "repeat" for line in lines)
    if facts.repeated < repeats:
        facts.note("wrong", 0, f"{repeats} lines repeat an order, {facts.repeated} were recognised")


def _check_good(line: Line, facts: Facts) -> None:
    run = facts.runs.get(line.id)
    if run is None:
        facts.note("lost", line.number, f"good order {line.id}: {facts.reason(line) or 'no run, and no word of it'}")
    elif run["status"] != "completed":
        facts.note("wrong", line.number, f"good order {line.id}: run is {run['status']} {run['error'] or ''}")
    for kind, entries in facts.ledger.items():
        found = entries.get(line.id, [])
        if len(found) > 1:
            facts.note("twice", line.number, f"order {line.id}: {len(found)} {kind} under {_keys(found)}")
        elif not found:
            facts.note("lost", line.number, f"good order {line.id}: none of the {kind}")
    for entry in facts.ledger["charges"].get(line.id, []):
        if (number(entry["amount"]), entry["currency"]) != (number(line.value["total"]), line.value["currency"]):
            asked, total = (
                f"{entry['amount']} {entry['currency']}",
                f"{line.value['total']} {line.value['currency']}",
            )
            facts.note("wrong", line.number, f"order {line.id}: charged {asked} instead of {total}")


def _keys(entries: list[dict[str, Any]]) -> str:
    return ", ".join(str(entry["key"]) for entry in entries)


def _check_failed(line: Line, facts: Facts) -> None:
    run = facts.runs.get(line.id)
    if run is None:
        facts.note("lost", line.number, f"{line.verdict} order {line.id}: no run says why")
    elif run["status"] != "failed" or not run["error"]:
        facts.note("wrong", line.number, f"{line.verdict} order {line.id}: run is {run['status']}, {run['error']}")
    elif line.verdict == "declined" and "declined" not in str(run["error"]):
        facts.note("wrong", line.number, f"declined order {line.id} failed for another reason: {run['error']}")


def _check_refused(line: Line, facts: Facts) -> None:
    run = facts.runs.get(line.id) if line.verdict == "invalid" and line.id else None
    failed = run is not None and run["status"] == "failed" and bool(run["error"])
    if run is not None and not failed:
        facts.note("wrong", line.number, f"{line.verdict} line {line.number}: became a run, {run['status']}")
    elif not failed and not facts.reason(line):
        facts.note("lost", line.number, f"{line.verdict} line {line.number}: no dead letter, no word of it")


def _check_strays(good: set[str], in_file: set[str], facts: Facts) -> None:
    """Nothing may be done for what is no good order. What a run did for one not in the file was started by hand."""
    for kind, entries in facts.ledger.items():
        for order in entries.keys() - good:
            by_hand = order not in in_file and all(str(entry["key"]).startswith("run_") for entry in entries[order])
            if not by_hand:
                facts.note("stray", 0, f"{kind} of {order!r}, which is no good order")


# What people and programs read


def report(lines: list[Line], facts: Facts) -> dict[str, Any]:
    """Return the outcome as plain data."""
    kinds = Counter(problem.kind for problem in facts.problems)
    bad = {problem.line for problem in facts.problems}
    charges = [entry for entries in facts.ledger["charges"].values() for entry in entries]
    return {
        "ok": not facts.problems,
        "lines": len(lines),
        "fed": facts.fed,
        "repeated": facts.repeated,
        "outcomes": {
            verdict: {
                "expected": sum(line.verdict == verdict for line in lines),
                "as_expected": sum(line.verdict == verdict and line.number not in bad for line in lines),
                "example": _example(verdict, lines, facts),
            }
            for verdict in MEANING
        },
        "charged": len(charges),
        "charged_again_and_recognised": sum(entry["repeated"] for entry in charges),
        "charged_twice": sum(len(entries) > 1 for entries in facts.ledger["charges"].values()),
        "lost": kinds["lost"],
        "charged_without_order": sum(problem.text.startswith("charges of") for problem in facts.problems),
        "problems": [problem.text for problem in facts.problems],
    }


def _example(verdict: Verdict, lines: list[Line], facts: Facts) -> str:
    for line in lines:
        if line.verdict == verdict and verdict not in ("good", "repeat", "empty"):
            run = facts.runs.get(line.id) if verdict != "conflict" else None
            return str(run["error"]) if run and run["error"] else facts.reason(line)
    return ""


def show(found: dict[str, Any]) -> None:
    """Print the outcome for people."""
    print(f"{found['lines']} lines, {found['fed']} fed, {found['repeated']} of them known already\n")
    print(f"{'order is':<10}{'lines':>6}{'as due':>8}   what became of it")
    for verdict, meaning in MEANING.items():
        row = found["outcomes"][verdict]
        print(f"{verdict:<10}{row['expected']:>6}{row['as_expected']:>8}   {meaning}")
        if row["example"]:
            print(f"{'':<27}e.g. {_short(row['example'])}")
    again, stray = found["charged_again_and_recognised"], found["charged_without_order"]
    print(f"\n{found['charged']} charges, {again} asked again with the same key and recognised")
    print(f"charged twice: {found['charged_twice']}   lost: {found['lost']}   charged without an order: {stray}")
    for text in found["problems"][:SHOWN_MAX]:
        print(f"  ✗ {_short(text)}")
    if len(found["problems"]) > SHOWN_MAX:
        print(f"  … and {len(found['problems']) - SHOWN_MAX} more")
    print("every order exactly once ✓" if found["ok"] else "NOT every order went right")


def _short(text: str, length_max: int = 110) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain if len(plain) <= length_max else plain[: length_max - 1] + "…"


def fetched_ledger() -> dict[str, list[dict[str, Any]]]:
    """Return what the provider remembers."""
    port = HERE / ".fencepost" / "provider.port"
    base = os.environ.get("PROVIDER_URL", f"http://127.0.0.1:{port.read_text() if port.exists() else '8787'}")
    with urllib.request.urlopen(f"{base}/ledger", timeout=30) as answer:  # noqa: S310  our own address
        ledger: dict[str, list[dict[str, Any]]] = json.load(answer)
        return ledger


def main() -> int:
    """Read, prove, show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--orders", type=Path, default=HERE / "orders.jsonl")
    args = parser.parse_args()
    try:
        said, ledger, lines = json.load(sys.stdin.buffer), fetched_ledger(), classify(args.orders.read_bytes())
        facts = facts_of(said, ledger)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"summary: facts, orders or ledger cannot be read: {error!r}", file=sys.stderr)
        return 1
    prove(lines, facts)
    found = report(lines, facts)
    print(json.dumps(found, indent=2)) if args.json else show(found)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
